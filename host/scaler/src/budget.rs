//! The host memory that VMs and instances may use.

/// How much memory there is for VMs and instances, and how much of it is committed.
///
/// An instance's memory counts from before it is plugged until the host has it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    limit_bytes: u64,
    reserve_bytes: u64,
    committed_bytes: u64,
}

impl Budget {
    /// A budget of `limit_bytes`; `u64::MAX` means unlimited.
    pub const fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, reserve_bytes: 0, committed_bytes: 0 }
    }

    /// The same budget with a reserve that new instances can use at once: whenever less than this is free,
    /// idle instances are ended ahead of need (HarvestVM's buffer and proactive reclaim).
    pub const fn with_reserve(self, reserve_bytes: u64) -> Self {
        Self { reserve_bytes, ..self }
    }

    /// Bytes to keep free ahead of need.
    pub const fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Bytes in total.
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes committed.
    pub const fn committed_bytes(&self) -> u64 {
        self.committed_bytes
    }

    /// Bytes not committed.
    pub const fn free_bytes(&self) -> u64 {
        self.limit_bytes - self.committed_bytes
    }

    /// Commits `bytes`; if that many are not free, changes nothing and returns `false`.
    #[must_use]
    pub fn commit(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free_bytes();
        if fits {
            self.committed_bytes += bytes;
        }
        fits
    }

    /// Releases `bytes`, which must have been committed.
    pub fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.committed_bytes, "released more than was committed");
        self.committed_bytes = self.committed_bytes.saturating_sub(bytes);
    }
}
