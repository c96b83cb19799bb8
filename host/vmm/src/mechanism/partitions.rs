//! Partitions: an instance's memory is one piece, plugged when it starts and given back when it
//! ends.
//!
//! What the device has plugged does not say whom it serves: a partition may hold pages of an
//! instance that has ended, and be useless to another one. So after each resize the guest is asked
//! for the states of its partitions, and one more partition is requested for each one that is held.

use super::{Mechanism, MechanismName, Sizing, Slot, Slots};
use crate::{
    BoxFuture, Result, Vm, VmConfig, VmError,
    memory::{PartitionLayout, Resize},
    mutex::lock,
};
use squeezy_protocol::{InstanceSpec, PartitionChoice, PartitionState};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// The most corrections to a resize: each end of an instance may add or release a held partition.
const ROUNDS: u32 = 4;

/// How often, and at what interval, the guest and its device must be seen to disagree: the device
/// is told before the guest has updated its counters.
const LOOKS: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// How often the guest is asked for its states while a resize takes long. A request for memory that
/// the guest has miscounted or quarantined is never fulfilled, and waiting the full time for it as
/// for a slow guest would be pointless.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

pub(super) fn new(sizing: Sizing) -> Box<dyn Mechanism> {
    Box::new(Partitions::new(sizing))
}

struct Partitions {
    layout: PartitionLayout,
    slots: Slots,
    /// Partitions that were held when last checked.
    held: AtomicU16,
    /// Of these, the partitions that were already reported as memory of an instance that has not
    /// come back.
    reported: Mutex<u16>,
}

impl Partitions {
    fn new(sizing: Sizing) -> Self {
        let layout =
            PartitionLayout::new(sizing.instance_bytes, sizing.instances, sizing.shared_bytes);
        let slots = Slots::new(sizing.instances);
        Self { layout, slots, held: AtomicU16::new(0), reported: Mutex::new(0) }
    }

    /// The size to request: a partition for each slot in use, and one for each that is held.
    fn target(&self) -> u64 {
        let count = self.slots.count().saturating_add(self.held.load(SeqCst));
        self.layout.requested_bytes(count.min(self.layout.partitions))
    }

    /// Resizes the VM to what the slots in use need.
    async fn follow(&self, vm: &Vm) -> Result<Resize> {
        let mut latency = Duration::ZERO;
        let mut round = 1;
        loop {
            let known = self.held.load(SeqCst);
            let target = || self.target();
            let resized = tokio::select! {
                resized = vm.resize_by(0, &target) => resized,
                after = self.watch(vm, known) => {
                    Err(VmError::Held { partitions: self.held.load(SeqCst), after: after? })
                }
            };
            self.look(vm).await?;
            let held = self.held.load(SeqCst);
            let overtaken = matches!(resized, Err(VmError::Held { .. }));
            match resized {
                Ok(resize) => latency += resize.latency,
                Err(VmError::Resize { after, .. } | VmError::Held { after, .. }) => {
                    latency += after
                }
                Err(_) => return resized,
            }
            if held == known && !overtaken {
                return resized.map(|resize| Resize { latency, ..resize });
            }
            if round == ROUNDS {
                // The size that was requested is still not the size needed, so this is not a
                // success.
                resized?;
                return Err(VmError::Held { partitions: held.max(known), after: latency });
            }
            round += 1;
        }
    }

    /// Waits until the guest reports more than `known` partitions in quarantine twice in a row;
    /// returns how long that took. An error if guest and device disagree.
    async fn watch(&self, vm: &Vm, known: u16) -> Result<Duration> {
        let begin = Instant::now();
        let mut seen = false;
        loop {
            tokio::time::sleep(WATCH_PAUSE).await;
            let states = match self.look(vm).await {
                Ok(states) => states,
                Err(error @ VmError::Disagreement { .. }) => return Err(error),
                Err(_) => continue,
            };
            let more = count(&states, |state| state == PartitionState::Quarantined) > known;
            if more && seen {
                return Ok(begin.elapsed());
            }
            seen = more;
        }
    }

