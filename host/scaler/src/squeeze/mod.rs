//! Chooses which frozen instance is squeezed, and when, like the manager in Desiccant (EuroSys'24).
//!
//! A frozen instance holds garbage that its runtime would collect only when its own heap runs short. As long
//! as there is enough memory, it keeps it: see [`Threshold`]. Beyond that, instances that have been frozen
//! for a while are squeezed, in the order of the bytes that each second of processor time is expected to
//! free: see [`Profiles`].

mod peak;
mod profile;
mod threshold;

use crate::{FunctionIndex, InstanceNumber, Moment};
use profile::{Profile, Profiles};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use threshold::Threshold;

/// When frozen instances are squeezed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqueezePolicy {
    /// Bytes that frozen instances may hold together before some are squeezed, right after an eviction. Fewer, if they would
    /// not leave what was at work lately its memory.
    pub floor_bytes: u64,
    /// The same after a long time without evictions; at least `floor_bytes`.
    pub ceiling_bytes: u64,
    /// How long the threshold takes to rise from the floor to the ceiling, and how long what was at work at a time is
    /// remembered, at least.
    pub rise: Duration,
    /// How long an instance is frozen before it is squeezed. One that is called again soon would only produce
    /// new garbage.
    pub frozen_for: Duration,
    /// Processors of the host. Each starting or busy instance occupies one, and only idle ones are used to
    /// squeeze; with 0 none is squeezed.
    pub processors: u32,
    /// By how many bytes a frozen instance may grow in ten seconds before its guest is to blame for it.
    pub tolerance_bytes: u64,
}

/// The time in which a frozen instance may grow by [`SqueezePolicy::tolerance_bytes`].
const TOLERANCE_SECONDS: u64 = 10;

impl SqueezePolicy {
    /// What a frozen instance may grow by in ten seconds although its guest is honest: twice 16 MiB.
    ///
    /// That is what `khugepaged` goes over every ten seconds (`pages_to_scan`). The host's fills the holes of huge pages
    /// out of which single pages were taken. The guest's takes a free huge page of the partition for what was in small
    /// ones, which the host keeps for now. Both are for a whole machine, and one instance may be all that there is.
    /// Nothing else comes near: a guest's kernel that reads past the end of a page has the host put 2 MiB there, what
    /// moves pages leaves partitions alone, and whoever reads an instance's memory from outside (the agent does not)
    /// finds what is there.
    pub const TOLERANCE_BYTES: u64 = 32 << 20;

    /// Squeezes above a quarter of the memory, after a second frozen. The paper's 60% are hardly ever reached
    /// here: starting and busy instances are charged in full, and frozen ones are evicted for them before
    /// that (`bench/results/cache/README.md`).
    pub fn of_memory(limit_bytes: u64, processors: u32) -> Self {
        Self::above(limit_bytes / 4, processors)
    }

    /// Squeezes above `floor_bytes`, rising to one and a half times that in a minute without evictions.
    pub fn above(floor_bytes: u64, processors: u32) -> Self {
        Self {
            floor_bytes,
            ceiling_bytes: floor_bytes.saturating_add(floor_bytes / 2),
            rise: Duration::from_secs(60),
            frozen_for: Duration::from_secs(1),
            processors,
            tolerance_bytes: Self::TOLERANCE_BYTES,
        }
    }
}

/// A frozen instance.
#[derive(Clone, Copy, Debug)]
struct Frozen {
    function: FunctionIndex,
    since: Moment,
    resident_bytes: u64,
    /// When that was last measured.
    measured: Moment,
}

/// Keeps track of the frozen instances.
#[derive(Debug)]
pub(crate) struct SqueezeManager {
    policy: SqueezePolicy,
    threshold: Threshold,
    profiles: Profiles,
    frozen: BTreeMap<InstanceNumber, Frozen>,
    /// Their total resident memory.
    held_bytes: u64,
    /// Those that have run since they were last squeezed.
    ready: BTreeSet<(Moment, InstanceNumber)>,
    /// Those being squeezed, with the bytes that each is expected to give back.
    running: BTreeMap<InstanceNumber, u64>,
    /// Those that could not be squeezed, and are left alone from then on.
    failed: BTreeSet<InstanceNumber>,
}

