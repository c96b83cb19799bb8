//! Seeded random numbers, the same on every machine and with every version.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use std::time::Duration;

/// A seeded source of random numbers.
pub struct Random(ChaCha8Rng);

impl Random {
    /// Creates a source from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniformly in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        // An f64 holds 53 bits.
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A uniform number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.unit() * limit as f64) as usize
    }

    /// Shuffles `things` in place.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }

    /// Uniformly in `[0, length)`.
    pub fn time(&mut self, length: Duration) -> Duration {
        length.mul_f64(self.unit())
    }

    /// Exponentially distributed with mean `mean`: the time between independent events.
    pub fn gap(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_below_their_limit_and_reach_all_of_it() {
        let mut random = Random::new(1);
        for limit in 1..20 {
            let mut drawn = [false; 20];
            (0..1000).for_each(|_| drawn[random.below(limit)] = true);
            assert_eq!(drawn.iter().filter(|&&was| was).count(), limit, "{drawn:?}");
            assert!(drawn[..limit].iter().all(|&was| was), "{drawn:?}");
        }
    }

    #[test]
    fn an_order_has_all_things_and_is_that_of_its_seed() {
        let shuffled = |seed| {
            let mut things: Vec<u32> = (0..50).collect();
            Random::new(seed).shuffle(&mut things);
            things
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
