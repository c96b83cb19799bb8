//! Which frozen instance gives its garbage back, and when: the manager of Desiccant (EuroSys'24).
//!
//! A frozen instance keeps what its runtime would collect only when its own heap is short. Nothing is
//! done about it while there is memory enough: see [`Threshold`]. Beyond that the instances that have
//! been frozen for a while are squeezed in the order of what each second of processor time is expected
//! to bring: see [`Profiles`].

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
    /// Bytes that frozen instances may hold together after one was evicted, before some are squeezed.
    pub floor_bytes: u64,
    /// The same after a long time without an eviction; at least `floor_bytes`.
    pub ceiling_bytes: u64,
    /// How long it takes to rise from the floor to the ceiling.
    pub rise: Duration,
    /// How long an instance is frozen before it is squeezed: one that is soon called again makes new
    /// garbage at once.
    pub frozen_for: Duration,
    /// Processors of the host. What an instance that starts or works has is not idle, and only idle
    /// ones squeeze.
    pub processors: u32,
}

impl SqueezePolicy {
    /// From a quarter of the memory on, those frozen for a second. The paper's 60% are hardly ever
    /// reached here: instances that start or work are charged in full, and for them frozen ones are
    /// ended before (`bench/results/cache/README.md`).
    pub fn of_memory(limit_bytes: u64, processors: u32) -> Self {
        Self::above(limit_bytes / 4, processors)
    }

    /// From so many bytes on, and half as many more when nobody was evicted for a minute.
    pub fn above(floor_bytes: u64, processors: u32) -> Self {
        Self {
            floor_bytes,
            ceiling_bytes: floor_bytes.saturating_add(floor_bytes / 2),
            rise: Duration::from_secs(60),
            frozen_for: Duration::from_secs(1),
            processors,
        }
    }
}

/// A frozen instance.
#[derive(Clone, Copy, Debug)]
struct Frozen {
    function: FunctionIndex,
    since: Moment,
    resident_bytes: u64,
}

/// Keeps account of the frozen instances.
#[derive(Debug)]
pub(crate) struct SqueezeManager {
    policy: SqueezePolicy,
    threshold: Threshold,
    profiles: Profiles,
    frozen: BTreeMap<InstanceNumber, Frozen>,
    /// What they hold together.
    held_bytes: u64,
    /// Those that have run since they were squeezed last.
    ready: BTreeSet<(Moment, InstanceNumber)>,
    /// Those that are being squeezed, with what each is expected to give back.
    running: BTreeMap<InstanceNumber, u64>,
    /// Those that could not be squeezed, and are left alone.
    failed: BTreeSet<InstanceNumber>,
}

impl SqueezeManager {
    /// One without instances.
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

    /// An instance was frozen and holds so much.
    pub fn frozen(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        function: FunctionIndex,
        resident_bytes: u64,
    ) {
        self.thawed(number);
        self.frozen.insert(number, Frozen { function, since: now, resident_bytes });
        self.held_bytes += resident_bytes;
        if !self.failed.contains(&number) {
            self.ready.insert((now, number));
        }
    }

    /// An instance is not frozen any more, if it was.
    pub fn thawed(&mut self, number: InstanceNumber) {
        let Some(frozen) = self.frozen.remove(&number) else { return };
        self.held_bytes -= frozen.resident_bytes;
        self.ready.remove(&(frozen.since, number));
        self.running.remove(&number);
    }

    /// There is no such instance any more.
    pub fn gone(&mut self, number: InstanceNumber) {
        self.thawed(number);
        self.failed.remove(&number);
        self.profiles.forget(number);
    }

    /// There is no such function any more.
    pub fn forget_function(&mut self, function: FunctionIndex) {
        self.profiles.forget_function(function);
    }

    /// An instance was ended for want of memory.
    pub fn evicted(&mut self, now: Moment) {
        self.threshold.fall(now);
    }

    /// Who is to be squeezed now, with so many instances at work: whoever is expected to give back most
    /// for each second of processor time.
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

    /// The one that was chosen is being squeezed.
    pub fn begin(&mut self, number: InstanceNumber) {
        let Some(frozen) = self.frozen.get(&number) else { return };
        self.ready.remove(&(frozen.since, number));
        self.running.insert(number, self.gain_bytes(number));
    }

    /// An instance has so much left after it was squeezed. Changes nothing if it was thawed meanwhile.
    pub fn squeezed(&mut self, number: InstanceNumber, resident_bytes: u64, cpu: Duration) {
        if self.running.remove(&number).is_none() {
            return;
        }
        let Some(frozen) = self.frozen.get_mut(&number) else { return };
        self.held_bytes = self.held_bytes - frozen.resident_bytes + resident_bytes;
        frozen.resident_bytes = resident_bytes;
        self.profiles.learn(number, frozen.function, Profile { left_bytes: resident_bytes, cpu });
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

    /// When somebody more may be chosen, if nothing happens before.
    pub fn deadline(&self, now: Moment) -> Option<Moment> {
        let since = Moment(now.0.saturating_sub(self.policy.frozen_for));
        let later = self.ready.range((since, InstanceNumber(0))..);
        let mut due = later.map(|&(since, _)| since + self.policy.frozen_for);
        due.find(|&due| due > now).filter(|_| self.wants_memory(now))
    }

    /// Whether frozen instances hold too much, less what is on its way.
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
