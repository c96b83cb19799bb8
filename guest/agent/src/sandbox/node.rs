//! Binds an instance's memory to a NUMA node, to compare with a kernel without partitions.

use std::{
    io, thread,
    time::{Duration, Instant},
};

/// `MPOL_BIND` of `linux/mempolicy.h`.
const MPOL_BIND: libc::c_int = 2;
/// Maximum number of nodes in a mask: more than any kernel has.
const MAX_NODES: usize = 1024;
/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// Makes this process and its descendants take their movable memory only from `node`. The kernel itself
/// exempts what a node with only movable memory cannot hold.
///
/// The device reaches its size before the guest has onlined the memory, and a node without memory is invalid;
/// so this waits for it, for at most `limit`.
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
