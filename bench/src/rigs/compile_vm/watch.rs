//! The host memory of VMs over time.

use super::{CompileVm, Reclaim};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Interval of looks.
const INTERVAL: Duration = Duration::from_millis(250);
/// Interval of those that are kept for a plot.
const KEPT_SECONDS: f64 = 1.0;

/// The host memory behind VMs' memory during a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Footprint {
    /// How long.
    pub(crate) seconds: f64,
    /// Its integral.
    pub(crate) gib_minutes: f64,
    /// The most at a time.
    pub(crate) peak_bytes: u64,
    /// At the end.
    pub(crate) end_bytes: u64,
    /// How long the host has spent on taking what was free.
    #[serde(default)]
    pub(crate) taking_seconds: f64,
    /// About once a second.
    pub(crate) samples_bytes: Vec<u64>,
}

impl Footprint {
    /// The next sample, so many seconds after the start.
    fn add(&mut self, seconds: f64, bytes: u64) {
        let gib = (bytes + self.end_bytes) as f64 / 2.0 / f64::from(1 << 30);
        self.gib_minutes += gib * (seconds - self.seconds) / 60.0;
        self.peak_bytes = self.peak_bytes.max(bytes);
        if seconds >= self.samples_bytes.len() as f64 * KEPT_SECONDS {
            self.samples_bytes.push(bytes);
        }
        (self.seconds, self.end_bytes) = (seconds, bytes);
    }
}

async fn resident_bytes(vms: &[&CompileVm]) -> Result<u64> {
    let mut sum = 0;
    for vm in vms {
        sum += vm.vm().memory().await?.resident.resident_bytes;
    }
    Ok(sum)
}

/// Watches VMs, and reclaims their memory, until `work` is done.
pub(crate) async fn watch<T>(
    vms: &[&CompileVm],
    reclaim: Reclaim,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Footprint)> {
    let begin = Instant::now();
    let start_bytes = resident_bytes(vms).await?;
    let mut footprint = Footprint { end_bytes: start_bytes, ..Footprint::default() };
    let mut last_act = begin;
    let mut tick = tokio::time::interval(INTERVAL);
    tokio::pin!(work);
    loop {
        let done = tokio::select! {
            done = &mut work => Some(done?),
            _ = tick.tick() => None,
        };
        if reclaim.period().is_some_and(|period| last_act.elapsed() >= period) {
            last_act = Instant::now();
            for vm in vms {
                reclaim.act(vm.vm()).await?;
            }
            footprint.taking_seconds += last_act.elapsed().as_secs_f64();
        }
        footprint.add(begin.elapsed().as_secs_f64(), resident_bytes(vms).await?);
        if let Some(done) = done {
            return Ok((done, footprint));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_summed_up_over_time() {
        let mut footprint = Footprint { end_bytes: 1 << 30, ..Footprint::default() };
        footprint.add(30.0, 3 << 30);
        footprint.add(60.0, 1 << 30);
        assert_eq!((footprint.gib_minutes, footprint.seconds), (2.0, 60.0));
        assert_eq!((footprint.peak_bytes, footprint.end_bytes), (3 << 30, 1 << 30));
        assert_eq!(footprint.samples_bytes, [3 << 30, 1 << 30]);
    }
}
