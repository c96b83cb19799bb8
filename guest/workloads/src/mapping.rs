//! Anonymous memory whose pages are taken one by one.

use std::{io, ptr::NonNull};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Which pages the kernel may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pages {
    /// 4 KiB pages only.
    Small,
    /// 2 MiB pages wherever they fit; the kernel may move others' pages to have them.
    Huge,
    /// As the kernel does by default.
    Default,
}

/// An anonymous mapping; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Which pages are used: every so many.
    step: usize,
    /// What was mapped, which unless for small pages is more than is used, for the sake of alignment.
    mapped: (NonNull<u8>, usize),
}

impl Mapping {
    /// Maps `bytes` of private memory; no page is taken yet.
    pub fn new(bytes: usize, pages: Pages) -> io::Result<Self> {
        Self::map(bytes, pages, libc::MAP_PRIVATE)
    }

    /// The same of memory that is shared with children.
    pub fn shared(bytes: usize, pages: Pages) -> io::Result<Self> {
        Self::map(bytes, pages, libc::MAP_SHARED)
    }

    fn map(bytes: usize, pages: Pages, kind: libc::c_int) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let align = if pages == Pages::Small { PAGE_BYTES } else { HUGE_PAGE_BYTES };
        let mapped_bytes = bytes + align - PAGE_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let offset = mapped.as_ptr().align_offset(align);
        // SAFETY: offset is below align, and the mapping has align - PAGE_BYTES spare bytes at
        // least as large, since it starts at a page.
        let start = unsafe { mapped.add(offset) };
        let mapping = Self { start, bytes, step: 1, mapped: (mapped, mapped_bytes) };
        match pages {
            Pages::Small => mapping.advise(libc::MADV_NOHUGEPAGE)?,
            Pages::Huge => mapping.advise(libc::MADV_HUGEPAGE)?,
            Pages::Default => {}
        }
        Ok(mapping)
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// madvise(2) over all of it.
    pub fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        self.advise_part(0, self.bytes, advice)
    }

    fn advise_part(&self, offset: usize, bytes: usize, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the callers' range is ours, and no reference into it is ever handed out.
        let result =
            unsafe { libc::madvise(self.start.as_ptr().add(offset).cast(), bytes, advice) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Gives back all pages but the first of every `step`, which are all that is used from now on.
    pub fn thin(&mut self, step: usize) -> io::Result<()> {
        self.step = step.max(1);
        for page in self.used_pages() {
            let first = (page + 1) * PAGE_BYTES;
            let end = self.bytes.min((page + self.step) * PAGE_BYTES);
            if first < end {
                self.advise_part(first, end - first, libc::MADV_DONTNEED)?;
            }
        }
        Ok(())
    }

    fn used_pages(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.bytes / PAGE_BYTES).step_by(self.step)
    }

    /// Writes one word of every page that is used: the page's number and `round`, never zero.
    pub fn touch(&self, round: u32) {
        for page in self.used_pages() {
            // SAFETY: the word lies in the mapping and is aligned; volatile, since nobody reads it.
            unsafe { self.word(page).write_volatile(Self::content(page, round)) };
        }
    }

    /// Reads one word of every page that is used.
    pub fn read(&self) {
        for page in self.used_pages() {
            // SAFETY: as in touch; anonymous pages that nobody wrote to hold zeroes.
            unsafe { self.word(page).read_volatile() };
        }
    }

    /// The first page that is used and does not hold what `touch(round)` wrote.
    pub fn first_wrong_page(&self, round: u32) -> Option<usize> {
        self.used_pages().find(|&page| {
            // SAFETY: as in touch; the memory is initialized, anonymous pages start as zeroes.
            unsafe { self.word(page).read_volatile() != Self::content(page, round) }
        })
    }

    /// The first page of a fresh mapping in which a byte is not zero.
    pub fn first_page_not_zero(&self) -> Option<usize> {
        const WORDS: usize = PAGE_BYTES / size_of::<u64>();
        (0..self.bytes / PAGE_BYTES).find(|&page| {
            (0..WORDS).any(|word| {
                // SAFETY: the word lies in the page, is aligned and initialized.
                unsafe { self.word(page).add(word).read_volatile() != 0 }
            })
        })
    }

    fn content(page: usize, round: u32) -> u64 {
        ((page as u64) << 32) | u64::from(round.max(1))
    }

    /// The first word of a page below the mapping's end.
    unsafe fn word(&self, page: usize) -> *mut u64 {
        // SAFETY: the caller's page is below the end.
        unsafe { self.start.as_ptr().add(page * PAGE_BYTES).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by new and nobody has a reference into it.
        unsafe { libc::munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_written() {
        for pages in [Pages::Small, Pages::Huge, Pages::Default] {
            let mapping = Mapping::new(3 << 20, pages).unwrap();
            assert_eq!(mapping.first_page_not_zero(), None);
            mapping.touch(7);
            assert_eq!(mapping.first_wrong_page(7), None);
            assert_eq!(mapping.first_wrong_page(8), Some(0));
            mapping.advise(libc::MADV_DONTNEED).unwrap();
            assert_eq!(mapping.first_page_not_zero(), None);
        }
    }
}
