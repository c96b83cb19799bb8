//! The state's file, mapped.

use crate::header::HEADER_BYTES;
use rustix::{
    fs::{SealFlags, fcntl_get_seals, fstat},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{
    io,
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// A part of a file that others change at the same time.
///
/// Nobody can cut it off: only files are mapped that are sealed against shrinking. What is not there because the guest
/// or the host has discarded it reads as zeros. A page whose memory fails is SIGBUS for whoever reads it.
#[derive(Debug)]
pub struct Mapping {
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
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(invalid("the file is not sealed against shrinking"));
        }
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if offset.checked_add(bytes).is_none_or(|end| end > size) || bytes < HEADER_BYTES as u64 {
            return Err(invalid("the file is too small"));
        }
        let bytes = usize::try_from(bytes).map_err(|_| invalid("the file is too large"))?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &file, offset) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| invalid("mapped at 0"))?;
        Ok(Self { base, bytes })
    }

    /// Where it begins, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How much is mapped.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// A copy of its first bytes.
    pub fn header(&self) -> Box<[u8; HEADER_BYTES]> {
        let mut header = Box::new([0; HEADER_BYTES]);
        for (number, bytes) in header.chunks_exact_mut(8).enumerate() {
            // SAFETY: `new` has mapped as much, and others only ever change it as atomics or from outside of Rust.
            let word = unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(number)) };
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        header
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped like this, and whoever uses it keeps `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    #[test]
    fn only_what_cannot_be_cut_off_is_mapped() {
        let file = memfd_create("state", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 1 << 20).unwrap();
        let error = Mapping::new(&file, 0, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("sealed"), "{error}");
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert_eq!(Mapping::new(&file, 4096, 65536).unwrap().header()[..], [0; HEADER_BYTES]);
        for (offset, bytes) in [(4096, 1 << 20), (u64::MAX - 4095, 65536), (0, 4096)] {
            let error = Mapping::new(&file, offset, bytes).unwrap_err().to_string();
            assert!(error.contains("too small"), "{error}");
        }
    }
}
