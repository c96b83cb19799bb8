//! 1:1: a VM of its own for each instance, which has all its memory from its boot on.

use super::{Machine, MachineDetails, ResizeOutcome};
use crate::{
    VmPlan,
    guest::{Guest, Share, VmGuest},
};
use squeezy_protocol::{InstanceSpec, Partition, PartitionChoice};
use squeezy_vmm::{
    BoxFuture, MemoryUse, Vm, VmError,
    mechanism::{Slot, Slots},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub(crate) struct MicroVms {
    /// For one instance.
    plan: VmPlan,
    slots: Slots,
    details: MachineDetails,
    vms: Mutex<Vms>,
}

struct Vms {
    /// Booted to see whether that works; whoever comes first gets it.
    first: Option<Arc<Vm>>,
    by_slot: BTreeMap<Slot, Arc<Vm>>,
}

impl MicroVms {
    /// With the first VM there already, for at most so many.
    pub(crate) fn new(plan: VmPlan, instances: u16, first: Vm, details: MachineDetails) -> Self {
        let vms = Vms { first: Some(Arc::new(first)), by_slot: BTreeMap::new() };
        Self { plan, slots: Slots::new(instances), details, vms: Mutex::new(vms) }
    }

    fn lock(&self) -> MutexGuard<'_, Vms> {
        self.vms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn boot(&self, slot: Slot) -> Result<(), VmError> {
        let first = self.lock().first.take();
        let vm = match first {
            Some(vm) if vm.ended().is_none() => vm,
            _ => Arc::new(self.plan.boot_vm(|_| ()).await?.0),
        };
        self.lock().by_slot.insert(slot, vm);
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Vm>> {
        let vms = self.lock();
        vms.first.iter().chain(vms.by_slot.values()).cloned().collect()
    }
}

/// What a boot or an end came to, as a resize.
fn outcome(result: Result<(), VmError>, took: Duration, resident_drop_bytes: u64) -> ResizeOutcome {
    ResizeOutcome { latency: Some(took), resident_drop_bytes, error: result.err() }
}

impl Machine for MicroVms {
    fn details(&self) -> &MachineDetails {
        &self.details
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug(&self, slot: Slot) -> BoxFuture<'_, ResizeOutcome> {
        Box::pin(async move {
            let start = Instant::now();
            let result = self.boot(slot).await;
            if result.is_err() {
                let _ = self.slots.free(slot);
            }
            outcome(result, start.elapsed(), 0)
        })
    }

    fn reclaim(&self, slot: Slot) -> BoxFuture<'_, ResizeOutcome> {
        // Now, for the slot may be taken again before the VM has ended.
        let vm = self.lock().by_slot.remove(&slot);
        Box::pin(async move {
            let Some(vm) = vm else { return ResizeOutcome::new(Ok(None)) };
            let resident = vm.memory().await.map_or(0, |memory| memory.resident.resident_bytes);
            let start = Instant::now();
            outcome(vm.stop().await, start.elapsed(), resident)
        })
    }

    fn has_settled(&self) -> BoxFuture<'_, ResizeOutcome> {
        Box::pin(async { ResizeOutcome::new(Ok(None)) })
    }

    fn guest(&self, slot: Slot) -> Option<Arc<dyn Guest>> {
        let vm = self.lock().by_slot.get(&slot).cloned()?;
        Some(Arc::new(VmGuest { vm, share: Share::Whole }))
    }

    fn place(&self, _: Slot, spec: &mut InstanceSpec) {
        spec.partition = PartitionChoice::None;
    }

    /// One VM's trouble is one instance's.
    fn is_unfit_after(&self, _: &VmError) -> bool {
        false
    }

    fn starts_beside_plug(&self) -> bool {
        false
    }

    fn memory(&self) -> BoxFuture<'_, Result<MemoryUse, VmError>> {
        let vms = self.all();
        Box::pin(async move {
            let mut sum = MemoryUse::default();
            for vm in vms {
                // One that has just ended has no memory.
                if let Ok(memory) = vm.memory().await {
                    sum += memory;
                }
            }
            Ok(sum)
        })
    }

    /// Without an instance there is nothing that could be stopped, and what they cost is theirs.
    fn want_paused(&self, paused: bool) {
        debug_assert!(!paused, "there is no VM beside those of instances");
    }

    fn settle(&self) -> BoxFuture<'_, Result<(), VmError>> {
        Box::pin(async { Ok(()) })
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, VmError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Only with the node: one VM's end is one instance's.
    fn ended(&self) -> Option<VmError> {
        None
    }

    fn wait(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn end(&self) -> BoxFuture<'_, Result<(), VmError>> {
        let vms = self.all();
        Box::pin(async move {
            let mut result = Ok(());
            for vm in vms {
                result = result.and(vm.stop().await);
            }
            result
        })
    }
}
