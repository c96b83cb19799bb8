//! N:1: all instances share one VM, which a mechanism resizes.

use super::{Machine, MachineDetails, ResizeOutcome, paused::Paused};
use crate::guest::{Guest, Share, VmGuest};
use squeezy_protocol::{InstanceSpec, Partition, PartitionNumber};
use squeezy_vmm::{
    BoxFuture, Grain, Llfree, MemoryUse, Taken, Vm, VmError,
    mechanism::{Mechanism, Slot, Slots},
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a guest may take to say which partitions it has before it is paused.
const READY_LIMIT: Duration = Duration::from_secs(1);

pub(crate) struct SharedVm {
    vm: Arc<Vm>,
    mechanism: Box<dyn Mechanism>,
    details: MachineDetails,
    paused: Paused,
}

impl SharedVm {
    /// Wraps a running VM.
    pub(crate) fn new(vm: Vm, mechanism: Box<dyn Mechanism>, details: MachineDetails) -> Self {
        Self { vm: Arc::new(vm), mechanism, details, paused: Paused::default() }
    }

    /// Takes what is free of a partition, if the host can.
    async fn take_free(&self, partition: Option<PartitionNumber>) -> Option<Taken> {
        let partition = partition.filter(|_| self.vm.can_take_free())?;
        // A failure has been logged, and costs nothing but memory.
        self.vm.take_free(partition, Grain::Area).await.ok()
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
        self.mechanism.slots()
    }

    fn plug(&self, slot: Slot) -> BoxFuture<'_, ResizeOutcome> {
        Box::pin(async move { ResizeOutcome::new(self.mechanism.plug(&self.vm, slot).await) })
    }

    fn reclaim(&self, slot: Slot, left: Option<PartitionNumber>) -> BoxFuture<'_, ResizeOutcome> {
        Box::pin(async move {
            let before = self.resident_bytes().await;
            // What an instance has left is the host's before the guest is even asked for it. What others have free is
            // not this one's, and is swept.
            let taken = self.take_free(left).await;
            let mut outcome = ResizeOutcome::new(self.mechanism.reclaim(&self.vm, slot).await);
            outcome.taken = taken;
            outcome.resident_drop_bytes = before.saturating_sub(self.resident_bytes().await);
            outcome
        })
    }

    fn has_settled(&self) -> BoxFuture<'_, ResizeOutcome> {
        Box::pin(async { ResizeOutcome::new(self.mechanism.settle(&self.vm).await.map(|()| None)) })
    }

    fn guest(&self, _: Slot) -> Option<Arc<dyn Guest>> {
        Some(Arc::new(VmGuest { vm: self.vm.clone(), share: Share::Partition }))
    }

    fn place(&self, slot: Slot, spec: &mut InstanceSpec) {
        self.mechanism.place(slot, spec);
    }

    fn is_unfit_after(&self, error: &VmError) -> bool {
        self.mechanism.is_unfit_after(error)
    }

    fn starts_beside_plug(&self) -> bool {
        self.mechanism.waits_in_guest()
    }

    fn memory(&self) -> BoxFuture<'_, Result<MemoryUse, VmError>> {
        Box::pin(self.vm.memory())
    }

    fn occupied(&self) -> BoxFuture<'_, Result<u64, VmError>> {
        Box::pin(self.vm.occupied())
    }

    fn starved(&self) -> BoxFuture<'_, u64> {
        Box::pin(self.vm.starved())
    }

    fn lend(&self, most_bytes: u64) -> BoxFuture<'_, Result<u64, VmError>> {
        Box::pin(self.vm.lend(most_bytes))
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, VmError>> {
        Box::pin(async {
            match &*self.paused.partitions().await {
                Some(partitions) => Ok(partitions.clone()),
                None => self.vm.partitions().await,
            }
        })
    }

    fn drop_page_cache(&self) -> BoxFuture<'_, Result<(), VmError>> {
        Box::pin(async {
            match self.vm.config().llfree {
                Llfree::All => self.vm.agent()?.drop_page_cache().await,
                Llfree::Off | Llfree::Partitions => Ok(()),
            }
        })
    }

    fn want_paused(&self, paused: bool) {
        self.paused.want(paused);
    }

    fn settle(&self) -> BoxFuture<'_, Result<(), VmError>> {
        Box::pin(async {
            if self.paused.settle(&self.vm, in_time(self.vm.partitions())).await? {
                // Nothing runs that could miss it. A failure has been logged, and costs nothing but memory.
                if self.vm.can_take_free() {
                    let _ = self.vm.sweep(Grain::Page).await;
                }
            }
            Ok(())
        })
    }

    fn ended(&self) -> Option<VmError> {
        self.vm.ended()
    }

    fn wait(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.vm.wait().await;
        })
    }

    fn kill(&self, reason: VmError) {
        self.vm.kill(reason);
    }

    fn end(&self) -> BoxFuture<'_, Result<(), VmError>> {
        Box::pin(self.vm.stop())
    }
}

/// The partitions, if the guest names them in time. One that does not is paused all the same, and its partitions are not
/// known until it runs again: calls that lack memory wait for the pause.
async fn in_time(
    look: impl Future<Output = Result<Vec<Partition>, VmError>>,
) -> Result<Vec<Partition>, VmError> {
    timeout(READY_LIMIT, look).await.unwrap_or_else(|_| Ok(Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::{Instant, sleep};

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_does_not_answer_is_paused_all_the_same() {
        let begin = Instant::now();
        let partitions = timeout(LONG, in_time(pending())).await;
        assert!(partitions.expect("nobody waits for it").unwrap().is_empty());
        assert!(begin.elapsed() <= Duration::from_secs(2), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_fails_in_time_has_failed() {
        let partitions = async {
            sleep(Duration::from_millis(900)).await;
            Err(VmError::NoAgent)
        };
        assert_eq!(in_time(partitions).await, Err(VmError::NoAgent));
    }
}
