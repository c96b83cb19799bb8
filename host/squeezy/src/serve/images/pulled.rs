//! Images that have been pulled from registries: they are kept until the space is needed, the least recently used one
//! first, and as long as an action has them.

use super::*;
use crate::{
    mutex::lock,
    serve::{
        registry::{PulledImage, Reference},
        tenants::Tenancy,
    },
};
use squeezy_openwhisk::{Namespace, now_ms};
use std::{collections::BTreeSet, fs, sync::MutexGuard};

/// Name of the list of them in the state directory.
pub const FILE: &str = "pulled.json";

/// What an OCI image can say of a function; guest/image/oci/definition.py writes these.
const KEYS: [&str; 12] = [
    "name",
    "description",
    "memory_limit",
    "vcpus",
    "concurrency",
    "keep_alive_seconds",
    "init_timeout_seconds",
    "run_timeout_seconds",
    "working_directory",
    "command",
    "port",
    "environment",
];

/// What is said of removing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It has been removed.
    Yes,
    /// An action or an instance has it.
    InUse,
    /// There is none.
    Missing,
}

impl Images {
    /// Takes in the image and the definition in a directory, moving them. They have been made of an image that nobody
    /// vouches for.
    pub async fn take_in_made(&self, made: &Path) -> Result<(Pinned, FunctionImage), PinError> {
        let (blobs, made) = (self.blobs.clone(), made.to_owned());
        blocking(move || {
            with_definition(blobs.add(|unfinished| {
                let place = unfinished.path().to_owned();
                DirBuilder::new().mode(0o700).create(&place).map_err(failed(&place))?;
                let mut take_in = |name| unfinished.take_in(&made.join(name), &place.join(name));
                let definition = take_in(DEFINITION)?;
                check(&place.join(DEFINITION))?;
                let digest = digest_of(&take_in(IMAGE)?, &definition);
                sync(&place)?;
                Ok::<_, PinError>(digest)
            })?)
        })
        .await
    }

    /// Notes that an image is that of a reference, unless who asked for it is gone: it removes what is noted for it
    /// after it has begun to go.
    pub async fn was_pulled(
        self: &Arc<Self>,
        asker: &Tenancy,
        reference: &Reference,
        digest: &Digest,
        pinned: &Pinned,
    ) -> Result<(), BlobError> {
        let now = now_ms();
        let mut image = PulledImage {
            namespace: asker.namespace.clone(),
            repository: reference.repository(),
            tag: reference.tag.clone(),
            digest: digest.clone(),
            blob: pinned.digest.clone(),
            bytes: 0,
            pulled_ms: now,
            used_ms: now,
        };
        let (images, path, asker) = (self.clone(), pinned.path.clone(), asker.clone());
        blocking(move || {
            for name in [IMAGE, DEFINITION] {
                image.bytes += fs::metadata(path.join(name)).map_err(failed(&path))?.len();
            }
            let inserted = images.index().insert_for(&asker, image);
            images.keep_pulled();
            images.keep_to_quota(&asker);
            inserted.map_err(failed(Path::new(FILE)))
        })
        .await
    }

    /// The image that has been made of the one with this digest in a repository, if it has been pulled.
    pub fn pulled(&self, repository: &str, digest: &Digest) -> Option<Digest> {
        self.index().find(repository, digest).map(|image| image.blob.clone())
    }

    /// Whether a namespace has pulled the image with this digest in a repository.
    pub fn has_pulled(&self, namespace: &Namespace, repository: &str, digest: &Digest) -> bool {
        self.index().images().iter().any(|image| image.is_for(namespace, repository, digest))
    }

    /// Notes that a namespace has asked for one that has been pulled, which somebody holds meanwhile.
    pub async fn asked_for(
        self: &Arc<Self>,
        asker: &Tenancy,
        reference: &Reference,
        digest: &Digest,
    ) {
        let (images, asker, digest) = (self.clone(), asker.clone(), digest.clone());
        let (repository, tag) = (reference.repository(), reference.tag.clone());
        let noted = tokio::task::spawn_blocking(move || {
            let mut index = images.index();
            let is_own = |image: &PulledImage| image.is_for(&asker.namespace, &repository, &digest);
            let is_new = !index.images().iter().any(is_own);
            if is_new && let Some(image) = index.find(&repository, &digest).cloned() {
                let (namespace, tag) = (asker.namespace.clone(), tag.clone());
                // Should the disk be full, it only is not listed.
                let _ = index.insert_for(&asker, PulledImage { namespace, tag, ..image });
            }
            index.touch(tag.as_deref(), is_own);
            drop(index);
            if is_new {
                images.keep_to_quota(&asker);
            }
        });
        // It does not panic.
        let _ = noted.await;
    }

