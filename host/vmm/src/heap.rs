//! The memory of a process that serves VMs: returns what a burst of requests has used to the system.

use std::time::Duration;

/// How often free memory is returned.
const PAUSE: Duration = Duration::from_secs(10);

/// Allocations of at least this size are separate mappings, which are returned when freed. Without
/// this, glibc raises the limit as larger allocations are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 128 << 10;

/// Makes the allocator retain little freed memory. Call it before starting threads.
pub fn prepare() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt changes settings of the allocator under the allocator's lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        // Each arena retains freed memory in its middle.
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Periodically returns free memory between small allocations, for ever.
pub async fn give_back() {
    let mut pause = tokio::time::interval(PAUSE);
    loop {
        pause.tick().await;
        #[cfg(target_env = "gnu")]
        // SAFETY: malloc_trim takes the allocator's locks, and does not move memory in use.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
