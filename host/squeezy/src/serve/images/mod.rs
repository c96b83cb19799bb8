//! Images of actions, under their digest: an action keeps running the image it was created with,
//! whatever is built later under that image's name.
//!
//! The blobs in `pinned/` of the state directory are directories with an image and its definition,
//! `image.erofs` and `image.toml`.

mod pulled;

pub use pulled::Removed;

use super::{
    blobs::{
        Blob, BlobError, Blobs, DiskSpace, Unfinished, blocking, failed, hash, read_parts, sync,
    },
    log::log_warning,
    registry::Index,
};
use sha2::{Digest as _, Sha256};
use squeezy_node::{FunctionImage, ImageError};
use squeezy_openwhisk::Digest;
use squeezy_vmm::Artifacts;
use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Name of their directory in the state directory.
pub const DIRECTORY: &str = "pinned";

/// Names of the two files, which are part of the digest.
const IMAGE: &str = "image.erofs";
const DEFINITION: &str = "image.toml";

/// The digest of an image and its definition with these sums: the output of `sha256sum image.erofs
/// image.toml | sha256sum`.
fn digest_of(image: &Digest, definition: &Digest) -> Digest {
    let (image, definition) = (image.digits(), definition.digits());
    let list = format!("{image}  {IMAGE}\n{definition}  {DEFINITION}\n");
    Digest::of_sum(Sha256::digest(list).into())
}

/// An image that is kept for as long as this lives.
pub type Pinned = Arc<Blob>;

/// Why an image cannot be kept or used, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// It cannot be written or read.
    #[error("{0}")]
    Blob(#[from] BlobError),
    /// Its definition is invalid.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// The image does not exist.
    #[error(
        "there is no image {0:?}: build it with `guest/image/build.sh`, or name one in a registry as REGISTRY/NAME:TAG"
    )]
    Missing(String),
    /// A stored image has disappeared.
    #[error("its image {0} is missing: rebuild it with `squeezy function create --overwrite`")]
    Gone(Digest),
    /// A definition that was made of an OCI image says what none can say.
    #[error("its definition has the key {0:?}, which no OCI image can set")]
    Says(String),
    /// The image's digest is not the expected one.
    #[error("{} is not {wanted}: rebuild the image", path.display())]
    Different {
        /// Its path.
        path: PathBuf,
        /// The expected digest.
        wanted: Digest,
    },
}

/// The images of a state directory's actions, and those that have been pulled.
#[derive(Debug)]
pub struct Images {
    blobs: Arc<Blobs>,
    pulled: Mutex<Index>,
}

impl Images {
    /// Opens the images of a state directory, which must not be in use by another process.
    pub fn open(state: &Path, space: Arc<DiskSpace>) -> Result<Arc<Self>, BlobError> {
        let blobs = Blobs::open(state.join(DIRECTORY), space.clone())?;
        let pulled = Index::open(state.join(pulled::FILE), log_warning);
        let images = Arc::new(Self { blobs, pulled: Mutex::new(pulled) });
        images.keep_pulled();
        let weak = Arc::downgrade(&images);
        space.on_shortage(move || weak.upgrade().is_some_and(|images| images.remove_least_used()));
        Ok(images)
    }

    /// Pins the image NAME.erofs with the NAME.toml next to it, or exactly the image with this name
    /// and digest, as built by `guest/image/build.sh --reference`.
    pub async fn pin(
        &self,
        files: &Artifacts,
        name: &str,
        digest: Option<&Digest>,
    ) -> Result<(Pinned, FunctionImage), PinError> {
        let Some(digest) = digest else { return self.take_in(files.image(name), None).await };
        match self.find(digest).await {
            Err(PinError::Gone(_)) => {
                let made = files.path().join("images/sha256").join(digest.digits()).join(IMAGE);
                match self.take_in(made, Some(digest.clone())).await {
                    Err(PinError::Missing(_)) => Err(PinError::Gone(digest.clone())),
                    taken => taken,
                }
            }
            found => found,
        }
    }

