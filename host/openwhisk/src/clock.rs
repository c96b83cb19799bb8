//! Timestamps in OpenWhisk's format.

use std::time::{SystemTime, UNIX_EPOCH};

/// The current time in milliseconds since 1970, as OpenWhisk writes timestamps.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
