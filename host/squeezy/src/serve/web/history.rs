//! The state of functions and their VMs over the last minutes.

use super::sight::Sight;
use crate::serve::metrics::{Name, vm_state};
use serde::{Serialize, Serializer, ser::SerializeSeq};
use squeezy_node::NodeStatus;
use squeezy_scaler::FunctionIndex;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// How far back it goes.
pub const LENGTH: Duration = Duration::from_secs(15 * 60);

/// The maximum number of points kept for all functions together: about 10 MB.
const MOST_POINTS: usize = 100_000;

/// The state of a function at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    pub starting: usize,
    pub idle: usize,
    pub frozen: usize,
    pub busy: usize,
    /// Being stopped, or reclaimed.
    pub ending: usize,
    pub stranded: usize,
    pub queued: usize,
    /// How many instances are kept up without calls.
    pub minimum: usize,
    /// Memory that is promised to all its instances, in bytes.
    pub promised_bytes: u64,
    /// The state of its VM, if there is one.
    pub vm: Option<&'static str>,
    /// Requested, plugged and resident memory in bytes; `None` without a VM, or if it does not
    /// respond.
    pub memory: Option<[u64; 3]>,
}

impl Point {
    /// Whether there is anything to show.
    fn is_something(&self) -> bool {
        *self != Self::default()
    }
}

/// Serialized as a list of numbers to save space; the page knows their order.
impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(10))?;
        let Self { starting, idle, frozen, busy, ending, stranded, queued, .. } = self;
        for count in [starting, idle, frozen, busy, ending, stranded, queued] {
            list.serialize_element(count)?;
        }
        for index in 0..3 {
            list.serialize_element(&self.memory.map(|memory| memory[index]))?;
        }
        list.end()
    }
}

/// The state of all functions at one moment, without those that have nothing to show.
#[derive(Debug)]
pub struct Sample {
    pub at_ms: u64,
    pub functions: BTreeMap<Name, Point>,
}

impl Sample {
    /// What may be seen of it.
    pub fn seen(&self, sight: &Sight) -> impl Serialize {
        let functions: BTreeMap<_, _> =
            self.functions.iter().filter(|(name, _)| sight.sees(name)).collect();
        SeenSample { at_ms: self.at_ms, functions }
    }
}

/// What may be seen of a sample.
#[derive(Serialize)]
struct SeenSample<'a> {
    at_ms: u64,
    functions: BTreeMap<&'a Name, &'a Point>,
}

/// The most recent samples.
#[derive(Default)]
pub struct History {
    samples: VecDeque<Sample>,
    points: usize,
}

impl History {
    /// Adds a sample, unless both it and the previous one are empty.
    pub fn push(&mut self, at_ms: u64, mut functions: BTreeMap<Name, Point>) {
        functions.retain(|_, point| point.is_something());
        let was_nothing = self.samples.back().is_none_or(|last| last.functions.is_empty());
        if !(functions.is_empty() && was_nothing) {
            self.points += functions.len();
            self.samples.push_back(Sample { at_ms, functions });
        }
        let oldest_ms = at_ms.saturating_sub(LENGTH.as_millis() as u64);
        while let Some(first) = self.samples.front()
            && (first.at_ms < oldest_ms || self.points > MOST_POINTS)
        {
            self.points -= first.functions.len();
            self.samples.pop_front();
        }
    }

    /// Samples after this time.
    pub fn since(&self, since_ms: u64) -> impl Iterator<Item = &Sample> {
        let skipped = self.samples.partition_point(|sample| sample.at_ms <= since_ms);
        self.samples.range(skipped..)
    }
}

/// The state of every function. An action that was just changed is briefly two functions of the
/// same name.
pub fn points(status: &NodeStatus, name: impl Fn(FunctionIndex) -> Name) -> BTreeMap<Name, Point> {
    let mut points: BTreeMap<_, Point> = BTreeMap::new();
    for (index, counts) in &status.functions {
        let point = points.entry(name(*index)).or_default();
        point.starting += counts.starting;
        point.idle += counts.idle.saturating_sub(counts.frozen);
        point.frozen += counts.frozen;
        point.busy += counts.busy;
        point.ending += counts.condemned + counts.stopping + counts.reclaiming;
        point.stranded += counts.stranded;
        point.queued += counts.queued;
        point.minimum = point.minimum.max(counts.minimum);
        point.promised_bytes += counts.promised_bytes;
        let vm = status.vm_of.get(index);
        let vm = vm.and_then(|vm| status.vms.iter().find(|(index, ..)| index == vm));
        let Some((_, state, memory)) = vm else { continue };
        point.vm = vm_state(*state).or(point.vm);
        if let Some(memory) = memory {
            let sum = point.memory.get_or_insert_default();
            sum[0] += memory.asked_bytes;
            sum[1] += memory.plugged_bytes;
            sum[2] += memory.resident.resident_bytes;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_scaler::{Counts, VmIndex, VmState};
    use squeezy_vmm::MemoryUse;

    fn some(functions: usize) -> BTreeMap<Name, Point> {
        let point = Point { busy: 1, ..Point::default() };
        (0..functions).map(|n| (Name(n.to_string().into()), point.clone())).collect()
    }

    #[test]
    fn while_nothing_runs_nothing_is_remembered() {
        let mut history = History::default();
        for (at_ms, functions) in [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0), (6, 1)] {
            history.push(at_ms, some(functions));
        }
        let moments = |since| history.since(since).map(|s| s.at_ms).collect::<Vec<_>>();
        assert_eq!(moments(0), [2, 3, 4, 6], "the fall to nothing is seen");
        assert_eq!(moments(3), [4, 6]);
        assert!(moments(6).is_empty());
        history.push(LENGTH.as_millis() as u64 + 5, some(0));
        assert_eq!(history.since(0).count(), 2, "6 and the new one");
    }

    #[test]
    fn many_functions_do_not_take_more_memory() {
        let mut history = History::default();
        (0..300).for_each(|at_ms| history.push(at_ms, some(1000)));
        assert_eq!(history.since(0).count(), MOST_POINTS / 1000);
        assert_eq!(history.points, MOST_POINTS);
    }

    #[test]
    fn a_changed_action_is_one_function_and_a_silent_vm_has_no_numbers() {
        let index = [FunctionIndex(0), FunctionIndex(1)];
        let counts = Counts { idle: 2, frozen: 1, condemned: 1, ..Counts::default() };
        let memory = MemoryUse { asked_bytes: 5, ..MemoryUse::default() };
        let up = VmState::Up { empty_since: None };
        let status = NodeStatus {
            functions: index.map(|index| (index, counts)).to_vec(),
            vm_of: BTreeMap::from([(index[0], VmIndex(0)), (index[1], VmIndex(1))]),
            vms: vec![(VmIndex(0), up, Some(memory)), (VmIndex(1), up, None)],
            ..NodeStatus::default()
        };
        let points = points(&status, |_| Name("f".into()));
        let point = serde_json::to_value(&points[&Name("f".into())]).unwrap();
        assert_eq!(point, serde_json::json!([0, 2, 2, 0, 2, 0, 0, 5, 0, 0]));
        let nothing = serde_json::to_value(Point::default()).unwrap();
        assert!(nothing[7].is_null());
    }
}
