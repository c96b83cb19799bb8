//! Moments as times of day.

use squeezy_scaler::Moment;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How far the system's clock may be away before it is followed. Below that, moments keep their distances exactly,
/// so that spans which lie within each other still do.
const TOLERANCE: Duration = Duration::from_millis(10);

/// Turns moments into times since 1970.
#[derive(Debug)]
pub struct Clock {
    begin: Instant,
    /// When that was, as a time since 1970.
    began: Duration,
}

impl Clock {
    /// A clock for moments that count from `begin`.
    pub fn new(begin: Instant) -> Self {
        let mut clock = Self { begin, began: Duration::ZERO };
        clock.follow();
        clock
    }

    /// Follows the system's clock if that has been set.
    pub fn follow(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = now.saturating_sub(self.begin.elapsed());
        if began.abs_diff(self.began) > TOLERANCE {
            self.began = began;
        }
    }

    /// The current moment.
    pub fn now(&self) -> Moment {
        Moment(self.begin.elapsed())
    }

    /// A moment in nanoseconds since 1970.
    pub fn unix_ns(&self, moment: Moment) -> u64 {
        let time = self.began.saturating_add(moment.0);
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_steps_of_the_clock_are_ignored_and_large_ones_followed() {
        let mut clock = Clock::new(Instant::now());
        let right = clock.began;
        clock.began = right + Duration::from_millis(5);
        clock.follow();
        assert_eq!(clock.began, right + Duration::from_millis(5));
        clock.began = right + Duration::from_secs(3600);
        clock.follow();
        assert!(clock.began.abs_diff(right) < TOLERANCE, "{:?} {right:?}", clock.began);
        let apart = clock.unix_ns(Moment(Duration::from_secs(2))) - clock.unix_ns(Moment::START);
        assert_eq!(apart, 2_000_000_000);
    }
}
