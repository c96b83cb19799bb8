//! Places beneath a directory, in which others may make links, and rename what is there, at the same time.

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Links lead nowhere but into the directory, which is the root to them, and not through descriptors and roots of other
/// processes either.
pub const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
/// Links lead nowhere.
pub const WITHOUT_LINKS: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// How often a place is looked for. The kernel gives up at each `..` of a link if something has been renamed or mounted
/// meanwhile, wherever in the machine that was.
const ATTEMPTS: usize = 100;

/// Opens something only to say where it is. A path of [`WITHOUT_LINKS`] does not begin with a slash.
pub fn open(
    directory: impl AsFd,
    path: &str,
    kind: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | kind;
    let attempt = || openat2(directory.as_fd(), path, flags, Mode::empty(), how);
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    attempt()
}

/// Finds a place, and makes what is not there of it: `make` is told the directory, the name in it, and whether it has
/// to be a directory. The path does not begin with a slash.
pub fn find_or_make(
    directory: &OwnedFd,
    path: &str,
    is_directory: bool,
    how: ResolveFlags,
    make: impl Fn(BorrowedFd<'_>, &str, bool) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    let mut parent = directory.try_clone()?;
    for end in ends {
        let is_directory = is_directory || end < path.len();
        let path = &path[..end];
        let kind = if is_directory { OFlags::DIRECTORY } else { OFlags::empty() };
        let find = || open(directory, path, kind, how);
        parent = match find() {
            Err(Errno::NOENT) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                make(parent.as_fd(), name, is_directory)?;
                find()?
            }
            other => other?,
        };
    }
    Ok(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, File},
        os::unix::fs::symlink,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    #[test]
    fn a_place_is_found_while_others_are_renamed() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["a", "b", "old"] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink("../b", at("a/link")).unwrap();
        let directory = OwnedFd::from(File::open(root.path()).unwrap());
        let is_done = AtomicBool::new(false);
        let failed = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    fs::rename(at("old"), at("new")).unwrap();
                    fs::rename(at("new"), at("old")).unwrap();
                }
            });
            let find = |_| open(&directory, "a/link", OFlags::DIRECTORY, IN_ROOT).err();
            let failed = (0..5000).find_map(find);
            is_done.store(true, Ordering::Relaxed);
            failed
        });
        assert_eq!(failed, None);
    }
}
