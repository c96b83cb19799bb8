//! What a process, or the user of an instance, may have of what is neither memory nor processes.

use crate::cgroup::MAX_PROCESSES;
use rustix::process::{Resource, Rlimit, setrlimit};
use squeezy_protocol::Seccomp;
use std::io;

/// Each with what it starts at and what a program may raise it to. Without a line, a limit is what the
/// kernel gives process 1: some of those depend on how much memory the machine had when it booted.
const LIMITS: [(Resource, u64, u64); 4] = [
    // Files of one process; what they take is the cgroup's memory.
    (Resource::Nofile, 1024, 65536),
    // The cgroup's own limit is the same, and says so in the log.
    (Resource::Nproc, MAX_PROCESSES as u64, MAX_PROCESSES as u64),
    // Queued signals and POSIX timers of the instance.
    (Resource::Sigpending, 4096, 4096),
    // Bytes in POSIX message queues of the instance.
    (Resource::Msgqueue, 819_200, 819_200),
];

/// Bytes that a process keeps from being reclaimed or moved. Its own memory is not reclaimed anyway; but
/// files of the image are in the shared partition, which is everybody's. io_uring, which the default
/// filter of system calls has not, counts its rings for the whole user.
const fn locked_bytes(seccomp: Seccomp) -> u64 {
    match seccomp {
        Seccomp::Default => 64 << 10,
        Seccomp::Unconfined => 8 << 20,
    }
}

/// Sets them for this process and all that come of it.
pub fn set(seccomp: Seccomp) -> io::Result<()> {
    let locked = locked_bytes(seccomp);
    for (resource, current, maximum) in
        LIMITS.into_iter().chain([(Resource::Memlock, locked, locked)])
    {
        setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })?;
    }
    Ok(())
}
