//! Process 1 of an instance's PID namespace.
//!
//! Linux does not deliver signals to process 1 that it has no handler for, even those it sends itself, and
//! makes it the parent of all orphans. Programs are not written for that. So the instance's command is a
//! later process, a child of the agent that joins the namespace, and process 1 does nothing. It is in no
//! partition. It runs as the machine's own user 0 without any capability, so that the instance, which is a
//! different user, can neither signal nor trace it, nor reach the agent's files through it.

use super::privileges;
use std::{fs, io, process::ExitCode};

/// First argument of the executable that selects this mode.
pub const ARGUMENT: &str = "--instance-init";

/// Waits until it is killed, and all processes in the namespace with it.
pub fn main() -> ExitCode {
    if prepare().is_err() {
        // The namespace ends, and starting the sandbox in it fails.
        return ExitCode::FAILURE;
    }
    loop {
        // SAFETY: pause takes no arguments.
        unsafe { libc::pause() };
    }
}

fn prepare() -> io::Result<()> {
    // If this signal is ignored, the kernel reaps the children. SAFETY: the number and the disposition are
    // valid.
    if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    fs::write("/proc/self/oom_score_adj", "0")?;
    privileges::drop_all()
}
