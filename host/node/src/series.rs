//! Statistics of measurements.

use squeezy_scaler::Moment;

/// The `percent`-th percentile of values in any order; `None` if there are no values. See [`quantile`].
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile(&sorted, percent / 100.0)
}

/// The value below which this share of sorted values lies, interpolated linearly between the two nearest, as
/// R and NumPy do by default. So the median of an even number of values is the mean of the middle two.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// The integral of a curve over time by the trapezoidal rule, in its unit times seconds.
pub fn integral(points: &[(Moment, f64)]) -> f64 {
    points
        .windows(2)
        .map(|pair| {
            let [(from, a), (to, b)] = pair else { return 0.0 };
            to.since(*from).as_secs_f64() * (a + b) / 2.0
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn percentiles_lie_between_the_nearest_values() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(percentile(&values, 50.0), Some(2.5));
        assert_eq!(percentile(&values[1..], 50.0), Some(2.0));
        assert_eq!(percentile(&values, 75.0), Some(3.25));
        assert_eq!(percentile(&values, 100.0), Some(4.0));
        assert_eq!(percentile(&values, 0.0), Some(1.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn an_integral_weighs_by_time() {
        let at = |s| Moment(Duration::from_secs(s));
        assert_eq!(integral(&[(at(0), 2.0), (at(10), 2.0), (at(12), 4.0)]), 26.0);
        assert_eq!(integral(&[(at(0), 2.0)]), 0.0);
    }
}
