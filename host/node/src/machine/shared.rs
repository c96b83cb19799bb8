//! N:1: all instances in one VM, whose memory a method changes.

use super::{Machine, MachineDetails, Tried, paused::Paused};
use squeezy_protocol::{Instance, InstanceSpec, Partition};
use squeezy_vmm::{
    BoxFuture, GuestMemory, MemoryUse, Vm, VmError,
    method::{Method, Slot, Slots},
};
use std::sync::Arc;

pub(crate) struct SharedVm {
    vm: Arc<Vm>,
    method: Box<dyn Method>,
    details: MachineDetails,
    paused: Paused,
}

impl SharedVm {
    /// One that runs.
    pub(crate) fn new(vm: Vm, method: Box<dyn Method>, details: MachineDetails) -> Self {
        Self { vm: Arc::new(vm), method, details, paused: Paused::default() }
    }

    /// Asks the guest for its partitions.
    async fn look(&self) -> Result<Vec<Partition>, VmError> {
        if !matches!(self.vm.config().memory, GuestMemory::Partitions(_)) {
            return Ok(Vec::new());
        }
        let memory = self.vm.agent()?.memory().await?;
        Ok(memory.squeezy.map_or(Vec::new(), |squeezy| squeezy.partitions))
    }

    async fn resident_bytes(&self) -> u64 {
        self.vm.memory().await.map_or(0, |memory| memory.resident.resident_bytes)
    }
}

impl Machine for SharedVm {
    fn details(&self) -> &MachineDetails {
        &self.details
    }

    fn slots(&self) -> &Slots {
        self.method.slots()
    }

    fn plug(&self, slot: Slot) -> BoxFuture<'_, Tried> {
        Box::pin(async move { Tried::new(self.method.plug(&self.vm, slot).await) })
    }

    fn reclaim(&self, slot: Slot) -> BoxFuture<'_, Tried> {
        Box::pin(async move {
            let before = self.resident_bytes().await;
            let mut tried = Tried::new(self.method.reclaim(&self.vm, slot).await);
            tried.resident_drop_bytes = before.saturating_sub(self.resident_bytes().await);
            tried
        })
    }

    fn has_settled(&self) -> BoxFuture<'_, Tried> {
        Box::pin(async { Tried::new(self.method.settle(&self.vm).await.map(|()| None)) })
    }

    fn vm(&self, _: Slot) -> Option<Arc<Vm>> {
        Some(self.vm.clone())
    }

    fn place(&self, slot: Slot, spec: &mut InstanceSpec) {
        self.method.place(slot, spec);
    }

    fn starts_beside_plug(&self) -> bool {
        self.method.waits_in_guest()
    }

    fn memory(&self) -> BoxFuture<'_, Result<MemoryUse, VmError>> {
        Box::pin(self.vm.memory())
    }

    fn resident<'a>(&'a self, vm: &'a Vm, instance: &'a Instance) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async move { vm.partition_resident(instance.partition?).await.ok() })
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, VmError>> {
        Box::pin(async {
            match &*self.paused.partitions().await {
                Some(partitions) => Ok(partitions.clone()),
                None => self.look().await,
            }
        })
    }

    fn want_paused(&self, paused: bool) {
        self.paused.want(paused);
    }

    fn settle(&self) -> BoxFuture<'_, Result<(), VmError>> {
        Box::pin(self.paused.settle(&self.vm, self.look()))
    }

    fn ended(&self) -> Option<VmError> {
        self.vm.ended()
    }

    fn wait(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.vm.wait().await;
        })
    }

    fn end(&self) -> BoxFuture<'_, Result<(), VmError>> {
        Box::pin(self.vm.stop())
    }
}
