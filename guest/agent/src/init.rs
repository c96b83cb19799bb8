//! The agent's duties as process 1: mounts, limits, ending the VM.

use crate::{cgroup, console, network, sysctl};
use rustix::{
    mount::{MountFlags, mount, mount_bind, mount_move},
    process::{chdir, chroot},
    system::{RebootCommand, reboot},
};
use squeezy_protocol::ImageNumber;
use std::{fs, io, os::fd::AsRawFd, path::Path};

/// Where the functions' images are mounted, each in a directory named after its number.
const IMAGES: &str = "/run/squeezy/images";
/// Empty directory on which each instance builds its root, in its own mount namespace.
pub const SANDBOX: &str = "/run/squeezy/sandbox";
/// Where the terminals of instances are; instances cannot make any.
pub const TERMINALS: &str = "/dev/pts";
/// How many files the agent may have open; each instance takes at most eight.
const MAX_FILES: u64 = 16384;

/// Enables huge pages for programs that ask for them. Linux turns them off in a machine that boots with less
/// than 512 MiB, as ours does, even if memory is plugged later.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Sets up the machine. Must run before there is a second thread.
pub fn set_up() -> io::Result<()> {
    leave_rootfs()?;
    let nodev = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    for (kind, target, flags, options) in [
        ("proc", "/proc", nodev, ""),
        ("sysfs", "/sys", nodev, ""),
        ("devtmpfs", "/dev", MountFlags::NOSUID, "mode=755"),
        ("devpts", TERMINALS, MountFlags::NOSUID | MountFlags::NOEXEC, "mode=600"),
        ("tmpfs", "/run", MountFlags::NOSUID | MountFlags::NODEV, "mode=755"),
        ("tmpfs", "/tmp", MountFlags::NOSUID | MountFlags::NODEV, "mode=1777"),
        ("cgroup2", cgroup::ROOT, nodev, ""),
        ("tracefs", "/sys/kernel/tracing", nodev, "mode=700"),
        ("debugfs", "/sys/kernel/debug", nodev, "mode=700"),
    ] {
        let done = fs::create_dir_all(target)
            .and_then(|()| mount_filesystem(kind, kind, target, flags, options));
        match done {
            // A kernel may be built without these two.
            Err(e) if kind == "tracefs" || kind == "debugfs" => console!("{e}"),
            other => other?,
        }
    }
    console_as_standard_streams();
    fs::create_dir_all(SANDBOX)?;
    cgroup::set_up().map_err(|e| io::Error::new(e.kind(), format!("cgroups: {e}")))?;
    fs::write("/proc/self/oom_score_adj", "-1000")?;
    let files = rustix::process::Rlimit { current: Some(MAX_FILES), maximum: Some(MAX_FILES) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, files)?;
    sysctl::set_all();
    if let Err(e) = network::set_up() {
        console!("{}: {e}", network::DEVICE);
    }
    if let Err(e) = enable_huge_pages() {
        console!("{HUGE_PAGES}: {e}");
    }
    Ok(())
}

/// Leaves what the kernel's command line asks for as it is.
fn enable_huge_pages() -> io::Result<()> {
    match fs::read_to_string(HUGE_PAGES) {
        Ok(setting) if setting.contains("[never]") => fs::write(HUGE_PAGES, "madvise"),
        Ok(_) => Ok(()),
        // A kernel without huge pages.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// mount(2), with an error that says what was to be mounted where.
pub fn mount_filesystem(
    source: &str,
    kind: &str,
    target: &str,
    flags: MountFlags,
    options: &str,
) -> io::Result<()> {
    let options = std::ffi::CString::new(options)?;
    mount(source, target, kind, flags, options.as_c_str()).map_err(|e| {
        let e = io::Error::from(e);
        io::Error::new(e.kind(), format!("mounting {kind} from {source} at {target}: {e}"))
    })
}

/// pivot_root(2) refuses to leave the initramfs itself, which would keep instances from having their own
/// roots. So moves to a bind mount of it.
fn leave_rootfs() -> io::Result<()> {
    fs::create_dir_all("/run")?;
    mount_bind("/", "/run")?;
    chdir("/run")?;
    mount_move(".", "/")?;
    chroot(".")?;
    chdir("/")?;
    Ok(())
}

/// The kernel gives init no open files when the initramfs has no /dev/console.
fn console_as_standard_streams() {
    let Ok(console) = fs::OpenOptions::new().read(true).write(true).open("/dev/console") else {
        return;
    };
    for stream in 0..3 {
        // SAFETY: dup2 replaces the standard streams, which nothing in this process owns.
        unsafe { libc::dup2(console.as_raw_fd(), stream) };
    }
}

/// The directory of an image. It is mounted by the first instance that uses it, so that a broken image
/// affects only its own instances.
pub fn image(number: ImageNumber) -> io::Result<String> {
    let directory = format!("{IMAGES}/{number}");
    if Path::new(&directory).exists() {
        return Ok(directory);
    }
    let serial = number.serial();
    let device = device_of(&serial).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("this VM has no drive with the serial {serial:?}"),
        )
    })?;
    fs::create_dir_all(&directory)?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    let mounted = mount_filesystem(&format!("/dev/{device}"), "erofs", &directory, flags, "");
    if let Err(error) = mounted {
        // The next instance tries again.
        let _ = fs::remove_dir(&directory);
        return Err(error);
    }
    Ok(directory)
}

/// The name of the drive with this serial.
pub fn device_of(serial: &str) -> Option<String> {
    fs::read_dir("/sys/block").ok()?.flatten().find_map(|entry| {
        let found = fs::read_to_string(entry.path().join("serial")).ok()?;
        (found.trim() == serial).then(|| entry.file_name().to_string_lossy().into_owned())
    })
}

/// Ends the VM.
pub fn power_off() -> ! {
    rustix::fs::sync();
    let error = reboot(RebootCommand::PowerOff);
    // Only reached with a missing capability or a broken platform.
    end(format_args!("cannot power off: {error:?}"))
}

/// Ends the agent, and with it the VM: the end of process 1 is a kernel panic, and with `panic=-1` the guest
/// reboots at once, which ends the VMM's process. The host notices that.
pub fn end(reason: std::fmt::Arguments<'_>) -> ! {
    console!("fatal: {reason}");
    // A panicking kernel does not send what is still in the serial port's buffer.
    let _ = rustix::termios::tcdrain(std::io::stderr());
    std::process::exit(1)
}
