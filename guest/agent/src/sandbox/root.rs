//! The instance's own view of files: an overlay over the shared image, and its own kernel file
//! systems. All of it lives in the instance's mount namespace and ends with its last process.

use super::user::User;
use crate::init::{SANDBOX, mount_filesystem};
use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_bind,
        mount_change, mount_remount, move_mount, open_tree, unmount,
    },
    process::{chdir, pivot_root},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{PermissionsExt, chown, symlink},
    },
    path::Path,
};

/// Device nodes every program may expect: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// Parts of /proc that act on the whole machine and ask for no capability but user 0.
const READ_ONLY: [&str; 4] = ["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq"];
/// Files that show every user what the whole machine does. Others, such as /proc/kpagecount, are for the
/// machine's user 0 only.
const HIDDEN_FILES: [&str; 9] = [
    "/proc/buddyinfo",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/kallsyms",
    "/proc/partitions",
    "/proc/schedstat",
    "/proc/softirqs",
    "/proc/zoneinfo",
];
/// The same for directories.
const HIDDEN_DIRECTORIES: [&str; 6] = [
    "/proc/pressure",
    "/sys/block",
    "/sys/firmware",
    "/sys/kernel/irq",
    "/sys/kernel/mm/squeezy",
    "/sys/kernel/slab",
];
/// An empty directory of the machine's, to hide others behind.
const EMPTY: &str = "empty";
/// What an empty file takes of memory outside of its partition: its inode and its name, and those of
/// the overlay.
const FILE_BYTES: u64 = 2 << 10;

/// How much the files of an instance may take: the writable layer of its root, /tmp and /dev/shm
/// together, which are one file system.
pub struct Limits {
    /// Bytes of their contents; Linux's own limit, half of memory, where there is none.
    pub bytes: Option<u64>,
    /// Bytes of all memory that is not in the instance's partition, where inodes are.
    pub outside_bytes: Option<u64>,
}

impl Limits {
    /// The options of the file system. An instance that has reached them is told that there is no
    /// space; at its memory's own limits it would be killed.
    fn options(&self) -> String {
        let mut options = "mode=755".to_owned();
        if let Some(bytes) = self.bytes {
            options += &format!(",size={bytes}");
        }
        if let Some(bytes) = self.outside_bytes {
            options += &format!(",nr_inodes={}", bytes / 2 / FILE_BYTES);
        }
        options
    }
}

/// Makes the root of the instance from `lower` and moves into it. Its files are the user's.
pub fn enter(lower: &str, limits: &Limits, user: &User) -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    mount_filesystem("tmpfs", "tmpfs", SANDBOX, safe, &limits.options())?;
    chdir(SANDBOX)?;
    for directory in ["lower", "upper", "work", "root", "tmp", "shm", EMPTY] {
        fs::create_dir(directory)?;
    }
    for (directory, mode) in [("upper", 0o755), ("tmp", 0o1777), ("shm", 0o1777)] {
        chown(directory, Some(user.id()), Some(user.id()))?;
        fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
    }
    let lower = if lower == "/" {
        // The initramfs cannot be mounted so. The guest's own tools are nobody's, for all to read.
        lower
    } else {
        mount_for(user, lower, "lower")?;
        "lower"
    };
    let layers = format!("lowerdir={lower},upperdir=upper,workdir=work");
    mount_filesystem("overlay", "overlay", "root", safe, &layers)?;
    chdir("root")?;
    kernel_filesystems(user)?;
    for (source, target, flags) in
        [("../shm", "dev/shm", safe | MountFlags::NOEXEC), ("../tmp", "tmp", safe)]
    {
        make_directory(target)?;
        mount_bind(source, target)?;
        mount_remount(target, MountFlags::BIND | flags, "")?;
    }
    hide()?;
    // The old root comes to lie on top of the new one, and goes.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    for path in READ_ONLY.into_iter().filter(|path| Path::new(path).exists()) {
        read_only(path)?;
    }
    Ok(())
}

/// Mounts `directory` a second time, at `target`, where what belongs to the machine's users belongs to
/// the same of `user`'s.
fn mount_for(user: &User, directory: &str, target: &str) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, directory, flags)?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user.namespace().as_raw_fd() as u64,
    };
    // SAFETY: the path is a terminated string, the attributes are as large as said, and the kernel
    // only reads both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            std::mem::size_of_val(&attributes),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    move_mount(tree.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Makes a directory to mount at. Where the image has it, the overlay stays without a copy of it.
fn make_directory(target: &str) -> io::Result<()> {
    if Path::new(target).is_dir() { Ok(()) } else { fs::create_dir(target) }
}

/// Mounts in the new root, which is the working directory.
fn kernel_filesystems(user: &User) -> io::Result<()> {
    let closed = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let devices_only = format!("mode=755,size=64k,nr_inodes=64,uid={0},gid={0}", user.id());
    for (kind, target, flags, options) in [
        ("proc", "proc", closed, ""),
        ("sysfs", "sys", closed | MountFlags::RDONLY, ""),
        ("tmpfs", "dev", MountFlags::NOSUID | MountFlags::NOEXEC, &devices_only),
    ] {
        make_directory(target)?;
        mount_filesystem(kind, kind, target, flags, options)?;
        if target == "dev" {
            devices()?;
        }
    }
    Ok(())
}

fn devices() -> io::Result<()> {
    for (name, major, minor) in DEVICES {
        let path = Path::new("dev").join(name);
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(major, minor))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    }
    for (name, target) in LINKS {
        symlink(target, Path::new("dev").join(name))?;
    }
    Ok(())
}

/// Hides what is not the instance's in the new root, which is the working directory.
fn hide() -> io::Result<()> {
    let places = HIDDEN_FILES
        .into_iter()
        .map(|path| ("dev/null".to_owned(), path))
        .chain(HIDDEN_DIRECTORIES.into_iter().map(|path| (format!("../{EMPTY}"), path)));
    for (by, path) in places {
        let path = path.trim_start_matches('/');
        if Path::new(path).exists() {
            mount_bind(by, path)?;
        }
    }
    Ok(())
}

fn read_only(path: &str) -> io::Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_bind(path, path)?;
    mount_remount(path, flags, "")?;
    Ok(())
}
