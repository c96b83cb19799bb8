//! Stock virtio-balloon: the VM boots with all the memory, and the balloon holds what is not in use.

use super::{Method, MethodName, Sizing, Slot, Slots, plug_by_count, reclaim_by_count};
use crate::{BoxFuture, GRANULE_BYTES, GuestMemory, Resize, Result, Vm, VmConfig, round_up};

/// All memory of this VM is ordinary, and of that Linux keeps 11 huge pages free in each of up to 3
/// zones, which a balloon cannot take.
const RESERVE_BYTES: u64 = 66 << 20;

pub(super) struct Balloon {
    instance_bytes: u64,
    shared_bytes: u64,
    slots: Slots,
    instances: u16,
}

impl Balloon {
    pub(super) fn new(sizing: Sizing) -> Self {
        Self {
            instance_bytes: round_up(sizing.instance_bytes, GRANULE_BYTES),
            shared_bytes: round_up(sizing.shared_bytes, GRANULE_BYTES),
            slots: Slots::new(sizing.instances),
            instances: sizing.instances,
        }
    }

    fn bytes(&self, count: u16) -> u64 {
        u64::from(count) * self.instance_bytes
    }
}

impl Method for Balloon {
    fn name(&self) -> MethodName {
        MethodName::Balloon
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        config.base_bytes += self.shared_bytes + RESERVE_BYTES;
        config.memory = GuestMemory::Balloon { extra_bytes: self.bytes(self.instances) };
        config
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(plug_by_count(&self.slots, vm, slot, |count| self.bytes(count)))
    }

    fn reclaim<'a>(&'a self, vm: &'a Vm, _: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(reclaim_by_count(&self.slots, vm, |count| self.bytes(count)))
    }
}
