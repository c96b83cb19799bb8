//! What the daemon takes of the host.

use std::{collections::BTreeMap, fmt};

/// How much more than at the start the daemon may take at the end: threads are kept for a while when
/// they have nothing to do, and the allocator keeps some of the memory of large answers.
const MORE_THREADS: usize = 2;
const MORE_RESIDENT_KIB: u64 = 64 << 10;

/// What the daemon takes.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// How many of what.
    pub descriptors: BTreeMap<String, usize>,
    pub threads: usize,
    pub resident_kib: u64,
    /// Of its VM.
    pub asked_bytes: u64,
    pub plugged_bytes: u64,
    /// Promised to VMs and instances.
    pub committed_bytes: u64,
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads, {} MiB resident; its VM: {} MiB asked, {} plugged, {} committed",
            self.descriptors.values().sum::<usize>(),
            self.threads,
            self.resident_kib >> 10,
            self.asked_bytes >> 20,
            self.plugged_bytes >> 20,
            self.committed_bytes >> 20,
        )
    }
}

impl Footprint {
    /// Whether it is no more than it was.
    pub fn is_back_at(&self, start: &Self) -> bool {
        let held = |of: &Self| of.descriptors.values().sum::<usize>();
        held(self) <= held(start)
            && self.threads <= start.threads + MORE_THREADS
            && self.resident_kib <= start.resident_kib + MORE_RESIDENT_KIB
            && self.asked_bytes == start.asked_bytes
            && self.plugged_bytes == start.plugged_bytes
            // What a paused VM holds differs with what has been done in it.
            && self.committed_bytes <= self.asked_bytes.max(start.committed_bytes)
    }
}
