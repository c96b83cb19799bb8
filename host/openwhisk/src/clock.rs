//! Moments as OpenWhisk tells them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, as OpenWhisk tells moments.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
