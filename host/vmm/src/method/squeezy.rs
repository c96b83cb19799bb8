//! Partitions: an instance's memory is one piece, plugged when it comes and given back when it goes.

use super::{Method, MethodName, Sizing, Slot, Slots, plug_by_count, reclaim_by_count};
use crate::{BoxFuture, GuestMemory, PartitionLayout, Resize, Result, Vm, VmConfig};
use squeezy_protocol::{InstanceSpec, PartitionChoice};

pub(super) struct Squeezy {
    layout: PartitionLayout,
    slots: Slots,
}

impl Squeezy {
    pub(super) fn new(sizing: Sizing) -> Self {
        let layout =
            PartitionLayout::new(sizing.instance_bytes, sizing.instances, sizing.shared_bytes);
        Self { layout, slots: Slots::new(sizing.instances) }
    }
}

impl Method for Squeezy {
    fn name(&self) -> MethodName {
        MethodName::Squeezy
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        config.memory = GuestMemory::Partitions(self.layout);
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

    fn waits_in_guest(&self) -> bool {
        true
    }

    /// Any: which partition it is, the guest's kernel decides, and it is not the slot's number.
    fn place(&self, _: Slot, spec: &mut InstanceSpec) {
        spec.partition = PartitionChoice::Any;
    }
}
