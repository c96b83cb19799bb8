//! Starts the process that becomes an instance.

use crate::sandbox::{ARGUMENT, PLAN_FD, REPORT_FD};
use rustix::io::fcntl_dupfd_cloexec;
use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// The first file number that none of the child's own files has.
const ABOVE_CHILD_FDS: i32 = 16;

/// From linux/sched.h: libc's constant has a type that is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The files that the new process starts with.
pub struct Files<'a> {
    /// The cgroup to be born in.
    pub cgroup: BorrowedFd<'a>,
    /// Its standard output and error.
    pub output: BorrowedFd<'a>,
    /// Its plan.
    pub plan: BorrowedFd<'a>,
    /// Where it reports to.
    pub report: BorrowedFd<'a>,
}

/// Starts the agent's own executable in sandbox mode, in the cgroup and as process 1 of a new pid
/// namespace; returns its process id.
///
/// To be born in the cgroup spares a move, which waits for an RCU grace period.
pub fn spawn(files: Files<'_>) -> io::Result<u32> {
    let null = File::open("/dev/null")?;
    // Out of the way of the numbers that dup2 will write to.
    let high =
        |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, ABOVE_CHILD_FDS).map_err(io::Error::from);
    let sources: [(OwnedFd, i32); 5] = [
        (high(null.as_fd())?, 0),
        (high(files.output)?, 1),
        (high(files.output)?, 2),
        (high(files.plan)?, PLAN_FD),
        (high(files.report)?, REPORT_FD),
    ];
    let program = CString::new("/proc/self/exe").expect("no zero byte");
    let argument = CString::new(ARGUMENT).expect("no zero byte");
    let arguments = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];

    // SAFETY: all-zero bytes are a valid clone_args.
    let mut clone: libc::clone_args = unsafe { std::mem::zeroed() };
    clone.flags = libc::CLONE_NEWPID as u64 | CLONE_INTO_CGROUP;
    clone.exit_signal = libc::SIGCHLD as u64;
    clone.cgroup = files.cgroup.as_raw_fd() as u64;
    // SAFETY: without CLONE_VM this is a fork. The child does system calls only, on files and
    // strings that were made before, until it executes or exits: no lock or allocator is touched.
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
