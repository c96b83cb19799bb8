//! Content-addressed images of actions: an action keeps running the image it was created with,
//! whatever is built later under that image's name.
//!
//! `pinned/HEX/` in the state directory contains an image and its definition, `image.erofs` and
//! `image.toml`; HEX is their digest. They are copied under a temporary name and then renamed to
//! their digest as a whole. An action that names them is stored only after that, and they are
//! removed only once no stored action names them. So wherever the daemon is killed, every stored
//! action has its image, and images without an action are removed the next time the directory is
//! opened and swept.

use sha2::{Digest as _, Sha256};
use squeezy_node::{FunctionImage, ImageError};
use squeezy_openwhisk::Digest;
use squeezy_vmm::Artifacts;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Name of their directory in the state directory.
const DIRECTORY: &str = "pinned";

/// Names of the two files, which are part of the digest.
const IMAGE: &str = "image.erofs";
const DEFINITION: &str = "image.toml";

/// Suffix of the names of copies in progress and of directories being removed.
const UNFINISHED: &str = ".new";

/// Bytes that are copied and hashed at a time.
const PART: usize = 1 << 18;

/// The digest of an image and its definition with these sums: the output of `sha256sum image.erofs
/// image.toml | sha256sum`.
fn digest_of(image: &Digest, definition: &Digest) -> Digest {
    let (image, definition) = (image.digits(), definition.digits());
    let list = format!("{image}  {IMAGE}\n{definition}  {DEFINITION}\n");
    Digest::of_sum(Sha256::digest(list).into())
}

/// Keeps an image from being removed for as long as it lives.
#[derive(Debug)]
pub struct Pinned {
    /// The image's digest.
    pub digest: Digest,
}

/// Why an image cannot be kept or used, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// Its definition is invalid.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// The image does not exist.
    #[error("there is no image {0:?}")]
    Missing(String),
    /// A stored image has disappeared.
    #[error("its image {0} is missing: rebuild it with `squeezy function create --overwrite`")]
    Gone(Digest),
    /// The image's digest is not the expected one.
    #[error("{} is not {wanted}: rebuild the image", path.display())]
    Different {
        /// Its path.
        path: PathBuf,
        /// The expected digest.
        wanted: Digest,
    },
}

