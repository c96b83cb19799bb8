//! The host's memory that instances may use.

/// How much memory there is for instances, and how much of it is promised.
///
/// An instance's memory counts from the moment it is to be plugged until the host has it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    limit_bytes: u64,
    reserve_bytes: u64,
    committed_bytes: u64,
}

impl Budget {
    /// A budget of `limit_bytes`; `u64::MAX` for as much as anybody asks for.
    pub const fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, reserve_bytes: 0, committed_bytes: 0 }
    }

    /// The same budget with a reserve, which new instances draw on at once: whenever less than this is
    /// free, idle instances are ended ahead of need (HarvestVM's buffer and proactive reclaim).
    pub const fn with_reserve(self, reserve_bytes: u64) -> Self {
        Self { reserve_bytes, ..self }
    }

    /// Bytes that are to be free ahead of need.
    pub const fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Bytes there are in all.
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes that are promised.
    pub const fn committed_bytes(&self) -> u64 {
        self.committed_bytes
    }

    /// Bytes that are not promised.
    pub const fn free_bytes(&self) -> u64 {
        self.limit_bytes - self.committed_bytes
    }

    /// Promises `bytes`, or changes nothing and answers `false` when they are not there.
    #[must_use]
    pub fn commit(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free_bytes();
        if fits {
            self.committed_bytes += bytes;
        }
        fits
    }

    /// Takes back a promise of `bytes`, which must have been made.
    pub fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.committed_bytes, "released memory that nobody had");
        self.committed_bytes = self.committed_bytes.saturating_sub(bytes);
    }
}
