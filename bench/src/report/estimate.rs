//! Estimates a number from lines, with its certainty: medians, their ratios and means of them, with
//! bootstrap intervals (ADR 0022).
//!
//! The interval covers the variation between repetitions within one run. It does not cover
//! variation between machines, days or builds.

use super::{
    number::number,
    spread::{mean, median},
};
use squeezy_load::Random;

/// The fraction of intervals that contain the true value. Targets are one-sided, so at most 5% of
/// the verdicts are wrong.
const CONFIDENCE_PERCENT: u32 = 90;

/// Fewer measurements have no such interval: the probability that the median lies between the
/// extremes is 87.5% for four measurements, and 93.75% for five.
const LEAST_RUNS: usize = 5;

/// Number of bootstrap resamples. With this many, another seed moves the ends by about a percent.
const RESAMPLES: usize = 4000;

/// Fixed, so that the same lines always have the same interval.
const SEED: u64 = 1;

/// Measurements from which a number is computed.
#[derive(Clone, Debug)]
pub(crate) enum Sample {
    /// The median of these.
    Median(Vec<f64>),
    /// The ratio of their medians; the two are resampled independently.
    Ratio(Vec<f64>, Vec<f64>),
}

/// A number and its certainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The number.
    pub(crate) value: f64,
    /// How certain it is.
    pub(crate) certainty: Certainty,
}

/// The certainty of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Certainty {
    /// The true value is in this interval with a probability of [`CONFIDENCE_PERCENT`].
    Within(f64, f64),
    /// There are only this many measurements, too few to tell.
    TooFew(usize),
    /// A count from this many measurements, which is the same on every machine.
    Counted(usize),
}

impl Certainty {
    /// In words, with `unit` after numbers.
    pub(crate) fn in_words(self, unit: &str) -> String {
        match self {
            Self::Within(low, high) => {
                format!("{CONFIDENCE_PERCENT}%: {} to {}{unit}", number(low), number(high))
            }
            Self::TooFew(1) => "one run".to_owned(),
            Self::TooFew(runs) => format!("only {runs} runs"),
            Self::Counted(1) => "counted once".to_owned(),
            Self::Counted(runs) => format!("counted {runs} times"),
        }
    }
}

impl Sample {
    /// The sample without non-finite numbers; `None` if nothing is left.
    fn checked(self) -> Option<Self> {
        let finite = |values: Vec<f64>| {
            let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
            (!values.is_empty()).then_some(values)
        };
        Some(match self {
            Self::Median(values) => Self::Median(finite(values)?),
            Self::Ratio(over, under) => Self::Ratio(finite(over)?, finite(under)?),
        })
    }

    fn runs(&self) -> usize {
        match self {
            Self::Median(values) => values.len(),
            Self::Ratio(over, under) => over.len().min(under.len()),
        }
    }

    /// The number, computed from these measurements or from a resample of them.
    fn value(&self, mut draw: impl FnMut(&[f64]) -> Vec<f64>) -> f64 {
        let mut of = |values: &[f64]| median(draw(values)).unwrap_or(f64::NAN);
        match self {
            Self::Median(values) => of(values),
            Self::Ratio(over, under) => of(over) / of(under),
        }
    }
}

impl Estimate {
    /// The median of the values; `None` if there are none.
    pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::mean([Sample::Median(values.into_iter().collect())])
    }

    /// The ratio of two medians.
    pub(crate) fn ratio(
        over: impl IntoIterator<Item = f64>,
        under: impl IntoIterator<Item = f64>,
    ) -> Option<Self> {
        Self::mean([Sample::Ratio(over.into_iter().collect(), under.into_iter().collect())])
    }

    /// The mean over independent samples, without empty ones. Each sample is resampled on its own,
    /// because the question is about exactly these functions, sizes or methods. The smallest sample
    /// decides whether there are enough measurements.
    pub(crate) fn mean(samples: impl IntoIterator<Item = Sample>) -> Option<Self> {
        let samples: Vec<Sample> = samples.into_iter().filter_map(Sample::checked).collect();
        let value = mean(samples.iter().map(|sample| sample.value(<[f64]>::to_vec)))?;
        let runs = samples.iter().map(Sample::runs).min()?;
        if runs < LEAST_RUNS {
            return Some(Self { value, certainty: Certainty::TooFew(runs) });
        }
        let mut random = Random::new(SEED);
        let mut drawn: Vec<f64> = (0..RESAMPLES)
            .filter_map(|_| {
                mean(samples.iter().map(|sample| sample.value(|of| draw(of, &mut random))))
            })
            .collect();
        drawn.sort_by(f64::total_cmp);
        let outside = RESAMPLES * (100 - CONFIDENCE_PERCENT as usize) / 200;
        let certainty = Certainty::Within(drawn[outside], drawn[RESAMPLES - 1 - outside]);
        Some(Self { value, certainty })
    }

    /// A count that must be `expected` in every measurement: the value that is furthest from it.
    pub(crate) fn counted(values: impl IntoIterator<Item = f64>, expected: f64) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let distance = |value: &f64| (value - expected).abs();
        let value = values.iter().copied().max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        Some(Self { value, certainty: Certainty::Counted(values.len()) })
    }

    /// Converts the unit; `unit` must be monotonic and not decreasing.
    pub(crate) fn map(self, unit: impl Fn(f64) -> f64) -> Self {
        let certainty = match self.certainty {
            Certainty::Within(low, high) => Certainty::Within(unit(low), unit(high)),
            other => other,
        };
        Self { value: unit(self.value), certainty }
    }
}