    /// Asks the guest for the states of its partitions, and records how many are held. An error if
    /// guest and device disagree.
    async fn look(&self, vm: &Vm) -> Result<Vec<PartitionState>> {
        // Without an agent there are no instances that could hold one.
        let Ok(agent) = vm.agent() else { return Ok(Vec::new()) };
        let mut looks = 1;
        loop {
            let before = vm.size().await?;
            let states = agent.partition_states().await?;
            self.held.store(count(&states, PartitionState::is_held), SeqCst);
            let Some(guest_bytes) = self.disagrees(&states, before) else { return Ok(states) };
            if before != vm.size().await? {
                return Ok(states);
            }
            if looks == LOOKS {
                return Err(VmError::Disagreement { device_bytes: before, guest_bytes });
            }
            looks += 1;
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// The bytes that the guest has, if its device disagrees and no change is in progress.
    fn disagrees(&self, states: &[PartitionState], device_bytes: u64) -> Option<u64> {
        let guest_bytes = self.layout.requested_bytes(count(states, PartitionState::is_plugged));
        let settled = !states.iter().any(|state| state.is_changing());
        (settled && guest_bytes != device_bytes).then_some(guest_bytes)
    }

    fn reported(&self) -> std::sync::MutexGuard<'_, u16> {
        lock(&self.reported)
    }

    fn held_error(&self, after: Duration) -> VmError {
        VmError::Held { partitions: self.held.load(SeqCst), after }
    }
}

/// How many partitions are in one of the states that `meant` accepts.
fn count(states: &[PartitionState], meant: impl Fn(PartitionState) -> bool) -> u16 {
    let count = states.iter().filter(|&&state| meant(state)).count();
    u16::try_from(count).unwrap_or(u16::MAX)
}

impl Mechanism for Partitions {
    fn name(&self) -> MechanismName {
        MechanismName::Squeezy
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        config.memory = Arc::new(self.layout);
        config
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async move {
            let partitions = self.layout.partitions;
            let resized = self.follow(vm).await.and_then(|resize| {
                let held = self.held.load(SeqCst);
                match held.saturating_add(self.slots.count()) {
                    wanted if wanted > partitions => Err(VmError::NoPartition { held, partitions }),
                    _ => Ok(Some(resize)),
                }
            });
            if resized.is_err() {
                // Memory that was not plugged must not remain requested.
                self.slots.free(slot)?;
                vm.withdraw(0, &|| self.target()).await;
            }
            resized
        })
    }

    fn reclaim<'a>(&'a self, vm: &'a Vm, _: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async move {
            let resize = self.follow(vm).await?;
            let held = self.held.load(SeqCst);
            let mut reported = self.reported();
            *reported = held.min(*reported);
            if *reported < held {
                *reported += 1;
                return Err(self.held_error(resize.latency));
            }
            Ok(Some(resize))
        })
    }

    fn settle<'a>(&'a self, vm: &'a Vm) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.follow(vm).await?;
            let held = self.held.load(SeqCst);
            let mut reported = self.reported();
            if held > 0 && held >= *reported {
                return Err(self.held_error(Duration::ZERO));
            }
            *reported = reported.saturating_sub(1);
            Ok(())
        })
    }

    fn is_unfit_after(&self, error: &VmError) -> bool {
        error.is_unfit()
    }

    fn waits_in_guest(&self) -> bool {
        true
    }

    /// Any partition: the guest's kernel chooses, and its number is not the slot's.
    fn place(&self, _: Slot, spec: &mut InstanceSpec) {
        spec.partition = PartitionChoice::Any;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PartitionState::{
        Absent, Assigned, Draining, Free, Owed, Populating, Quarantined, Unplugged,
    };

    const MIB: u64 = 1 << 20;

    fn partitions() -> Partitions {
        let sizing = Sizing { instance_bytes: 128 * MIB, instances: 4, shared_bytes: 64 * MIB };
        Partitions::new(sizing)
    }

    #[test]
    fn for_each_partition_that_is_held_another_one_is_asked_for() {
        let all = partitions();
        for (held, count, partitions) in [(0, 1, 1), (1, 2, 3), (2, 3, 4), (9, 4, 4)] {
            all.held.store(held, SeqCst);
            while all.slots.count() < count {
                all.slots.take().unwrap();
            }
            assert_eq!(all.target(), (64 + partitions * 128) * MIB, "{held} held");
        }
    }

    #[test]
    fn what_the_guest_has_is_compared_with_what_its_device_has() {
        let all = partitions();
        let check = |states: &[_], mib: u64| all.disagrees(states, mib * MIB);
        assert_eq!(check(&[Free, Assigned, Unplugged, Absent], 320), None);
        assert_eq!(check(&[Owed, Quarantined, Draining, Absent], 448), None);
        assert_eq!(check(&[Assigned, Absent, Absent, Absent], 320), Some(192 * MIB));
        assert_eq!(check(&[Assigned, Free, Absent, Absent], 192), Some(320 * MIB));
        assert_eq!(check(&[Assigned, Populating, Absent, Absent], 192), None, "under way");
    }
}
