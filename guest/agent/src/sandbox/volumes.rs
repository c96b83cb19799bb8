//! Volumes in the root of an instance: taken where the agent has them, and put where the instance wants them.

use super::{
    beneath::{IN_ROOT, WITHOUT_LINKS, find_or_make},
    tree::Tree,
    user::User,
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fchown, fstat, fstatfs, mkdirat, openat},
    io::Errno,
    process::{Gid, Uid, umask},
};
use squeezy_protocol::VolumeMount;
use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

/// From linux/magic.h and, of message queues, ipc/mqueue.c: file systems of the kernel, on which there is no place for a
/// volume.
const KERNEL_FILE_SYSTEMS: [i64; 3] = [0x9fa0, 0x6265_6572, 0x1980_0202];

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
        let whole = openat(CWD, source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let place = match &mount.part {
            Some(path) => part(&whole, path)?,
            None => whole,
        };
        let is_directory = FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Directory;
        let mut tree = Tree::at(&place)?.mapped_to(user)?;
        if mount.read_only {
            tree = tree.read_only()?;
        }
        Ok(Taken { mount, tree, is_directory })
    };
    mounts.iter().zip(sources).map(|pair| take(pair).map_err(naming(pair.0))).collect()
}

/// Finds a part of a volume, and makes it if there is nothing: a directory with the mode of the volume's own, as
/// kubelet's are. Instances may do in the volume what they like meanwhile.
fn part(volume: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(fstat(volume)?.st_mode);
    let make = |parent: BorrowedFd<'_>, name: &str, _: bool| -> io::Result<()> {
        // It has its mode from the beginning: later, something else could be there.
        let mask = umask(Mode::empty());
        let made = mkdirat(parent, name, mode);
        umask(mask);
        match made {
            // Somebody has made it meanwhile.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    };
    find_or_make(volume, path, false, WITHOUT_LINKS, make).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ELOOP) => {
                io::Error::new(error.kind(), format!("{path} in it is a link, or goes through one"))
            }
            _ => io::Error::new(error.kind(), format!("{path} in it: {error}")),
        }
    })
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

/// Finds a place in the root, and makes what is not there of it.
fn place(target: &str, is_directory: bool, user: &User) -> io::Result<OwnedFd> {
    let root = openat(CWD, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    find_or_make(
        &root,
        target.trim_start_matches('/'),
        is_directory,
        IN_ROOT,
        |parent, name, is_directory| {
            let make = || make(parent, name, is_directory, user);
            match make() {
                // It is in a volume, where the machine's user 0 is nobody.
                Err(error) if error.raw_os_error() == Some(libc::EOVERFLOW) => as_user(user, make),
                made => made,
            }
        },
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    };

    #[test]
    fn a_part_is_in_its_volume_whatever_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["volume", "outside"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::set_permissions(at("volume"), Permissions::from_mode(0o1777)).unwrap();
        let volume = OwnedFd::from(File::open(at("volume")).unwrap());
        let found = |path: &str| part(&volume, path).map(|place| fstat(place).unwrap().st_ino);
        let number = |name: &str| fs::metadata(at(name)).unwrap().ino();
        // One that is not there is made, and is there for the next one.
        let made = found("logs/today").unwrap();
        assert_eq!((made, found("logs/today").unwrap()), (number("volume/logs/today"), made));
        for name in ["volume/logs", "volume/logs/today"] {
            assert_eq!(fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777, 0o1777);
        }
        // A file is one, too.
        fs::write(at("volume/file"), "x").unwrap();
        assert_eq!(found("file").unwrap(), number("volume/file"));
        for (name, target) in
            [("out", at("outside")), ("up", "../outside".into()), ("in", "logs".into())]
        {
            symlink(target, at("volume").join(name)).unwrap();
            for path in [name.to_owned(), format!("{name}/new")] {
                let error = found(&path).unwrap_err().to_string();
                assert!(error.contains("is a link, or goes through one"), "{path}: {error}");
            }
        }
        for path in ["file/new", "../outside", "/outside"] {
            found(path).expect_err(path);
        }
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(at("volume/logs")).unwrap().count(), 1);
    }
}
