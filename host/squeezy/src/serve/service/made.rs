//! What actions are made from: images that have been built here, and code that such an image runs.

use super::*;
use crate::serve::{
    blobs::Spool,
    images::PinError,
    registry::{Pulled, Reference},
    state::StoredCode,
};
use squeezy_openwhisk::{
    Digest,
    action::Exec,
    kind::{self, KINDS, Kind},
};

/// What an action is made from.
pub(super) struct Made {
    pub(super) pinned: Pinned,
    pub(super) image: FunctionImage,
    pub(super) origin: Option<Origin>,
    pub(super) code: Option<ActionCode>,
}

impl Service {
    /// Pins the image that a client names, or keeps the code that it gives and pins the image that runs it.
    pub(super) async fn exec(
        &self,
        asker: &Tenancy,
        name: &QualifiedName,
        exec: Exec,
        code: Option<GivenCode>,
    ) -> Result<Made, ServiceError> {
        let Some(code) = code else { return self.exec_image(asker, exec).await };
        let Some(kind) = Kind::find_for(&exec.kind, exec.image.as_deref()) else {
            return Err(ServiceError::Invalid(match (&*exec.kind, exec.image) {
                (kind::IMAGE, Some(_)) => {
                    "an image contains its code: exec must name an image or have code, not both"
                        .to_owned()
                }
                (kind::IMAGE, None) => {
                    "exec has code of the kind \"blackbox\", which is an image: say what runs the code, native:1 for a program or a script"
                        .to_owned()
                }
                (kind, _) => self.no_kind(kind),
            }));
        };
        if !self.has_runtime(kind) {
            return Err(ServiceError::Invalid(self.no_kind(kind.name)));
        }
        let main = exec.main.filter(|main| !main.is_empty());
        if kind.requires_main && main.is_none() {
            let problem = format!("exec.main is missing: {} has to know the class", kind.name);
            return Err(ServiceError::Invalid(problem));
        }
        self.may_have_code(name, code.least_bytes())?;
        let code = self.codes.keep(kind, main, exec.binary, code).await?;
        self.may_have_code(name, code.bytes()?)?;
        let code = self.codes.with_drive(&asker.namespace, code).await?;
        let (pinned, image) = self.images.pin(&self.files, kind.image, None).await?;
        Ok(Made { pinned, image, origin: None, code: Some(code) })
    }

    async fn exec_image(&self, asker: &Tenancy, exec: Exec) -> Result<Made, ServiceError> {
        let invalid = |problem: &str| Err(ServiceError::Invalid(problem.to_owned()));
        if exec.kind != kind::IMAGE {
            return match Kind::find(&exec.kind) {
                Some(kind) => invalid(&format!("exec.code is missing: {} runs code", kind.name)),
                None => invalid(&self.no_kind(&exec.kind)),
            };
        }
        let Some(image) = exec.image else {
            return invalid(
                "exec of the kind \"blackbox\" has to name an image: one in a registry, or one that has been built here",
            );
        };
        if Reference::is_one(&image) {
            return self.exec_pulled(asker, image, exec.digest).await;
        }
        // It becomes a file name.
        if squeezy_node::function::check_name(&image).is_err() {
            return Err(PinError::Missing(image).into());
        }
        let (pinned, image) = self.images.pin(&self.files, &image, exec.digest.as_ref()).await?;
        Ok(Made { pinned, image, origin: None, code: None })
    }

    async fn exec_pulled(
        &self,
        asker: &Tenancy,
        image: String,
        digest: Option<Digest>,
    ) -> Result<Made, ServiceError> {
        let mut reference = Reference::parse(&image).map_err(ServiceError::Invalid)?;
        if digest.is_some() && reference.digest.is_some() && digest != reference.digest {
            let problem = "exec.image and exec.digest name two different digests";
            return Err(ServiceError::Invalid(problem.to_owned()));
        }
        reference.digest = reference.digest.or(digest);
        let Pulled { digest, pinned, image: made } =
            self.registry.pull(&self.config(), asker, &reference).await?;
        let origin = Some(Origin { reference: image, digest });
        Ok(Made { pinned, image: made, origin, code: None })
    }

    /// What a stored action is made from.
    pub(super) async fn kept_made(
        &self,
        namespace: &Namespace,
        stored: &StoredAction,
    ) -> Result<Made, ServiceError> {
        let code = match &stored.code {
            Some(code) => Some(self.kept_code(namespace, code).await?),
            None => None,
        };
        let image = &stored.image;
        let (pinned, image) = match image.to_str().filter(|_| !image.is_absolute()) {
            Some(name) => self.images.pin(&self.files, name, stored.digest.as_ref()).await?,
            None => self.images.take_in(image.clone(), None).await?,
        };
        Ok(Made { pinned, image, origin: stored.origin.clone(), code })
    }

    async fn kept_code(
        &self,
        namespace: &Namespace,
        stored: &StoredCode,
    ) -> Result<ActionCode, ServiceError> {
        let Some(kind) = Kind::find(&stored.kind) else {
            return Err(ServiceError::Invalid(self.no_kind(&stored.kind)));
        };
        Ok(self.codes.find(namespace, kind, stored).await?)
    }

    /// A place for code that is on its way.
    pub async fn spool(&self) -> Result<Spool, ServiceError> {
        Ok(self.codes.spool().await?)
    }

    /// Whether the image that runs code of this kind has been built.
    pub fn has_runtime(&self, kind: &Kind) -> bool {
        self.files.image(kind.image).is_file()
    }

    /// Why there is no code of this kind, and which kinds there are.
    fn no_kind(&self, name: &str) -> String {
        let (built, others): (Vec<_>, Vec<_>) =
            KINDS.iter().partition(|kind| self.has_runtime(kind));
        let names = |kinds: Vec<&Kind>| kinds.iter().map(|kind| kind.name).collect::<Vec<_>>();
        let built = [vec![kind::IMAGE], names(built)].concat().join(", ");
        if let Some(kind) = Kind::find(name) {
            let Kind { name, .. } = kind;
            let command = kind.build();
            return format!(
                "the runtime of the kind {name} is not here: install its package, or build it with `{command}`; the kinds here are {built}"
            );
        }
        let name: String = name.chars().take(50).collect();
        let others = match &*names(others).join(", ") {
            "" => String::new(),
            others => format!(
                ", and the packages squeezy-runtime-NAME or `make runtimes` would add {others}"
            ),
        };
        format!("there is no kind {name:?}: the kinds here are {built}{others}")
    }
}
