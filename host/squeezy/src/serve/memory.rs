//! The daemon's own memory: what a burst has taken goes back to the system.

use std::time::Duration;

/// From one look to the next.
const PAUSE: Duration = Duration::from_secs(10);

/// From this size on an allocation is a mapping of its own, which goes back when it is freed. glibc
/// raises it on its own as larger ones are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 128 << 10;

/// Makes the allocator keep little of what is freed. Call it before threads are started.
pub fn prepare() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes numbers inside of the allocator, and takes its lock for that.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        // Each arena keeps what is freed in the middle of it.
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Gives back what is free between small allocations, again and again.
pub async fn give_back() {
    let mut pause = tokio::time::interval(PAUSE);
    loop {
        pause.tick().await;
        #[cfg(target_env = "gnu")]
        // SAFETY: it takes the allocator's own locks, and moves nothing that is in use.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