impl SqueezeManager {
    /// Creates a manager without instances.
    pub fn new(policy: SqueezePolicy) -> Self {
        Self {
            policy,
            threshold: Threshold::new(&policy),
            profiles: Profiles::default(),
            frozen: BTreeMap::new(),
            held_bytes: 0,
            ready: BTreeSet::new(),
            running: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// An instance was frozen and holds `resident_bytes`.
    pub fn frozen(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        function: FunctionIndex,
        resident_bytes: u64,
    ) {
        self.thawed(number);
        let frozen = Frozen { function, since: now, resident_bytes, measured: now };
        self.frozen.insert(number, frozen);
        self.held_bytes += resident_bytes;
        if !self.failed.contains(&number) {
            self.ready.insert((now, number));
        }
    }

    /// An instance is no longer frozen, if it was.
    pub fn thawed(&mut self, number: InstanceNumber) {
        let Some(frozen) = self.frozen.remove(&number) else { return };
        self.held_bytes -= frozen.resident_bytes;
        self.ready.remove(&(frozen.since, number));
        self.running.remove(&number);
    }

    /// An instance is gone.
    pub fn gone(&mut self, number: InstanceNumber) {
        self.thawed(number);
        self.failed.remove(&number);
        self.profiles.forget(number);
    }

    /// A function is gone.
    pub fn forget_function(&mut self, function: FunctionIndex) {
        self.profiles.forget_function(function);
    }

    /// Instances that start or serve requests, and the VMs that they are in, have `working_bytes` from `now` on, of a budget of
    /// `limit_bytes`. VMs that run only to be squeezed are not among them, nor is what paused ones hold.
    pub fn works(&mut self, now: Moment, working_bytes: u64, limit_bytes: u64) {
        self.threshold.leave_room(now, working_bytes, limit_bytes);
    }

    /// What has been at work leaves so much of the budget, in bytes.
    #[cfg(test)]
    pub fn room_bytes(&self) -> u64 {
        self.threshold.room_bytes
    }

    /// An instance was evicted.
    pub fn evicted(&mut self, now: Moment) {
        self.threshold.fall(now);
    }

    /// The instance to squeeze now, if any, while `working` instances are starting or busy: the one expected
    /// to free the most bytes per second of processor time.
    pub fn choose(&self, now: Moment, working: usize) -> Option<InstanceNumber> {
        let idle = (self.policy.processors as usize).saturating_sub(working + self.running.len());
        if idle == 0 || !self.wants_memory(now) {
            return None;
        }
        let since = Moment(now.0.checked_sub(self.policy.frozen_for)?);
        let due = self.ready.range(..=(since, InstanceNumber(u64::MAX)));
        due.filter_map(|&(_, number)| {
            let gain_bytes = self.gain_bytes(number);
            let seconds = self.profile(number).map_or(1.0, Profile::seconds);
            (gain_bytes > 0).then(|| (gain_bytes as f64 / seconds, number))
        })
        .max_by(|(a, first), (b, second)| a.total_cmp(b).then(second.cmp(first)))
        .map(|(_, number)| number)
    }

    /// The chosen instance is being squeezed.
    pub fn begin(&mut self, number: InstanceNumber) {
        let Some(frozen) = self.frozen.get(&number) else { return };
        self.ready.remove(&(frozen.since, number));
        self.running.insert(number, self.gain_bytes(number));
    }

    /// An instance was squeezed and now holds `resident_bytes`. Has no effect if it has been thawed since.
    pub fn squeezed(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        resident_bytes: u64,
        cpu: Duration,
    ) {
        if self.running.remove(&number).is_none() {
            return;
        }
        let Some(frozen) = self.frozen.get_mut(&number) else { return };
        self.held_bytes = self.held_bytes - frozen.resident_bytes + resident_bytes;
        (frozen.resident_bytes, frozen.measured) = (resident_bytes, now);
        self.profiles.learn(number, frozen.function, Profile { left_bytes: resident_bytes, cpu });
    }

    /// A frozen instance was measured again. Returns by how many bytes it may have grown since it was last measured.
    ///
    /// The longer ago that was, the more: its VM may have been paused meanwhile, and the host's kernel at work on it. And
    /// always once more: what comes by every ten seconds comes by twice in a little more than that.
    pub fn measured(&mut self, now: Moment, number: InstanceNumber, resident_bytes: u64) -> u64 {
        let Some(frozen) = self.frozen.get_mut(&number) else { return 0 };
        let grown_bytes = resident_bytes.saturating_sub(frozen.resident_bytes);
        self.held_bytes += grown_bytes;
        frozen.resident_bytes += grown_bytes;
        let seconds = now.since(std::mem::replace(&mut frozen.measured, now)).as_secs();
        let tolerance_bytes = self.policy.tolerance_bytes;
        tolerance_bytes.saturating_mul(TOLERANCE_SECONDS + seconds) / TOLERANCE_SECONDS
    }

    /// An instance could not be squeezed, and is left alone from now on.
    pub fn failed(&mut self, number: InstanceNumber) {
        self.running.remove(&number);
        if let Some(frozen) = self.frozen.get(&number) {
            self.ready.remove(&(frozen.since, number));
        }
        self.failed.insert(number);
    }

    /// Whether an instance is being squeezed.
    pub fn is_running(&self, number: InstanceNumber) -> bool {
        self.running.contains_key(&number)
    }

    /// Whether a frozen instance has been squeezed since it ran.
    pub fn is_squeezed(&self, number: InstanceNumber) -> bool {
        self.frozen.get(&number).is_some_and(|frozen| {
            !self.ready.contains(&(frozen.since, number))
                && !self.running.contains_key(&number)
                && !self.failed.contains(&number)
        })
    }

    /// When another instance may become eligible, if nothing happens before.
    pub fn deadline(&self, now: Moment) -> Option<Moment> {
        let since = Moment(now.0.saturating_sub(self.policy.frozen_for));
        let later = self.ready.range((since, InstanceNumber(0))..);
        let mut due = later.map(|&(since, _)| since + self.policy.frozen_for);
        due.find(|&due| due > now).filter(|_| self.wants_memory(now))
    }

    /// Whether frozen instances hold too much, not counting what running squeezes are expected to free.
    fn wants_memory(&self, now: Moment) -> bool {
        let coming: u64 = self.running.values().sum();
        self.held_bytes.saturating_sub(coming) > self.threshold.bytes(now)
    }

    fn gain_bytes(&self, number: InstanceNumber) -> u64 {
        let left_bytes = self.profile(number).map_or(0, |profile| profile.left_bytes);
        self.frozen.get(&number).map_or(0, |f| f.resident_bytes.saturating_sub(left_bytes))
    }

    fn profile(&self, number: InstanceNumber) -> Option<Profile> {
        self.profiles.of(number, self.frozen.get(&number)?.function)
    }
}

#[cfg(test)]
mod tests;
