//! Paths in the root that show nothing, or that cannot be written to.

use super::{
    beneath::{self, IN_ROOT},
    tree::Tree,
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};
use std::{collections::BTreeSet, io, os::fd::OwnedFd};

/// Parts of /proc that affect the whole machine and check only for user 0, not for a capability.
const READ_ONLY: [&str; 4] = ["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq"];
/// What shows every user what the whole machine does. Other files, such as /proc/kpagecount, are readable only by the
/// machine's user 0.
const HIDDEN: [&str; 16] = [
    "/proc/buddyinfo",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/kallsyms",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/schedstat",
    "/proc/softirqs",
    "/proc/zoneinfo",
    "/sys/block",
    "/sys/firmware",
    "/sys/kernel/irq",
    "/sys/kernel/mm/llfree",
    "/sys/kernel/mm/squeezy",
    "/sys/kernel/slab",
];
/// A file that shows nothing, in the new root.
const NOTHING: &str = "dev/null";

/// What hidden paths are covered with.
pub struct Covers {
    /// A file that shows nothing.
    file: OwnedFd,
    /// An empty directory.
    directory: OwnedFd,
}

impl Covers {
    /// Takes the file from the new root, which is the working directory, and the directory from the path `empty`. Before
    /// there are volumes in the root: at /dev, one may have a link to a file of the machine instead.
    pub fn take(empty: &str) -> io::Result<Self> {
        Ok(Self { file: open(NOTHING)?, directory: open(empty)? })
    }

    /// Covers these paths of the new root, which is the working directory, and those of every instance: read-only ones
    /// with themselves, hidden ones with what shows nothing. What is not there is left out.
    ///
    /// Links of the image and of volumes lead nowhere but into the root. Another container may write to a volume
    /// meanwhile: with a link, something else of this root is covered, or the start fails, and nothing of the machine is
    /// shown. It can also give what is covered another name, or its name to something else, at any time. So what is
    /// covered in a volume is not kept from the pod's other containers, nor from this one if they help it.
    pub fn put(&self, read_only: &[String], hidden: &[String]) -> io::Result<()> {
        let root = open(".")?;
        for place in places(&root, &READ_ONLY, read_only) {
            let place = place?;
            Tree::all_of(&place)?.read_only()?.put(&place)?;
        }
        // After these, which would show what is hidden below them.
        for place in places(&root, &HIDDEN, hidden) {
            let place = place?;
            let by = match FileType::from_raw_mode(fstat(&place)?.st_mode) {
                FileType::Directory => &self.directory,
                _ => &self.file,
            };
            Tree::at(by)?.put(&place)?;
        }
        Ok(())
    }
}

/// Opens something only to say where it is.
fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Those of all these paths that are there.
fn places<'a>(
    root: &'a OwnedFd,
    always: &'a [&str],
    more: &'a [String],
) -> impl Iterator<Item = io::Result<OwnedFd>> + 'a {
    let more = more.iter().map(String::as_str);
    let paths: BTreeSet<&str> = always.iter().copied().chain(more).collect();
    let open = move |path| match beneath::open(root, path, OFlags::empty(), IN_ROOT) {
        Ok(place) => Some(Ok(place)),
        Err(Errno::NOENT | Errno::NOTDIR) => None,
        Err(error) => {
            let error = io::Error::from(error);
            Some(Err(io::Error::new(error.kind(), format!("{path}: {error}"))))
        }
    };
    paths.into_iter().filter_map(open)
}
