//! What the lines say of a number, and how sure they are of it: medians, their ratios and means of
//! them, with the interval that a bootstrap gives (ADR 0022).
//!
//! The interval holds what the repetitions of one run differ by. It does not hold what machines,
//! days or builds differ by.

use super::spread::{mean, median};
use squeezy_load::Random;

/// What of all intervals holds the true value. Promises are one-sided, so that 5% of the verdicts
/// at most are wrong.
pub(crate) const CONFIDENCE_PERCENT: u32 = 90;

/// Fewer measurements have no such interval: that four of them lie about their median has a
/// probability of 87.5%, that five do one of 93.75%.
const LEAST_RUNS: usize = 5;

/// How often the measurements are drawn anew. Another seed then moves the ends by about a percent.
const RESAMPLES: usize = 4000;

/// The same lines always have the same interval.
const SEED: u64 = 1;

/// Measurements that a number is made of.
#[derive(Clone, Debug)]
pub(crate) enum Sample {
    /// The median of these.
    Median(Vec<f64>),
    /// The median of the first over that of the second, which are drawn apart.
    Ratio(Vec<f64>, Vec<f64>),
}

/// A number and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The number.
    pub(crate) value: f64,
    /// How sure it is.
    pub(crate) certainty: Certainty,
}

/// How sure a number is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Certainty {
    /// The truth lies within with a probability of [`CONFIDENCE_PERCENT`].
    Within(f64, f64),
    /// It was measured so often, too seldom to tell.
    TooFew(usize),
    /// It was counted, in so many measurements, and is the same on every machine.
    Counted(usize),
}

impl Sample {
    /// Of at least one finite number each.
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

    /// The number, of these measurements or of what is drawn from them.
    fn value(&self, mut draw: impl FnMut(&[f64]) -> Vec<f64>) -> f64 {
        let mut of = |values: &[f64]| median(draw(values)).unwrap_or(f64::NAN);
        match self {
            Self::Median(values) => of(values),
            Self::Ratio(over, under) => of(over) / of(under),
        }
    }
}

impl Estimate {
    /// The median of at least one number.
    pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::mean([Sample::Median(values.into_iter().collect())])
    }

    /// The median of some numbers over that of others.
    pub(crate) fn ratio(
        over: impl IntoIterator<Item = f64>,
        under: impl IntoIterator<Item = f64>,
    ) -> Option<Self> {
        Self::mean([Sample::Ratio(over.into_iter().collect(), under.into_iter().collect())])
    }

    /// The mean of what samples that do not depend on each other give, without those that are
    /// empty: each sample is drawn anew by itself, for it is these functions, sizes or methods that
    /// are asked about. The fewest measurements of a sample decide whether there are enough.
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

    /// A count that has to be `expected` in every measurement: the one that is furthest from it.
    pub(crate) fn counted(values: impl IntoIterator<Item = f64>, expected: f64) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let distance = |value: &f64| (value - expected).abs();
        let value = values.iter().copied().max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        Some(Self { value, certainty: Certainty::Counted(values.len()) })
    }

    /// In another unit; `unit` must not decrease.
    pub(crate) fn map(self, unit: impl Fn(f64) -> f64) -> Self {
        let certainty = match self.certainty {
            Certainty::Within(low, high) => Certainty::Within(unit(low), unit(high)),
            other => other,
        };
        Self { value: unit(self.value), certainty }
    }
}

/// As many of the values, each time any of them.
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

    /// Long on one side, as latencies are; the median is known.
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
            // 5% on each side, and what 200 experiments may differ by.
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
