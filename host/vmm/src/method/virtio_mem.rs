//! Stock virtio-mem: the same device and sizes, but the guest puts pages where it likes.

use super::{Method, MethodName, Sizing, Slot, Slots, plug_by_count, reclaim_by_count};
use crate::{BoxFuture, GuestMemory, PartitionLayout, Resize, Result, Vm, VmConfig};

pub(super) struct VirtioMem {
    layout: PartitionLayout,
    slots: Slots,
}

impl VirtioMem {
    pub(super) fn new(sizing: Sizing) -> Self {
        let layout =
            PartitionLayout::new(sizing.instance_bytes, sizing.instances, sizing.shared_bytes);
        Self { layout, slots: Slots::new(sizing.instances) }
    }
}

impl Method for VirtioMem {
    fn name(&self) -> MethodName {
        MethodName::VirtioMem
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        config.memory = GuestMemory::VirtioMem {
            region_bytes: self.layout.requested_bytes(self.layout.partitions),
            initial_bytes: self.layout.shared_bytes,
        };
        config
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(plug_by_count(&self.slots, vm, slot, |count| self.layout.requested_bytes(count)))
    }

    fn reclaim<'a>(&'a self, vm: &'a Vm, _: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(reclaim_by_count(&self.slots, vm, |count| self.layout.requested_bytes(count)))
    }
}
