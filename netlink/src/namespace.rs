//! Network namespaces.

use rustix::{
    fs::fstat,
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    thread,
};

/// A network namespace. It stays as long as this does.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// That of this thread.
    pub fn own() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// The one that this file is.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(|file| Self(file.into()))
    }

    /// A new one, which this thread is in from now on.
    pub fn unshare() -> io::Result<()> {
        // SAFETY: this flag unshares neither the file table nor memory.
        Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
    }

    /// Moves this thread into it.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Whether it is that one.
    pub fn is(&self, other: &Self) -> io::Result<bool> {
        let (found, other) = (fstat(&self.0)?, fstat(&other.0)?);
        Ok((found.st_dev, found.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Runs `work` in it, on a thread of its own.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        apart(|| {
            self.enter()?;
            work()
        })
    }
}

/// Runs `work` on a thread of its own, whose namespace it may change.
pub fn apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("network".to_owned());
        let done = thread.spawn_scoped(scope, work)?.join();
        done.unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
    })
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Namespace {
    fn from(file: OwnedFd) -> Self {
        Self(file)
    }
}
