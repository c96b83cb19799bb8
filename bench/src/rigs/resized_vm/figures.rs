//! What a program that prints samples has noticed of its VM being resized.

use crate::rigs::memhog_vm::{Beside, ResizeTimes};
use serde::{Deserialize, Serialize};
use squeezy_node::series::quantile;

/// How long a point of the course over time is.
pub(super) const POINT_NS: u64 = 500_000_000;

/// A line that the program prints: when each piece of work was done, how long it took and how much it
/// was.
#[derive(Debug, Deserialize)]
pub(super) struct Printed {
    samples: Vec<(u64, u64, u64)>,
}

/// What a program has done. Amounts are bytes (`bandwidth`) or units of work (`work`); rates are for
/// all processors (`bandwidth`) or one (`work`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Samples: iterations or quanta.
    samples_count: u64,
    /// The sum of their amounts.
    amount_count: u64,
    /// The sum of the amounts by that of the times.
    pub(super) mean_per_second: f64,
    /// The median rate of a sample.
    pub(super) median_per_second: f64,
    /// The rate that one sample in a hundred does not reach.
    pub(super) p1_per_second: f64,
    /// The lowest rate of a sample.
    pub(super) worst_per_second: f64,
    /// Samples below 90% of the median rate of the run without resizing.
    pub(super) slow_percent: f64,
    /// CPU time of the VM's virtual processors meanwhile.
    vcpus_ns: u64,
}

/// A trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Memory that was taken and given back.
    pub(super) size_bytes: u64,
    /// The program while nobody resized its VM, before and after it was resized.
    pub(super) alone: Done,
    /// The same program in the same VM while it was resized, between the two halves of that.
    pub(super) resized: Done,
    /// How often memory was taken or given back meanwhile.
    pub(super) resizes_count: u64,
    /// The mean rate of each half second of that, relative to that without resizing.
    pub(super) course_percent: Vec<Option<f64>>,
    /// Taking and giving back once, with nothing else in the VM: CPU time of the virtual processors.
    pub(super) resize_vcpus_ns: Option<u64>,
    /// And of the VMM's device threads.
    pub(super) resize_devices_ns: Option<u64>,
}

impl Figures {
    pub(super) fn of(
        size_bytes: u64,
        alone: &Beside<Printed>,
        resized: &Beside<Printed>,
        times: Option<ResizeTimes>,
    ) -> Self {
        let usual = median(&rates(alone));
        let alone_done = Done::of(alone, usual);
        let course_percent = course(resized, alone_done.mean_per_second);
        Self {
            size_bytes,
            resized: Done::of(resized, usual),
            alone: alone_done,
            resizes_count: resized.resizes,
            course_percent,
            resize_vcpus_ns: times.as_ref().map(|times| times.vcpus_ns),
            resize_devices_ns: times.as_ref().map(|times| times.devices_ns),
        }
    }

    /// The mean rate relative to that without resizing.
    pub(super) fn mean_percent(&self) -> f64 {
        self.resized.mean_per_second / self.alone.mean_per_second * 100.0
    }

    /// A rate relative to what a sample usually has without resizing.
    pub(super) fn of_usual_percent(&self, per_second: f64) -> f64 {
        per_second / self.alone.median_per_second * 100.0
    }

    /// The amount for the same CPU time of the virtual processors, relative to that without resizing.
    pub(super) fn by_cpu_time_percent(&self) -> f64 {
        let by_cpu_time = |done: &Done| done.amount_count as f64 / done.vcpus_ns as f64;
        by_cpu_time(&self.resized) / by_cpu_time(&self.alone) * 100.0
    }
}

impl Done {
    /// `usual` is the median rate without resizing.
    fn of(run: &Beside<Printed>, usual: f64) -> Self {
        let rates = rates(run);
        let slow = rates.iter().filter(|&&rate| rate < 0.9 * usual).count();
        Self {
            samples_count: rates.len() as u64,
            amount_count: samples(run).map(|sample| sample.2).sum(),
            mean_per_second: mean(samples(run)).unwrap_or(f64::NAN),
            median_per_second: median(&rates),
            p1_per_second: quantile(&rates, 0.01).unwrap_or(f64::NAN),
            worst_per_second: quantile(&rates, 0.0).unwrap_or(f64::NAN),
            slow_percent: slow as f64 / rates.len() as f64 * 100.0,
            vcpus_ns: run.vcpus_ns,
        }
    }
}

