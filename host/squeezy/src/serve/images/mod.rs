//! Images of actions, kept by what they are: whatever is built under an image's name later, an action
//! runs what it was made of.
//!
//! `pinned/HEX/` of the state directory has an image and its definition, `image.erofs` and `image.toml`;
//! HEX is their digest. They are copied aside first and renamed to their digest as a whole; only then is
//! an action kept that names it, and only when no action is kept that does are they removed. So wherever
//! the daemon is killed, an action that is kept has its image, and what no action has goes away when the
//! directory is opened the next time and swept.

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

/// Where they are in the state directory.
const DIRECTORY: &str = "pinned";

/// The names of both files, as they go into the digest.
const IMAGE: &str = "image.erofs";
const DEFINITION: &str = "image.toml";

/// Ends the name of what is not whole, or not wanted any more.
const UNFINISHED: &str = ".new";

/// Bytes that are copied and hashed at once.
const PART: usize = 1 << 18;

/// The digest of an image and its definition that have these sums: what
/// `sha256sum image.erofs image.toml | sha256sum` says.
fn digest_of(image: &Digest, definition: &Digest) -> Digest {
    let (image, definition) = (image.digits(), definition.digits());
    let list = format!("{image}  {IMAGE}\n{definition}  {DEFINITION}\n");
    Digest::of_sum(Sha256::digest(list).into())
}

/// An image that is kept as long as there is one of these.
#[derive(Debug)]
pub struct Pinned {
    /// What it is.
    pub digest: Digest,
}

/// Why an image cannot be kept or used. One sentence for a person, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The definition that belongs to it makes no sense.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// There is none.
    #[error("there is no image {0:?}")]
    Missing(String),
    /// It is gone.
    #[error("its image {0} is missing: rebuild it with `squeezy function create --overwrite`")]
    Gone(Digest),
    /// It is not what it should be.
    #[error("{} is not {wanted}: rebuild the image", path.display())]
    Different {
        /// Where it is.
        path: PathBuf,
        /// What it should be.
        wanted: Digest,
    },
}

impl PinError {
    /// Whether a file is not there.
    fn is_missing(&self) -> bool {
        matches!(self, Self::File { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The images of the actions of a state directory.
pub struct Images {
    directory: PathBuf,
    /// Those in use, and held while a directory gets or loses its name.
    used: Mutex<BTreeMap<Digest, Weak<Pinned>>>,
    /// Tells unfinished copies apart.
    copies: AtomicU64,
}

impl Images {
    /// Those of this state directory, which nobody else uses.
    pub fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join(DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        // What a daemon that was killed has not finished.
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.as_os_str().as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(Self { directory, used: Mutex::default(), copies: AtomicU64::new(0) })
    }

    /// Keeps an image NAME.erofs with NAME.toml beside it, or exactly the image of this name and digest
    /// that `guest/image/build.sh --reference` has made.
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

    /// Copies an image and the definition beside it.
    pub async fn take_in(
        self: &Arc<Self>,
        image: PathBuf,
        wanted: Option<Digest>,
    ) -> Result<(Arc<Pinned>, FunctionImage), PinError> {
        let images = self.clone();
        blocking(move || images.copy(&image, wanted.as_ref())).await
    }

    /// The image that was kept, after a look at whether it still is what it was.
    pub async fn find(
        self: &Arc<Self>,
        digest: &Digest,
    ) -> Result<(Arc<Pinned>, FunctionImage), PinError> {
        let (images, digest) = (self.clone(), digest.clone());
        blocking(move || images.check(&digest)).await
    }

    /// Removes what is neither kept nor used, and what was not finished.
    pub async fn sweep(self: &Arc<Self>, kept: BTreeSet<Digest>) {
        let images = self.clone();
        // What cannot be removed now is removed the next time.
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
        // What makes no sense is not copied.
        let definition = image.with_extension("toml");
        squeezy_node::read_function(&definition)?;
        // Nor is what somebody uses already: that takes neither room nor a second image. Where nothing is
        // used it need not be read to know that.
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
                // Nobody has looked at one that is there since the daemon began, so it counts for nothing.
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
        // Of one that lost a file, as of one that was changed, nothing is left to run.
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
            // What has another name is a copy under way.
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

/// A directory that goes away with this, unless it has got another name.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Away from those who answer calls: it waits for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PinError> + Send + 'static,
) -> Result<T, PinError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(PinError::File { path: PathBuf::new(), error: io::Error::other(error) })
    })
}

/// Removes a directory if there is one. It loses its name first, so that a half is never found under it.
fn discard(path: &Path) -> Result<(), PinError> {
    let mut unwanted = path.as_os_str().to_owned();
    unwanted.push(UNFINISHED);
    // Of a time when it could not be removed.
    let _ = fs::remove_dir_all(&unwanted);
    match fs::rename(path, &unwanted) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed.map_err(failed(path))?,
    }
    fs::remove_dir_all(&unwanted).map_err(failed(path))
}

/// Copies a file so that it is there after a power cut; its sum.
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

/// The sum of a file, of which each part is taken on the way.
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
