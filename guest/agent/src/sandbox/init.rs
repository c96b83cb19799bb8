//! Process 1 of an instance's pid namespace.
//!
//! Linux spares process 1 every signal that it has no handler for, also those it sends itself, and
//! leaves it the orphans to wait for. No program expects that of itself, so the instance's command is
//! a later process, a child of the agent that joins the namespace, and this one does nothing. It is
//! in no partition. It belongs to the machine's own user 0 without any capability, so that the
//! instance, which is another user, can neither signal nor trace it nor follow it to the agent's files.

use super::privileges;
use std::{fs, io, process::ExitCode};

/// First argument of the executable that means this mode.
pub const ARGUMENT: &str = "--instance-init";

/// Waits until it is killed, with all that the namespace holds.
pub fn main() -> ExitCode {
    if prepare().is_err() {
        // The namespace ends, and whoever would start in it fails.
        return ExitCode::FAILURE;
    }
    loop {
        // SAFETY: pause takes nothing.
        unsafe { libc::pause() };
    }
}

fn prepare() -> io::Result<()> {
    // Who ignores this signal has the kernel reap its children.
    // SAFETY: the number and the disposition are valid.
    if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    fs::write("/proc/self/oom_score_adj", "0")?;
    privileges::drop_all()
}
