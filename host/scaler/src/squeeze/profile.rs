//! What a squeeze is expected to free and to cost.

use crate::{FunctionIndex, InstanceNumber};
use std::{collections::BTreeMap, time::Duration};

/// The result of a squeeze, measured or expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    /// What the instance holds afterwards, in bytes.
    pub left_bytes: u64,
    /// Processor time of the squeeze.
    pub cpu: Duration,
}

impl Profile {
    /// The processor time in seconds, at least a microsecond, so that it can be divided by.
    pub fn seconds(self) -> f64 {
        self.cpu.as_secs_f64().max(1e-6)
    }

    /// A moving average, because what an instance keeps changes with its requests.
    fn learn(self, new: Self) -> Self {
        Self {
            left_bytes: self.left_bytes / 4 * 3 + new.left_bytes / 4,
            cpu: self.cpu / 4 * 3 + new.cpu / 4,
        }
    }
}

/// What past squeezes showed, per instance, per function and overall.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    instances: BTreeMap<InstanceNumber, Profile>,
    functions: BTreeMap<FunctionIndex, Profile>,
    overall: Option<Profile>,
}

impl Profiles {
    /// What to expect of an instance: from its own squeezes, else from its function's, else from all.
    pub fn of(&self, number: InstanceNumber, function: FunctionIndex) -> Option<Profile> {
        let own = self.instances.get(&number).or_else(|| self.functions.get(&function));
        own.copied().or(self.overall)
    }

    /// Records the result of a squeeze.
    pub fn learn(&mut self, number: InstanceNumber, function: FunctionIndex, new: Profile) {
        let learn = |old: &mut Profile| *old = old.learn(new);
        self.instances.entry(number).and_modify(learn).or_insert(new);
        self.functions.entry(function).and_modify(learn).or_insert(new);
        self.overall = Some(self.overall.map_or(new, |old| old.learn(new)));
    }

    /// Drops the profile of an instance that is gone. What it added to its function's profile stays.
    pub fn forget(&mut self, number: InstanceNumber) {
        self.instances.remove(&number);
    }

    /// Drops the profile of a function that is gone.
    pub fn forget_function(&mut self, function: FunctionIndex) {
        self.functions.remove(&function);
    }
}
