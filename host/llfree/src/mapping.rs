//! The state's file, mapped.

mod sigbus;

use crate::header::HEADER_BYTES;
use rustix::{
    fs::{SealFlags, fcntl_get_seals, fstat},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use sigbus::{Listed, MOST_LISTED};
use std::{
    io,
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering::Acquire},
};

/// A part of a file that others change at the same time.
///
/// Nobody can cut it off: only files are mapped that are sealed against shrinking. What is not there because the guest
/// or the host has discarded it reads as zeros. So does a page whose memory fails, and [`Mapping::check`] says so from
/// then on; what is written there reaches nobody.
#[derive(Debug)]
pub struct Mapping {
    // Dropped in this order: as long as it is listed, its addresses are nobody else's.
    listed: Listed,
    pages: Pages,
}

/// The memory of a page of a [`Mapping`] has failed, so not all that was read of it has been written by anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page of its memory has failed")]
pub struct PageFailed;

/// Mapped memory.
#[derive(Debug)]
struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: whoever uses the memory does so with atomic operations only, and it is mapped until `self` is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` from `offset` on, a multiple of the size of a page.
    pub fn new(file: impl AsFd, offset: u64, bytes: u64) -> io::Result<Self> {
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(invalid("the file is not sealed against shrinking"));
        }
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if offset.checked_add(bytes).is_none_or(|end| end > size) || bytes < HEADER_BYTES as u64 {
            return Err(invalid("the file is too small"));
        }
        Self::map(file, offset, bytes)
    }

    fn map(file: impl AsFd, offset: u64, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| invalid("the file is too large"))?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &file, offset) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| invalid("mapped at 0"))?;
        let pages = Pages { base, bytes };
        let listed = Listed::new(base, bytes).ok_or_else(|| {
            io::Error::other(format!("it is too large, or {MOST_LISTED} are mapped already"))
        })?;
        Ok(Self { listed, pages })
    }

    /// Fails if memory of it has failed that somebody here has accessed. So whoever calls it after having read what is
    /// free knows whether that was there, or zeros in its place.
    pub fn check(&self) -> Result<(), PageFailed> {
        if self.listed.has_failed() { Err(PageFailed) } else { Ok(()) }
    }

    /// Where it begins, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.pages.base
    }

    /// How much is mapped.
    pub fn bytes(&self) -> u64 {
        self.pages.bytes as u64
    }

    /// A copy of its first bytes.
    pub fn header(&self) -> Box<[u8; HEADER_BYTES]> {
        let mut header = Box::new([0; HEADER_BYTES]);
        for (number, bytes) in header.chunks_exact_mut(8).enumerate() {
            // SAFETY: `new` has mapped as much, and others only ever change it as atomics or from outside of Rust.
            let word =
                unsafe { AtomicU64::from_ptr(self.base().as_ptr().cast::<u64>().add(number)) };
            // Before whoever has read it asks whether a page has failed.
            bytes.copy_from_slice(&word.load(Acquire).to_ne_bytes());
        }
        header
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: it was mapped like this, and whoever uses it keeps the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests;
