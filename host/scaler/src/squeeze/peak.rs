//! The most memory that was in use at a time lately.

use crate::Moment;
use std::time::Duration;

/// A maximum that is remembered for one period at least, and forgotten before two are over. So it needs no list of what
/// it was when, and a burst that comes again within a period is still known.
#[derive(Debug)]
pub(super) struct Peak {
    period: Duration,
    /// The number of the current period.
    current: u128,
    /// In the current period.
    latest_bytes: u64,
    /// In the one before.
    earlier_bytes: u64,
    /// What was in use last, and is until something else is noted.
    used_bytes: u64,
}

impl Peak {
    /// Creates a peak of nothing.
    pub fn new(period: Duration) -> Self {
        Self { period, current: 0, latest_bytes: 0, earlier_bytes: 0, used_bytes: 0 }
    }

    /// Notes what is in use from `now` on, and returns the peak.
    pub fn note(&mut self, now: Moment, used_bytes: u64) -> u64 {
        let current = now.0.as_nanos() / self.period.as_nanos().max(1);
        let passed = current.saturating_sub(self.current);
        if passed > 0 {
            self.earlier_bytes = if passed == 1 { self.latest_bytes } else { self.used_bytes };
            self.latest_bytes = self.used_bytes;
            self.current = current;
        }
        self.used_bytes = used_bytes;
        self.latest_bytes = self.latest_bytes.max(used_bytes);
        self.latest_bytes.max(self.earlier_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    #[test]
    fn a_peak_is_known_at_once_and_for_a_period_at_least() {
        let mut peak = Peak::new(PERIOD);
        assert_eq!(peak.note(at(50), 7), 7);
        assert_eq!(peak.note(at(51), 1), 7);
        assert_eq!(peak.note(at(61), 9), 9);
        assert_eq!(peak.note(at(62), 2), 9);
        assert_eq!(peak.note(at(179), 3), 9);
        assert_eq!(peak.note(at(180), 1), 3);
    }

    #[test]
    fn what_is_in_use_is_so_until_something_else_is_noted() {
        let mut peak = Peak::new(PERIOD);
        peak.note(at(0), 5);
        assert_eq!(peak.note(at(1000), 1), 5);
        assert_eq!(peak.note(at(1019), 1), 5);
        assert_eq!(peak.note(at(1080), 1), 1);
    }

    proptest! {
        /// It is not below what was in use within the last period, and not above what was within the last two.
        #[test]
        fn a_peak_is_that_of_one_period_or_two(
            uses in prop::collection::vec((0..100_u64, 0..1000_u64), 1..100)
        ) {
            let mut peak = Peak::new(PERIOD);
            // From when to when so much was in use.
            let mut spans = vec![(0, 0, 0)];
            let mut now = 0;
            for (seconds, bytes) in uses {
                now += seconds;
                spans.last_mut().expect("there is one").1 = now;
                spans.push((now, now, bytes));
                let since = |periods: u64| {
                    let from = now.saturating_sub(periods * PERIOD.as_secs());
                    let within = spans.iter().filter(move |&&(_, to, _)| to >= from);
                    within.map(|&(_, _, bytes)| bytes).max().unwrap_or(0)
                };
                let noted = peak.note(at(now), bytes);
                prop_assert!(noted >= since(1), "{noted} at {now}: {spans:?}");
                prop_assert!(noted <= since(2), "{noted} at {now}: {spans:?}");
            }
        }
    }
}
