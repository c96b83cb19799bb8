//! Numbers that a seed determines, on every machine and with every version.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use std::time::Duration;

/// A source of random numbers.
pub struct Random(ChaCha8Rng);

impl Random {
    /// The source that `seed` determines.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniformly in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are what an f64 holds.
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniformly in `[0, length)`.
    pub fn time(&mut self, length: Duration) -> Duration {
        length.mul_f64(self.unit())
    }

    /// Exponentially distributed with mean `mean`: the time between events that do not know of
    /// each other.
    pub fn gap(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }
}
