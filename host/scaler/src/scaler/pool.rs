//! All instances, with indices that are updated on each change: a node has thousands of functions, and an
//! event must not look at all of them.

use super::Counts;
use crate::{
    FunctionIndex, InstanceNumber, InstanceState, Moment, TenantIndex, VmIndex, instance::Instance,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Duration,
};

const FIRST: (Moment, InstanceNumber) = (Moment::START, InstanceNumber(0));
const LAST: (Moment, InstanceNumber) = (Moment(Duration::MAX), InstanceNumber(u64::MAX));

/// All instances, indexed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pool {
    instances: BTreeMap<InstanceNumber, Instance>,
    /// Without queued requests.
    counts: BTreeMap<FunctionIndex, Counts>,
    /// Idle instances, least recently used first.
    idle: BTreeSet<(Moment, InstanceNumber)>,
    idle_by: BTreeSet<(TenantIndex, (Moment, InstanceNumber))>,
    idle_of: BTreeSet<(FunctionIndex, (Moment, InstanceNumber))>,
    idle_in: BTreeSet<(VmIndex, (Moment, InstanceNumber))>,
    condemned: BTreeSet<(VmIndex, InstanceNumber)>,
    /// Busy instances that are not dying, with how many requests each has.
    busy_of: BTreeSet<(FunctionIndex, u16, InstanceNumber)>,
    /// Stopping or being reclaimed.
    going: BTreeSet<InstanceNumber>,
    within: BTreeSet<(VmIndex, InstanceNumber)>,
    stranded: BTreeSet<(VmIndex, InstanceNumber)>,
    alive: BTreeMap<VmIndex, usize>,
    starting: BTreeMap<VmIndex, usize>,
    /// Instances that are starting or busy.
    working: usize,
    working_in: BTreeMap<VmIndex, usize>,
    /// What these are charged, in bytes.
    working_bytes: u64,
}

impl Pool {
    /// One instance.
    pub fn get(&self, number: InstanceNumber) -> Option<Instance> {
        self.instances.get(&number).copied()
    }

    /// Replaces, adds or removes an instance, and returns what it was before.
    pub fn put(&mut self, number: InstanceNumber, instance: Option<Instance>) -> Option<Instance> {
        let before = match instance {
            Some(instance) => self.instances.insert(number, instance),
            None => self.instances.remove(&number),
        };
        if let Some(before) = before {
            self.count(number, before, false);
        }
        if let Some(instance) = instance {
            self.count(number, instance, true);
        }
        before
    }

    /// The number of instances.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether there are no instances.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// A function's instances, counted by state.
    pub fn counts(&self, function: FunctionIndex) -> Counts {
        self.counts.get(&function).copied().unwrap_or_default()
    }

    /// Whether the function has any instance, including stranded ones.
    pub fn has_any(&self, function: FunctionIndex) -> bool {
        self.counts.contains_key(&function)
    }

    /// All idle instances with the time since when they are idle, least recently used first.
    pub fn idle(&self) -> impl Iterator<Item = (Moment, InstanceNumber)> {
        self.idle.iter().copied()
    }

    /// The same, for one tenant.
    pub fn idle_by(&self, tenant: TenantIndex) -> impl Iterator<Item = (Moment, InstanceNumber)> {
        self.idle_by.range((tenant, FIRST)..=(tenant, LAST)).map(|&(_, idle)| idle)
    }

    /// The same, for one function.
    pub fn idle_of(
        &self,
        function: FunctionIndex,
    ) -> impl DoubleEndedIterator<Item = (Moment, InstanceNumber)> {
        self.idle_of.range((function, FIRST)..=(function, LAST)).map(|&(_, idle)| idle)
    }

    /// A function's most recently used idle instance.
    pub fn last_used(&self, function: FunctionIndex) -> Option<InstanceNumber> {
        self.idle_of(function).next_back().map(|(_, number)| number)
    }

    /// Of a function's busy instances with fewer than `most` requests, and not dying, one that has the most.
    pub fn fullest(&self, function: FunctionIndex, most: u16) -> Option<InstanceNumber> {
        let below = (function, 0, InstanceNumber(0))..(function, most, InstanceNumber(0));
        self.busy_of.range(below).next_back().map(|&(_, _, number)| number)
    }

