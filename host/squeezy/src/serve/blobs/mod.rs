//! Blobs, what actions are made from: files and directories under the digests of their contents.
//!
//! A blob is written aside, synced and renamed to its digest before an action that names it is stored. It is
//! removed as soon as no stored action names it and nobody holds it. So wherever the daemon is killed, every
//! stored action has its blobs; what nobody names then is removed the next time that the names are known.

mod space;
mod spool;

pub use space::{DiskSpace, TakenSpace};
pub use spool::Spool;

use crate::mutex::lock;
use sha2::{Digest as _, Sha256};
use squeezy_openwhisk::Digest;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Suffix of the names of blobs that are being written or removed.
const UNFINISHED: &str = ".new";

/// How often it is tried to remove a directory in which there are ever new files, and how long after each time: a second
/// in all.
const REMOVALS: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes that are read and hashed at a time.
const PART: usize = 1 << 18;

/// Why a blob cannot be kept or read, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The disk is full.
    #[error("the disk of the state directory is full: make room on it")]
    DiskFull,
    /// The blobs would take more of the disk than they may.
    #[error(
        "the code and the images of all actions may take {} MiB of the disk, which would not be enough: delete some actions, or raise actions_disk",
        most_bytes >> 20
    )]
    NoSpace {
        /// What they may take, in bytes.
        most_bytes: u64,
    },
}

impl BlobError {
    /// Whether the cause is a missing file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::File { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The error of an operation on the file or directory with this path.
pub fn failed(path: &Path) -> impl FnOnce(io::Error) -> BlobError {
    let path = path.to_owned();
    |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => BlobError::DiskFull,
        _ => BlobError::File { path, error },
    }
}

/// A blob, which is kept for as long as somebody holds it.
#[derive(Debug)]
pub struct Blob {
    /// Its digest.
    pub digest: Digest,
    /// The file or directory.
    pub path: PathBuf,
    /// Whether its contents had its digest when they were last looked at.
    verified: AtomicBool,
    blobs: Arc<Blobs>,
}

impl Drop for Blob {
    fn drop(&mut self) {
        let (blobs, digest) = (self.blobs.clone(), self.digest.clone());
        apart(move || drop(blobs.take_out(|state| state.unused(Some(&digest)))));
    }
}

/// Removes files on a thread of its own, because removing large ones takes a while, and whoever is the last to hold a
/// blob has other things to do. Without a thread, what is not removed now will be when actions next change.
fn apart(remove: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new().name("remove-blobs".to_owned()).spawn(remove);
}

/// The blobs of one kind, in a directory of their own.
#[derive(Debug)]
pub struct Blobs {
    directory: PathBuf,
    space: Arc<DiskSpace>,
    /// Held while the name of a blob appears or disappears.
    state: Mutex<State>,
    /// Makes the names of unfinished blobs unique.
    asides: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Digest, Entry>,
    /// The blobs that stored actions name; all of them, as long as nobody has said which.
    named: Option<BTreeSet<Digest>>,
    /// Those that are kept although no action names them, until somebody needs the space.
    spare: BTreeSet<Digest>,
}

/// A blob on the disk.
#[derive(Debug)]
struct Entry {
    /// What it takes there.
    taken: TakenSpace,
    holder: Weak<Blob>,
}

impl State {
    /// The blobs that nobody names or holds; with a digest, at most this one.
    fn unused(&self, digest: Option<&Digest>) -> Vec<Digest> {
        let Some(named) = &self.named else { return Vec::new() };
        let is_unused = |(digest, entry): &(&Digest, &Entry)| {
            let is_wanted = named.contains(*digest) || self.spare.contains(*digest);
            entry.holder.strong_count() == 0 && !is_wanted
        };
        match digest {
            Some(digest) => {
                let entry = self.entries.get_key_value(digest);
                entry.filter(is_unused).map(|_| digest.clone()).into_iter().collect()
            }
            None => {
                let unused = self.entries.iter().filter(is_unused);
                unused.map(|(digest, _)| digest.clone()).collect()
            }
        }
    }
}

