//! One virtio-mem device that the guest uses as it likes.

use super::{
    Elastic, GRANULE_BYTES, GuestDriven, GuestMemory, Layout, MEMORY_BLOCK_BYTES, Region, Running,
    round_up,
};
use crate::{Result, VmError};

/// Stock virtio-mem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioMem {
    /// The maximum number of bytes that can be plugged.
    pub region_bytes: u64,
    /// Bytes plugged at start.
    pub initial_bytes: u64,
}

impl VirtioMem {
    fn region(&self) -> Region {
        Region {
            region_bytes: round_up(self.region_bytes, MEMORY_BLOCK_BYTES),
            initial_bytes: round_up(self.initial_bytes, GRANULE_BYTES),
            any_order: false,
        }
    }
}

impl GuestMemory for VirtioMem {
    fn check(&self, _: u32) -> Result<()> {
        if self.initial_bytes > self.region_bytes {
            let (asked, region) = (self.initial_bytes, self.region_bytes);
            return Err(VmError::RegionTooSmall { asked, region });
        }
        Ok(())
    }

    fn layout(&self, base_bytes: u64) -> Layout {
        Layout { regions: vec![self.region()], ..Layout::ram(base_bytes) }
    }

    fn start(&self, vm: &Running) -> Vec<Box<dyn Elastic>> {
        vec![Box::new(GuestDriven::virtio_mem(vm, 0, self.region()))]
    }
}