    /// The idle instances of one VM, in the same order.
    pub fn idle_in(
        &self,
        vm: VmIndex,
    ) -> impl DoubleEndedIterator<Item = (Moment, InstanceNumber)> {
        self.idle_in.range((vm, FIRST)..=(vm, LAST)).map(|&(_, idle)| idle)
    }

    /// The condemned instances of one VM.
    pub fn condemned(&self, vm: VmIndex) -> impl Iterator<Item = InstanceNumber> {
        self.condemned.range(all(vm)).map(|&(_, number)| number)
    }

    /// Condemned instances whose memory is on its way to the host.
    pub fn condemning(&self) -> impl Iterator<Item = Instance> {
        let all = self.condemned.iter().filter_map(|&(_, number)| self.get(number));
        all.filter(|i| matches!(i.state, InstanceState::Condemned { done: false, .. }))
    }

    /// Instances that are stopping or being reclaimed.
    pub fn going(&self) -> impl Iterator<Item = Instance> {
        self.going.iter().filter_map(|&number| self.get(number))
    }

    /// All instances in one VM, including stranded ones.
    pub fn within(&self, vm: VmIndex) -> impl Iterator<Item = InstanceNumber> {
        self.within.range(all(vm)).map(|&(_, number)| number)
    }

    /// A stranded instance of the VM, if it has one.
    pub fn stranded(&self, vm: VmIndex) -> Option<InstanceNumber> {
        self.stranded.range(all(vm)).map(|&(_, number)| number).next()
    }

    /// How many instances in the VM are not stranded.
    pub fn alive(&self, vm: VmIndex) -> usize {
        self.alive.get(&vm).copied().unwrap_or(0)
    }

    /// How many instances in the VM are starting.
    pub fn starting(&self, vm: VmIndex) -> usize {
        self.starting.get(&vm).copied().unwrap_or(0)
    }

    /// How many instances are starting or busy.
    pub fn working(&self) -> usize {
        self.working
    }

    /// Whether an instance in the VM is starting or busy.
    pub fn works_in(&self, vm: VmIndex) -> bool {
        self.working_in.contains_key(&vm)
    }

    /// What instances that are starting or busy are charged together, in bytes.
    pub fn working_bytes(&self) -> u64 {
        self.working_bytes
    }

    /// Adds an instance to all indices, or removes it.
    fn count(&mut self, number: InstanceNumber, instance: Instance, adds: bool) {
        let Instance { tenant, function, vm, state, charged_bytes } = instance;
        let counts = self.counts.entry(function).or_default();
        add(counts.of(state), adds);
        if let InstanceState::Idle { frozen: true, .. } = state {
            add(&mut counts.frozen, adds);
        }
        if adds {
            counts.promised_bytes += charged_bytes;
        } else {
            counts.promised_bytes -= charged_bytes;
        }
        if *counts == Counts::default() {
            self.counts.remove(&function);
        }
        note(&mut self.within, (vm, number), adds);
        if let InstanceState::Stranded { .. } = state {
            note(&mut self.stranded, (vm, number), adds);
        } else {
            tally(&mut self.alive, vm, adds);
        }
        match state {
            InstanceState::Idle { since, .. } => {
                note(&mut self.idle, (since, number), adds);
                note(&mut self.idle_by, (tenant, (since, number)), adds);
                note(&mut self.idle_of, (function, (since, number)), adds);
                note(&mut self.idle_in, (vm, (since, number)), adds);
            }
            InstanceState::Condemned { .. } => note(&mut self.condemned, (vm, number), adds),
            InstanceState::Stopping | InstanceState::Reclaiming => {
                note(&mut self.going, number, adds);
            }
            InstanceState::Starting => {
                tally(&mut self.starting, vm, adds);
                self.count_working(vm, charged_bytes, adds);
            }
            InstanceState::Busy { requests, dying } => {
                self.count_working(vm, charged_bytes, adds);
                if !dying {
                    note(&mut self.busy_of, (function, requests, number), adds);
                }
            }
            InstanceState::Stranded { .. } => {}
        }
    }

    fn count_working(&mut self, vm: VmIndex, charged_bytes: u64, adds: bool) {
        add(&mut self.working, adds);
        tally(&mut self.working_in, vm, adds);
        if adds {
            self.working_bytes += charged_bytes;
        } else {
            self.working_bytes -= charged_bytes;
        }
    }
}

