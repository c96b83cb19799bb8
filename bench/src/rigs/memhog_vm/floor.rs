//! The cost of giving memory back without a guest.

use crate::error::{BenchError, Result};
use squeezy_vmm::{MemoryBackend, mechanism::Floor};
use std::time::Duration;

/// Measurements of a process on the host, without a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithoutGuest {
    /// How long touching its memory took.
    pub(crate) populate: Duration,
    /// How long discarding it took.
    pub(crate) discard: Duration,
    /// By how much host memory decreased.
    pub(crate) resident_drop_bytes: u64,
}

/// Has a process on the host allocate and discard memory `trials` times.
pub(crate) async fn floor(
    bytes: u64,
    backend: MemoryBackend,
    trials: u32,
) -> Result<Vec<WithoutGuest>> {
    let measure = move || {
        let mut floor = Floor::start(bytes, backend)?;
        let mut one = || {
            let populate = floor.populate()?;
            let full_bytes = floor.resident_bytes()?;
            let discard = floor.discard()?;
            let resident_drop_bytes = full_bytes.saturating_sub(floor.resident_bytes()?);
            Ok(WithoutGuest { populate, discard, resident_drop_bytes })
        };
        (0..trials).map(|_| one()).collect::<squeezy_vmm::Result<Vec<_>>>()
    };
    let done = tokio::task::spawn_blocking(measure).await;
    Ok(done.map_err(|e| BenchError::Arguments(format!("the floor cannot be measured: {e}")))??)
}
