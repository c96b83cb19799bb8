//! Recent calls and reclaims, for the web page.

use super::labels::Name;
use squeezy_node::series::quantile;
use squeezy_scaler::{InstanceNumber, Moment};
use squeezy_vmm::VmError;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// How many durations of one kind are kept for each function.
const MOST_TIMES: usize = 1000;
/// How many reclaims are kept.
const MOST_RECLAIMS: usize = 60;

/// What happened recently.
#[derive(Default)]
pub struct Recent {
    times: BTreeMap<Name, Times>,
    reclaims: VecDeque<Reclaim>,
}

/// Recent durations of one function.
#[derive(Default)]
pub struct Times {
    /// How long calls waited for an instance.
    pub queue: Window,
    /// How long new instances took to answer `/init`.
    pub init: Window,
    /// How long instances took to answer calls.
    pub run: Window,
    /// How long calls took, including the wait.
    pub total: Window,
    /// How long plugs took.
    pub plug: Window,
    /// How long unplugs took.
    pub unplug: Window,
    /// How long the host took to take free memory by itself.
    pub take: Window,
    /// How long the host took for the memory of condemned instances.
    pub condemn: Window,
}

/// A reclaim of an ended instance's memory.
pub struct Reclaim {
    /// When it completed or failed, in milliseconds since 1970.
    pub at_ms: u64,
    /// The instance's function.
    pub function: Name,
    /// The instance.
    pub instance: InstanceNumber,
    /// The memory to reclaim, in bytes.
    pub size_bytes: u64,
    /// Why the instance ended.
    pub reason: &'static str,
    /// How long its processes took to end, if they were told to.
    pub stop: Option<Duration>,
    /// How long the guest took to give it back, or how long the host waited.
    pub unplug: Option<Duration>,
    /// By how much resident memory decreased, in bytes.
    pub resident_drop_bytes: u64,
    /// Why it was not back in time, if it was not.
    pub error: Option<VmError>,
    /// Whether it came back later.
    pub settled: bool,
}

impl Recent {
    /// The durations of this function.
    pub fn times(&mut self, function: &Name) -> &mut Times {
        // Avoids copying the name in the common case.
        if !self.times.contains_key(function) {
            self.times.insert(function.clone(), Times::default());
        }
        self.times.get_mut(function).unwrap_or_else(|| unreachable!("it has just been put there"))
    }

    /// Latest first.
    pub fn reclaims(&self) -> impl Iterator<Item = &Reclaim> {
        self.reclaims.iter().rev()
    }

    pub(super) fn reclaim(&mut self, reclaim: Reclaim) {
        if self.reclaims.len() >= MOST_RECLAIMS {
            self.reclaims.pop_front();
        }
        self.reclaims.push_back(reclaim);
    }

    pub(super) fn settle(&mut self, instance: InstanceNumber) {
        let reclaims = self.reclaims.iter_mut().filter(|reclaim| reclaim.instance == instance);
        reclaims.for_each(|reclaim| reclaim.settled = true);
    }

    pub(super) fn forget(&mut self, function: &Name) {
        self.times.remove(function);
    }
}

/// Recent durations with their times.
#[derive(Default)]
pub struct Window(VecDeque<(Moment, Duration)>);

/// Percentiles of some durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// Number of durations.
    pub count: usize,
    /// Median.
    pub p50: Duration,
    /// 90th percentile.
    pub p90: Duration,
    /// 99th percentile.
    pub p99: Duration,
}

impl Window {
    pub(super) fn push(&mut self, at: Moment, took: Duration) {
        if self.0.len() >= MOST_TIMES {
            self.0.pop_front();
        }
        self.0.push_back((at, took));
    }

    /// Percentiles of the durations since this moment; `None` if there are none.
    pub fn percentiles(&self, since: Moment) -> Option<Percentiles> {
        let recent = self.0.iter().filter(|(at, _)| *at >= since);
        let mut times: Vec<_> = recent.map(|&(_, took)| took.as_secs_f64()).collect();
        times.sort_unstable_by(f64::total_cmp);
        let [p50, p90, p99] =
            [0.5, 0.9, 0.99].map(|share| quantile(&times, share).map(Duration::from_secs_f64));
        Some(Percentiles { count: times.len(), p50: p50?, p90: p90?, p99: p99? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_is_recent() {
        let mut window = Window::default();
        assert_eq!(window.percentiles(Moment::START), None);
        let ms = Duration::from_millis;
        window.push(Moment(ms(0)), ms(5000));
        for value in (1..=100).rev() {
            window.push(Moment(ms(value)), ms(value));
        }
        let of_all = window.percentiles(Moment(ms(1))).unwrap();
        let rounded = [of_all.p50, of_all.p90, of_all.p99].map(|time| time.as_millis());
        assert_eq!((of_all.count, rounded), (100, [50, 90, 99]));
        assert_eq!(of_all.p50.as_micros(), 50_500, "the mean of the middle two");
        assert_eq!(window.percentiles(Moment(ms(101))), None);
        let one = window.percentiles(Moment(ms(100))).unwrap();
        assert_eq!((one.count, one.p50, one.p99), (1, ms(100), ms(100)));
    }

    #[test]
    fn only_the_latest_times_are_remembered() {
        let mut window = Window::default();
        (0..5000).for_each(|_| window.push(Moment::START, Duration::ZERO));
        assert_eq!(window.percentiles(Moment::START).unwrap().count, MOST_TIMES);
    }
}
