//! Prometheus metrics, at `GET /metrics`.
//!
//! `families` declares the metrics, [`Watch`] counts events, `scrape` samples the current state.

mod classic;
mod families;
mod labels;
mod names;
pub mod reason;
mod recent;
mod scrape;
mod totals;
mod watch;

use families::Families;
use labels::{Of, OfReason, OfStart};
use prometheus_client::registry::Registry;
use squeezy_scaler::{RejectReason, WaitingFor};
use std::{ops::Deref, time::Duration};
use totals::Earlier;

pub use labels::{Name, OfNamespace, Start};
pub use names::{Known, Names};
pub use recent::{Reclaim, Window};
pub use scrape::{Scraper, vm_state};
pub use watch::{Seen, Watch};

/// The metrics and their registry.
pub struct Metrics {
    families: Families,
    registry: Registry,
    /// What functions had done before this process.
    earlier: Earlier,
}

impl Metrics {
    /// All metrics, initially zero, for a memory budget of this size.
    pub fn new(memory_limit_bytes: u64) -> Self {
        let mut registry = Registry::with_prefix("squeezy");
        let families = Families::new(&mut registry);
        families.memory_limit.set(memory_limit_bytes.try_into().unwrap_or(i64::MAX));
        Self { families, registry, earlier: Earlier::default() }
    }

    /// All metrics in Prometheus's text format, which every scraper supports.
    pub fn classic(&self) -> String {
        classic::classic(&self.text())
    }

    /// All metrics in the OpenMetrics format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    /// Calls that got their instance this way.
    fn started(&self, function: &Name, start: Start) -> u64 {
        let labels = OfStart { function: function.clone(), start };
        self.starts.get(&labels).map_or(0, |count| count.get())
    }

    /// Reclaimed memory, in bytes.
    fn reclaimed_bytes(&self, function: &Name) -> u64 {
        let labels = Of { function: function.clone() };
        self.reclaimed.get(&labels).map_or(0, |count| count.get())
    }

    /// Free memory that the host has taken by itself, in bytes.
    fn taken_bytes(&self, function: &Name) -> u64 {
        let labels = Of { function: function.clone() };
        self.taken.get(&labels).map_or(0, |count| count.get())
    }

    /// Memory of condemned instances, in bytes.
    fn condemned_bytes(&self, function: &Name) -> u64 {
        let labels = Of { function: function.clone() };
        self.condemned.get(&labels).map_or(0, |count| count.get())
    }

    /// How long the host took for both.
    fn taking(&self, function: &Name) -> Duration {
        let labels = Of { function: function.clone() };
        let seconds = self.taking.get(&labels).map_or(0.0, |count| count.get());
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Calls that failed, with or without an instance.
    fn failed(&self, function: &Name) -> u64 {
        let labels = Of { function: function.clone() };
        let taken = self.calls_failed.get(&labels).map_or(0, |count| count.get());
        let reasons = [
            // The label is the same whatever the call waited for.
            RejectReason::WaitedTooLong(WaitingFor::Memory),
            RejectReason::StartFailed,
            RejectReason::VmFailed,
        ];
        let refused = reasons.map(|reason| {
            let labels = OfReason { function: function.clone(), reason: reason::refused(reason) };
            self.calls_refused.get(&labels).map_or(0, |count| count.get())
        });
        taken + refused.iter().sum::<u64>()
    }
}

impl Deref for Metrics {
    type Target = Families;

    fn deref(&self) -> &Families {
        &self.families
    }
}

#[cfg(test)]
mod tests;
