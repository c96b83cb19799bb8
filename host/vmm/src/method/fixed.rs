//! An over-provisioned VM: it has the memory of all instances from its start on, and keeps it.

use super::{Method, MethodName, Sizing, Slot, Slots};
use crate::{BoxFuture, GRANULE_BYTES, GuestMemory, Resize, Result, Vm, VmConfig, round_up};

pub(super) struct Fixed {
    sizing: Sizing,
    slots: Slots,
}

impl Fixed {
    pub(super) fn new(sizing: Sizing) -> Self {
        Self { sizing, slots: Slots::new(sizing.instances) }
    }
}

impl Method for Fixed {
    fn name(&self) -> MethodName {
        MethodName::Static
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        let instance_bytes = round_up(self.sizing.instance_bytes, GRANULE_BYTES);
        config.memory = GuestMemory::Fixed {
            extra_bytes: round_up(self.sizing.shared_bytes, GRANULE_BYTES)
                + u64::from(self.sizing.instances) * instance_bytes,
        };
        config
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug<'a>(&'a self, _: &'a Vm, _: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async { Ok(None) })
    }

    fn reclaim<'a>(&'a self, _: &'a Vm, _: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async { Ok(None) })
    }
}
