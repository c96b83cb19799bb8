//! How much memory frozen instances may hold.

use super::SqueezePolicy;
use crate::Moment;
use std::time::Duration;

/// Rises slowly while nothing is evicted, because a squeeze costs processor time; an eviction, which costs a
/// cold start, brings it down at once.
#[derive(Debug)]
pub(super) struct Threshold {
    floor_bytes: u64,
    ceiling_bytes: u64,
    rise: Duration,
    /// When it was last at its floor.
    fell: Moment,
}

impl Threshold {
    /// Creates a threshold at its floor.
    pub fn new(policy: &SqueezePolicy) -> Self {
        let &SqueezePolicy { floor_bytes, ceiling_bytes, rise, .. } = policy;
        Self { floor_bytes, ceiling_bytes, rise, fell: Moment::START }
    }

    /// The threshold at `now`.
    pub fn bytes(&self, now: Moment) -> u64 {
        let range = self.ceiling_bytes.saturating_sub(self.floor_bytes);
        let risen = now.since(self.fell).as_secs_f64() / self.rise.as_secs_f64();
        self.floor_bytes + (range as f64 * risen.min(1.0)) as u64
    }

    /// Resets it to its floor.
    pub fn fall(&mut self, now: Moment) {
        self.fell = now;
    }
}
