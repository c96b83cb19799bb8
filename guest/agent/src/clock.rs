//! `/v1/clock`: sets the guest's clock to the host's after the VM was paused.

use crate::error::ApiError;
use rustix::time::{ClockId, Timespec, clock_settime};
use squeezy_protocol::Clock;

/// A host's clock before 2020 or after 2200 is wrong; Linux's clock ends in 2262.
const PLAUSIBLE_SECONDS: std::ops::Range<i64> = 1_577_836_800..7_258_118_400;

/// Sets the guest's clock.
pub fn set(clock: Clock) -> Result<(), ApiError> {
    let time = timespec(clock)?;
    clock_settime(ClockId::Realtime, time)
        .map_err(|e| ApiError::internal("setting the guest's clock", e))
}

fn timespec(Clock { unix_ns }: Clock) -> Result<Timespec, ApiError> {
    const SECOND: u64 = 1_000_000_000;
    let tv_sec = i64::try_from(unix_ns / SECOND).unwrap_or(i64::MAX);
    let tv_nsec = (unix_ns % SECOND) as i64;
    if PLAUSIBLE_SECONDS.contains(&tv_sec) {
        Ok(Timespec { tv_sec, tv_nsec })
    } else {
        Err(ApiError::invalid(format!("unix_ns {unix_ns} is not in the years 2020 to 2199")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plausible_time_is_taken() {
        let time = timespec(Clock { unix_ns: 1_763_800_000_123_456_789 }).unwrap();
        assert_eq!((time.tv_sec, time.tv_nsec), (1_763_800_000, 123_456_789));
        for unix_ns in [0, 1_577_836_799_999_999_999, 7_258_118_400_000_000_000, u64::MAX] {
            assert!(timespec(Clock { unix_ns }).is_err(), "{unix_ns}");
        }
    }
}
