//! Mounts that are nowhere yet.

use super::{FILE_SYSTEM_FD, user::User};
use rustix::{
    fs::CWD,
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

/// What is mounted somewhere once more.
pub struct Tree(OwnedFd);

impl Tree {
    /// The file system that the agent has passed. To be called once, and only if it has.
    pub fn inherited() -> Self {
        // SAFETY: the agent passes this file with such an instance, and nothing else in this process owns it.
        Self(unsafe { OwnedFd::from_raw_fd(FILE_SYSTEM_FD) })
    }

    /// What is mounted at `path`.
    pub fn of(path: &str) -> io::Result<Self> {
        Self::open(CWD, path, OpenTreeFlags::empty())
    }

    /// What is there, whatever is mounted on it.
    pub fn at(place: impl AsFd) -> io::Result<Self> {
        Self::open(place, "", OpenTreeFlags::AT_EMPTY_PATH)
    }

    /// What is there, and mounted at all places below.
    pub fn all_of(place: impl AsFd) -> io::Result<Self> {
        Self::open(place, "", OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_RECURSIVE)
    }

    fn open(at: impl AsFd, path: &str, how: OpenTreeFlags) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok(Self(open_tree(at, path, flags | how)?))
    }

    /// The same with the machine's users mapped to those of `user` (an idmapped mount).
    pub fn mapped_to(self, user: &User) -> io::Result<Self> {
        self.set(libc::MOUNT_ATTR_IDMAP, user.namespace().as_raw_fd() as u64)
    }

    /// The same for reading only.
    pub fn read_only(self) -> io::Result<Self> {
        self.set(libc::MOUNT_ATTR_RDONLY, 0)
    }

    fn set(self, attributes: u64, users: u64) -> io::Result<Self> {
        let attributes = libc::mount_attr {
            attr_set: attributes,
            attr_clr: 0,
            propagation: 0,
            userns_fd: users,
        };
        // SAFETY: the path is a terminated string, the attributes have the size that is passed, and the kernel
        // only reads both.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                std::mem::size_of_val(&attributes),
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(self) }
    }

    /// Mounts it on a place.
    pub fn put(&self, place: impl AsFd) -> io::Result<()> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(self.0.as_fd(), "", place, "", flags)?)
    }

    /// Mounts it at a path.
    pub fn put_at(&self, path: &str) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(self.0.as_fd(), "", CWD, path, flags)?)
    }
}
