//! Images that have been pulled from registries.

use super::*;
use crate::serve::{
    blobs::blocking,
    images::Removed,
    registry::{PulledImage, Reference},
};
use serde_json::json;
use squeezy_openwhisk::Digest;
use std::path::Path;

/// The directory of the program that makes an image of what has been pulled, beside the build directory.
const SCRIPTS: &str = "guest/image/oci";

/// Where packages install it.
const INSTALLED: &str = "/usr/lib/squeezy";

pub(super) fn scripts(files: &Artifacts) -> Option<PathBuf> {
    let places = files.path().parent().into_iter().chain([Path::new(INSTALLED)]);
    places.map(|place| place.join(SCRIPTS)).find(|scripts| scripts.join("convert.py").is_file())
}

impl Service {
    /// Pulls an image for a namespace, or finds that it has been pulled. It is described as it is afterwards.
    pub async fn pull_image(
        self: &Arc<Self>,
        namespace: Namespace,
        image: &str,
    ) -> Result<Value, ServiceError> {
        let reference = Reference::parse(image).map_err(ServiceError::Invalid)?;
        let asker = self.tenancy(&namespace)?;
        let service = self.clone();
        to_the_end(async move {
            let config = service.config();
            let pulled = service.registry.pull(&config, &asker, &reference).await?;
            let repository = reference.repository();
            let is_it = |image: &PulledImage| image.is_for(&namespace, &repository, &pulled.digest);
            let all = service.images.all_pulled();
            let found = all.iter().find(|image| is_it(image)).ok_or(ServiceError::NotFound)?;
            Ok(service.describe_pulled(found))
        })
        .await
    }

    /// All images of a namespace that have been pulled, and those that are being pulled.
    pub fn describe_images(&self, namespace: &Namespace) -> Vec<Value> {
        let under_way = self.registry.under_way(namespace).into_iter();
        let under_way = under_way.map(|(repository, digest, progress)| {
            json!({ "image": repository, "digest": digest, "pulling": progress })
        });
        let all = self.images.all_pulled();
        let own = all.iter().filter(|image| image.namespace == *namespace);
        under_way.chain(own.map(|image| self.describe_pulled(image))).collect()
    }

    /// The image of a namespace that a reference names, or a digest.
    pub fn describe_image(
        &self,
        namespace: &Namespace,
        image: &str,
    ) -> Result<Value, ServiceError> {
        Ok(self.describe_pulled(&self.named(namespace, image)?))
    }

    /// Removes an image that no action uses; returns it as it was.
    pub async fn remove_image(
        &self,
        namespace: &Namespace,
        image: &str,
    ) -> Result<Value, ServiceError> {
        let found = self.named(namespace, image)?;
        let described = self.describe_pulled(&found);
        let names = described["actions"].as_array().into_iter().flatten();
        let names: Vec<_> = names.filter_map(Value::as_str).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            let problem = format!("the image is used by {names}: delete or change that first");
            return Err(ServiceError::InUse(problem));
        }
        let images = self.images.clone();
        match blocking(move || images.remove_pulled(&found)).await? {
            Removed::Yes => Ok(described),
            Removed::Missing => Err(ServiceError::NotFound),
            Removed::InUse => Err(ServiceError::InUse(
                "calls of an earlier action still use the image: try again when they have ended"
                    .to_owned(),
            )),
        }
    }

    /// The one image that a reference or a digest names.
    fn named(&self, namespace: &Namespace, image: &str) -> Result<PulledImage, ServiceError> {
        let all = self.images.all_pulled().into_iter();
        let mut all = all.filter(|one| one.namespace == *namespace);
        if let Ok(digest) = image.parse::<Digest>() {
            return all.find(|one| one.digest == digest).ok_or(ServiceError::NotFound);
        }
        let reference = Reference::parse(image).map_err(ServiceError::Invalid)?;
        let repository = reference.repository();
        let mut all = all.filter(|one| one.repository == repository);
        let found = match &reference.digest {
            Some(digest) => all.find(|one| one.digest == *digest),
            None => all.find(|one| one.tag == reference.tag),
        };
        found.ok_or(ServiceError::NotFound)
    }

    fn describe_pulled(&self, pulled: &PulledImage) -> Value {
        let PulledImage { namespace, repository, tag, digest, blob, bytes, pulled_ms, used_ms } =
            pulled;
        let uses = |action: &&Arc<Action>| {
            let has = || action.pinned.as_ref().is_some_and(|pinned| pinned.digest == *blob);
            action.name.namespace == *namespace && has()
        };
        let actions = self.actions();
        let actions: Vec<_> =
            actions.iter().filter(uses).map(|action| &*action.name.name).collect();
        json!({
            "image": repository,
            "tag": tag,
            "digest": digest,
            "bytes": bytes,
            "pulled": pulled_ms,
            "used": used_ms,
            "actions": actions,
        })
    }
}
