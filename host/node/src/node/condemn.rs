//! Instances of a paused VM that lose their memory: doomed before the pause, condemned when it is needed.

use super::{actor::Actor, message::Completion};
use crate::{InstanceError, NodeEvent, instance::Instance};
use futures_util::TryFutureExt;
use squeezy_protocol::PartitionNumber;
use squeezy_scaler::{Event, InstanceNumber, InstanceState, StopReason, VmIndex};
use squeezy_vmm::VmError;
use std::{sync::atomic::Ordering::Relaxed, time::Duration};
use tokio::time::{Instant, timeout};

/// How long a pause may wait until its VM's instances are doomed. Those that are not by then end only with the VM.
const DOOM_LIMIT: Duration = Duration::from_secs(1);

/// Instances that can be condemned, with their partitions.
pub(super) type Doomed = Vec<(InstanceNumber, PartitionNumber)>;

/// Dooms instances of a VM that is to be paused, as far as that is possible, and as long as that is wanted.
pub(super) async fn doom(
    resting: Vec<(InstanceNumber, Instance)>,
    wanted: impl Fn() -> bool,
) -> Doomed {
    let mut doomed = Vec::new();
    let all = async {
        for (number, instance) in resting {
            // A request that came meanwhile waits for one of them at most.
            if !wanted() {
                return;
            }
            // Who cannot be doomed now may be the next time.
            if let Some(Ok(partition)) = instance.guest.doom(&instance.id).await {
                doomed.push((number, partition));
            }
        }
    };
    let _ = timeout(DOOM_LIMIT, all).await;
    doomed
}

impl Actor {
    /// The instances of a VM that are worth dooming before it is paused.
    pub(super) fn to_doom(&self, vm: VmIndex) -> Vec<(InstanceNumber, Instance)> {
        let of = |number| Some((number, self.instances.get(&number)?.instance()?));
        self.scaler.worth_dooming(vm).into_iter().filter_map(of).collect()
    }

    pub(super) fn doomed(&mut self, doomed: Doomed) {
        for (instance, partition) in doomed {
            if let Some(entry) = self.instances.get_mut(&instance) {
                entry.doomed = Some(partition);
                self.event(Event::Doomed(instance));
            }
        }
    }

    /// Takes the memory of an instance of a paused VM, after that of those before it. This does not wait for a resume,
    /// which would be in vain, and a resume waits for one of them at most.
    pub(super) fn condemn(&mut self, instance: InstanceNumber) {
        let Some(entry) = self.instances.get(&instance) else { return };
        let condemned = entry.instance().zip(entry.doomed);
        let Some(vm) = self.vms.get(&entry.vm) else { return };
        let (condemning, now) = (vm.condemning.clone(), vm.generation.clone());
        let generation = now.load(Relaxed);
        self.begin(async move {
            let _one = condemning.lock().await;
            if now.load(Relaxed) != generation {
                return Completion::Nothing;
            }
            let begin = Instant::now();
            let result = match condemned {
                Some((Instance { guest, .. }, partition)) => {
                    guest.condemn(partition).err_into::<InstanceError>().await
                }
                None => Err(InstanceError::NoVm),
            };
            Completion::Condemned { instance, result, took: begin.elapsed() }
        });
    }

    pub(super) fn condemned(
        &mut self,
        instance: InstanceNumber,
        result: Result<u64, InstanceError>,
        took: Duration,
    ) {
        let Some(entry) = self.instances.get(&instance) else { return };
        let (vm, function, died) = (entry.vm, entry.function, entry.ending.is_some());
        // If it is not waited for any more, a failure means nothing: its VM runs, or ends.
        let waited = matches!(
            self.scaler.state(instance),
            Some(InstanceState::Condemned { done: false, .. })
        );
        if result.is_err() && (self.has_ended(vm) || !waited) {
            return;
        }
        if let Err(error) = &result {
            self.note(&format!("the memory of instance {instance} could not be taken: {error}"));
        }
        let event = match result {
            Err(
                InstanceError::NoVm
                | InstanceError::Vm(VmError::NotCondemned { .. } | VmError::StrangePartition(_)),
            ) if !died => Event::CondemnFailed(instance),
            // If the host failed in the middle, a part is gone. So the instance does not live on, either.
            // Nor does one whose death was seen in the meantime, which the scaler has left at that.
            result => {
                let freed_bytes = result.unwrap_or(0);
                self.is_to_end(instance, StopReason::Evicted);
                self.tell(NodeEvent::Condemned { instance, function, freed_bytes, took });
                Event::Condemned { instance, freed_bytes }
            }
        };
        self.event(event);
    }
}
