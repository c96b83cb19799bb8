//! Images of layers, made once on the machine.
//!
//! Servers of all VMs share the directory, without knowing of each other: whoever makes an image has a lock of it, whoever
//! adds one to the others has a lock of them all, and a file with an image's name is always whole. An image may be removed
//! while somebody reads it.

mod room;

use super::disk::Disk;
use crate::error::{Error, Result};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use sha2::{Digest, Sha256};
use squeezy_protocol::Layer;
use squeezy_sandbox::{MOST_MEMORY_BYTES, Sandbox, ToolError, output};
use std::{
    fmt::Write,
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{sleep, timeout},
};

/// How long making an image may take, and waiting for whoever makes it.
const MAKE_LIMIT: Duration = Duration::from_secs(600);
/// How long a lock of all images may take. Nobody keeps it for longer than a few file operations.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked whether a lock is free.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// How many images one server makes at a time.
const AT_A_TIME: usize = 2;
/// What programs have in memory that make images for one server, in bytes: something for each file of each layer.
pub const MAKING_BYTES: u64 = AT_A_TIME as u64 * MOST_MEMORY_BYTES;
/// The directories of images, of what they are images of, and of those that are being made.
const IMAGES: &str = "images";
const SOURCES: &str = "sources";
const WORK: &str = "work";
/// The name of an image while it is made.
const IMAGE: &str = "image";
/// The most that mkfs.erofs may say, in bytes.
const MOST_SAID: usize = 1 << 20;

/// Names the content of a layer's directory.
///
/// containerd never changes a layer once it is there, and may make another one of the same name only after it has lost
/// all of them: then the directory has another inode or a later time of change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// The key of a layer's directory.
    ///
    /// # Errors
    /// It is no directory.
    pub fn of(layer: &Path) -> Result<Self> {
        let failed = |why: &dyn std::fmt::Display| {
            Error::failed(format_args!("cannot use the layer {}: {why}", layer.display()))
        };
        let found = fs::symlink_metadata(layer).map_err(|error| failed(&error))?;
        if !found.is_dir() {
            return Err(failed(&"it is no directory"));
        }
        let mut hash = Sha256::new();
        hash.update(layer.as_os_str().as_encoded_bytes());
        for number in [found.dev(), found.ino()] {
            hash.update(number.to_ne_bytes());
        }
        for number in [found.ctime(), found.ctime_nsec()] {
            hash.update(number.to_ne_bytes());
        }
        let mut text = String::new();
        for byte in hash.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }
}

/// The images of layers on this machine.
#[derive(Clone)]
pub struct Cache {
    directory: PathBuf,
    /// How much all images may take, and so a single one, in bytes.
    most_bytes: u64,
    making: Arc<Semaphore>,
    /// Looks at the disk that it is on.
    look: Arc<dyn Fn() -> io::Result<Disk> + Send + Sync>,
}

