//! A VM's memory: measuring and resizing it.

use super::{Shared, Vm};
use crate::{
    Grain, Resident, Result, Taken, VmError,
    host_memory::MemoryPiece,
    hyperalloc::Reclaimer,
    measure::{self, Pages},
    memory::{Elastic, Resize, Target},
};
use serde::{Deserialize, Serialize};
use squeezy_protocol::{LlfreeState, Partition, PartitionNumber};
use std::{sync::Arc, time::Duration};

/// A VM's memory at one moment, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Requested from the guest, including the base.
    pub asked_bytes: u64,
    /// What the guest has, including the base.
    pub plugged_bytes: u64,
    /// Host memory behind all of it.
    pub resident: Resident,
    /// Host memory behind the resizable part (with a balloon or fixed memory: behind all of it).
    pub device_resident: Resident,
    /// Memory that the host has taken since the VM was started: what was free in sweeps ([`Vm::sweep`]), and what the
    /// guest had used of what the host keeps.
    pub swept_bytes: u64,
    /// How long that took together.
    pub sweeps_took: Duration,
}

impl std::ops::AddAssign for MemoryUse {
    fn add_assign(&mut self, other: Self) {
        self.asked_bytes += other.asked_bytes;
        self.plugged_bytes += other.plugged_bytes;
        self.resident += other.resident;
        self.device_resident += other.device_resident;
        self.swept_bytes += other.swept_bytes;
        self.sweeps_took += other.sweeps_took;
    }
}

impl Vm {
    /// Sets the size of the resizable memory (with partitions: including the shared one) to
    /// `bytes`, and waits until the guest has followed.
    pub async fn resize(&self, bytes: u64) -> Result<Resize> {
        self.resize_by(0, &|| bytes).await
    }

    /// Like [`Vm::resize`], for the part with this number, if the memory has several.
    ///
    /// If the guest does not follow in time, the error contains its reason, and the request stands:
    /// the guest continues with it when it can. A later resize of the same part overrides it.
    pub async fn resize_part(&self, number: u16, bytes: u64) -> Result<Resize> {
        self.resize_by(number, &|| bytes).await
    }

    /// Like [`Vm::resize_part`], to the size that `target` computes at the moment of the request.
    pub(crate) async fn resize_by(&self, number: u16, target: Target<'_>) -> Result<Resize> {
        let part = self.part(number)?;
        let (asked, region) = (target(), part.max_bytes());
        if asked > region {
            return Err(VmError::RegionTooSmall { asked, region });
        }
        let target = || target().min(region);
        let work = async {
            check_host_memory(asked.saturating_sub(part.requested_bytes()))?;
            part.resize(&target, self.config().timeouts.resize, self.agent.as_ref()).await
        };
        self.shared.fate.guard(work).await
    }

    /// Requests a size without waiting for it, to take back a request that has failed.
    pub(crate) async fn withdraw(&self, number: u16, target: Target<'_>) {
        if let Ok(part) = self.part(number) {
            let _ = part.request(target).await;
        }
    }

    /// The current size of what [`Vm::resize`] resizes, in bytes.
    pub(crate) async fn size(&self) -> Result<u64> {
        self.shared.fate.guard(self.part(0)?.size()).await
    }

    /// A resizable part of the memory.
    fn part(&self, number: u16) -> Result<&dyn Elastic> {
        match self.shared.elastic.get(usize::from(number)) {
            Some(part) => Ok(&**part),
            None if self.shared.elastic.is_empty() => Err(VmError::NotResizable("it is fixed")),
            None => Err(VmError::NotResizable("it has fewer parts")),
        }
    }

    /// Memory that is requested, plugged and resident now.
    pub async fn memory(&self) -> Result<MemoryUse> {
        let shared = &*self.shared;
        let kept_bytes = shared.config.layout().kept_bytes;
        let requested = shared.elastic.iter().map(|part| part.requested_bytes());
        let asked_bytes = requested.fold(kept_bytes, u64::saturating_add);
        let mut plugged_bytes = kept_bytes;
        let work = async {
            for part in &shared.elastic {
                plugged_bytes += part.size().await?;
            }
            self.resident().await
        };
        let (base, regions) = shared.fate.guard(work).await?;
        let mut resident = base;
        resident += regions;
        let device_resident = if shared.host_memory.regions.is_empty() { base } else { regions };
        let (swept_bytes, sweeps_took) = (shared.swept.bytes(), shared.swept.took());
        Ok(MemoryUse {
            asked_bytes,
            plugged_bytes,
            resident,
            device_resident,
            swept_bytes,
            sweeps_took,
        })
    }

