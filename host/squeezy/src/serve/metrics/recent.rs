//! The latest calls and reclaims, as far as a page shows them.

use super::labels::Name;
use squeezy_node::series::quantile;
use squeezy_scaler::{InstanceNumber, Moment};
use squeezy_vmm::VmError;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Times of one kind that are remembered of one function.
const MOST_TIMES: usize = 1000;
/// Reclaims that are remembered.
const MOST_RECLAIMS: usize = 60;

/// What happened of late.
#[derive(Default)]
pub struct Recent {
    times: BTreeMap<Name, Times>,
    reclaims: VecDeque<Reclaim>,
}

/// How long things of one function took.
#[derive(Default)]
pub struct Times {
    /// Calls waited for an instance.
    pub queue: Window,
    /// New instances answered `/init`.
    pub init: Window,
    /// Instances answered calls.
    pub run: Window,
    /// Calls were answered, the wait included.
    pub total: Window,
    /// Memory came.
    pub plug: Window,
    /// Memory went.
    pub unplug: Window,
}

/// The memory of an ended instance on its way back.
pub struct Reclaim {
    /// When it was over, in milliseconds since 1970.
    pub at_ms: u64,
    /// Whose instance it was.
    pub function: Name,
    /// Which one.
    pub instance: InstanceNumber,
    /// How much it is, in bytes.
    pub size_bytes: u64,
    /// Why the instance ended.
    pub reason: &'static str,
    /// How long its processes took to end, if they were told to.
    pub stop: Option<Duration>,
    /// How long the guest took to give it back, or was waited for.
    pub unplug: Option<Duration>,
    /// How much less was resident on the host after than before, in bytes.
    pub resident_drop_bytes: u64,
    /// Why it did not come back in time, if it did not.
    pub error: Option<VmError>,
    /// Whether it came back later.
    pub settled: bool,
}

impl Recent {
    /// The times of this function.
    pub fn times(&mut self, function: &Name) -> &mut Times {
        // Most are there, and need no copy of the name.
        if !self.times.contains_key(function) {
            self.times.insert(function.clone(), Times::default());
        }
        self.times.get_mut(function).unwrap_or_else(|| unreachable!("it has just been put there"))
    }

    /// The latest first.
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

/// The latest of some times, and when they were taken.
#[derive(Default)]
pub struct Window(VecDeque<(Moment, Duration)>);

/// The middle of some times, and how far up they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// How many there are.
    pub count: usize,
    /// Half of them are at most this.
    pub p50: Duration,
    /// 9 of 10 are.
    pub p90: Duration,
    /// 99 of 100 are.
    pub p99: Duration,
}

impl Window {
    pub(super) fn push(&mut self, at: Moment, took: Duration) {
        if self.0.len() >= MOST_TIMES {
            self.0.pop_front();
        }
        self.0.push_back((at, took));
    }

    /// Of those since this moment; nothing when there are none.
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
