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
/// Size of the writable layer, of /tmp and of /dev/shm where the instance has no memory limit.
/// All three are charged to the instance's cgroup besides.
const UNLIMITED_SIZE: &str = "50%";

/// Makes the root of the instance from `lower` and moves into it.
pub fn enter(lower: &str, memory_limit_bytes: Option<u64>) -> io::Result<()> {
    let size = memory_limit_bytes.map_or(UNLIMITED_SIZE.to_owned(), |bytes| bytes.to_string());
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    mount_filesystem("tmpfs", "tmpfs", SANDBOX, safe, &format!("mode=755,size={size}"))?;
    chdir(SANDBOX)?;
    for directory in ["upper", "work", "root"] {
        fs::create_dir(directory)?;
    }
    let layers = format!("lowerdir={lower},upperdir=upper,workdir=work");
    mount_filesystem("overlay", "overlay", "root", safe, &layers)?;
    chdir("root")?;
    kernel_filesystems(&size)?;
    // The old root comes to lie on top of the new one, and goes.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    restrict_proc()
}

/// Mounts in the new root, which is the working directory.
fn kernel_filesystems(size: &str) -> io::Result<()> {
    let data = MountFlags::NOSUID | MountFlags::NODEV;
    let closed = data | MountFlags::NOEXEC;
    for (kind, target, flags, options) in [
        ("proc", "proc", closed, String::new()),
        ("sysfs", "sys", closed | MountFlags::RDONLY, String::new()),
        ("tmpfs", "dev", MountFlags::NOSUID | MountFlags::NOEXEC, "mode=755,size=64k".to_owned()),
        ("tmpfs", "dev/shm", closed, format!("mode=1777,size={size}")),
        ("tmpfs", "tmp", data, format!("mode=1777,size={size}")),
    ] {
        // Where the image has the directory, the overlay stays without a copy of it.
        if !Path::new(target).is_dir() {
            fs::create_dir(target)?;
        }
        mount_filesystem(kind, kind, target, flags, &options)?;
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