impl Blobs {
    /// Opens the blobs in a directory, which no other process may use; creates it if necessary.
    pub fn open(directory: PathBuf, space: Arc<DiskSpace>) -> Result<Arc<Self>, BlobError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(failed(&directory))?;
        let mut entries = BTreeMap::new();
        for entry in fs::read_dir(&directory).map_err(failed(&directory))? {
            let path = entry.map_err(failed(&directory))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Left by a daemon that was killed.
            if name.ends_with(UNFINISHED) {
                remove(&path).map_err(failed(&path))?;
            } else if let Ok(digest) = Digest::of_digits(&name) {
                let taken = space.take_anyway(size(&path).map_err(failed(&path))?);
                entries.insert(digest, Entry { taken, holder: Weak::new() });
            }
        }
        let state = Mutex::new(State { entries, named: None, spare: BTreeSet::new() });
        Ok(Arc::new(Self { directory, space, state, asides: AtomicU64::new(0) }))
    }

    /// Adds the blob that `write` makes at the path of [`Unfinished`] and returns the digest of, unless it fails.
    pub fn add<E: From<BlobError>>(
        self: &Arc<Self>,
        write: impl FnOnce(&mut Unfinished) -> Result<Digest, E>,
    ) -> Result<Arc<Blob>, E> {
        let taken = self.space.take_none();
        let mut unfinished = Unfinished { aside: self.aside(), taken };
        let digest = write(&mut unfinished)?;
        Ok(self.finish(unfinished, digest)?)
    }

    fn finish(
        self: &Arc<Self>,
        unfinished: Unfinished,
        digest: Digest,
    ) -> Result<Arc<Blob>, BlobError> {
        let Unfinished { aside, taken } = unfinished;
        let path = self.directory.join(digest.digits());
        let mut state = self.lock();
        let held = state.entries.get(&digest).and_then(|entry| entry.holder.upgrade());
        // What is there under this name may have been altered since it was verified. But a VM may be about to
        // open a file in a directory, which cannot be replaced in one step.
        let replaced = match (&held, path.is_dir()) {
            (Some(blob), true) if blob.verified.load(Ordering::Relaxed) => return Ok(blob.clone()),
            (_, true) => Some(self.set_aside(&path)?),
            (_, false) => None,
        };
        fs::rename(&aside.0, &path).map_err(failed(&path))?;
        let blob = held.unwrap_or_else(|| self.blob(digest.clone()));
        blob.verified.store(true, Ordering::Relaxed);
        let holder = Arc::downgrade(&blob);
        state.entries.insert(digest, Entry { taken, holder });
        drop(state);
        drop(replaced);
        for directory in [Some(&*self.directory), self.directory.parent()].into_iter().flatten() {
            sync(directory)?;
        }
        Ok(blob)
    }

    /// The blob with this digest, if there is one. `verify` fails if what is at the path is not that; it is called
    /// unless somebody has called it before.
    pub fn find<E: From<BlobError>>(
        self: &Arc<Self>,
        digest: &Digest,
        verify: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Option<Arc<Blob>>, E> {
        let Some(blob) = self.hold(digest)? else { return Ok(None) };
        // It is held meanwhile, so that nobody removes it after it was found to be there.
        if !blob.verified.load(Ordering::Relaxed) {
            verify(&blob.path)?;
            blob.verified.store(true, Ordering::Relaxed);
        }
        Ok(Some(blob))
    }

    fn hold(self: &Arc<Self>, digest: &Digest) -> Result<Option<Arc<Blob>>, BlobError> {
        let path = self.directory.join(digest.digits());
        let bytes = match size(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(failed(&path))?,
        };
        let mut state = self.lock();
        // Somebody may have put it there.
        let entry = state
            .entries
            .entry(digest.clone())
            .or_insert_with(|| Entry { taken: self.space.take_anyway(bytes), holder: Weak::new() });
        let blob = entry.holder.upgrade().unwrap_or_else(|| self.blob(digest.clone()));
        entry.holder = Arc::downgrade(&blob);
        Ok(Some(blob))
    }

    /// The blob with this digest, if somebody holds it and it has been verified.
    pub fn held(&self, digest: &Digest) -> Option<Arc<Blob>> {
        let blob = self.lock().entries.get(digest).and_then(|entry| entry.holder.upgrade());
        blob.filter(|blob| blob.verified.load(Ordering::Relaxed))
    }

    /// Whether somebody holds any blob.
    pub fn is_any_held(&self) -> bool {
        self.lock().entries.values().any(|entry| entry.holder.strong_count() > 0)
    }

    /// Says which blobs stored actions name from now on, and removes those that nobody names or holds.
    pub fn keep(&self, named: BTreeSet<Digest>) {
        let unused = self.take_out(|state| {
            state.named = Some(named);
            state.unused(None)
        });
        apart(move || drop(unused));
    }

    /// Says which blobs are kept besides those that actions name.
    pub fn set_spare(&self, spare: BTreeSet<Digest>) {
        self.lock().spare = spare;
    }

    /// Removes a blob, unless somebody names or holds it; whether it is gone.
    pub fn remove_spare(&self, digest: &Digest) -> bool {
        let removed = self.take_out(|state| {
            state.spare.remove(digest);
            state.unused(Some(digest))
        });
        !removed.is_empty()
    }

    /// Whether there is a blob with this digest.
    pub fn has(&self, digest: &Digest) -> bool {
        self.lock().entries.contains_key(digest)
    }

    /// What the blob with this digest takes on the disk, in bytes; nothing if there is none.
    pub fn bytes_of(&self, digest: &Digest) -> u64 {
        self.lock().entries.get(digest).map_or(0, |entry| entry.taken.bytes())
    }

    /// Whether an action names a blob, or somebody holds it.
    pub fn is_used(&self, digest: &Digest) -> bool {
        let state = self.lock();
        let is_held =
            || state.entries.get(digest).is_some_and(|entry| entry.holder.strong_count() > 0);
        state.named.as_ref().is_none_or(|named| named.contains(digest)) || is_held()
    }

    /// Takes blobs out of their places, from where they are removed when the result is dropped.
    fn take_out(&self, choose: impl FnOnce(&mut State) -> Vec<Digest>) -> Vec<(Aside, Entry)> {
        let mut state = self.lock();
        let chosen = choose(&mut state);
        let take = |digest: Digest| {
            // What cannot be removed now will be removed the next time.
            let aside = self.set_aside(&self.directory.join(digest.digits())).ok()?;
            Some((aside, state.entries.remove(&digest)?))
        };
        chosen.into_iter().filter_map(take).collect()
    }

    fn blob(self: &Arc<Self>, digest: Digest) -> Arc<Blob> {
        let path = self.directory.join(digest.digits());
        let verified = AtomicBool::new(false);
        Arc::new(Blob { digest, path, verified, blobs: self.clone() })
    }

    fn aside(&self) -> Aside {
        let number = self.asides.fetch_add(1, Ordering::Relaxed);
        Aside(self.directory.join(format!("{number}{UNFINISHED}")))
    }

    /// Renames what is at this path, if anything, so that the path never refers to half of it.
    fn set_aside(&self, path: &Path) -> Result<Aside, BlobError> {
        let aside = self.aside();
        match fs::rename(path, &aside.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path)(error)),
            _ => Ok(aside),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A blob that is being written.
#[derive(Debug)]
pub struct Unfinished {
    aside: Aside,
    taken: TakenSpace,
}

impl Unfinished {
    /// Where its file or directory has to be made.
    pub fn path(&self) -> &Path {
        &self.aside.0
    }

    /// Creates a file: at [`Self::path`], or in the directory there.
    pub fn file(&mut self, path: PathBuf) -> Result<HashedFile<'_>, BlobError> {
        let mut options = File::options();
        let file = options.create_new(true).write(true).mode(0o600).open(&path);
        let file = file.map_err(failed(&path))?;
        Ok(HashedFile { file, path, sum: Sha256::new(), taken: &mut self.taken })
    }

    /// Moves a file here that was made elsewhere on the same file system, by somebody who may mean harm: a link is not
    /// followed. Returns its sum.
    pub fn take_in(&mut self, from: &Path, to: &Path) -> Result<Digest, BlobError> {
        let mut options = File::options();
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let file = options
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(from)
            .map_err(failed(from))?;
        let metadata = file.metadata().map_err(failed(from))?;
        if !metadata.is_file() {
            return Err(failed(from)(io::Error::other("not a file")));
        }
        self.taken.grow(metadata.len())?;
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed(from))?;
        file.sync_all().map_err(failed(from))?;
        fs::rename(from, to).map_err(failed(to))?;
        read_file(file, to, |_| Ok(()))
    }
}

