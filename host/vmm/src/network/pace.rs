//! A limit on how much of something may happen.

use std::time::{Duration, Instant};

/// Lets so much happen in a second, and as much at once after a second without any (a token bucket).
#[derive(Debug)]
pub(super) struct Pace {
    per_second: u64,
    /// When it would have been used up, had it happened at an even pace.
    until: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u64, now: Instant) -> Self {
        Self { per_second, until: now }
    }

    /// Whether so much may happen now; if so, counts it.
    pub(super) fn take(&mut self, amount: u64, now: Instant) -> bool {
        let per_second = u128::from(self.per_second.max(1));
        let gap_ns = u128::from(amount) * 1_000_000_000 / per_second;
        let gap = Duration::from_nanos(u64::try_from(gap_ns).unwrap_or(u64::MAX));
        let Some(until) = self.until.max(now).checked_add(gap) else { return false };
        let may = until <= now + Duration::from_secs(1);
        if may {
            self.until = until;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_a_second_may_be_used_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(10, start);
        let taken = |pace: &mut Pace, at| (0..100).filter(|_| pace.take(1, start + at)).count();
        assert_eq!(taken(&mut pace, Duration::ZERO), 10);
        assert_eq!(taken(&mut pace, Duration::from_millis(350)), 3);
        assert_eq!(taken(&mut pace, Duration::from_secs(100)), 10);
    }

    #[test]
    fn more_than_may_happen_in_a_second_never_does() {
        let start = Instant::now();
        let mut pace = Pace::new(1000, start);
        assert!(!pace.take(1001, start) && !pace.take(u64::MAX, start));
        assert!(pace.take(999, start) && !pace.take(2, start) && pace.take(1, start));
        assert!(pace.take(500, start + Duration::from_millis(500)));
    }
}
