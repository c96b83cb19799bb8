//! Totals of functions that go on after a restart: those that `squeezy status` and the page show.
//!
//! The counters of `/metrics` begin at zero with each process, as Prometheus expects.

use super::{Metrics, Name, Start};
use crate::mutex::lock;
use squeezy_store::Totals;
use std::{collections::BTreeMap, sync::Mutex};

/// What functions had done before this process.
pub type Earlier = Mutex<BTreeMap<Name, Totals>>;

impl Metrics {
    /// Counts on from these.
    pub fn go_on(&self, totals: &BTreeMap<String, Totals>) {
        let totals = totals.iter().map(|(name, totals)| (Name(name.as_str().into()), *totals));
        lock(&self.earlier).extend(totals);
    }

    /// Forgets what a function that is gone had done.
    pub fn forget_earlier(&self, function: &Name) {
        lock(&self.earlier).remove(function);
    }

    /// What a function has done since it was made, before this process and in it.
    pub fn totals(&self, function: &Name) -> Totals {
        let earlier = lock(&self.earlier);
        let earlier = earlier.get(function).copied().unwrap_or_default();
        Totals {
            cold: earlier.cold + self.started(function, Start::Cold),
            warm: earlier.warm + self.started(function, Start::Warm),
            recreated: earlier.recreated + self.started(function, Start::Recreated),
            failed: earlier.failed + self.failed(function),
            reclaimed_bytes: earlier.reclaimed_bytes + self.reclaimed_bytes(function),
            taken_bytes: earlier.taken_bytes + self.taken_bytes(function),
            condemned_bytes: earlier.condemned_bytes + self.condemned_bytes(function),
            taking: earlier.taking + self.taking(function),
        }
    }
}
