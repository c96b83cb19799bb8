//! Process 1 of an instance's PID namespace.
//!
//! Linux does not deliver signals to process 1 that it has no handler for, even those it sends itself, and
//! makes it the parent of all orphans. Programs are not written for that. So the instance's command is a
//! later process, a child of the agent that joins the namespace, and process 1 does nothing. It is in no
//! partition, unless the instance shares that of another one. It runs as the machine's own user 0 without any
//! capability, so that the instance, which is a different user, can neither signal nor trace it, nor reach the agent's
//! files through it.
//!
//! An instance without a command is nothing but such a process: it was the sandbox before, and is in the partition.

use super::privileges;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::{
    fs::{self, File},
    io::{self, Write},
    os::fd::{FromRawFd, RawFd},
    process::ExitCode,
};

/// First argument of the executable that selects this mode.
pub const ARGUMENT: &str = "--instance-init";
/// The same, in a PID namespace that this process makes first: it inherits its partition.
pub const APART_ARGUMENT: &str = "--instance-init-apart";
/// Its id in the namespace.
pub const PROCESS: u32 = 1;
/// Where the id that it has outside is written to, 4 bytes in the machine's order.
pub const ANSWER_FD: RawFd = 3;

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

/// Makes a PID namespace with a process 1 that waits until it is killed, and says which one it is.
pub fn main_apart() -> ExitCode {
    // SAFETY: the agent passes this file, and nothing else in this process owns it.
    let answer = unsafe { File::from_raw_fd(ANSWER_FD) };
    match fork_apart() {
        Ok(0) => {
            drop(answer);
            main()
        }
        Ok(pid) => match (&answer).write_all(&pid.to_ne_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(_) => ExitCode::FAILURE,
    }
}

/// Returns the id of the child, and 0 in it.
fn fork_apart() -> io::Result<i32> {
    // SAFETY: this flag unshares neither the file table nor memory, and there is one thread, so that a child may do
    // whatever this process may.
    unsafe {
        unshare_unsafe(UnshareFlags::NEWPID)?;
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(pid),
        }
    }
}

fn prepare() -> io::Result<()> {
    // If this signal is ignored, the kernel reaps the children. SAFETY: the number and the disposition are
    // valid.
    if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    // Ending it would end all of them, and free nothing.
    fs::write("/proc/self/oom_score_adj", "-999")?;
    privileges::drop_all()
}
