//! Whether VMs can have a network on this host.

use super::{confine, own};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::{fs, io, os::fd::AsRawFd};

/// The host's setting of who may trace whom (Yama); 2 leaves it to root.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Why VMs cannot have a network on this host, and what to do about it, as one sentence; `None` if they can.
pub fn problem() -> Option<String> {
    if let Some(problem) = own::problem() {
        return Some(problem);
    }
    let scope = fs::read_to_string(PTRACE_SCOPE).ok().and_then(|scope| scope.trim().parse().ok());
    if scope.is_some_and(|scope: u8| scope > 1) && !rustix::process::geteuid().is_root() {
        return Some(
            "functions can have no network while only root may look into QEMU: `sysctl kernel.yama.ptrace_scope=1`"
                .to_owned(),
        );
    }
    // On a thread that is then done with: what confines it cannot be undone.
    let tried = std::thread::spawn(try_out).join();
    let error = tried.unwrap_or_else(|_| Err(io::Error::other("it panics"))).err()?;
    Some(match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "functions can have no network, because this process's system calls are supervised by \
             somebody else: run it outside that container"
                .to_owned()
        }
        _ => format!(
            "functions can have no network, because QEMU's system calls cannot be supervised \
             ({error}): that needs Linux 5.19 with seccomp"
        ),
    })
}

fn try_out() -> io::Result<()> {
    let own = Pid::from_raw(std::process::id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(own, PidfdFlags::empty())?;
    pidfd_getfd(&process, process.as_raw_fd(), PidfdGetfdFlags::empty())?;
    confine([-1, -1]).map(drop)
}
