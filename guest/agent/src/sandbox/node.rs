//! Binds an instance's memory to a NUMA node, for comparisons with a kernel without partitions.

use std::{
    io, thread,
    time::{Duration, Instant},
};

/// `MPOL_BIND` of `linux/mempolicy.h`.
const MPOL_BIND: libc::c_int = 2;
/// Nodes that a mask names at most: more than any kernel has.
const MAX_NODES: usize = 1024;
/// How long between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// Has this process and its descendants take what can be moved from `node` only. The kernel leaves
/// out by itself what a node with nothing but movable memory cannot hold.
///
/// The device has its size before the guest has brought the memory online, and a node without any is
/// an invalid one; so this waits for it, for `limit` at most.
pub fn bind(node: u16, limit: Duration) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match set_policy(node) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && start.elapsed() < limit => {
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

fn set_policy(node: u16) -> io::Result<()> {
    let mut mask = [0u64; MAX_NODES / 64];
    let node = usize::from(node);
    let word = mask.get_mut(node / 64).ok_or(io::ErrorKind::InvalidInput)?;
    *word |= 1 << (node % 64);
    // SAFETY: the kernel reads MAX_NODES bits of the mask, which is that long. It wants to be told
    // one more than the highest bit.
    let result = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND, mask.as_ptr(), MAX_NODES as libc::c_ulong)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
