//! How much of the disk blobs take, and may take.

use super::BlobError;
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Removes something that nobody needs; whether there was anything.
type FreeSome = Box<dyn Fn() -> bool + Send + Sync>;

/// The disk space of the blobs of all kinds.
pub struct DiskSpace {
    most_bytes: AtomicU64,
    taken_bytes: AtomicU64,
    free_some: OnceLock<FreeSome>,
}

impl fmt::Debug for DiskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?} bytes", self.taken_bytes, self.most_bytes)
    }
}

impl DiskSpace {
    /// Space of this many bytes.
    pub fn new(most_bytes: u64) -> Arc<Self> {
        let (most_bytes, taken_bytes) = (most_bytes.into(), 0.into());
        Arc::new(Self { most_bytes, taken_bytes, free_some: OnceLock::new() })
    }

    /// Changes how many bytes there are. What is there already may be more.
    pub fn set_most(&self, most_bytes: u64) {
        self.most_bytes.store(most_bytes, Ordering::Relaxed);
    }

    /// Says what is called, as often as it frees something, when more is wanted than is left.
    pub fn on_shortage(&self, free_some: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.free_some.set(Box::new(free_some));
    }

    /// How many bytes there are.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// What is taken, in bytes.
    #[cfg(test)]
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Nothing yet; see [`TakenSpace::grow`].
    pub fn take_none(self: &Arc<Self>) -> TakenSpace {
        TakenSpace { space: self.clone(), bytes: 0 }
    }

    /// Space that something takes already, whether or not it may.
    pub fn take_anyway(self: &Arc<Self>, bytes: u64) -> TakenSpace {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        TakenSpace { space: self.clone(), bytes }
    }
}

/// Space that is taken, released on drop.
#[derive(Debug)]
pub struct TakenSpace {
    space: Arc<DiskSpace>,
    bytes: u64,
}

impl TakenSpace {
    /// Takes more, if that is left.
    pub fn grow(&mut self, bytes: u64) -> Result<(), BlobError> {
        let DiskSpace { most_bytes, taken_bytes, free_some } = &*self.space;
        let most_bytes = most_bytes.load(Ordering::Relaxed);
        let more = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= most_bytes);
        while taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            // For what would never fit, nobody has to go.
            let is_possible = self.bytes.saturating_add(bytes) <= most_bytes;
            if !is_possible || !free_some.get().is_some_and(|free_some| free_some()) {
                return Err(BlobError::NoSpace { most_bytes });
            }
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl TakenSpace {
    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more until it is so many bytes; less than it is changes nothing.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), BlobError> {
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Gives back so many bytes, if it has them.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.space.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for TakenSpace {
    fn drop(&mut self) {
        self.space.taken_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
