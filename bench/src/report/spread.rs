//! Medians and quartiles.

use squeezy_node::series::quantile;

/// Quartiles of some measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// First quartile.
    pub(crate) low: f64,
    /// Median.
    pub(crate) median: f64,
    /// Third quartile.
    pub(crate) high: f64,
    /// Number of measurements.
    pub(crate) count: usize,
}

impl Spread {
    /// `None` without a finite number.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&values, share);
        Some(Self { low: at(0.25)?, median: at(0.5)?, high: at(0.75)?, count: values.len() })
    }
}

/// The median; `None` if there are no numbers.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// The mean; `None` if there are no numbers.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) =
        values.into_iter().fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_those_of_numpy() {
        let spread = Spread::of([7.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { low: 1.75, median: 2.5, high: 4.0, count: 4 });
        assert_eq!(median([5.0, 1.0, 9.0]), Some(5.0));
        assert_eq!(median([5.0]), Some(5.0));
        assert_eq!(mean([5.0, 1.0, 9.0]), Some(5.0));
    }

    #[test]
    fn what_is_not_there_or_not_a_number_does_not_count() {
        assert_eq!(median([]), None);
        assert_eq!(mean([]), None);
        assert_eq!(median([f64::NAN, 2.0, f64::INFINITY]), Some(2.0));
    }
}
