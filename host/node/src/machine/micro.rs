//! 1:1: each instance has a VM of its own, which has all its memory from boot on.

use super::{Machine, MachineDetails, ResizeOutcome};
use crate::{
    VmPlan,
    guest::{Guest, Share, VmGuest},
};
use squeezy_protocol::{InstanceSpec, Partition, PartitionChoice, PartitionNumber};
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
    /// The plan of a VM for one instance.
    plan: VmPlan,
    slots: Slots,
    details: MachineDetails,
    vms: Mutex<Vms>,
}

struct Vms {
    /// Booted to check that it works; the first instance gets it.
    first: Option<Arc<Vm>>,
    by_slot: BTreeMap<Slot, Arc<Vm>>,
}

impl MicroVms {
    /// Creates a machine for at most `instances` instances, whose first VM is already running.
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

/// The result of a boot or shutdown, as a resize.
fn outcome(result: Result<(), VmError>, took: Duration, resident_drop_bytes: u64) -> ResizeOutcome {
    ResizeOutcome { latency: Some(took), resident_drop_bytes, taken: None, error: result.err() }
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

    fn reclaim(&self, slot: Slot, _: Option<PartitionNumber>) -> BoxFuture<'_, ResizeOutcome> {
        // Not in the future: the slot may be taken again before the VM has ended.
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

    /// A VM's failure affects only its one instance.
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
                // A VM that has just ended has no memory.
                if let Ok(memory) = vm.memory().await {
                    sum += memory;
                }
            }
            Ok(sum)
        })
    }

    fn occupied(&self) -> BoxFuture<'_, Result<u64, VmError>> {
        let vms = self.all();
        Box::pin(async move {
            let mut sum = 0;
            for vm in vms {
                sum += vm.occupied().await.unwrap_or(0);
            }
            Ok(sum)
        })
    }

    /// All VMs belong to instances, so there is nothing else to pause.
    fn want_paused(&self, paused: bool) {
        debug_assert!(!paused, "all VMs belong to instances");
    }

    fn settle(&self) -> BoxFuture<'_, Result<(), VmError>> {
        Box::pin(async { Ok(()) })
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, VmError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// It ends only with the node: the end of a VM is that of one instance.
    fn ended(&self) -> Option<VmError> {
        None
    }

    fn wait(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// No instance is charged for less than its VM may take, so none is found to have taken more.
    fn kill(&self, reason: VmError) {
        self.all().iter().for_each(|vm| vm.kill(reason.clone()));
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
