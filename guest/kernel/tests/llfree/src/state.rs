//! The state, and who has which page.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use squeezy_llfree::{Mapping, SharedMemory, ZoneLayout, header::HEADER_BYTES};
use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
};

const PAGES: u64 = 512;
/// Bytes of the numbers of the tests.
const COUNTERS_BYTES: u64 = 16;

/// The state of a guest's allocator with one zone, in a file that processes can share.
#[derive(Debug)]
pub struct State {
    file: OwnedFd,
    mapping: Arc<Mapping>,
    layout: ZoneLayout,
}

impl State {
    /// Of a zone with so many areas, in a new file.
    pub fn new(areas: u32) -> Self {
        let file = memfd_create("llfree", MemfdFlags::ALLOW_SEALING).expect("memfd_create");
        Self::open(file, areas)
    }

    /// The same in a file that another process has made.
    pub fn open(file: OwnedFd, areas: u32) -> Self {
        let offset = (HEADER_BYTES as u64).next_multiple_of(64);
        let layout = ZoneLayout::new(offset, areas).expect("it is small");
        let bytes = layout.end + u64::from(areas) * PAGES + COUNTERS_BYTES;
        ftruncate(&file, bytes).expect("ftruncate");
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("seals");
        let mapping = Mapping::new(&file, 0, bytes).expect("mmap");
        Self { file, mapping: Arc::new(mapping), layout }
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
        (self.mapping.base(), self.layout.end)
    }

    /// As the host sees it.
    pub fn host(&self) -> SharedMemory {
        SharedMemory::new(self.mapping.clone(), self.layout)
    }

    /// What is at an offset.
    fn at(&self, offset: u64) -> *mut u8 {
        assert!(offset < self.mapping.bytes());
        // SAFETY: so much is mapped.
        unsafe { self.mapping.base().as_ptr().add(offset as usize) }
    }

    /// Who has which page.
    pub fn owners(&self) -> Owner<'_> {
        let pages = self.layout.areas as usize * PAGES as usize;
        // SAFETY: the marks follow the state, one byte a page, and are only ever accessed as atomics.
        let marks = unsafe {
            std::slice::from_raw_parts(self.at(self.layout.end).cast::<AtomicU8>(), pages)
        };
        Owner { marks }
    }

    /// How many operations hosts have done, as far as they count them. All processes share it.
    pub fn operations(&self) -> &AtomicU64 {
        self.counter(0)
    }

    /// How many hosts have begun, likewise.
    pub fn hosts(&self) -> &AtomicU64 {
        self.counter(8)
    }

    fn counter(&self, offset: u64) -> &AtomicU64 {
        let offset = self.mapping.bytes() - COUNTERS_BYTES + offset;
        // SAFETY: it follows the marks, of which there are a multiple of 512, and is only accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
    }

    /// How many areas the host says that it keeps.
    pub fn held(&self) -> u32 {
        // SAFETY: it is the first of the zone's numbers, aligned, and only accessed as an atomic.
        unsafe { AtomicU32::from_ptr(self.at(self.layout.live).cast()) }.load(SeqCst)
    }

    /// What of the invariants does not hold, while nobody is in the middle of anything.
    pub fn problem(&self) -> Option<String> {
        let area_entry = |area: u32| {
            // SAFETY: nobody else accesses it meanwhile; the numbers are aligned.
            unsafe { self.at(self.layout.area + u64::from(area) * 2).cast::<u16>().read() }
        };
        for tree in 0..self.layout.trees() {
            let mut free = 0;
            let mut host = 0;
            let areas = tree * 8..(tree * 8 + 8).min(self.areas());
            for area in areas.clone() {
                let entry = area_entry(area);
                let zeros: u32 = (0..8)
                    .map(|word| {
                        let offset = self.layout.bits + u64::from(area) * 64 + word * 8;
                        // SAFETY: as above.
                        unsafe { self.at(offset).cast::<u64>().read() }.count_zeros()
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
            let entry = unsafe { self.at(offset).cast::<u32>().read() };
            if entry & 0xffff != free || entry >> 19 & 0xff != host {
                return Some(format!(
                    "tree {tree}: entry {entry:#x}, {free} pages are free, the host has {host:#b}"
                ));
            }
            let lacks = entry >> 27 & 0xf;
            if lacks != 0 && areas.clone().any(|area| self.has_run(area, lacks)) {
                return Some(format!("tree {tree}: entry {entry:#x}, but it has such a run"));
            }
        }
        None
    }

    /// Whether an area that is in use in part has free pages of an order, while nobody is in the middle of anything.
    fn has_run(&self, area: u32, order: u32) -> bool {
        let pages = 1 << order;
        let free = |page: u64| {
            let offset = self.layout.bits + u64::from(area) * 64 + page / 64 * 8;
            // SAFETY: nobody else accesses it meanwhile; the numbers are aligned.
            let word = unsafe { self.at(offset).cast::<u64>().read() };
            word >> (page % 64) & 1 == 0
        };
        // What is free as a whole is found by its entry.
        let is_whole = (0..PAGES).all(free);
        !is_whole && (0..PAGES).step_by(pages).any(|first| (first..first + pages as u64).all(free))
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
        let first = area as usize * PAGES as usize;
        let marks = &self.marks[first..first + PAGES as usize];
        let is_free = |eight: &[AtomicU8]| {
            // SAFETY: an area's marks are aligned to 64, as the state's end is. On x86 this is atomic beside what is
            // done to single marks, and it is eight times as fast.
            unsafe { AtomicU64::from_ptr(eight.as_ptr().cast_mut().cast()) }.load(SeqCst) == 0
        };
        if !marks.chunks_exact(8).all(is_free) {
            self.assert_host_may_discard_pages(area, 0..PAGES as u32);
            panic!("the guest has had a page of area {area} that would be discarded");
        }
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
