//! What is counted while a load is replayed.

use super::instance_task::Squeezed;
use crate::error::BenchError;
use std::time::Duration;

/// Sums, and the samples for percentiles.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Time from each call to its correct response.
    pub(super) latencies: Vec<Duration>,
    /// Calls with a wrong response or none.
    pub(super) wrong_count: u64,
    /// Instances started.
    pub(super) cold_boots_count: u64,
    /// Instances ended to make room.
    pub(super) evictions_count: u64,
    /// Number of instances at each call, summed.
    pub(super) alive_sum: u64,
    /// Memory charged for instances at each call, summed.
    pub(super) charged_sum_bytes: u64,
    /// CPU time of all instances.
    pub(super) cpu_ns: u64,
    pub(super) squeezes_count: u64,
    pub(super) squeeze_failures_count: u64,
    /// CPU time of instances during squeezes.
    pub(super) squeeze_cpu: Duration,
    /// Memory given back by squeezes that no call interrupted.
    pub(super) given_back_bytes: u64,
    /// For each squeeze, how long the instance could not run.
    pub(super) pauses: Vec<Duration>,
    /// For each call that arrived during a squeeze, the maximum time that it waited for it.
    pub(super) waits: Vec<Duration>,
    /// Duration of the whole load.
    pub(super) took: Duration,
    /// The first error.
    pub(super) trouble: Option<BenchError>,
}

impl Counters {
    pub(super) fn squeezed(&mut self, squeezed: &Squeezed) {
        let Squeezed { before_bytes, after_bytes, cpu, pause, waited } = *squeezed;
        self.squeezes_count += 1;
        self.squeeze_cpu += cpu;
        self.given_back_bytes += after_bytes.map_or(0, |after| before_bytes.saturating_sub(after));
        self.pauses.push(pause);
        self.waits.extend(waited);
    }

    pub(super) fn trouble(&mut self, error: BenchError) {
        self.trouble.get_or_insert(error);
    }
}