/// Draws as many values as there are, with replacement.
fn draw(values: &[f64], random: &mut Random) -> Vec<f64> {
    let mut any = || values[random.below(values.len())];
    values.iter().map(|_| any()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(estimate: Option<Estimate>) -> (f64, f64) {
        match estimate.unwrap().certainty {
            Certainty::Within(low, high) => (low, high),
            other => panic!("{other:?}"),
        }
    }

    /// Skewed, as latencies are; the median is known.
    fn skewed(random: &mut Random) -> f64 {
        1.0 - (1.0 - random.unit()).ln() / std::f64::consts::LN_2
    }

    #[test]
    fn nine_of_ten_intervals_hold_the_truth() {
        const EXPERIMENTS: usize = 200;
        let mut random = Random::new(7);
        for count in [LEAST_RUNS, 10] {
            let mut values = || (0..count).map(|_| skewed(&mut random)).collect::<Vec<_>>();
            let (mut below, mut above) = (0, 0);
            for _ in 0..EXPERIMENTS {
                let (low, high) = interval(Estimate::ratio(values(), values()));
                below += usize::from(high < 1.0);
                above += usize::from(low > 1.0);
            }
            // 5% on each side, plus the variation to be expected in 200 experiments.
            assert!(below <= 18 && above <= 18, "{count}: {below} below, {above} above");
            assert!(below + above > 0, "{count}: intervals that cannot be wrong say nothing");
        }
    }

    #[test]
    fn the_same_measurements_have_the_same_interval() {
        let values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6];
        assert_eq!(Estimate::median(values), Estimate::median(values));
        let (low, high) = interval(Estimate::median(values));
        assert!(low < 2.8 && 2.8 < high && low >= 1.0 && high <= 9.0, "{low} to {high}");
        assert_eq!(interval(Estimate::median([2.0; 5])), (2.0, 2.0));
    }

    #[test]
    fn few_measurements_have_no_interval() {
        assert_eq!(Estimate::median([]), None);
        assert_eq!(Estimate::ratio([1.0], []), None);
        let one = Estimate::ratio([6.0], [3.0, 2.0, 1.0]).unwrap();
        assert_eq!(one, Estimate { value: 3.0, certainty: Certainty::TooFew(1) });
        let four = Estimate::median([1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(four.certainty, Certainty::TooFew(4));
    }

    #[test]
    fn a_mean_is_as_sure_as_its_least_sample() {
        let many = || Sample::Ratio(vec![4.0; 9], vec![2.0; 9]);
        let none = || Sample::Ratio(vec![f64::NAN], vec![2.0]);
        let mean = Estimate::mean([many(), Sample::Median(vec![6.0; 5]), none()]).unwrap();
        assert_eq!(mean, Estimate { value: 4.0, certainty: Certainty::Within(4.0, 4.0) });
        let mean = Estimate::mean([many(), Sample::Median(vec![6.0, 6.0])]).unwrap();
        assert_eq!(mean.certainty, Certainty::TooFew(2));
    }

    #[test]
    fn a_count_is_the_one_that_is_furthest_from_what_it_has_to_be() {
        let counted = Estimate::counted([1.0, 1.0, 3.0, 0.0], 1.0).unwrap();
        assert_eq!(counted, Estimate { value: 3.0, certainty: Certainty::Counted(4) });
        assert_eq!(Estimate::counted([], 1.0), None);
    }

    #[test]
    fn another_unit_moves_the_interval_too() {
        let percent = Estimate::median([1.1; 5]).unwrap().map(|ratio| ratio * 10.0 - 10.0);
        assert_eq!(percent.certainty, Certainty::Within(percent.value, percent.value));
    }
}
