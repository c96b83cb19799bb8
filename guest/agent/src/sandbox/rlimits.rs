//! Resource limits of a process or of an instance's user, beyond those of its cgroup.

use crate::cgroup::MAX_PROCESSES;
use rustix::process::{Resource, Rlimit, setrlimit};
use squeezy_protocol::Seccomp;
use std::io;

/// Resource, soft limit and hard limit. Those not listed keep the values that the kernel gives process 1,
/// some of which depend on the machine's memory at boot.
const LIMITS: [(Resource, u64, u64); 4] = [
    // Files of one process; they are charged to the cgroup's memory.
    (Resource::Nofile, 1024, 65536),
    // The cgroup has the same limit, and logs when it is reached.
    (Resource::Nproc, MAX_PROCESSES as u64, MAX_PROCESSES as u64),
    // Queued signals and POSIX timers of the instance.
    (Resource::Sigpending, 4096, 4096),
    // Bytes in POSIX message queues of the instance.
    (Resource::Msgqueue, 819_200, 819_200),
];

/// Bytes that a process may lock. Its own memory is not reclaimed anyway, but files of the image are in the
/// shared partition, which all instances use. io_uring, which the default system call filter does not allow,
/// counts its rings for the whole user.
const fn locked_bytes(seccomp: Seccomp) -> u64 {
    match seccomp {
        Seccomp::Default => 64 << 10,
        Seccomp::Unconfined => 8 << 20,
    }
}

/// Sets the limits for this process and its descendants.
pub fn set(seccomp: Seccomp) -> io::Result<()> {
    let locked = locked_bytes(seccomp);
    for (resource, current, maximum) in
        LIMITS.into_iter().chain([(Resource::Memlock, locked, locked)])
    {
        setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })?;
    }
    Ok(())
}
