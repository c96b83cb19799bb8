//! Instances that share one resizable part of memory, sized by the number of instances.

use super::{Mechanism, MechanismName, Slot, Slots};
use crate::{
    BoxFuture, Llfree, Result, Vm, VmConfig,
    memory::{GuestMemory, Resize},
};
use std::sync::Arc;

pub(super) struct ByCount {
    pub(super) name: MechanismName,
    pub(super) slots: Slots,
    pub(super) memory: Arc<dyn GuestMemory>,
    /// Which of the guest's pages the host can take by itself.
    pub(super) llfree: Llfree,
    /// Base memory that the VM needs in addition, in bytes.
    pub(super) base_bytes: u64,
    /// Size of the part without any instance, in bytes.
    pub(super) shared_bytes: u64,
    /// What each instance adds to it, in bytes.
    pub(super) instance_bytes: u64,
}

impl ByCount {
    fn target(&self) -> u64 {
        self.shared_bytes + u64::from(self.slots.count()) * self.instance_bytes
    }
}

impl Mechanism for ByCount {
    fn name(&self) -> MechanismName {
        self.name
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        config.base_bytes += self.base_bytes;
        config.memory = self.memory.clone();
        if self.llfree != Llfree::Off {
            config.llfree = self.llfree;
        }
        config
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async move {
            let resized = vm.resize_by(0, &|| self.target()).await;
            if resized.is_err() {
                // Memory that was not plugged must not remain requested.
                self.slots.free(slot)?;
                vm.withdraw(0, &|| self.target()).await;
            }
            resized.map(Some)
        })
    }

    fn reclaim<'a>(&'a self, vm: &'a Vm, _: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async move { vm.resize_by(0, &|| self.target()).await.map(Some) })
    }
}
