//! How much memory frozen instances may hold.

use super::{SqueezePolicy, peak::Peak};
use crate::Moment;
use std::time::Duration;

/// Rises slowly while nothing is evicted, because a squeeze costs processor time; an eviction, which costs a
/// cold start, brings it down at once. And it leaves room in the budget for the next burst, as far as the last one tells:
/// when that comes, there is no time for squeezes, and no processor.
#[derive(Debug)]
pub(super) struct Threshold {
    floor_bytes: u64,
    ceiling_bytes: u64,
    rise: Duration,
    /// When it was last at its floor.
    fell: Moment,
    /// Of what was at work at a time.
    peak: Peak,
    /// What the peak leaves.
    pub(super) room_bytes: u64,
}

impl Threshold {
    /// Creates a threshold at its floor.
    pub fn new(policy: &SqueezePolicy) -> Self {
        let &SqueezePolicy { floor_bytes, ceiling_bytes, rise, .. } = policy;
        let (peak, room_bytes) = (Peak::new(rise), u64::MAX);
        Self { floor_bytes, ceiling_bytes, rise, fell: Moment::START, peak, room_bytes }
    }

    /// The threshold at `now`.
    pub fn bytes(&self, now: Moment) -> u64 {
        let range = self.ceiling_bytes.saturating_sub(self.floor_bytes);
        let risen = now.since(self.fell).as_secs_f64() / self.rise.as_secs_f64();
        let risen_bytes = self.floor_bytes + (range as f64 * risen.min(1.0)) as u64;
        risen_bytes.min(self.room_bytes)
    }

    /// Resets it to its floor.
    pub fn fall(&mut self, now: Moment) {
        self.fell = now;
    }

    /// Notes what is at work from `now` on, of a budget of `limit_bytes`.
    pub fn leave_room(&mut self, now: Moment, working_bytes: u64, limit_bytes: u64) {
        self.room_bytes = limit_bytes.saturating_sub(self.peak.note(now, working_bytes));
    }
}
