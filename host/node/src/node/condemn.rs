//! Instances of a paused VM that lose their memory: doomed before the pause, condemned when it is needed.

use super::{actor::Actor, message::Completion};
use crate::{InstanceError, NodeEvent, instance::Instance};
use futures_util::TryFutureExt;
use squeezy_protocol::PartitionNumber;
use squeezy_scaler::{Event, InstanceNumber, StopReason, VmIndex};
use squeezy_vmm::VmError;
use std::time::Duration;
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
    /// The instances of a VM that are worth dooming before it is paused: none if there is only one, because the VM
    /// ends with the last one.
    pub(super) fn to_doom(&self, vm: VmIndex) -> Vec<(InstanceNumber, Instance)> {
        let of = |number| Some((number, self.instances.get(&number)?.instance()?));
        let all: Vec<_> = self.within(vm).into_iter().filter_map(of).collect();
        if all.len() > 1 { all } else { Vec::new() }
    }

    pub(super) fn doomed(&mut self, doomed: Doomed) {
        for (instance, partition) in doomed {
            if let Some(entry) = self.instances.get_mut(&instance) {
                entry.doomed = Some(partition);
                self.event(Event::Doomed(instance));
            }
        }
    }

    /// Takes the memory of an instance of a paused VM. This does not wait for a resume, which would be in vain.
    pub(super) fn condemn(&mut self, instance: InstanceNumber) {
        let Some(entry) = self.instances.get(&instance) else { return };
        let condemned = entry.instance().zip(entry.doomed);
        self.begin(async move {
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
        let (vm, function) = (entry.vm, entry.function);
        if result.is_err() && self.has_ended(vm) {
            return;
        }
        if let Err(error) = &result {
            self.note(&format!("the memory of instance {instance} could not be taken: {error}"));
        }
        let event = match result {
            Err(InstanceError::NoVm | InstanceError::Vm(VmError::NotCondemned { .. })) => {
                Event::CondemnFailed(instance)
            }
            // If the host failed in the middle, a part is gone. So the instance does not live on, either.
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