impl PinError {
    /// Whether the cause is a missing file.
    fn is_missing(&self) -> bool {
        matches!(self, Self::File { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The images of a state directory's actions.
#[derive(Debug)]
pub struct Images {
    directory: PathBuf,
    /// Images in use. Also held while a directory is renamed.
    used: Mutex<BTreeMap<Digest, Weak<Pinned>>>,
    /// Makes the names of copies in progress unique.
    copies: AtomicU64,
}

impl Images {
    /// Opens the images of a state directory, which must not be in use by another process.
    pub fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join(DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        // Left by a daemon that was killed.
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.as_os_str().as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(Self { directory, used: Mutex::default(), copies: AtomicU64::new(0) })
    }

    /// Pins the image NAME.erofs with the NAME.toml next to it, or exactly the image with this name
    /// and digest, as built by `guest/image/build.sh --reference`.
    pub async fn pin(
        self: &Arc<Self>,
        files: &Artifacts,
        name: &str,
        digest: Option<&Digest>,
    ) -> Result<(Arc<Pinned>, FunctionImage), PinError> {
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
        self: &Arc<Self>,
        image: PathBuf,
        wanted: Option<Digest>,
    ) -> Result<(Arc<Pinned>, FunctionImage), PinError> {
        let images = self.clone();
        blocking(move || images.copy(&image, wanted.as_ref())).await
    }

    /// Returns a stored image after verifying its digest.
    pub async fn find(
        self: &Arc<Self>,
        digest: &Digest,
    ) -> Result<(Arc<Pinned>, FunctionImage), PinError> {
        let (images, digest) = (self.clone(), digest.clone());
        blocking(move || images.check(&digest)).await
    }

    /// Removes images that are neither stored nor in use, and unfinished copies.
    pub async fn sweep(self: &Arc<Self>, kept: BTreeSet<Digest>) {
        let images = self.clone();
        // What cannot be removed now will be removed the next time.
        let _ = blocking(move || images.remove_all_but(&kept)).await;
    }

    fn copy(
        self: &Arc<Self>,
        image: &Path,
        wanted: Option<&Digest>,
    ) -> Result<(Arc<Pinned>, FunctionImage), PinError> {
        if !image.is_file() {
            let name = image.file_stem().unwrap_or_default().to_string_lossy();
            return Err(PinError::Missing(name.into_owned()));
        }
        // An invalid definition is not copied.
        let definition = image.with_extension("toml");
        squeezy_node::read_function(&definition)?;
        // An image already in use is not copied again, which saves the space. If no image is in
        // use, it need not be hashed to know that.
        let in_use = self.used().values().any(|pinned| pinned.strong_count() > 0);
        if in_use {
            let digest = digest_of(&hash(image)?, &hash(&definition)?);
            if wanted.is_none_or(|wanted| *wanted == digest)
                && let Some(pinned) = self.used().get(&digest).and_then(Weak::upgrade)
            {
                let kept = self.directory.join(digest.digits()).join(IMAGE);
                return Ok((pinned, FunctionImage::at(&kept)?));
            }
        }
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        let aside = Aside(self.directory.join(format!("{number}{UNFINISHED}")));
        let made = DirBuilder::new().mode(0o700).create(&aside.0);
        made.map_err(failed(&aside.0))?;
        let definition = copy_file(&definition, &aside.0.join(DEFINITION))?;
        let digest = digest_of(&copy_file(image, &aside.0.join(IMAGE))?, &definition);
        if let Some(wanted) = wanted.filter(|wanted| **wanted != digest) {
            return Err(PinError::Different { path: image.to_owned(), wanted: wanted.clone() });
        }
        let place = self.directory.join(digest.digits());
        let mut used = self.used();
        let pinned = match used.get(&digest).and_then(Weak::upgrade) {
            Some(pinned) => pinned,
            None => {
                // An existing directory has not been verified since the daemon started, so it is
                // replaced.
                discard(&place)?;
                fs::rename(&aside.0, &place).map_err(failed(&place))?;
                sync(&self.directory)?;
                self.hold(&mut used, digest)
            }
        };
        drop(used);
        Ok((pinned, FunctionImage::at(&place.join(IMAGE))?))
    }

    fn check(self: &Arc<Self>, digest: &Digest) -> Result<(Arc<Pinned>, FunctionImage), PinError> {
        let place = self.directory.join(digest.digits());
        let found = |pinned| Ok((pinned, FunctionImage::at(&place.join(IMAGE))?));
        if let Some(pinned) = self.used().get(digest).and_then(Weak::upgrade) {
            return found(pinned);
        }
        if !place.is_dir() {
            return Err(PinError::Gone(digest.clone()));
        }
        let sum = |name| hash(&place.join(name));
        // If a file is missing or was changed, the image cannot be run.
        let is_right = match (sum(IMAGE), sum(DEFINITION)) {
            (Ok(image), Ok(definition)) => digest_of(&image, &definition) == *digest,
            (Err(error), _) | (_, Err(error)) if !error.is_missing() => return Err(error),
            _ => false,
        };
        if !is_right {
            return Err(PinError::Different { path: place, wanted: digest.clone() });
        }
        let pinned = self.hold(&mut self.used(), digest.clone());
        found(pinned)
    }

    fn hold(&self, used: &mut BTreeMap<Digest, Weak<Pinned>>, digest: Digest) -> Arc<Pinned> {
        if let Some(pinned) = used.get(&digest).and_then(Weak::upgrade) {
            return pinned;
        }
        let pinned = Arc::new(Pinned { digest: digest.clone() });
        used.insert(digest, Arc::downgrade(&pinned));
        pinned
    }

    fn remove_all_but(&self, kept: &BTreeSet<Digest>) -> Result<(), PinError> {
        let mut used = self.used();
        used.retain(|_, pinned| pinned.strong_count() > 0);
        let entries = fs::read_dir(&self.directory).map_err(failed(&self.directory))?;
        for entry in entries.flatten() {
            // Any other name is a copy in progress.
            let Ok(digest) = Digest::of_digits(&entry.file_name().to_string_lossy()) else {
                continue;
            };
            if !kept.contains(&digest) && !used.contains_key(&digest) {
                discard(&entry.path())?;
            }
        }
        Ok(())
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<Digest, Weak<Pinned>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A temporary directory, removed on drop unless it was renamed.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs disk I/O outside the threads that answer calls.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PinError> + Send + 'static,
) -> Result<T, PinError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(PinError::File { path: PathBuf::new(), error: io::Error::other(error) })
    })
}

/// Removes a directory if it exists. It is renamed first, so that its name never refers to half of
/// it.
fn discard(path: &Path) -> Result<(), PinError> {
    let mut unwanted = path.as_os_str().to_owned();
    unwanted.push(UNFINISHED);
    // Left from an earlier attempt that failed.
    let _ = fs::remove_dir_all(&unwanted);
    match fs::rename(path, &unwanted) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed.map_err(failed(path))?,
    }
    fs::remove_dir_all(&unwanted).map_err(failed(path))
}

/// Copies a file durably; returns its sum.
fn copy_file(from: &Path, to: &Path) -> Result<Digest, PinError> {
    let mut options = File::options();
    let mut copy = options.create_new(true).write(true).mode(0o600).open(to).map_err(failed(to))?;
    let sum = read_parts(from, |part| copy.write_all(part).map_err(failed(to)))?;
    copy.sync_all().map_err(failed(to))?;
    if let Some(directory) = to.parent() {
        sync(directory)?;
    }
    Ok(sum)
}

/// The sum of a file.
fn hash(path: &Path) -> Result<Digest, PinError> {
    read_parts(path, |_| Ok(()))
}

/// The sum of a file; each part is passed to `take` as it is read.
fn read_parts(
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), PinError>,
) -> Result<Digest, PinError> {
    let mut file = File::open(path).map_err(failed(path))?;
    let (mut sum, mut part) = (Sha256::new(), vec![0; PART]);
    loop {
        match file.read(&mut part).map_err(failed(path))? {
            0 => return Ok(Digest::of_sum(sum.finalize().into())),
            length => {
                sum.update(&part[..length]);
                take(&part[..length])?;
            }
        }
    }
}

fn sync(directory: &Path) -> Result<(), PinError> {
    File::open(directory).and_then(|open| open.sync_all()).map_err(failed(directory))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> PinError {
    let path = path.to_owned();
    |error| PinError::File { path, error }
}

#[cfg(test)]
mod tests;
