//! The state, and who has which page.

use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use squeezy_llfree::{SharedMemory, ZoneLayout, header::HEADER_BYTES};
use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
};

const PAGES: u64 = 512;

/// The state of a guest's allocator with one zone, in a file that processes can share.
#[derive(Debug)]
pub struct State {
    file: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
    layout: ZoneLayout,
}

// SAFETY: it is accessed with atomic operations only, but for `problem`, which says so.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    /// Of a zone with so many areas, in a new file.
    pub fn new(areas: u32) -> Self {
        let file = memfd_create("llfree", MemfdFlags::empty()).expect("memfd_create");
        Self::open(file, areas)
    }

    /// The same in a file that another process has made.
    pub fn open(file: OwnedFd, areas: u32) -> Self {
        let offset = (HEADER_BYTES as u64).next_multiple_of(64);
        let layout = ZoneLayout::new(offset, areas).expect("it is small");
        let bytes = (layout.end + u64::from(areas) * PAGES) as usize + size_of::<AtomicU64>();
        ftruncate(&file, bytes as u64).expect("ftruncate");
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &file, 0) };
        let base = NonNull::new(base.expect("mmap").cast()).expect("not at 0");
        Self { file, base, bytes, layout }
    }

    /// Its file, for other processes.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// How many areas there are.
    pub fn areas(&self) -> u32 {
        self.layout.areas
    }

    /// Where it is, and how many bytes.
    pub(crate) fn memory(&self) -> (NonNull<u8>, u64) {
        (self.base, self.layout.end)
    }

    /// As the host sees it. It must not outlive the state.
    pub fn host(&self) -> SharedMemory {
        // SAFETY: it is mapped, and tests keep it as long as their host.
        unsafe { SharedMemory::new(self.base, self.layout) }
    }

    /// Who has which page.
    pub fn owners(&self) -> Owner<'_> {
        let pages = self.layout.areas as usize * PAGES as usize;
        // SAFETY: the marks follow the state, one byte a page, and are only ever accessed as atomics.
        let marks = unsafe {
            let first = self.base.as_ptr().add(self.layout.end as usize);
            std::slice::from_raw_parts(first.cast::<AtomicU8>(), pages)
        };
        Owner { marks }
    }

    /// A number for the tests, that all processes share.
    pub fn counter(&self) -> &AtomicU64 {
        let offset = self.bytes - size_of::<AtomicU64>();
        // SAFETY: it follows the marks, of which there are a multiple of 512, and is only accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// What of the invariants does not hold, while nobody is in the middle of anything.
    pub fn problem(&self) -> Option<String> {
        // SAFETY: nobody else accesses it meanwhile; the numbers are aligned.
        let number = |offset: u64| unsafe { self.base.as_ptr().add(offset as usize) };
        let area_entry = |area: u32| {
            // SAFETY: as above.
            unsafe { number(self.layout.area + u64::from(area) * 2).cast::<u16>().read() }
        };
        for tree in 0..self.layout.trees() {
            let mut free = 0;
            let mut host = 0;
            for area in tree * 8..(tree * 8 + 8).min(self.areas()) {
                let entry = area_entry(area);
                let zeros: u32 = (0..8)
                    .map(|word| {
                        let offset = self.layout.bits + u64::from(area) * 64 + word * 8;
                        // SAFETY: as above.
                        unsafe { number(offset).cast::<u64>().read() }.count_zeros()
                    })
                    .sum();
                let (counted, is_right) = match entry & 0xc00 {
                    0x400 => (0, entry == 0x400 && zeros == 0),
                    0xc00 => (0, entry == 0xc00 && zeros == 512),
                    0x800 => (512, entry == 0xa00 && zeros == 512),
                    _ => (u32::from(entry), u32::from(entry) == zeros),
                };
                if !is_right {
                    return Some(format!("area {area}: entry {entry:#x}, {zeros} bits are 0"));
                }
                free += counted;
                host |= u32::from(entry == 0xc00) << (area % 8);
            }
            let offset = self.layout.tree + u64::from(tree) * 4;
            // SAFETY: as above.
            let entry = unsafe { number(offset).cast::<u32>().read() };
            if entry & 0xffff != free || entry >> 19 & 0xff != host {
                return Some(format!(
                    "tree {tree}: entry {entry:#x}, {free} pages are free, the host has {host:#b}"
                ));
            }
        }
        None
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: it was mapped like this, and nobody uses it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A mark for each page that the guest sets while it has it.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    marks: &'a [AtomicU8],
}

impl Owner<'_> {
    fn replace(&self, page: u64, count: u64, old: u8, new: u8) {
        for (page, mark) in (page..).zip(&self.marks[page as usize..(page + count) as usize]) {
            let was = mark.swap(new, SeqCst);
            assert_eq!(was, old, "page {page} is somebody else's");
        }
    }

    /// The guest has these.
    pub(crate) fn take(&self, page: u64, count: u64) {
        self.replace(page, count, 0, 1);
    }

    /// It is about to free them.
    pub(crate) fn leave(&self, page: u64, count: u64) {
        self.replace(page, count, 1, 0);
    }

    /// Panics if the guest has any page of an area that the host has.
    pub fn assert_host_may_discard(&self, area: u32) {
        self.assert_host_may_discard_pages(area, 0..PAGES as u32);
    }

    /// The same for pages of an area, by their numbers in it.
    pub fn assert_host_may_discard_pages(&self, area: u32, pages: Range<u32>) {
        let first = area as usize * PAGES as usize;
        for page in pages {
            let mark = self.marks[first + page as usize].load(SeqCst);
            assert_eq!(mark, 0, "page {page} of area {area} would be discarded");
        }
    }
}
