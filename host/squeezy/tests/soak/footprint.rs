//! The resources that the daemon uses on the host.

use std::{collections::BTreeMap, fmt};

/// How much more the daemon may use at the end than at the start. An idle thread ends ten seconds after its last work, and
/// what the daemon does each second is shared by all of them in turns, so that a few never end. One for each fault of a
/// round would be twice as many.
const MORE_THREADS: usize = 8;
/// The allocator keeps some of the memory of large responses.
const MORE_RESIDENT_KIB: u64 = 64 << 10;

/// The daemon's resources.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// File descriptors by kind.
    pub descriptors: BTreeMap<String, usize>,
    pub threads: usize,
    pub resident_kib: u64,
    /// Of its VM.
    pub asked_bytes: u64,
    pub plugged_bytes: u64,
    /// Memory promised to VMs and instances.
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
    /// Whether it is no more than at the start.
    pub fn is_back_at(&self, start: &Self) -> bool {
        let held = |of: &Self| of.descriptors.values().sum::<usize>();
        held(self) <= held(start)
            && self.threads <= start.threads + MORE_THREADS
            && self.resident_kib <= start.resident_kib + MORE_RESIDENT_KIB
            && self.asked_bytes == start.asked_bytes
            && self.plugged_bytes == start.plugged_bytes
            // What a paused VM occupies depends on what was done in it.
            && self.committed_bytes <= self.asked_bytes.max(start.committed_bytes)
    }
}
