//! What squeezing is expected to bring and to cost.

use crate::{FunctionIndex, InstanceNumber};
use std::{collections::BTreeMap, time::Duration};

/// What came of squeezing an instance, or is expected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    /// What it holds afterwards, in bytes.
    pub left_bytes: u64,
    /// Processor time it took.
    pub cpu: Duration,
}

impl Profile {
    /// The processor time in seconds, never none.
    pub fn seconds(self) -> f64 {
        self.cpu.as_secs_f64().max(1e-6)
    }

    /// An average in which the past fades: what an instance keeps changes with what it is asked.
    fn learn(self, new: Self) -> Self {
        Self {
            left_bytes: self.left_bytes / 4 * 3 + new.left_bytes / 4,
            cpu: self.cpu / 4 * 3 + new.cpu / 4,
        }
    }
}

/// What is known of each instance, each function, and all.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    instances: BTreeMap<InstanceNumber, Profile>,
    functions: BTreeMap<FunctionIndex, Profile>,
    overall: Option<Profile>,
}

impl Profiles {
    /// What to expect of an instance: its own past, or that of its function's others, or of all.
    pub fn of(&self, number: InstanceNumber, function: FunctionIndex) -> Option<Profile> {
        let own = self.instances.get(&number).or_else(|| self.functions.get(&function));
        own.copied().or(self.overall)
    }

    /// Takes note of what came of one.
    pub fn learn(&mut self, number: InstanceNumber, function: FunctionIndex, new: Profile) {
        let learn = |old: &mut Profile| *old = old.learn(new);
        self.instances.entry(number).and_modify(learn).or_insert(new);
        self.functions.entry(function).and_modify(learn).or_insert(new);
        self.overall = Some(self.overall.map_or(new, |old| old.learn(new)));
    }

    /// Drops what is known of an instance that is gone; its function's others may profit from it still.
    pub fn forget(&mut self, number: InstanceNumber) {
        self.instances.remove(&number);
    }

    /// Drops what is known of a function that is gone.
    pub fn forget_function(&mut self, function: FunctionIndex) {
        self.functions.remove(&function);
    }
}
