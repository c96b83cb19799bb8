//! Starts the processes of an instance: process 1 of its PID namespace, and the one that becomes its command.

use crate::sandbox::{self, PLAN_FD, REPORT_FD};
use rustix::{
    io::fcntl_dupfd_cloexec,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// A file descriptor above all those that the children start with.
const ABOVE_CHILD_FDS: i32 = 16;

/// From linux/sched.h: the type of libc's constant is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The files that the new processes start with.
pub struct Files<'a> {
    /// The cgroup to start in.
    pub cgroup: BorrowedFd<'a>,
    /// Standard output of the command.
    pub output: BorrowedFd<'a>,
    /// Its standard error, perhaps the same.
    pub error: BorrowedFd<'a>,
    /// The plan of the sandbox.
    pub plan: BorrowedFd<'a>,
    /// Where the sandbox reports to.
    pub report: BorrowedFd<'a>,
}

/// Starts the agent's own executable twice in the cgroup: as process 1 of a new PID namespace, and in sandbox
/// mode in that namespace. Returns the process ID of the latter. If starting that fails, the former is left
/// in the cgroup.
pub fn spawn(files: &Files<'_>) -> io::Result<u32> {
    let null = File::open("/dev/null")?;
    let null = null.as_fd();
    let (cgroup, new_namespace) = (files.cgroup, libc::CLONE_NEWPID as u64);
    let none = [(null, 0), (null, 1), (null, 2)];
    let init = start(sandbox::init::ARGUMENT, cgroup, new_namespace, &none)?;
    let its = File::open(format!("/proc/{init}/ns/pid"))?;
    let own = File::open("/proc/self/ns/pid")?;
    let enter = |namespace: &File| {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ProcessID))
    };
    // This affects only the agent's next children, not the agent itself.
    enter(&its)?;
    let sandbox = start(
        sandbox::ARGUMENT,
        cgroup,
        0,
        &[
            (null, 0),
            (files.output, 1),
            (files.error, 2),
            (files.plan, PLAN_FD),
            (files.report, REPORT_FD),
        ],
    );
    enter(&own).expect("the agent can go back to its own pid namespace");
    sandbox
}

/// Starts the executable in the mode given by `argument`, with these files as descriptors of these numbers.
///
/// Starting in the cgroup avoids a later move, which would wait for an RCU grace period.
fn start(
    argument: &str,
    cgroup: BorrowedFd<'_>,
    flags: u64,
    files: &[(BorrowedFd<'_>, i32)],
) -> io::Result<u32> {
    // Out of the way of the descriptors that dup2 will overwrite.
    let sources: Vec<(OwnedFd, i32)> = files
        .iter()
        .map(|&(file, number)| Ok((fcntl_dupfd_cloexec(file, ABOVE_CHILD_FDS)?, number)))
        .collect::<io::Result<_>>()?;
    let program = CString::new("/proc/self/exe").expect("no zero byte");
    let argument = CString::new(argument).expect("no zero byte");
    let arguments = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];

    // SAFETY: all-zero bytes are a valid clone_args.
    let mut clone: libc::clone_args = unsafe { std::mem::zeroed() };
    clone.flags = flags | CLONE_INTO_CGROUP;
    clone.exit_signal = libc::SIGCHLD as u64;
    clone.cgroup = cgroup.as_raw_fd() as u64;
    // SAFETY: without CLONE_VM this is a fork. Until it executes or exits, the child only makes system calls,
    // on files and strings created before: it touches no lock or allocator.
    unsafe {
        let pid = libc::syscall(
            libc::SYS_clone3,
            &raw mut clone,
            std::mem::size_of::<libc::clone_args>(),
        );
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                for (source, target) in &sources {
                    if libc::dup2(source.as_raw_fd(), *target) < 0 {
                        libc::_exit(125);
                    }
                }
                libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                libc::_exit(126)
            }
            pid => Ok(pid as u32),
        }
    }
}
