//! Volumes in the root of an instance: taken where the agent has them, and put where the instance wants them.

use super::{tree::Tree, user::User};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fchown, fstatfs, mkdirat, openat, openat2},
    io::Errno,
    process::{Gid, Uid},
};
use squeezy_protocol::VolumeMount;
use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// From linux/magic.h: file systems of the kernel, on which there is no place for a volume.
const KERNEL_FILE_SYSTEMS: [i64; 2] = [0x9fa0, 0x6265_6572];

/// A volume that is not in the root yet.
pub struct Taken<'a> {
    mount: &'a VolumeMount,
    tree: Tree,
    is_directory: bool,
}

/// Takes what these mounts want, of which the agent knows the paths, for this user.
pub fn take<'a>(
    mounts: &'a [VolumeMount],
    sources: &[String],
    user: &User,
) -> io::Result<Vec<Taken<'a>>> {
    let take = |(mount, source): (&'a VolumeMount, &String)| {
        let is_directory = fs::metadata(source)?.is_dir();
        let mut tree = Tree::of(source)?.mapped_to(user)?;
        if mount.read_only {
            tree = tree.read_only()?;
        }
        Ok(Taken { mount, tree, is_directory })
    };
    mounts.iter().zip(sources).map(|pair| take(pair).map_err(naming(pair.0))).collect()
}

/// Puts them into the root, which is the working directory.
pub fn put(volumes: Vec<Taken<'_>>, user: &User) -> io::Result<()> {
    for volume in volumes {
        put_one(&volume, user).map_err(naming(volume.mount))?;
    }
    Ok(())
}

fn put_one(volume: &Taken<'_>, user: &User) -> io::Result<()> {
    let place = place(&volume.mount.target, volume.is_directory, user)?;
    if KERNEL_FILE_SYSTEMS.contains(&fstatfs(&place)?.f_type) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "that is the kernel's"));
    }
    volume.tree.put(&place)
}

/// Makes a directory of the root, which is the working directory, unless it is there.
pub fn make_directory(path: &str, user: &User) -> io::Result<()> {
    place(path, true, user).map(drop)
}

/// Finds a place in the root, and makes what is not there of it. Links of the image lead nowhere but into the root, and
/// not through descriptors and roots of other processes either.
fn place(target: &str, is_directory: bool, user: &User) -> io::Result<OwnedFd> {
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let root = openat(CWD, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let ends = target.match_indices('/').skip(1).map(|(end, _)| end).chain([target.len()]);
    let mut parent = root.try_clone()?;
    for end in ends {
        let path = &target[..end];
        let is_directory = is_directory || end < target.len();
        let kind = if is_directory { OFlags::DIRECTORY } else { OFlags::empty() };
        let open =
            || openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC | kind, Mode::empty(), within);
        parent = match open() {
            Err(Errno::NOENT) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                let make = || make(parent.as_fd(), name, is_directory, user);
                match make() {
                    // It is in a volume, where the machine's user 0 is nobody.
                    Err(error) if error.raw_os_error() == Some(libc::EOVERFLOW) => {
                        as_user(user, make)?;
                    }
                    made => made?,
                }
                open()?
            }
            other => other?,
        };
    }
    Ok(parent)
}

fn make(parent: BorrowedFd<'_>, name: &str, is_directory: bool, user: &User) -> io::Result<()> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = if is_directory {
        mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
        openat(parent, name, read | OFlags::DIRECTORY, Mode::empty())?
    } else {
        openat(parent, name, read | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(0o644))?
    };
    fchown(&made, Some(Uid::from_raw(user.id())), Some(Gid::from_raw(user.id())))?;
    Ok(())
}

/// Does something to files as the instance's user 0.
fn as_user<T>(user: &User, act: impl FnOnce() -> T) -> T {
    let become_user = |id: u32| {
        // SAFETY: both take a number and change only this thread, the process's only one.
        unsafe {
            libc::setfsgid(id);
            libc::setfsuid(id);
        }
    };
    become_user(user.id());
    let acted = act();
    become_user(0);
    acted
}

fn naming(mount: &VolumeMount) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("volume at {}: {error}", mount.target))
}
