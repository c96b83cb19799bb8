//! What a VM must have room for.

use crate::{GRANULE_BYTES, MEMORY_BLOCK_BYTES, round_up};
use serde::{Deserialize, Serialize};

/// Base memory for the kernel and the agent, in bytes, including the twentieth that Linux keeps free for huge
/// pages; docs/design.md has the measurements.
const BASE_BYTES: u64 = 128 << 20;

/// Base memory for what an instance has outside its partition regardless of size, in bytes: kernel stacks,
/// inodes, pipes and socket buffers.
const OUTSIDE_BYTES: u64 = 8 << 20;

/// What an instance has outside its partition in proportion to the partition's size, as a divisor: page
/// tables take a 512th, the index of its files a 455th, and memory mapped by several processes has several
/// page tables.
const OUTSIDE_PART: u64 = 128;

/// How much memory an instance with a partition of this size may have outside of it, in bytes: its share of
/// base memory. A VM has this much for each of its instances, on top of what the kernel and the agent need,
/// so that no instance can make others run short.
pub fn outside_bytes(partition_bytes: u64) -> u64 {
    round_up(OUTSIDE_BYTES + partition_bytes / OUTSIDE_PART, 4 << 10)
}

/// What a VM must have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizing {
    /// Memory of one instance in bytes; rounded up to 4 MiB.
    pub instance_bytes: u64,
    /// The maximum number of instances at a time.
    pub instances: u16,
    /// Bytes for what instances share, such as the page cache; plugged from the start.
    pub shared_bytes: u64,
}

impl Sizing {
    /// The base memory that it takes, in bytes.
    pub fn base_bytes(self) -> u64 {
        let Self { instance_bytes, instances, shared_bytes } = self;
        // Base memory holds the memory map of everything that can be plugged, 64 bytes per page.
        let region = round_up(shared_bytes, MEMORY_BLOCK_BYTES)
            + u64::from(instances) * round_up(instance_bytes, MEMORY_BLOCK_BYTES);
        let shares = u64::from(instances) * outside_bytes(instance_bytes);
        round_up(BASE_BYTES + shares + region / 64, GRANULE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VmConfig, mechanism::MechanismName};

    /// Even with all instances at their limits, the kernel and the agent have what they need.
    #[test]
    fn base_memory_has_the_share_of_every_instance() {
        for (instance_mib, instances) in [(64, 1), (768, 8), (4096, 16)] {
            let sizing =
                Sizing { instance_bytes: instance_mib << 20, instances, shared_bytes: 64 << 20 };
            let mechanism = MechanismName::Squeezy.mechanism(sizing).unwrap();
            let config = mechanism.configure(VmConfig::new("a", "/dev/null", "/dev/null"));
            let map = config.layout().region_bytes() / 64;
            let shares = u64::from(instances) * outside_bytes(sizing.instance_bytes);
            assert!(sizing.base_bytes() >= BASE_BYTES + map + shares, "{sizing:?}");
            // Twice the page tables or the file index of a full partition.
            let least = 2 * (sizing.instance_bytes / 512).max(sizing.instance_bytes / 455);
            assert!(outside_bytes(sizing.instance_bytes) > OUTSIDE_BYTES / 2 + least);
        }
    }
}