impl Cache {
    /// The images in this directory, which take at most so many bytes. Those that are being made, by all servers, take as
    /// much again.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn open(directory: &Path, most_bytes: u64) -> Result<Self> {
        let make = |part: &str| {
            DirBuilder::new().recursive(true).mode(0o700).create(directory.join(part)).map_err(
                |error| Error::failed(format_args!("cannot make {}: {error}", directory.display())),
            )
        };
        [IMAGES, SOURCES, WORK].into_iter().try_for_each(make)?;
        let (making, directory) = (Arc::new(Semaphore::new(AT_A_TIME)), directory.to_owned());
        let place = directory.clone();
        let look = Arc::new(move || Disk::of(File::open(&place)?));
        Ok(Self { directory, most_bytes, making, look })
    }

    /// The disk that it is on.
    pub(super) fn disk(&self) -> io::Result<Disk> {
        (self.look)()
    }

    /// The same, on a disk like this one while images take so much, in bytes.
    #[cfg(test)]
    pub(super) fn on_disk(self, disk: impl Fn(u64) -> Disk + Send + Sync + 'static) -> Self {
        let images = self.directory.join(IMAGES);
        let look = move || -> io::Result<Disk> {
            let images = fs::read_dir(&images)?.flatten();
            let bytes = images.map(|image| image.metadata().map_or(0, |it| taken_bytes(&it)));
            Ok(disk(bytes.sum()))
        };
        Self { look: Arc::new(look), ..self }
    }

    /// A file without a name in the directory, where images can be put without copying on file systems that can do that.
    ///
    /// # Errors
    /// The file system cannot do it.
    pub fn unnamed_file(&self) -> io::Result<File> {
        use rustix::fs::{CWD, Mode, OFlags, openat};
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(openat(CWD, &self.directory, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// The image of a layer, made if there is none.
    ///
    /// # Errors
    /// It cannot be made.
    pub async fn image(&self, layer: &Path, key: &Key) -> Result<File> {
        if let Some(image) = self.find(key) {
            return Ok(image);
        }
        let failed = |why: &dyn std::fmt::Display| {
            Error::failed(format_args!(
                "cannot make an image of the layer {}: {why}",
                layer.display()
            ))
        };
        let _turn = self.making.acquire().await.expect("it is never closed");
        let make = async {
            let work = Work::lock(self.directory.join(WORK).join(&key.0)).await?;
            // Somebody else was faster.
            if let Some(image) = self.find(key) {
                work.remove().await;
                return Ok(image);
            }
            let made = self.make_in_room(layer, &work.path).await;
            let kept = match made {
                Ok(()) => self.keep(&work.path, layer, key).await,
                Err(error) => Err(error),
            };
            work.remove().await;
            kept
        };
        timeout(MAKE_LIMIT, make)
            .await
            .map_err(|_| failed(&format_args!("it is not there within {MAKE_LIMIT:?}")))?
            .map_err(|error| failed(&error))
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(IMAGES).join(format!("{}.erofs", key.0))
    }

    /// An image that is there, which counts as used now.
    fn find(&self, key: &Key) -> Option<File> {
        let image = File::open(self.path(key)).ok()?;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let as_is = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: as_is, last_modification: now };
        if let Err(error) = futimens(&image, &times) {
            tracing::warn!("an image of a layer cannot be marked as used: {error}");
        }
        Some(image)
    }

    async fn make(&self, layer: &Path, work: &Path) -> io::Result<()> {
        let left = work.join(IMAGE);
        in_thread(move || remove_file(&left)).await?;
        let files = vec![(layer.to_owned(), "/layer")];
        let sandbox = Sandbox { work, files, most_file_bytes: self.most_bytes };
        // Not an identifier from the system's, which another image would not have.
        let identifier = "00000000-0000-0000-0000-000000000000";
        let command =
            sandbox.reader(["mkfs.erofs", "--quiet", "-U", identifier, IMAGE, "/layer"])?;
        let is_at_limit = || {
            fs::metadata(work.join(IMAGE))
                .is_ok_and(|image| image.len() + Layer::GRANULE_BYTES > self.most_bytes)
        };
        match output(command, MOST_SAID).await {
            Ok(_) => Ok(()),
            // The limit ends it without a word.
            Err(ToolError::Said(_)) if is_at_limit() => {
                let most_mib = self.most_bytes >> 20;
                Err(io::Error::other(format!("it takes more than {most_mib} MiB")))
            }
            Err(ToolError::Said(reason)) => Err(io::Error::other(reason)),
            Err(ToolError::Missing(error)) => {
                Err(io::Error::other(format!("{error}: install bubblewrap and erofs-utils")))
            }
            Err(ToolError::Refused(never)) => match never {},
        }
    }

    /// Adds an image that was made to the others. Those that were not used for longest go for it.
    async fn keep(&self, work: &Path, layer: &Path, key: &Key) -> io::Result<File> {
        let made = File::open(work.join(IMAGE))?;
        let made = in_thread(move || made.sync_all().map(|()| made)).await?;
        let all = self.lock_all().await?;
        let (cache, key) = (self.clone(), key.clone());
        let (work, layer) = (work.to_owned(), layer.to_owned());
        in_thread(move || {
            // If nobody waits for this any more, whoever makes the same one waits for this lock before he begins.
            let _all = all;
            cache.make_room(0)?;
            let source = cache.directory.join(SOURCES).join(&key.0);
            remove_file(&source)?;
            symlink(layer, &source)?;
            fs::rename(work.join(IMAGE), cache.path(&key))
        })
        .await?;
        Ok(made)
    }

    /// The lock of all images.
    async fn lock_all(&self) -> io::Result<File> {
        let directory = File::open(&self.directory)?;
        timeout(LOCK_LIMIT, locked(&directory)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(directory)
    }
}

/// What a file takes of the disk, in bytes.
fn taken_bytes(metadata: &fs::Metadata) -> u64 {
    metadata.blocks() * 512
}

/// The directory in which one image is made, locked.
struct Work {
    path: PathBuf,
    _lock: File,
}

impl Work {
    async fn lock(path: PathBuf) -> io::Result<Self> {
        loop {
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            let Ok(lock) = File::open(&path) else { continue };
            locked(&lock).await?;
            // Whoever had the lock has removed it, and perhaps somebody else has made another one.
            let ours = lock.metadata()?.ino();
            if fs::metadata(&path).is_ok_and(|found| found.ino() == ours) {
                return Ok(Self { path, _lock: lock });
            }
        }
    }

    async fn remove(self) {
        let path = self.path.clone();
        let removed = in_thread(move || {
            // It is locked until it is gone.
            let work = self;
            fs::remove_dir_all(&work.path)
        });
        if let Err(error) = removed.await {
            tracing::warn!("{} cannot be removed: {error}", path.display());
        }
    }
}

/// Does what takes as long as the disk takes, as the removal of some GiB, where nothing else waits for it.
async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Removes a file, if it is there.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn locked(file: &File) -> io::Result<()> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => sleep(LOCK_INTERVAL).await,
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
