//! `/v1/page-cache/drop`: makes memory free that only holds what can be read again.

use crate::error::ApiError;
use std::{fs, io};
use tokio::task::spawn_blocking;

/// Frees memory when it is written to, by its bits: 1 for the page cache; 4 for no message about it from then on.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Drops what is in the page cache and neither dirty nor mapped by a process.
pub async fn drop() -> Result<(), ApiError> {
    let write = || ["4", "1"].into_iter().try_for_each(|bits| fs::write(DROP_CACHES, bits));
    let done = spawn_blocking(write).await.unwrap_or_else(|e| Err(io::Error::other(e)));
    done.map_err(|e| ApiError::internal("dropping the page cache", e))
}