    /// The guest's partitions, as it reports them; none if its memory is not divided into
    /// partitions.
    pub async fn partitions(&self) -> Result<Vec<Partition>> {
        if self.config().memory.partitions().is_none() {
            return Ok(Vec::new());
        }
        let memory = self.agent()?.memory().await?;
        Ok(memory.squeezy.map_or(Vec::new(), |squeezy| squeezy.partitions))
    }

    /// Resident host memory behind one partition, in bytes. The number comes from the guest, so it
    /// may be invalid.
    pub async fn partition_resident(&self, partition: PartitionNumber) -> Result<u64> {
        self.partition_bytes(partition, Pages::Resident).await
    }

    /// The same, with what is swapped out of it: it comes back when it is used, or when there is no swap any more.
    pub async fn partition_occupied(&self, partition: PartitionNumber) -> Result<u64> {
        self.partition_bytes(partition, Pages::Occupied).await
    }

    async fn partition_bytes(&self, partition: PartitionNumber, pages: Pages) -> Result<u64> {
        let part = self.partition_memory(partition)?;
        let process = self.process_id();
        self.shared.fate.guard(self.shared.within_limit(move || part.count(process, pages))).await
    }

    /// Host memory behind all of it, in bytes, with what is swapped out of it.
    pub async fn occupied(&self) -> Result<u64> {
        let (process, memory) = (self.process_id(), self.shared.host_memory.clone());
        let count = move |piece: &MemoryPiece| piece.count(process, Pages::Occupied);
        let look = move || memory.pieces().map(count).sum::<Result<u64>>();
        self.shared.fate.guard(blocking(look)).await
    }

    /// Lets the host take free memory out of the guest by itself, whose allocator's state is there. The agent
    /// says where; for a VM without one, the caller has to know.
    pub async fn let_take_free(&self, state: LlfreeState) -> Result<()> {
        let memory = self.shared.host_memory.clone();
        let open = blocking(move || Reclaimer::open(state, &memory));
        let reclaimer = self.shared.fate.guard(open).await?;
        let _ = self.shared.reclaimer.set(Arc::new(reclaimer));
        Ok(())
    }

    /// Whether the host can take free memory out of the guest by itself: the VM was started with
    /// [`Llfree`](crate::Llfree).
    pub fn can_take_free(&self) -> bool {
        self.shared.reclaimer.get().is_some()
    }

    /// Gives the free memory of a partition back to the host, without the guest. The partition's number comes from
    /// the guest, so it may be invalid.
    pub async fn take_free(&self, partition: PartitionNumber, grain: Grain) -> Result<Taken> {
        self.take_free_while(partition, grain, || true).await
    }

    /// The same. Single pages are taken only as long as `goes_on`: while they are, whoever lives there finds some of its
    /// own free pages taken.
    pub async fn take_free_while(
        &self,
        partition: PartitionNumber,
        grain: Grain,
        goes_on: impl Fn() -> bool + Send + 'static,
    ) -> Result<Taken> {
        let guest = self.partition_memory(partition)?.guest;
        let take = move |reclaimer: &Reclaimer| reclaimer.take_while(&guest, grain, goes_on);
        self.shared.take_free(take).await
    }

    /// The same for all memory that the guest's kernel lets the host take, but for what the host is taking already.
    pub async fn take_all_free(&self, grain: Grain) -> Result<Taken> {
        self.shared.take_free(move |reclaimer| reclaimer.take_idle(grain, || true)).await
    }

    /// The same on nobody's account: no instance has ended or been frozen. Single pages are taken only as long as the
    /// VM is paused. Whole areas are also taken on a period
    /// ([`VmConfig::take_free_every`](crate::VmConfig::take_free_every)).
    pub async fn sweep(&self, grain: Grain) -> Result<()> {
        self.shared.sweep(grain).await
    }

