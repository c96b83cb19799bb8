//! Where a guest's memory is on the host, and how much of it is there.

mod file;
mod huge_pages;

use crate::{
    Result, VmError,
    measure::{self, Pages, Resident},
};
use std::{ops::Range, sync::Arc};

pub(crate) use file::{MemoryFile, Strays};
pub use huge_pages::{SHARED_HUGE_PAGES_ON, SharedHugePages};

/// Where the guest's memory is.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostMemory {
    /// Memory that the guest boots with, possibly in several pieces.
    pub(crate) base: Vec<MemoryPiece>,
    /// The virtio-mem devices' regions by device number.
    pub(crate) regions: Vec<MemoryPiece>,
}

/// Memory that is contiguous everywhere: for the guest, for the VMM, and in its file.
#[derive(Clone, Debug)]
pub(crate) struct MemoryPiece {
    /// The guest's physical addresses.
    pub(crate) guest: Range<u64>,
    /// Where it begins in the VMM's address space.
    pub(crate) host_start: u64,
    /// The file that backs it, if it is not the VMM's private memory.
    pub(crate) file: Option<FilePart>,
}

/// A file, and where in it something begins, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct FilePart {
    pub(crate) file: Arc<MemoryFile>,
    pub(crate) start: u64,
}

impl HostMemory {
    /// Says which files back it: one for the base, and one for each region.
    pub(crate) fn set_files(&mut self, files: Vec<MemoryFile>) {
        let mut files = files.into_iter().map(Arc::new);
        let Some(base) = files.next() else { return };
        let mut start = 0;
        for piece in &mut self.base {
            piece.file = Some(FilePart { file: base.clone(), start });
            start += piece.bytes();
        }
        for (piece, file) in self.regions.iter_mut().zip(files) {
            piece.file = Some(FilePart { file, start: 0 });
        }
    }

    /// All pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &MemoryPiece> {
        self.base.iter().chain(&self.regions)
    }

    /// The memory at a range of the guest's physical addresses, if it is in one piece.
    #[cfg(test)]
    pub(crate) fn at(&self, guest: &Range<u64>) -> Option<MemoryPiece> {
        self.pieces().find_map(|piece| piece.part(guest))
    }

    /// What the host has behind the base and behind the regions of the VMM with this process id. May take milliseconds
    /// for each GiB.
    pub(crate) fn resident(&self, process: u32) -> Result<(Resident, Resident)> {
        if self.pieces().all(|piece| piece.file.is_none()) {
            let ranges: Vec<_> = self.pieces().map(MemoryPiece::host).collect();
            let found = measure::resident(process, &ranges)?;
            let (base, regions) = found.split_at(self.base.len());
            return Ok((base.iter().copied().sum(), regions.iter().copied().sum()));
        }
        let sum = |pieces: &[MemoryPiece]| -> Result<Resident> {
            pieces.iter().map(|piece| piece.resident(process)).sum()
        };
        Ok((sum(&self.base)?, sum(&self.regions)?))
    }

    /// Gives all of it back to the host, once no VMM uses it any more. Private memory has gone with the VMM. May take
    /// 70 ms for each GiB.
    pub(crate) fn discard(&self) {
        for piece in self.pieces() {
            let Some(FilePart { file, start }) = &piece.file else { continue };
            if let Err(error) = file.discard(*start..*start + piece.bytes()) {
                tracing::warn!(%error, "memory of a VM that has ended cannot be discarded");
            }
        }
    }
}

impl MemoryPiece {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.guest.end - self.guest.start
    }

    /// Its addresses in the VMM's address space.
    fn host(&self) -> Range<u64> {
        self.host_start..self.host_start + self.bytes()
    }

    /// The part of it at these of the guest's physical addresses, if it has all of them.
    pub(crate) fn part(&self, guest: &Range<u64>) -> Option<Self> {
        let is_inside = guest.start <= guest.end
            && self.guest.start <= guest.start
            && guest.end <= self.guest.end;
        is_inside.then(|| {
            let skipped = guest.start - self.guest.start;
            let file = self.file.as_ref().map(|FilePart { file, start }| FilePart {
                file: file.clone(),
                start: start + skipped,
            });
            Self { guest: guest.clone(), host_start: self.host_start + skipped, file }
        })
    }

    /// Resident memory of it. `process` is the VMM's.
    pub(crate) fn resident(&self, process: u32) -> Result<Resident> {
        let mapped = measure::part(process, &self.host(), Pages::Resident);
        if self.file.is_none() {
            return mapped;
        }
        let resident_bytes = self.count(process, Pages::Resident)?;
        // No other VM has it. Whether pages are huge is known to page tables only.
        let huge_bytes = mapped.map_or(0, |mapped| mapped.huge_bytes);
        Ok(Resident { resident_bytes, proportional_bytes: resident_bytes, huge_bytes })
    }

    /// Bytes in such pages of it. Of a file, no page tables are looked at for that. `process` is the VMM's.
    pub(crate) fn count(&self, process: u32, pages: Pages) -> Result<u64> {
        let Some(FilePart { file, start }) = &self.file else {
            return Ok(measure::part(process, &self.host(), pages)?.resident_bytes);
        };
        file.count(*start..start + self.bytes(), pages)
            .map_err(|error| VmError::system("the guest's memory cannot be measured", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(guest: Range<u64>, host_start: u64) -> MemoryPiece {
        let file = Arc::new(MemoryFile::new("pieces", 16 << 20).unwrap());
        MemoryPiece { guest, host_start, file: Some(FilePart { file, start: 4096 }) }
    }

    #[test]
    fn addresses_are_found_in_one_piece_only() {
        let (low, high) = (piece(0..8192, 1 << 20), piece(1 << 32..(1 << 32) + 8192, 2 << 20));
        let memory = HostMemory { base: vec![low, high], regions: Vec::new() };
        let found = memory.at(&((1 << 32) + 4096..(1 << 32) + 8192)).unwrap();
        assert_eq!((found.host_start, found.file.unwrap().start), ((2 << 20) + 4096, 8192));
        assert!(memory.at(&(4096..8193)).is_none());
        assert!(memory.at(&(4096..(1 << 32) + 4096)).is_none());
    }
}
