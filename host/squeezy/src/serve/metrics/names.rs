//! Maps the node's functions to the names of their actions.

use super::labels::Name;
use crate::{mutex::lock, serve::action::Action};
use squeezy_scaler::FunctionIndex;
use squeezy_vmm::{GRANULE_BYTES, round_up};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, OnceLock},
};

/// What is known about a function besides its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name of its action.
    pub name: Name,
    /// The memory of an instance, in bytes.
    pub instance_bytes: u64,
}

impl Known {
    /// From an action.
    pub fn of(action: &Action) -> Self {
        let instance_bytes = round_up(action.image.function.memory_bytes, GRANULE_BYTES);
        Self { name: Name(action.name.to_string().into()), instance_bytes }
    }
}

/// Returns all functions that exist at the moment.
type LookUp = Box<dyn Fn() -> BTreeMap<FunctionIndex, Known> + Send + Sync>;

/// Functions by index. A changed action gets a new index while the old one still works for a
/// moment, so old indices are remembered.
#[derive(Default)]
pub struct Names {
    look_up: OnceLock<LookUp>,
    known: Mutex<BTreeMap<FunctionIndex, Known>>,
}

impl Names {
    /// Sets how names are looked up; before that, none is known.
    pub fn set(&self, look_up: LookUp) {
        let _ = self.look_up.set(look_up);
    }

    /// The function with this index.
    pub fn of(&self, index: FunctionIndex) -> Known {
        if let Some(known) = self.lock().get(&index) {
            return known.clone();
        }
        self.refresh();
        let unknown =
            || Known { name: Name(format!("function-{index}").into()), instance_bytes: 0 };
        self.lock().get(&index).cloned().unwrap_or_else(unknown)
    }

    /// Remembers all functions that exist.
    pub fn refresh(&self) {
        let found = self.look_up.get().map(|look_up| look_up()).unwrap_or_default();
        self.lock().extend(found);
    }

    /// Drops functions that no longer exist.
    pub fn retain(&self, is_there: impl Fn(FunctionIndex) -> bool) {
        self.lock().retain(|&index, _| is_there(index));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FunctionIndex, Known>> {
        lock(&self.known)
    }
}
