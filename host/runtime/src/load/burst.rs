//! A made-up load: bursts over a trickle.

use super::{Load, MAX_ARRIVALS, Random};
use std::time::Duration;

/// The shape of a synthetic load. The first burst comes after a quarter of a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// How long the load is.
    pub length: Duration,
    /// From one burst to the next.
    pub period: Duration,
    /// How long one lasts.
    pub burst_length: Duration,
    /// Requests in one burst, spread uniformly over it.
    pub burst_requests: u32,
    /// Mean time between the requests of the trickle, which do not know of each other.
    pub trickle_gap: Duration,
}

/// A [`Burst`] that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BurstError {
    /// A time is zero.
    #[error("length, period and gap of a synthetic load must be more than zero")]
    Zero,
    /// A burst ends after the next one begins.
    #[error("a burst may not last longer than the period from one to the next")]
    Overlap,
    /// It would hold too many requests.
    #[error("a load of more than {MAX_ARRIVALS} requests")]
    TooMany,
}

impl Burst {
    /// Draws the arrivals; the same ones for the same seed.
    pub fn load(&self, seed: u64) -> Result<Load, BurstError> {
        self.check()?;
        let mut random = Random::new(seed);
        let mut arrivals = Vec::new();
        let mut burst = self.period / 4;
        while burst < self.length {
            let times = (0..self.burst_requests).map(|_| burst + random.time(self.burst_length));
            arrivals.extend(times.filter(|&at| at < self.length));
            burst += self.period;
        }
        let mut at = random.gap(self.trickle_gap);
        while at < self.length {
            arrivals.push(at);
            at += random.gap(self.trickle_gap);
        }
        arrivals.sort_unstable();
        let source = format!(
            "synthetic (no real trace): bursts of {} requests within {} s every {} s over one every \
             {} s on average, seed {seed}",
            self.burst_requests,
            self.burst_length.as_secs_f64(),
            self.period.as_secs_f64(),
            self.trickle_gap.as_secs_f64(),
        );
        Ok(Load { source, arrivals })
    }

    fn check(&self) -> Result<(), BurstError> {
        if self.length.is_zero() || self.period.is_zero() || self.trickle_gap.is_zero() {
            return Err(BurstError::Zero);
        }
        if self.burst_length > self.period {
            return Err(BurstError::Overlap);
        }
        let length = self.length.as_secs_f64();
        let bursts = (length / self.period.as_secs_f64()).ceil();
        let expected =
            bursts * f64::from(self.burst_requests) + length / self.trickle_gap.as_secs_f64();
        // Twice as many as expected leaves room for what is drawn.
        if expected * 2.0 > MAX_ARRIVALS as f64 { Err(BurstError::TooMany) } else { Ok(()) }
    }
}
