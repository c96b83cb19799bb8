//! The calls of a namespace: how many there are.

use super::quota::{OverQuota, Quotas};
use crate::mutex::lock;
use squeezy_openwhisk::now_ms;
use std::sync::{Arc, Mutex, MutexGuard};

/// A minute, in milliseconds.
const MINUTE_MS: u64 = 60_000;

/// The calls of one namespace.
#[derive(Debug, Default)]
pub struct Calls {
    now: Mutex<Now>,
    rate: Rate,
    rate_of_strangers: Rate,
}

/// Those that there are now.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    count: usize,
    of_strangers: usize,
}

/// A call, until it is dropped.
#[derive(Debug)]
pub struct Calling {
    calls: Arc<Calls>,
    by_stranger: bool,
}

impl Calls {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.now().count
    }

    /// Begins a call if there may be one more. Strangers, who call web actions without a key, have half of what the
    /// quotas allow, and leave the other half to those with one.
    pub fn begin(
        self: &Arc<Self>,
        quotas: &Quotas,
        by_stranger: bool,
    ) -> Result<Calling, OverQuota> {
        let Quotas { concurrent_calls, calls_per_minute, .. } = *quotas;
        let minute = now_ms() / MINUTE_MS;
        let mut now = self.now();
        let within = |count: usize, allowed: Option<usize>| match allowed {
            Some(allowed) if count >= allowed => Err(OverQuota::Concurrency { count, allowed }),
            _ => Ok(()),
        };
        within(now.count, concurrent_calls)?;
        if by_stranger {
            within(now.of_strangers, concurrent_calls.map(half))?;
            // What the rate of all refuses does not count in theirs.
            self.rate.check(minute, calls_per_minute)?;
            self.rate_of_strangers.count(minute, calls_per_minute.map(half))?;
        }
        self.rate.count(minute, calls_per_minute)?;
        now.count += 1;
        now.of_strangers += usize::from(by_stranger);
        Ok(Calling { calls: self.clone(), by_stranger })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        lock(&self.now)
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        let mut now = self.calls.now();
        now.count -= 1;
        now.of_strangers -= usize::from(self.by_stranger);
    }
}

/// The part of strangers; not less than one.
fn half(allowed: usize) -> usize {
    (allowed / 2).max(1)
}

/// Calls that began in the current minute.
#[derive(Debug, Default)]
struct Rate(Mutex<(u64, usize)>);

impl Rate {
    /// Counts a call that begins in this minute, unless there were as many as may be.
    fn count(&self, minute: u64, allowed: Option<usize>) -> Result<(), OverQuota> {
        self.check(minute, allowed)?;
        self.of(minute).1 += 1;
        Ok(())
    }

    /// Fails if there were as many in this minute as may be.
    fn check(&self, minute: u64, allowed: Option<usize>) -> Result<(), OverQuota> {
        let count = self.of(minute).1 + 1;
        match allowed {
            Some(allowed) if count > allowed => Err(OverQuota::Rate { count, allowed }),
            _ => Ok(()),
        }
    }

    fn of(&self, minute: u64) -> MutexGuard<'_, (u64, usize)> {
        let mut current = lock(&self.0);
        // Whichever way the clock jumps.
        if current.0 != minute {
            *current = (minute, 0);
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_who_is_refused_does_not_count_among_strangers() {
        let quotas = Quotas { calls_per_minute: Some(2), ..Quotas::default() };
        let calls = Arc::<Calls>::default();
        let begin = |by_stranger| calls.begin(&quotas, by_stranger).is_ok();
        assert!(begin(false) && begin(false));
        let refused = (0..9).filter(|_| !begin(true)).count();
        // Should a minute have begun meanwhile, one was not refused.
        let of_strangers = calls.rate_of_strangers.0.lock().unwrap().1;
        assert_eq!(refused + of_strangers, 9);
    }

    #[test]
    fn a_minute_has_so_many_calls_and_the_next_one_begins_anew() {
        let rate = Rate::default();
        assert!((0..3).all(|_| rate.count(5, Some(3)).is_ok()));
        let refused = rate.count(5, Some(3)).unwrap_err().to_string();
        assert_eq!(refused, "Too many requests in the last minute (count: 4, allowed: 3).");
        assert!(rate.count(5, Some(4)).is_ok(), "those that are refused do not count");
        assert!(rate.count(5, None).is_ok());
        // The clock goes on, and is set back.
        assert!(rate.count(6, Some(1)).is_ok() && rate.count(5, Some(1)).is_ok());
    }
}
