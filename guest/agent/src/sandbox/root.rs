//! The instance's root: an overlay over the shared image, and its own kernel file systems. All of it is in
//! the instance's mount namespace and ends with its last process.

use super::{Plan, limits, paths::Covers, tree::Tree, user::User, volumes};
use crate::{
    file_system,
    init::{SANDBOX, mount_filesystem},
};
use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change, mount_remount,
        unmount,
    },
    process::{chdir, pivot_root},
};
use squeezy_protocol::network::RESOLVER;
use std::{
    fs, io,
    net::Ipv4Addr,
    os::unix::fs::{PermissionsExt, chown, symlink},
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
/// An empty directory of the machine, mounted over hidden ones.
const EMPTY: &str = "empty";
/// Most terminals of a root. The kernel takes some 25 KiB of ordinary memory for each that is charged to nobody.
const MAX_TERMINALS: u32 = 16;
/// The group that may write to others' terminals, `tty`, as everywhere.
const TERMINALS_GROUP: u32 = 5;

/// Builds the root of the instance and moves into it. Its files belong to the user.
pub fn enter(plan: &Plan, user: &User) -> io::Result<()> {
    let spec = &plan.spec;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let taken = volumes::take(&spec.volumes, &plan.volumes, user)?;
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    if spec.files_limit_changes {
        Tree::inherited().put_at(SANDBOX)?;
    } else {
        file_system::mount(spec, SANDBOX)?;
    }
    chdir(SANDBOX)?;
    for directory in ["lower", "upper", "work", "root", "tmp", "shm", EMPTY] {
        fs::create_dir(directory)?;
    }
    for (directory, mode) in [("upper", 0o755), ("tmp", 0o1777), ("shm", 0o1777)] {
        chown(directory, Some(user.id()), Some(user.id()))?;
        fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
    }
    // Programs ask it for the addresses of names.
    if plan.address.is_some() {
        write_resolver(RESOLVER, user)?;
    }
    let directories = mount_lower(&plan.lower, user)?;
    let layers = format!("lowerdir={directories},upperdir=upper,workdir=work");
    let programs = if spec.privileges.gained { MountFlags::NODEV } else { safe };
    mount_filesystem("overlay", "overlay", "root", programs, &layers)?;
    chdir("root")?;
    kernel_filesystems(user)?;
    if spec.pseudoterminals {
        pseudoterminals(user)?;
    }
    if spec.sees_message_queues {
        message_queues()?;
    }
    for (source, target, flags) in
        [("../shm", "dev/shm", safe | MountFlags::NOEXEC), ("../tmp", "tmp", safe)]
    {
        make_directory(target)?;
        mount_bind(source, target)?;
        mount_remount(target, MountFlags::BIND | flags, "")?;
    }
    let covers = Covers::take(&format!("../{EMPTY}"))?;
    volumes::put(taken, user)?;
    if spec.sees_limits {
        // After volumes: while /proc and /sys are nothing but the kernel's, none can be put there.
        limits::show(plan)?;
    }
    // After volumes, in which some of these paths may be, and while the empty directory is mounted here.
    covers.put(&spec.read_only_paths, &spec.hidden_paths)?;
    // The old root is now stacked on the new one, and is unmounted.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    if !Path::new(&spec.working_directory).exists() {
        // Where it cannot be made, entering it says so.
        let _ = volumes::make_directory(&spec.working_directory, user);
    }
    if spec.read_only_root {
        // Mounts on it stay as they are.
        mount_remount("/", MountFlags::BIND | MountFlags::RDONLY | programs, "")?;
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
        Tree::of(directory)?.mapped_to(user)?.put_at(&target)?;
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

/// Creates a mount point, unless the image has it, which saves a copy in the overlay. A link of the image would lead
/// the mount out of the root, or to where nobody covers what it shows.
fn make_directory(target: &str) -> io::Result<()> {
    match fs::symlink_metadata(target) {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => {
            let message = format!("/{target} of the image is not a directory");
            Err(io::Error::new(io::ErrorKind::NotADirectory, message))
        }
        Err(_) => fs::create_dir(target),
    }
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

/// Mounts a /dev/pts in the new root, in which only the instance's programs make terminals.
fn pseudoterminals(user: &User) -> io::Result<()> {
    let options = format!(
        "newinstance,max={MAX_TERMINALS},ptmxmode=0666,mode=0620,gid={}",
        user.id() + TERMINALS_GROUP
    );
    fs::create_dir("dev/pts")?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_filesystem("devpts", "devpts", "dev/pts", flags, &options)?;
    symlink("pts/ptmx", "dev/ptmx")
}

/// Mounts the message queues of the IPC namespace in the new root. The kernel makes no more of them in it than without
/// that (docs/threat-model.md).
fn message_queues() -> io::Result<()> {
    fs::create_dir("dev/mqueue")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_filesystem("mqueue", "mqueue", "dev/mqueue", flags, "")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_no_link_of_the_image() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).display().to_string();
        make_directory(&at("proc")).unwrap();
        make_directory(&at("proc")).unwrap();
        for (name, target) in [("inside", "proc"), ("outside", "/proc"), ("nowhere", "/none")] {
            symlink(target, at(name)).unwrap();
            assert!(make_directory(&at(name)).unwrap_err().to_string().contains("not a directory"));
        }
    }
}
