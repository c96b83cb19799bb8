//! A synthetic load: bursts on top of a trickle.

use super::{Load, MAX_ARRIVALS, Random};
use std::time::Duration;

/// The shape of a synthetic load.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Length of the load.
    pub length: Duration,
    /// When each burst begins, and how many requests it has.
    pub bursts: Vec<(Duration, u32)>,
    /// How long a burst lasts; its requests are spread uniformly over it.
    pub burst_length: Duration,
    /// Mean time between the requests of the trickle, which arrive independently.
    pub trickle_gap: Duration,
}

/// Why a [`Synthetic`] load is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// A time is zero.
    #[error("the length and the mean gap of a synthetic load must be greater than zero")]
    Zero,
    /// It would have too many requests.
    #[error("a synthetic load has at most {MAX_ARRIVALS} requests")]
    TooMany,
}

impl Synthetic {
    /// Draws the arrivals; the same seed gives the same ones.
    pub fn load(&self, seed: u64) -> Result<Load, SyntheticError> {
        if self.length.is_zero() || self.trickle_gap.is_zero() {
            return Err(SyntheticError::Zero);
        }
        let in_bursts: f64 = self.bursts.iter().map(|&(_, requests)| f64::from(requests)).sum();
        let in_trickle = self.length.as_secs_f64() / self.trickle_gap.as_secs_f64();
        // A factor of two leaves room for random variation.
        if (in_bursts + in_trickle) * 2.0 > MAX_ARRIVALS as f64 {
            return Err(SyntheticError::TooMany);
        }

        let mut random = Random::new(seed);
        let mut arrivals = Vec::new();
        for &(begin, requests) in &self.bursts {
            arrivals.extend((0..requests).map(|_| begin + random.time(self.burst_length)));
        }
        let mut at = random.gap(self.trickle_gap);
        while at < self.length {
            arrivals.push(at);
            at += random.gap(self.trickle_gap);
        }
        arrivals.retain(|&at| at < self.length);
        arrivals.sort_unstable();
        Ok(Load { source: self.describe(seed), arrivals })
    }

    fn describe(&self, seed: u64) -> String {
        let bursts = self
            .bursts
            .iter()
            .map(|(begin, requests)| format!("{requests} at {:.0} s", begin.as_secs_f64()));
        format!(
            "synthetic (no real trace): bursts of {}, and a request every {:.0} s on average, seed {seed}",
            bursts.collect::<Vec<_>>().join(", "),
            self.trickle_gap.as_secs_f64(),
        )
    }
}
