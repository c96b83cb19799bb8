//! A panel of a plot: host memory over time, by method.

use crate::{
    report::{
        Spread,
        chart::{Panel, Series},
    },
    size::mib,
};

/// Seconds between two points.
const STEP: usize = 5;

/// The first trial of each method: the samples of its footprints in a row.
pub(crate) fn over_time(methods: &[String], samples_bytes: impl Fn(&str) -> Vec<u64>) -> Panel {
    let longest = methods.iter().map(|method| samples_bytes(method).len()).max().unwrap_or(0);
    let times = || (0..longest).step_by(STEP);
    Panel {
        title: "The first trial".to_owned(),
        x: "seconds".to_owned(),
        y: "MiB".to_owned(),
        categories: times().map(|second| second.to_string()).collect(),
        series: Series::of_methods(methods, |method| {
            let samples = samples_bytes(method);
            times().map(|at| Spread::of(samples.get(at).copied().map(mib))).collect()
        }),
        joined: true,
        logarithmic: false,
    }
}