    fn keep_to_quota(&self, asker: &Tenancy) {
        if let Some(most_bytes) = asker.quotas().image_bytes() {
            self.keep_to(&asker.namespace, most_bytes);
        }
    }

    /// Removes what has been pulled for a namespace beyond so many bytes, unless somebody uses it: what has not been used
    /// for longest goes first, so that it does not drive out others' images.
    pub(super) fn keep_to(&self, namespace: &Namespace, most_bytes: u64) {
        let (all, mut seen, mut bytes) = (self.all_pulled(), BTreeSet::new(), 0);
        for image in all.iter().filter(|image| image.namespace == *namespace) {
            if seen.insert(&image.blob) {
                bytes += image.bytes;
            }
            if bytes > most_bytes && !self.blobs.is_used(&image.blob) {
                // What cannot be removed now goes when the space is needed.
                let _ = self.remove_pulled(image);
            }
        }
    }

    /// All that have been pulled, the one that was used last first.
    pub fn all_pulled(&self) -> Vec<PulledImage> {
        self.touch_used();
        let mut all = self.index().images().to_vec();
        all.sort_by_key(|image| std::cmp::Reverse(image.used_ms));
        all
    }

    /// Removes one that nobody uses. It stays for other namespaces that have asked for it.
    pub fn remove_pulled(&self, image: &PulledImage) -> Result<Removed, BlobError> {
        let PulledImage { namespace, repository, digest, blob, .. } = image;
        let is_own = |image: &PulledImage| image.is_for(namespace, repository, digest);
        let mut index = self.index();
        if !index.images().iter().any(is_own) {
            return Ok(Removed::Missing);
        }
        if index.images().iter().any(|other| other.blob == *blob && !is_own(other)) {
            index.remove(is_own).map_err(failed(Path::new(FILE)))?;
            return Ok(Removed::Yes);
        }
        drop(index);
        if self.blobs.is_used(&image.blob) {
            return Ok(Removed::InUse);
        }
        self.forget(&image.blob).map(|_| Removed::Yes)
    }

    /// Removes the one that has not been used for longest; whether there was one that nobody uses.
    pub(super) fn remove_least_used(&self) -> bool {
        let all = self.all_pulled();
        // The latest use by anybody counts.
        let mut seen = BTreeSet::new();
        let mut unused: Vec<_> = all.iter().filter(|image| seen.insert(&image.blob)).collect();
        unused.retain(|image| !self.blobs.is_used(&image.blob));
        // Should one not go, the next may.
        unused.iter().rev().any(|image| self.forget(&image.blob).unwrap_or(false))
    }

    /// Whether the space of one is free, after its removal from the list.
    fn forget(&self, blob: &Digest) -> Result<bool, BlobError> {
        self.index().remove(|image| image.blob == *blob).map_err(failed(Path::new(FILE)))?;
        Ok(self.blobs.remove_spare(blob))
    }

    /// Notes that those that are used now are.
    pub(super) fn touch_used(&self) {
        self.index().touch(None, |image| self.blobs.is_used(&image.blob));
    }

    /// Has what the list names kept.
    pub(super) fn keep_pulled(&self) {
        let index = self.index();
        let there = index.images().iter().map(|image| &image.blob);
        let spare: BTreeSet<_> = there.filter(|blob| self.blobs.has(blob)).cloned().collect();
        self.blobs.set_spare(spare);
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.pulled)
    }
}

/// Fails if a definition is none, or says what only somebody who is trusted may say, such as a network.
fn check(definition: &Path) -> Result<(), PinError> {
    squeezy_node::read_function(definition)?;
    let text = fs::read_to_string(definition).map_err(failed(definition))?;
    let table: toml::Table = text.parse().unwrap_or_default();
    match table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        Some(key) => Err(PinError::Says(key.clone())),
        None => Ok(()),
    }
}