fn samples(run: &Beside<Printed>) -> impl Iterator<Item = &(u64, u64, u64)> {
    run.printed.iter().flat_map(|line| &line.samples)
}

fn rate(amount: u64, ns: u64) -> f64 {
    amount as f64 / (ns as f64 / 1e9)
}

/// The rate of each sample, in ascending order.
fn rates(run: &Beside<Printed>) -> Vec<f64> {
    let mut rates: Vec<f64> = samples(run).map(|&(_, took, amount)| rate(amount, took)).collect();
    rates.sort_by(f64::total_cmp);
    rates
}

fn median(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.5).unwrap_or(f64::NAN)
}

fn mean<'a>(samples: impl Iterator<Item = &'a (u64, u64, u64)>) -> Option<f64> {
    let (took, amount) =
        samples.fold((0, 0), |(took, amount), sample| (took + sample.1, amount + sample.2));
    (took > 0).then(|| rate(amount, took))
}

/// The mean rate of the samples that ended in each whole half second, relative to `base`.
fn course(run: &Beside<Printed>, base: f64) -> Vec<Option<f64>> {
    // One that is over at the end of a half second belongs to it.
    let point = |sample: &(u64, u64, u64)| sample.0.saturating_sub(1) / POINT_NS;
    let points = samples(run).map(|sample| sample.0 / POINT_NS).max().unwrap_or(0);
    let of = |index| mean(samples(run).filter(|sample| point(sample) == index));
    (0..points).map(|index| of(index).map(|mean| mean / base * 100.0)).collect()
}

#[cfg(test)]
impl Figures {
    /// A trial in which so much was left.
    pub(crate) fn example(percent: f64, is_resized: bool) -> Self {
        let done = |rate| Done {
            samples_count: 100,
            amount_count: rate as u64,
            mean_per_second: rate,
            median_per_second: rate,
            p1_per_second: rate / 2.0,
            worst_per_second: rate / 4.0,
            slow_percent: 3.0,
            vcpus_ns: 1000,
        };
        Self {
            size_bytes: 512 << 20,
            alone: done(10_000.0),
            resized: done(percent * 100.0),
            resizes_count: if is_resized { 10 } else { 0 },
            course_percent: vec![Some(100.0), None, Some(percent)],
            resize_vcpus_ns: is_resized.then_some(0),
            resize_devices_ns: is_resized.then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Measured, complaint};

    fn run(samples: &[(u64, u64, u64)], vcpus_ns: u64) -> Beside<Printed> {
        Beside { printed: vec![Printed { samples: samples.to_vec() }], vcpus_ns, resizes: 3 }
    }

    #[test]
    fn a_run_is_compared_with_the_one_without_resizing() {
        const SECOND: u64 = 1_000_000_000;
        let alone = run(&[(SECOND / 2, SECOND / 2, 10), (SECOND, SECOND / 2, 10)], 100);
        let resized = run(&[(SECOND / 2, SECOND / 2, 10), (3 * SECOND / 2, SECOND, 10)], 125);
        let times = ResizeTimes { vcpus_ns: 5, devices_ns: 0 };
        let figures = Figures::of(1 << 20, &alone, &resized, Some(times));
        assert_eq!((figures.alone.mean_per_second, figures.alone.slow_percent), (20.0, 0.0));
        assert_eq!(figures.resized.slow_percent, 50.0);
        assert!((figures.mean_percent() - 200.0 / 3.0).abs() < 1e-9);
        assert_eq!(figures.of_usual_percent(figures.resized.worst_per_second), 50.0);
        assert!((figures.by_cpu_time_percent() - 80.0).abs() < 1e-9);
        assert_eq!(figures.course_percent, [Some(100.0), None, Some(50.0)]);
        assert_eq!((figures.resizes_count, figures.resize_vcpus_ns), (3, Some(5)));
    }

    #[test]
    fn every_figure_says_its_unit() {
        let header = crate::record::tests::header("work", "balloon", 0);
        let figures = Figures::example(90.0, true);
        let done = Measured { header: header.clone(), figures: figures.alone.clone() };
        assert_eq!(complaint(&done, &["mean_per_second", "vcpus_ns"]), None);
        let line = Measured { header, figures };
        assert_eq!(complaint(&line, &["size_bytes", "alone", "resized", "resizes_count"]), None);
    }
}
