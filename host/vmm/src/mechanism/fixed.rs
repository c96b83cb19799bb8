//! An over-provisioned VM: it has the memory of all instances from its start, and keeps it.

use super::{Mechanism, MechanismName, Sizing, Slot, Slots};
use crate::{
    BoxFuture, Result, Vm, VmConfig,
    memory::{Fixed, GRANULE_BYTES, Resize, round_up},
};
use std::sync::Arc;

struct AllFromTheStart {
    sizing: Sizing,
    slots: Slots,
}

pub(super) fn new(sizing: Sizing) -> Box<dyn Mechanism> {
    Box::new(AllFromTheStart { sizing, slots: Slots::new(sizing.instances) })
}

impl Mechanism for AllFromTheStart {
    fn name(&self) -> MechanismName {
        MechanismName::Static
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        let instance_bytes = round_up(self.sizing.instance_bytes, GRANULE_BYTES);
        config.memory = Arc::new(Fixed {
            extra_bytes: round_up(self.sizing.shared_bytes, GRANULE_BYTES)
                + u64::from(self.sizing.instances) * instance_bytes,
        });
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