fn all(vm: VmIndex) -> RangeInclusive<(VmIndex, InstanceNumber)> {
    (vm, InstanceNumber(0))..=(vm, InstanceNumber(u64::MAX))
}

fn add(count: &mut usize, adds: bool) {
    if adds { *count += 1 } else { *count -= 1 }
}

/// Counts up or down, and drops entries that reach 0.
fn tally<T: Ord + Copy>(counts: &mut BTreeMap<T, usize>, of: T, adds: bool) {
    let count = counts.entry(of).or_default();
    add(count, adds);
    if *count == 0 {
        counts.remove(&of);
    }
}

fn note<T: Ord>(set: &mut BTreeSet<T>, member: T, adds: bool) {
    let changed = if adds { set.insert(member) } else { set.remove(&member) };
    debug_assert!(changed, "index out of sync");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn instance() -> impl Strategy<Value = Instance> {
        let since = (0..50_u64).prop_map(|seconds| Moment(Duration::from_secs(seconds)));
        let state = prop_oneof![
            Just(InstanceState::Starting),
            (since.clone(), any::<bool>())
                .prop_map(|(since, frozen)| InstanceState::Idle { since, frozen }),
            (since.clone(), any::<bool>())
                .prop_map(|(since, done)| InstanceState::Condemned { since, done }),
            (1..4_u16, any::<bool>())
                .prop_map(|(requests, dying)| InstanceState::Busy { requests, dying }),
            Just(InstanceState::Stopping),
            Just(InstanceState::Reclaiming),
            since.prop_map(|since| InstanceState::Stranded { since }),
        ];
        (0..4_u32, 0..3_u32, state).prop_map(|(function, vm, state)| Instance {
            tenant: TenantIndex(vm % 2),
            function: FunctionIndex(function),
            vm: VmIndex(vm),
            state,
            charged_bytes: 1,
        })
    }

    proptest! {
        /// The indices depend only on the current instances, not on how they changed.
        #[test]
        fn the_answers_are_those_of_a_pool_made_anew(
            changes in prop::collection::vec((0..12_u64, prop::option::of(instance())), 0..200)
        ) {
            let mut pool = Pool::default();
            for (number, instance) in changes {
                pool.put(InstanceNumber(number), instance);
            }
            let mut anew = Pool::default();
            for (&number, &instance) in &pool.instances {
                anew.put(number, Some(instance));
            }
            prop_assert_eq!(&pool, &anew);
            for function in (0..4).map(FunctionIndex) {
                let idle = pool.instances.iter().filter(|(_, i)| i.function == function);
                let idle = idle.filter(|(_, i)| matches!(i.state, InstanceState::Idle { .. }));
                prop_assert_eq!(pool.idle_of(function).count(), idle.count());
                prop_assert_eq!(pool.counts(function).idle, pool.idle_of(function).count());
                let own = || pool.instances.values().filter(|i| i.function == function);
                let below = own().filter_map(|instance| match instance.state {
                    InstanceState::Busy { requests: requests @ ..3, dying: false } => Some(requests),
                    _ => None,
                });
                let fullest = pool.fullest(function, 3).and_then(|number| pool.get(number));
                let requests = fullest.map(|instance| match instance.state {
                    InstanceState::Busy { requests, .. } => requests,
                    _ => 0,
                });
                prop_assert_eq!(requests, below.max());
            }
            for vm in (0..3).map(VmIndex) {
                let alive = pool.instances.values().filter(|i| i.vm == vm);
                let alive = alive.filter(|i| !matches!(i.state, InstanceState::Stranded { .. }));
                prop_assert_eq!(pool.alive(vm), alive.count());
                let starting = pool.instances.values().filter(|i| i.vm == vm);
                let starting = starting.filter(|i| i.state == InstanceState::Starting);
                prop_assert_eq!(pool.starting(vm), starting.count());
                let works = |state: InstanceState| {
                    matches!(state, InstanceState::Starting | InstanceState::Busy { .. })
                };
                let mut within = pool.instances.values().filter(|i| i.vm == vm);
                prop_assert_eq!(pool.works_in(vm), within.any(|i| works(i.state)));
            }
        }
    }
}
