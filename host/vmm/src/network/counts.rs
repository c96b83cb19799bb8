//! What a guest has tried to reach, in numbers.

use super::{Refusal, pacing::Carried};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that the judges of VMs raise.
#[derive(Debug, Default)]
pub struct NetworkCounters {
    opened: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    dropped: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

/// How often guests have tried to reach somebody, and what they have sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Connections, and for UDP, addresses that a socket sends to, that it was allowed.
    pub opened: u64,
    /// Those that it was not, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Datagrams that were dropped, because a VM sent too much.
    pub dropped: u64,
    /// What was sent by TCP, until each connection was last looked at, and in datagrams.
    pub sent_bytes: u64,
    /// What was received by TCP, until each connection was last looked at.
    pub received_bytes: u64,
}

impl NetworkCounters {
    pub(super) fn count(&self, verdict: Result<(), Refusal>) {
        let counter = match verdict {
            Ok(()) => &self.opened,
            Err(refusal) => &self.refused[refusal as usize],
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_carried(&self, Carried { sent, received }: Carried) {
        self.sent_bytes.fetch_add(sent, Ordering::Relaxed);
        self.received_bytes.fetch_add(received, Ordering::Relaxed);
    }

    /// Their values.
    pub fn read(&self) -> NetworkCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NetworkCounts {
            opened: read(&self.opened),
            refused: self.refused.each_ref().map(read),
            dropped: read(&self.dropped),
            sent_bytes: read(&self.sent_bytes),
            received_bytes: read(&self.received_bytes),
        }
    }
}

impl std::ops::Sub for NetworkCounts {
    type Output = Self;

    fn sub(mut self, earlier: Self) -> Self {
        self.opened = self.opened.saturating_sub(earlier.opened);
        for (now, earlier) in self.refused.iter_mut().zip(earlier.refused) {
            *now = now.saturating_sub(earlier);
        }
        self.dropped = self.dropped.saturating_sub(earlier.dropped);
        self.sent_bytes = self.sent_bytes.saturating_sub(earlier.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_sub(earlier.received_bytes);
        self
    }
}
