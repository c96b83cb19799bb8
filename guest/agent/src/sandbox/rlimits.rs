//! Resource limits of a process or of an instance's user, beyond those of its cgroup.

use crate::cgroup::MAX_PROCESSES;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use squeezy_protocol::{self as protocol, ResourceLimit, Seccomp};
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

/// Lowers limits of this process and its descendants to these; one that is lower stays.
pub fn lower(limits: &[ResourceLimit]) -> io::Result<()> {
    for limit in limits {
        let resource = resource(limit.resource);
        let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let number = |number: u64| Some(number.min(most)).filter(|number| *number != u64::MAX);
        let (current, maximum) = (number(limit.soft), number(limit.hard));
        setrlimit(resource, Rlimit { current, maximum })?;
    }
    Ok(())
}

fn resource(named: protocol::Resource) -> Resource {
    match named {
        protocol::Resource::As => Resource::As,
        protocol::Resource::Core => Resource::Core,
        protocol::Resource::Cpu => Resource::Cpu,
        protocol::Resource::Data => Resource::Data,
        protocol::Resource::Fsize => Resource::Fsize,
        protocol::Resource::Locks => Resource::Locks,
        protocol::Resource::Memlock => Resource::Memlock,
        protocol::Resource::Msgqueue => Resource::Msgqueue,
        protocol::Resource::Nice => Resource::Nice,
        protocol::Resource::Nofile => Resource::Nofile,
        protocol::Resource::Nproc => Resource::Nproc,
        protocol::Resource::Rss => Resource::Rss,
        protocol::Resource::Rtprio => Resource::Rtprio,
        protocol::Resource::Rttime => Resource::Rttime,
        protocol::Resource::Sigpending => Resource::Sigpending,
        protocol::Resource::Stack => Resource::Stack,
    }
}
