//! A small disk that can be full.

#[path = "../../../../scripts/skip.rs"]
mod skip;

use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    thread::{UnshareFlags, unshare_unsafe},
};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A block of the file system, in bytes.
pub const BLOCK: usize = 4096;

/// A directory on a file system of its own.
pub struct Disk(TempDir);

impl Disk {
    /// A disk of this many KiB, if the test may mount one. Only this thread and those that it
    /// starts from now on see it.
    pub fn new(kib: usize) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        // SAFETY: this thread and those it starts from now on get their own mount namespace;
        // everything else that threads share, memory and file descriptors, remains shared.
        if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_err() {
            skip::skip("a small disk cannot be mounted: run this as root");
            return None;
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let options = std::ffi::CString::new(format!("size={kib}k,mode=700")).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", directory.path(), "tmpfs", flags, Some(options.as_c_str())).unwrap();
        Some(Self(directory))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills it up, but for this many blocks.
    pub fn fill(&self, leave: usize) {
        let mut file = File::options().create(true).append(true).open(self.filling()).unwrap();
        while file.write_all(&[1; BLOCK]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub((leave * BLOCK) as u64)).unwrap();
    }

    /// Frees the space.
    pub fn free(&self) {
        fs::remove_file(self.filling()).unwrap();
    }

    fn filling(&self) -> PathBuf {
        self.path().join("full")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Otherwise its directory could not be removed.
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}
