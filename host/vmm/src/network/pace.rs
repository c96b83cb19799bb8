//! A limit on how often something may happen.

use std::time::{Duration, Instant};

/// Lets something happen so many times a second, and as many times at once after a second without any (a token
/// bucket).
#[derive(Debug)]
pub(super) struct Pace {
    per_second: u32,
    /// When it would have been used up, had it happened at an even pace.
    until: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second, until: now }
    }

    /// Whether it may happen now; if so, counts it.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let gap = Duration::from_secs(1) / self.per_second.max(1);
        let until = self.until.max(now) + gap;
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
        let taken = |pace: &mut Pace, at| (0..100).filter(|_| pace.take(start + at)).count();
        assert_eq!(taken(&mut pace, Duration::ZERO), 10);
        assert_eq!(taken(&mut pace, Duration::from_millis(350)), 3);
        assert_eq!(taken(&mut pace, Duration::from_secs(100)), 10);
    }
}