    /// Copies an image and the definition next to it.
    pub async fn take_in(
        &self,
        image: PathBuf,
        wanted: Option<Digest>,
    ) -> Result<(Pinned, FunctionImage), PinError> {
        let blobs = self.blobs.clone();
        blocking(move || copy(&blobs, &image, wanted.as_ref())).await
    }

    /// Returns a stored image after verifying its digest.
    pub async fn find(&self, digest: &Digest) -> Result<(Pinned, FunctionImage), PinError> {
        let (blobs, digest) = (self.blobs.clone(), digest.clone());
        blocking(move || {
            let found = blobs.find(&digest, |path| verify(path, &digest))?;
            with_definition(found.ok_or(PinError::Gone(digest))?)
        })
        .await
    }

    /// What the image with this digest and its definition take on the disk, in bytes; nothing if they are missing.
    pub fn bytes_of(&self, digest: &Digest) -> u64 {
        self.blobs.bytes_of(digest)
    }

    /// Says which images stored actions name from now on.
    pub fn keep_named(&self, named: impl Iterator<Item = Digest>) {
        let named = named.collect();
        self.touch_used();
        self.blobs.keep(named);
        self.touch_used();
    }
}

/// Copies an image and the definition beside it, unless somebody holds that image already.
fn copy(
    blobs: &Arc<Blobs>,
    image: &Path,
    wanted: Option<&Digest>,
) -> Result<(Pinned, FunctionImage), PinError> {
    if !image.is_file() {
        let name = image.file_stem().unwrap_or_default().to_string_lossy();
        return Err(PinError::Missing(name.into_owned()));
    }
    // An invalid definition is not copied.
    let definition = image.with_extension("toml");
    squeezy_node::read_function(&definition)?;
    // That saves the space. If nobody holds an image, it need not be hashed to know that.
    if blobs.is_any_held() {
        let digest = digest_of(&hash(image)?, &hash(&definition)?);
        if wanted.is_none_or(|wanted| *wanted == digest)
            && let Some(pinned) = blobs.held(&digest)
        {
            return with_definition(pinned);
        }
    }
    with_definition(blobs.add(|unfinished| {
        let place = unfinished.path().to_owned();
        DirBuilder::new().mode(0o700).create(&place).map_err(failed(&place))?;
        let definition = copy_file(&definition, place.join(DEFINITION), unfinished)?;
        let digest = digest_of(&copy_file(image, place.join(IMAGE), unfinished)?, &definition);
        sync(&place)?;
        match wanted.filter(|wanted| **wanted != digest) {
            Some(wanted) => {
                Err(PinError::Different { path: image.to_owned(), wanted: wanted.clone() })
            }
            None => Ok(digest),
        }
    })?)
}

/// Copies a file durably; returns its sum.
fn copy_file(from: &Path, to: PathBuf, unfinished: &mut Unfinished) -> Result<Digest, BlobError> {
    let mut copy = unfinished.file(to)?;
    read_parts(from, |part| copy.write(part))?;
    copy.finish()
}

/// Fails if the image in this directory does not have this digest. If a file is missing or was changed, it cannot
/// be run.
fn verify(place: &Path, digest: &Digest) -> Result<(), PinError> {
    let sum = |name| hash(&place.join(name));
    match (sum(IMAGE), sum(DEFINITION)) {
        (Ok(image), Ok(definition)) if digest_of(&image, &definition) == *digest => Ok(()),
        (Err(error), _) | (_, Err(error)) if !error.is_missing() => Err(error.into()),
        _ => Err(PinError::Different { path: place.to_owned(), wanted: digest.clone() }),
    }
}

fn with_definition(pinned: Pinned) -> Result<(Pinned, FunctionImage), PinError> {
    let image = FunctionImage::at(&pinned.path.join(IMAGE))?;
    Ok((pinned, image))
}

#[cfg(test)]
mod tests;
