//! The load of each function at a scale factor.

use crate::{
    error::{BenchError, Result},
    rigs::load::{Arrival, FunctionsLoad, LoadOptions},
};
use squeezy_load::{Random, Synthetic};
use std::time::Duration;

/// Mean time between two calls of all functions together in the synthetic load, at factor 1.
const GAP: Duration = Duration::from_secs(2);

/// A load that is replayed `factor` times as fast as recorded.
pub(super) fn load(
    options: &LoadOptions,
    functions: usize,
    length: Duration,
    factor: u32,
) -> Result<FunctionsLoad> {
    match &options.trace {
        Some(path) => {
            options.together(path, functions, length, options.speed.saturating_mul(factor))
        }
        None => made_up(functions, length, GAP / factor, options.seed),
    }
}

/// A few functions are called often and many rarely, as in the traces: the n-th most popular one
/// gets an n-th of the calls of the first. Calls are independent.
fn made_up(functions: usize, length: Duration, gap: Duration, seed: u64) -> Result<FunctionsLoad> {
    let all: f64 = (1..=functions).map(|rank| 1.0 / rank as f64).sum();
    let mut arrivals = Vec::new();
    for (member, rank) in (0..functions).zip(1_u32..) {
        let trickle_gap = gap.mul_f64(all * f64::from(rank));
        let synthetic =
            Synthetic { length, bursts: Vec::new(), burst_length: Duration::ZERO, trickle_gap };
        // Each has its own seed.
        let load = synthetic.load(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(rank)));
        let load = load.map_err(|error| BenchError::Arguments(error.to_string()))?;
        arrivals.extend(load.arrivals.into_iter().map(|at| Arrival { at, member }));
    }
    arrivals.sort_unstable();
    let source = format!(
        "synthetic (no real trace): {functions} functions, independent calls, the n-th with an n-th of the first's; seed {seed}"
    );
    Ok(FunctionsLoad { arrivals, source })
}

/// Assigns functions to the members of a load: each equally often, in an order that depends on the
/// seed.
pub(super) fn population(members: usize, functions: usize, seed: u64) -> Vec<usize> {
    let mut population: Vec<usize> = (0..members).map(|member| member % functions.max(1)).collect();
    Random::new(seed).shuffle(&mut population);
    population
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_its_share_of_the_parts() {
        let roles = population(41, 20, 7);
        for function in 0..20 {
            let parts = roles.iter().filter(|&&role| role == function).count();
            assert_eq!(parts, if function == 0 { 3 } else { 2 });
        }
        assert_eq!(roles, population(41, 20, 7));
        assert_ne!(roles, population(41, 20, 8));
    }

    #[test]
    fn what_is_made_up_is_as_fast_as_the_factor_says() {
        let length = Duration::from_secs(10_000);
        let options = LoadOptions { trace: None, seed: 1, speed: 1, duration: None };
        let calls = |factor| load(&options, 40, length, factor).unwrap().arrivals;
        let (slow, fast) = (calls(1), calls(20));
        // The expected numbers are 5,000 and 100,000; the standard deviations are 71 and 316.
        assert!((4_600..5_400).contains(&slow.len()), "{}", slow.len());
        assert!((98_000..102_000).contains(&fast.len()), "{}", fast.len());
        let of = |member| fast.iter().filter(|arrival| arrival.member == member).count();
        assert!(of(0) > 7 * of(9) && of(9) > of(39));
        assert!(load(&options, 40, length, 1).unwrap().source.contains("synthetic"));
    }
}
