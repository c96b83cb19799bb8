//! File systems that are mounted nowhere any more. They are there until the last that has them leaves them, and only
//! then is freed what they hold, in the thread that does so: the agent's only one must not, as that may be gigabytes.

use rustix::{
    fs::{Mode, OFlags, open},
    io,
    mount::{UnmountFlags, unmount},
};
use std::{os::fd::OwnedFd, path::Path};

/// Unmounts what is mounted on a directory. Roots that have it keep it, and so does whoever has what this returns, for
/// [`leave`].
///
/// # Errors
/// Nothing is mounted there ([`io::Errno::INVAL`]), or something else of open(2) and umount(2).
pub fn detach(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = open(directory, flags, Mode::empty())?;
    unmount(directory, UnmountFlags::DETACH)?;
    Ok(mount)
}

/// Leaves what has a file system. If that was the last, all that was in it is freed when this returns.
pub async fn leave(last: impl Send + 'static) {
    let _ = tokio::task::spawn_blocking(move || drop(last)).await;
}