/// A file that is being written, and the sum of what is in it.
pub struct HashedFile<'a> {
    file: File,
    path: PathBuf,
    sum: Sha256,
    taken: &'a mut TakenSpace,
}

impl HashedFile<'_> {
    /// Writes more of it.
    pub fn write(&mut self, part: &[u8]) -> Result<(), BlobError> {
        self.taken.grow(part.len() as u64)?;
        self.sum.update(part);
        self.file.write_all(part).map_err(failed(&self.path))
    }

    /// Waits until it is on the disk, and returns its sum.
    pub fn finish(self) -> Result<Digest, BlobError> {
        self.file.sync_all().map_err(failed(&self.path))?;
        Ok(Digest::of_sum(self.sum.finalize().into()))
    }
}

/// An unfinished file or directory, removed on drop unless it was renamed.
#[derive(Debug)]
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        // A tool that has been killed may make another file before it ends.
        for _ in 0..REMOVALS {
            match remove(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(PAUSE);
                }
                _ => return,
            }
        }
    }
}

/// Reads a file, passes each part to `take`, and returns its sum.
pub fn read_parts<E: From<BlobError>>(
    path: &Path,
    take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Digest, E> {
    read_file(File::open(path).map_err(failed(path))?, path, take)
}

fn read_file<E: From<BlobError>>(
    mut file: File,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Digest, E> {
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

/// The sum of a file.
pub fn hash(path: &Path) -> Result<Digest, BlobError> {
    read_parts(path, |_| Ok(()))
}

/// Waits until the names in a directory are on the disk.
pub fn sync(directory: &Path) -> Result<(), BlobError> {
    File::open(directory).and_then(|open| open.sync_all()).map_err(failed(directory))
}

/// Runs disk I/O outside the threads that answer calls.
pub async fn blocking<T: Send + 'static, E: From<BlobError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(BlobError::File { path: PathBuf::new(), error: io::Error::other(error) }.into())
    })
}

/// The length of a file, or of the files in a directory, in bytes.
fn size(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    }
}

#[cfg(test)]
pub mod tests;
