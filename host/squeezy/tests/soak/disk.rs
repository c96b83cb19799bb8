//! A small disk that can be full.

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

/// A directory; where the test may mount, on a file system of its own.
pub struct Disk {
    directory: TempDir,
    is_own: bool,
}

impl Disk {
    /// Whoever starts threads and processes in the soak has to be this thread or one of its children:
    /// nobody else sees the file system, and it goes with the last of them, however that ends.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // SAFETY: this thread and those that it starts from now on get a mount namespace of their
        // own; what threads share otherwise, memory and file descriptors, stays shared.
        let is_own = unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_ok();
        if is_own {
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).unwrap();
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            mount("tmpfs", directory.path(), "tmpfs", flags, c"size=256m,mode=700").unwrap();
        }
        Self { directory, is_own }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves no room on it. False if it is the disk of everybody else too.
    pub fn fill(&self) -> bool {
        if !self.is_own {
            return false;
        }
        let mut file = File::create(self.filling()).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        true
    }

    /// Makes room again.
    pub fn free(&self) {
        fs::remove_file(self.filling()).unwrap();
    }

    fn filling(&self) -> PathBuf {
        self.path().join("full")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_own {
            // Or its directory could not be removed.
            let _ = unmount(self.path(), UnmountFlags::DETACH);
        }
    }
}
