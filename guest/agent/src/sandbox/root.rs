//! The instance's root: an overlay over the shared image, and its own kernel file systems. All of it is in
//! the instance's mount namespace and ends with its last process.

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
    net::Ipv4Addr,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{PermissionsExt, chown, symlink},
    },
    path::Path,
};

/// Device nodes that programs expect: name, major, minor.
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
/// Parts of /proc that affect the whole machine and check only for user 0, not for a capability.
const READ_ONLY: [&str; 4] = ["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq"];
/// Files that show every user what the whole machine does. Others, such as /proc/kpagecount, are readable
/// only by the machine's user 0.
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
/// Directories that do the same.
const HIDDEN_DIRECTORIES: [&str; 6] = [
    "/proc/pressure",
    "/sys/block",
    "/sys/firmware",
    "/sys/kernel/irq",
    "/sys/kernel/mm/squeezy",
    "/sys/kernel/slab",
];
/// An empty directory of the machine, mounted over hidden ones.
const EMPTY: &str = "empty";
/// Memory that an empty file takes outside its partition, in bytes: its inode and dentry, and those of the
/// overlay.
const FILE_BYTES: u64 = 2 << 10;

/// Limits of an instance's files: the writable layer of its root, /tmp and /dev/shm, which are one file
/// system.
pub struct Limits {
    /// Bytes of their contents; Linux's default, half of memory, if absent.
    pub bytes: Option<u64>,
    /// Bytes of the instance's memory outside its partition, which is where inodes are.
    pub outside_bytes: Option<u64>,
}

impl Limits {
    /// Mount options of the file system. An instance that reaches these limits gets ENOSPC; at its memory
    /// limits it would be killed.
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

/// What a root is made of.
pub struct Lower<'a> {
    /// The directories of its layers, the topmost first.
    pub layers: &'a [String],
    /// Whether nothing can be written above them.
    pub is_read_only: bool,
}

/// Builds the root of the instance on `lower` and moves into it. Its files belong to the user. Programs ask `resolver`,
/// if there is one, for the addresses of names.
pub fn enter(
    lower: &Lower<'_>,
    limits: &Limits,
    user: &User,
    resolver: Option<Ipv4Addr>,
) -> io::Result<()> {
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
    if let Some(resolver) = resolver {
        write_resolver(resolver, user)?;
    }
    let directories = mount_lower(lower.layers, user)?;
    let layers = format!("lowerdir={directories},upperdir=upper,workdir=work");
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
    // The old root is now stacked on the new one, and is unmounted.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    for path in READ_ONLY.into_iter().filter(|path| Path::new(path).exists()) {
        read_only(path)?;
    }
    if lower.is_read_only {
        // Mounts on it stay as they are.
        mount_remount("/", MountFlags::BIND | MountFlags::RDONLY | safe, "")?;
    }
    Ok(())
}

/// Mounts the lower layers for the user; returns their directories as overlayfs takes them.
fn mount_lower(lower: &[String], user: &User) -> io::Result<String> {
    if let [root] = lower
        && root == "/"
    {
        // The initramfs cannot be mounted like that. Its files show up as nobody's, but anyone may read them.
        return Ok(root.clone());
    }
    let mut targets = Vec::new();
    for (number, directory) in lower.iter().enumerate() {
        // Short, as all options of a mount have one page.
        let target = format!("lower/{number}");
        fs::create_dir(&target)?;
        mount_for(user, directory, &target)?;
        targets.push(target);
    }
    Ok(targets.join(":"))
}

/// Writes the resolver's address where the C library looks for it: into the upper layer before it is mounted, so that no
/// link in the image leads the writer anywhere.
fn write_resolver(resolver: Ipv4Addr, user: &User) -> io::Result<()> {
    let (directory, file) = ("upper/etc", "upper/etc/resolv.conf");
    fs::create_dir(directory)?;
    fs::write(file, format!("nameserver {resolver}\n"))?;
    for (path, mode) in [(directory, 0o755), (file, 0o644)] {
        chown(path, Some(user.id()), Some(user.id()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Mounts `directory` again at `target`, with the machine's users mapped to those of `user` (an idmapped
/// mount).
fn mount_for(user: &User, directory: &str, target: &str) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, directory, flags)?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user.namespace().as_raw_fd() as u64,
    };
    // SAFETY: the path is a terminated string, the attributes have the size that is passed, and the kernel
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

/// Creates a mount point, unless the image has it, which saves a copy in the overlay.
fn make_directory(target: &str) -> io::Result<()> {
    if Path::new(target).is_dir() { Ok(()) } else { fs::create_dir(target) }
}

/// Mounts kernel file systems in the new root, which is the working directory.
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

/// Hides what does not concern the instance in the new root, which is the working directory.
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
