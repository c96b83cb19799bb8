//! Starts the processes of an instance: process 1 of its PID namespace, and the one that becomes its command.

use super::{
    companion::Companion,
    process::{self, Process},
};
use crate::{
    abi,
    sandbox::{self, COMPANION_FD, FILE_SYSTEM_FD, NETWORK_FD, PLAN_FD, REPORT_FD, USERS_FD, init},
};
use rustix::{
    io::fcntl_dupfd_cloexec,
    pipe::{PipeFlags, pipe_with},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver};

/// A file descriptor above all those that the children start with.
const ABOVE_CHILD_FDS: i32 = 16;

/// From linux/sched.h: the type of libc's constant is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The files that the sandbox starts with.
pub struct Files<'a> {
    /// Standard input of the command.
    pub input: BorrowedFd<'a>,
    /// Its standard output.
    pub output: BorrowedFd<'a>,
    /// Its standard error, perhaps the same.
    pub error: BorrowedFd<'a>,
    /// The plan of the sandbox.
    pub plan: BorrowedFd<'a>,
    /// Where the sandbox reports to.
    pub report: BorrowedFd<'a>,
    /// The network that it is to be in.
    pub network: Option<BorrowedFd<'a>>,
    /// The file system with its files, if it does not make that itself.
    pub file_system: Option<BorrowedFd<'a>>,
}

/// Starts the agent's own executable in the cgroup, as process 1 of a new PID namespace. Returns the namespace. If that
/// fails, the process may be left in the cgroup.
pub fn start_init(cgroup: BorrowedFd<'_>) -> io::Result<File> {
    let null = File::open("/dev/null")?;
    let null = null.as_fd();
    let new_namespace = libc::CLONE_NEWPID as u64;
    let none = [(null, 0), (null, 1), (null, 2)];
    let process = start(init::ARGUMENT, cgroup, new_namespace, &none, None)?;
    File::open(format!("/proc/{}/ns/pid", process.id()))
}

/// The same in the partition of a companion.
///
/// A process joins by an id that it sees, and it is born into its PID namespace. So one that sees the companion joins,
/// and makes the namespace and its process 1, which is in the partition because its parent is; whoever is in the
/// namespace can join that.
pub async fn start_init_beside(cgroup: BorrowedFd<'_>, companion: &Companion) -> io::Result<File> {
    let null = File::open("/dev/null")?;
    let null = null.as_fd();
    let (answer, answers) = pipe_with(PipeFlags::CLOEXEC)?;
    let files = [(null, 0), (null, 1), (null, 2), (answers.as_fd(), init::ANSWER_FD)];
    start(init::APART_ARGUMENT, cgroup, 0, &files, Some(companion.process()))?;
    drop(answers);
    let mut pid = [0; 4];
    Receiver::from_owned_fd(answer)?.read_exact(&mut pid).await?;
    File::open(format!("/proc/{}/ns/pid", u32::from_ne_bytes(pid)))
}

/// Starts the agent's own executable in sandbox mode, in the cgroup and the PID namespace, which is given by itself or
/// by a descriptor of a process in it; without one, as process 1 of a new one.
pub fn start_sandbox(
    cgroup: BorrowedFd<'_>,
    namespace: Option<BorrowedFd<'_>>,
    files: &Files<'_>,
    companion: Option<&Companion>,
) -> io::Result<Process> {
    let mut all = vec![
        (files.input, 0),
        (files.output, 1),
        (files.error, 2),
        (files.plan, PLAN_FD),
        (files.report, REPORT_FD),
    ];
    if let Some(companion) = companion {
        all.push((companion.process().as_fd(), COMPANION_FD));
        all.push((companion.users(), USERS_FD));
    }
    if let Some(network) = files.network {
        all.push((network, NETWORK_FD));
    }
    if let Some(file_system) = files.file_system {
        all.push((file_system, FILE_SYSTEM_FD));
    }
    let Some(namespace) = namespace else {
        return start(sandbox::ARGUMENT, cgroup, libc::CLONE_NEWPID as u64, &all, None);
    };
    let own = File::open("/proc/self/ns/pid")?;
    let enter = |namespace: BorrowedFd<'_>| {
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::ProcessID))
    };
    // This affects only the agent's next children, not the agent itself.
    enter(namespace)?;
    let sandbox = start(sandbox::ARGUMENT, cgroup, 0, &all, None);
    enter(own.as_fd()).expect("the agent can go back to its own pid namespace");
    sandbox
}

/// Starts the executable in the mode given by `argument`, with these files as descriptors of these numbers; in the
/// partition of the process `beside`, if there is one.
///
/// Starting in the cgroup avoids a later move, which would wait for an RCU grace period.
fn start(
    argument: &str,
    cgroup: BorrowedFd<'_>,
    flags: u64,
    files: &[(BorrowedFd<'_>, i32)],
    beside: Option<&Process>,
) -> io::Result<Process> {
    // Out of the way of the descriptors that dup2 will overwrite.
    let sources: Vec<(OwnedFd, i32)> = files
        .iter()
        .map(|&(file, number)| Ok((fcntl_dupfd_cloexec(file, ABOVE_CHILD_FDS)?, number)))
        .collect::<io::Result<_>>()?;
    let beside = match beside {
        Some(process) => Some((process.id(), fcntl_dupfd_cloexec(process, ABOVE_CHILD_FDS)?)),
        None => None,
    };
    let program = CString::new("/proc/self/exe").expect("no zero byte");
    let argument = CString::new(argument).expect("no zero byte");
    let arguments = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];

    let mut descriptor: RawFd = -1;
    // SAFETY: all-zero bytes are a valid clone_args.
    let mut clone: libc::clone_args = unsafe { std::mem::zeroed() };
    clone.flags = flags | CLONE_INTO_CGROUP | libc::CLONE_PIDFD as u64;
    clone.pidfd = &raw mut descriptor as u64;
    clone.exit_signal = libc::SIGCHLD as u64;
    clone.cgroup = cgroup.as_raw_fd() as u64;
    // SAFETY: without CLONE_VM this is a fork. Until it executes or exits, the child only makes system calls,
    // on files and strings created before: it touches no lock or allocator. The kernel writes the parent's
    // descriptor, which nobody else has.
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
                if let Some((id, process)) = &beside
                    && !join(*id, process.as_fd())
                {
                    libc::_exit(124);
                }
                libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                libc::_exit(126)
            }
            pid => Ok(Process::new(pid as u32, OwnedFd::from_raw_fd(descriptor))),
        }
    }
}

/// Joins the partition of a process from the next execve on. It is between fork and execve.
fn join(id: u32, process: BorrowedFd<'_>) -> bool {
    // If it is not reaped yet, it was its id, and nobody else's.
    abi::join(id).is_ok() && process::signal(process, 0).is_ok()
}
