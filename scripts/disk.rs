//! A small disk that can be full. Tests of several crates have this file as a module.

#![allow(dead_code, reason = "not everybody needs all of it")]

use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    thread::{UnshareFlags, unshare_unsafe},
};
use std::{
    ffi::CString,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A page of the file system, in bytes.
const PAGE: usize = 4096;

/// A directory, on its own file system if the test may mount one.
pub struct Disk {
    directory: TempDir,
    is_own: bool,
}

impl Disk {
    /// One of this many KiB. Everything that is to see the file system has to be started by this thread or its children.
    /// It disappears with the last of them, however that ends.
    pub fn new(kib: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // SAFETY: this thread and those it starts from now on get their own mount namespace;
        // everything else that threads share, memory and file descriptors, remains shared.
        let is_own = unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_ok();
        if is_own {
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).unwrap();
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            let options = CString::new(format!("size={kib}k,mode=700")).unwrap();
            mount("tmpfs", directory.path(), "tmpfs", flags, Some(options.as_c_str())).unwrap();
        }
        Self { directory, is_own }
    }

    /// The same, if it is a file system of its own.
    pub fn mounted(kib: usize) -> Option<Self> {
        Some(Self::new(kib)).filter(|disk| disk.is_own)
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Fills it up, but for this many pages. Returns false if it is not a file system of its own.
    pub fn fill(&self, leave: usize) -> bool {
        if !self.is_own {
            return false;
        }
        let mut file = File::options().create(true).append(true).open(self.filling()).unwrap();
        while file.write_all(&[0; PAGE]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub((leave * PAGE) as u64)).unwrap();
        true
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
        if self.is_own {
            // Otherwise its directory could not be removed.
            let _ = unmount(self.path(), UnmountFlags::DETACH);
        }
    }
}
