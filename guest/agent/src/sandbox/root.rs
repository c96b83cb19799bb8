//! The instance's own view of files: an overlay over the shared image, and its own kernel file
//! systems. All of it lives in the instance's mount namespace and ends with its last process.

use crate::init::{SANDBOX, mount_filesystem};
use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change, mount_remount,
        unmount,
    },
    process::{chdir, pivot_root},
};
use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
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
/// Parts of /proc that show or do what an instance has no business with.
const HIDDEN: [&str; 5] =
    ["/proc/kcore", "/proc/keys", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/kpageflags"];
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

/// Makes the root of the instance from `lower` and moves into it.
pub fn enter(lower: &str, limits: &Limits) -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    mount_filesystem("tmpfs", "tmpfs", SANDBOX, safe, &limits.options())?;
    chdir(SANDBOX)?;
    for directory in ["upper", "work", "root", "tmp", "shm"] {
        fs::create_dir(directory)?;
    }
    for shared in ["tmp", "shm"] {
        fs::set_permissions(shared, fs::Permissions::from_mode(0o1777))?;
    }
    let layers = format!("lowerdir={lower},upperdir=upper,workdir=work");
    mount_filesystem("overlay", "overlay", "root", safe, &layers)?;
    chdir("root")?;
    kernel_filesystems()?;
    for (source, target, flags) in
        [("../shm", "dev/shm", safe | MountFlags::NOEXEC), ("../tmp", "tmp", safe)]
    {
        make_directory(target)?;
        mount_bind(source, target)?;
        mount_remount(target, MountFlags::BIND | flags, "")?;
    }
    // The old root comes to lie on top of the new one, and goes.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    restrict_proc()
}

/// Makes a directory to mount at. Where the image has it, the overlay stays without a copy of it.
fn make_directory(target: &str) -> io::Result<()> {
    if Path::new(target).is_dir() { Ok(()) } else { fs::create_dir(target) }
}

/// Mounts in the new root, which is the working directory.
fn kernel_filesystems() -> io::Result<()> {
    let closed = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let devices_only = "mode=755,size=64k,nr_inodes=64";
    for (kind, target, flags, options) in [
        ("proc", "proc", closed, ""),
        ("sysfs", "sys", closed | MountFlags::RDONLY, ""),
        ("tmpfs", "dev", MountFlags::NOSUID | MountFlags::NOEXEC, devices_only),
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

fn restrict_proc() -> io::Result<()> {
    let read_only = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
    for path in READ_ONLY.into_iter().filter(|path| Path::new(path).exists()) {
        mount_bind(path, path)?;
        mount_remount(path, read_only, "")?;
    }
    for path in HIDDEN.into_iter().filter(|path| Path::new(path).exists()) {
        mount_bind("/dev/null", path)?;
    }
    Ok(())
}