    /// The same for one partition, single pages, too, as long as `goes_on`.
    pub async fn sweep_partition(
        &self,
        partition: PartitionNumber,
        goes_on: impl Fn() -> bool + Send + 'static,
    ) -> Result<()> {
        let taken = self.take_free_while(partition, Grain::Page, goes_on).await?;
        self.shared.swept.add(&taken);
        Ok(())
    }

    /// Where a partition is.
    pub(super) fn partition_memory(&self, partition: PartitionNumber) -> Result<MemoryPiece> {
        let strange = || VmError::StrangePartition(partition);
        let layout = self.config().memory.partitions().ok_or_else(strange)?;
        let range = layout.range(partition).ok_or_else(strange)?;
        let region = self.shared.host_memory.regions.first().ok_or_else(strange)?;
        let start = region.guest.start;
        region.part(&(start + range.start..start + range.end)).ok_or_else(strange)
    }

    /// What the host has behind the base and behind the regions.
    async fn resident(&self) -> Result<(Resident, Resident)> {
        let (process, memory) = (self.process_id(), self.shared.host_memory.clone());
        blocking(move || memory.resident(process)).await
    }
}

impl Shared {
    /// As [`Vm::sweep`].
    pub(super) async fn sweep(&self, grain: Grain) -> Result<()> {
        let paused = self.paused.subscribe();
        let work = move |reclaimer: &Reclaimer| reclaimer.take_idle(grain, || *paused.borrow());
        let taken = self.take_free(work).await?;
        self.swept.add(&taken);
        Ok(())
    }

    /// Has free memory taken, and logs how much that was.
    async fn take_free(
        &self,
        take: impl FnOnce(&Reclaimer) -> Result<Taken> + Send + 'static,
    ) -> Result<Taken> {
        let reclaimer = self.reclaimer.get().cloned().ok_or_else(|| {
            VmError::AllocatorState("the VM was started without `llfree`".to_owned())
        })?;
        let result = self.fate.guard(self.work(move || take(&reclaimer))).await;
        match &result {
            Ok(taken) if taken.bytes > 0 => {
                tracing::debug!(vm = self.config.name, %taken, "free memory");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(vm = self.config.name, %error, "free memory"),
        }
        result
    }

    /// Does work on its memory. What a VMM does to its file may have that hang, and no more than
    /// [`MOST_HANDS`](super::MOST_HANDS) threads are to hang with it: all VMs have their threads of one pool.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let hand = self.hands.clone().acquire_owned().await.expect("nobody closes it");
        blocking(move || {
            let _hand = hand;
            work()
        })
        .await
    }

    /// The same for what only looks at it, for which nobody waits longer than for a call to the agent. Its thread goes on.
    async fn within_limit<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let limit = self.config.timeouts.call;
        let looked = tokio::time::timeout(limit, self.work(look)).await;
        looked.unwrap_or_else(|_| {
            Err(VmError::Measure {
                what: "the VM's memory".to_owned(),
                reason: format!("that has taken more than {} s", limit.as_secs()),
            })
        })
    }
}

/// Does what takes too long for a thread that others need.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| VmError::system("a thread has failed", e))?
}

/// The host must have what is going to be used on top.
pub(super) fn check_host_memory(needed: u64) -> Result<()> {
    if needed == 0 {
        return Ok(());
    }
    let available = measure::available_bytes()?;
    if needed > available { Err(VmError::HostMemory { needed, available }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hyperalloc::tests::Guest,
        vm::{MOST_HANDS, supervisor::tests::shared},
    };

    #[tokio::test(start_paused = true)]
    async fn whoever_measures_does_not_wait_without_end_for_those_that_hang() {
        let guest = Guest::new();
        guest.boot();
        let shared = shared(Arc::new(guest.reclaimer()));
        let all = u32::try_from(MOST_HANDS).unwrap();
        let hang = shared.hands.clone().try_acquire_many_owned(all).unwrap();
        let looked: Result<()> = shared.within_limit(|| unreachable!()).await;
        assert!(matches!(looked, Err(VmError::Measure { .. })), "{looked:?}");
        drop(hang);
        assert_eq!(shared.within_limit(|| Ok(7)).await, Ok(7));
    }
}
