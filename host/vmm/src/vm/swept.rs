//! What sweeps have taken of a VM.

use crate::Taken;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A sum over all sweeps of a VM.
#[derive(Debug, Default)]
pub(super) struct Swept {
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Swept {
    /// Adds one sweep, which may have found nothing.
    pub(super) fn add(&self, taken: &Taken) {
        self.bytes.fetch_add(taken.bytes, Relaxed);
        let nanoseconds = u64::try_from(taken.took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    /// Memory that the host had behind free pages, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// How long the sweeps took together.
    pub(super) fn took(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Relaxed))
    }
}
