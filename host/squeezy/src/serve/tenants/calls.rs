//! The calls of a namespace: how many there are, and what their arguments take of the memory that is everybody's.

use super::quota::{OverQuota, Quotas};
use squeezy_openwhisk::now_ms;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A minute, in milliseconds.
const MINUTE_MS: u64 = 60_000;

/// A call that is to begin.
#[derive(Clone, Copy, Debug)]
pub struct NewCall {
    /// It is one of a web action, by a client without a key.
    pub by_stranger: bool,
    /// What its arguments hold of the memory for requests, in bytes.
    pub bytes: usize,
    /// How much of that there is, in bytes.
    pub most_bytes: usize,
}

/// How much of the memory for requests is for the arguments of one namespace's calls, which may run for long.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    All,
    ThreeQuarters,
    Quarter,
}

impl Part {
    fn of(self, bytes: usize) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::ThreeQuarters => bytes - bytes / 4,
            Self::Quarter => bytes / 4,
        }
    }
}

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
    bytes: usize,
    /// Strangers' requests have a memory budget of their own.
    bytes_of_strangers: usize,
}

impl Now {
    fn has_room(&mut self, call: &NewCall, part: Part) -> Result<(), OverQuota> {
        let bytes = *self.bytes_like(call);
        if bytes > 0 && call.bytes > 0 && bytes + call.bytes > part.of(call.most_bytes) {
            return Err(OverQuota::Arguments);
        }
        Ok(())
    }

    /// What calls like this one take of the budget that it is from.
    fn bytes_like(&mut self, call: &NewCall) -> &mut usize {
        if call.by_stranger { &mut self.bytes_of_strangers } else { &mut self.bytes }
    }
}

/// A call, until it is dropped.
#[derive(Debug)]
pub struct Calling {
    calls: Arc<Calls>,
    call: NewCall,
    part: Part,
}

impl Calls {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.now().count
    }

    /// Begins a call if there may be one more. Strangers have half of what the quotas allow, and leave the other half
    /// to those with a key. One call may always have its arguments, or those that are larger than the part could never
    /// be called.
    pub fn begin(
        self: &Arc<Self>,
        quotas: &Quotas,
        call: NewCall,
        part: Part,
    ) -> Result<Calling, OverQuota> {
        let Quotas { concurrent_calls, calls_per_minute, .. } = *quotas;
        let minute = now_ms() / MINUTE_MS;
        let mut now = self.now();
        let within = |count: usize, allowed: Option<usize>| match allowed {
            Some(allowed) if count >= allowed => Err(OverQuota::Concurrency { count, allowed }),
            _ => Ok(()),
        };
        within(now.count, concurrent_calls)?;
        now.has_room(&call, part)?;
        if call.by_stranger {
            within(now.of_strangers, concurrent_calls.map(half))?;
            self.rate_of_strangers.count(minute, calls_per_minute.map(half))?;
        }
        self.rate.count(minute, calls_per_minute)?;
        now.count += 1;
        now.of_strangers += usize::from(call.by_stranger);
        *now.bytes_like(&call) += call.bytes;
        Ok(Calling { calls: self.clone(), call, part })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Calling {
    /// Other arguments have taken the place of its own: a result of a component of the sequence that it is a call of.
    /// They hold `bytes` of the memory for requests, unless the namespace has too much of it already.
    pub fn exchange(&mut self, bytes: usize) -> Result<(), OverQuota> {
        let mut now = self.calls.now();
        *now.bytes_like(&self.call) -= self.call.bytes;
        self.call.bytes = 0;
        let call = NewCall { bytes, ..self.call };
        now.has_room(&call, self.part)?;
        *now.bytes_like(&call) += bytes;
        self.call = call;
        Ok(())
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        let mut now = self.calls.now();
        now.count -= 1;
        now.of_strangers -= usize::from(self.call.by_stranger);
        *now.bytes_like(&self.call) -= self.call.bytes;
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
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whichever way the clock jumps.
        if current.0 != minute {
            *current = (minute, 0);
        }
        let count = current.1 + 1;
        match allowed {
            Some(allowed) if count > allowed => Err(OverQuota::Rate { count, allowed }),
            _ => {
                current.1 = count;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_take_the_place_of_others_are_counted_instead() {
        let calls = Arc::new(Calls::default());
        let begin = |bytes| {
            let call = NewCall { by_stranger: false, bytes, most_bytes: 100 };
            calls.begin(&Quotas::default(), call, Part::Quarter)
        };
        let mut first = begin(20).unwrap();
        assert!(begin(10).is_err());
        first.exchange(5).unwrap();
        let mut second = begin(10).unwrap();
        assert_eq!(second.exchange(30), Err(OverQuota::Arguments));
        assert_eq!((calls.count(), calls.now().bytes), (2, 5));
        drop(first);
        second.exchange(30).unwrap();
        drop(second);
        assert_eq!((calls.count(), calls.now().bytes), (0, 0));
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
