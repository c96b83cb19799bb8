//! What is counted while a load is played.

use super::instance_task::Squeezed;
use crate::error::BenchError;
use std::time::Duration;

/// Sums, and each figure that a percentile is taken of.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// From each call to its right answer.
    pub(super) latencies: Vec<Duration>,
    /// Calls that were not answered, or not correctly.
    pub(super) wrong_count: u64,
    /// Instances that were started.
    pub(super) cold_boots_count: u64,
    /// Instances that were ended to make room.
    pub(super) evictions_count: u64,
    /// Instances there were at each call, added up.
    pub(super) alive_sum: u64,
    /// Memory that they were promised at each call, added up.
    pub(super) charged_sum_bytes: u64,
    /// CPU time of all instances.
    pub(super) cpu_ns: u64,
    pub(super) squeezes_count: u64,
    pub(super) squeeze_failures_count: u64,
    /// CPU time of instances while they were squeezed.
    pub(super) squeeze_cpu: Duration,
    /// What those gave back that were not called meanwhile.
    pub(super) given_back_bytes: u64,
    /// How long each instance that was squeezed could not run.
    pub(super) pauses: Vec<Duration>,
    /// How long each call waited that came while its instance was squeezed, at the most.
    pub(super) waits: Vec<Duration>,
    /// How long all of it took.
    pub(super) took: Duration,
    /// What went wrong first.
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
