//! The calls to a whole cluster's functions over hours, from a trace or synthetic.

use crate::{
    error::Result,
    rigs::{
        azure_trace::{AzureTrace, at_percent},
        load::LoadOptions,
    },
};
use squeezy_load::{Random, azure2019::Percentiles};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// One function.
pub(super) struct Member {
    pub(super) memory_bytes: u64,
    /// Memory that an idle instance holds.
    pub(super) held_bytes: u64,
    /// The application; functions of one application share a VM.
    pub(super) app: usize,
    /// Execution times in milliseconds, by percentile.
    durations_ms: Percentiles,
}

/// All calls.
pub(super) struct Workload {
    pub(super) members: Vec<Member>,
    /// Time and member of each call, in order.
    pub(super) arrivals: Vec<(Duration, u32)>,
    pub(super) length: Duration,
    pub(super) source: String,
}

impl Member {
    /// The duration of an execution at quantile `unit`.
    pub(super) fn duration(&self, unit: f64) -> Duration {
        let ms = at_percent(&self.durations_ms, unit * 100.0);
        Duration::from_secs_f64(ms.max(1.0) / 1000.0)
    }
}

impl Workload {
    /// From `--trace`, a file of invocations with `durations.csv` and `memory.csv` next to it;
    /// otherwise synthetic.
    pub(super) fn read(load: &LoadOptions, functions: usize, hours: u32) -> Result<Self> {
        match &load.trace {
            Some(path) => Self::of_trace(path, load.seed, functions, hours),
            None => Ok(Self::made_up(load.seed, functions, hours)),
        }
    }

    fn of_trace(path: &Path, seed: u64, functions: usize, hours: u32) -> Result<Self> {
        let trace = AzureTrace::read(path)?;
        let minutes = trace.invocations.minutes.min(hours as usize * 60);
        let mut apps = HashMap::new();
        let mut random = Random::new(seed);
        let (mut members, mut arrivals) = (Vec::new(), Vec::new());
        for function in trace.invocations.functions.iter().take(functions) {
            let count = apps.len();
            let app = *apps.entry(function.app.as_str()).or_insert(count);
            let member = members.len() as u32;
            members.push(Member {
                memory_bytes: trace.memory_bytes(function),
                held_bytes: trace.held_bytes(function),
                app,
                durations_ms: trace.durations_ms(function),
            });
            for &(minute, calls) in &function.counts {
                if (minute as usize) < minutes {
                    let begin = MINUTE * minute;
                    arrivals.extend((0..calls).map(|_| (begin + random.time(MINUTE), member)));
                }
            }
        }
        arrivals.sort_unstable();
        let source = format!(
            "Azure Functions Trace 2019, {} functions of {} applications over {minutes} minutes, \
             times within a minute and durations drawn with seed {seed}",
            members.len(),
            apps.len()
        );
        Ok(Self { members, arrivals, length: MINUTE * minutes as u32, source })
    }

    /// A few functions are called all the time and most rarely, as in the published data; a tenth
    /// of them in bursts.
    fn made_up(seed: u64, functions: usize, hours: u32) -> Self {
        let mut random = Random::new(seed);
        let length = Duration::from_secs(3600) * hours;
        let sizes = [128, 128, 256, 256, 384, 512, 768, 1536].map(|mib| mib * MIB);
        let (mut members, mut arrivals) = (Vec::new(), Vec::new());
        for index in 0..functions {
            let median_ms = 20.0 * 10f64.powf(2.0 * random.unit());
            let memory_bytes = sizes[random.below(sizes.len())];
            members.push(Member {
                memory_bytes,
                held_bytes: memory_bytes / 2,
                app: index / 2,
                durations_ms: vec![
                    (1.0, median_ms * 0.5),
                    (50.0, median_ms),
                    (99.0, median_ms * 8.0),
                    (100.0, median_ms * 20.0),
                ],
            });
            // Zipf's law, from one call per second down to one in hours.
            let gap = Duration::from_secs_f64((index + 1) as f64);
            let (burst, gap) = if index % 10 == 3 { (20, gap * 20) } else { (1, gap) };
            let mut at = random.gap(gap);
            while at < length {
                let second = Duration::from_secs(1);
                let member = index as u32;
                arrivals.extend((0..burst).map(|_| (at + random.time(second), member)));
                at += random.gap(gap);
            }
        }
        arrivals.sort_unstable();
        let source = format!(
            "synthetic (no real trace): {functions} functions over {hours} hours, called by Zipf's \
             law, a tenth of them in bursts of 20, seed {seed}"
        );
        Self { members, arrivals, length, source }
    }

    /// The memory of an instance in each application's VM: the maximum over its functions.
    pub(super) fn apps(&self) -> BTreeMap<usize, u64> {
        let mut apps = BTreeMap::new();
        for member in &self.members {
            let bytes = apps.entry(member.app).or_insert(0);
            *bytes = member.memory_bytes.max(*bytes);
        }
        apps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_lie_between_their_percentiles() {
        let member = Member {
            memory_bytes: 0,
            held_bytes: 0,
            app: 0,
            durations_ms: vec![(0.0, 10.0), (50.0, 20.0), (100.0, 220.0)],
        };
        let ms = |unit| member.duration(unit).as_secs_f64() * 1000.0;
        assert!((ms(0.0) - 10.0).abs() < 1e-6 && (ms(0.25) - 15.0).abs() < 1e-6);
        assert!((ms(0.75) - 120.0).abs() < 1e-6 && (ms(1.0) - 220.0).abs() < 1e-6);
    }

    #[test]
    fn a_day_is_the_same_for_the_same_seed() {
        let workload = |seed| Workload::made_up(seed, 50, 1);
        assert_eq!(workload(1).arrivals, workload(1).arrivals);
        assert_ne!(workload(1).arrivals, workload(2).arrivals);
        assert!(workload(1).arrivals.is_sorted() && workload(1).arrivals.len() > 5000);
        assert_eq!(workload(1).apps().len(), 25);
    }
}
