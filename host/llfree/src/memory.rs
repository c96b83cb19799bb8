//! The state as atomic numbers.

use crate::{
    area_set::TreeIndex,
    layout::{AREA_WORDS, GUEST_LINE, ZoneLayout},
    mapping::Mapping,
};
use std::sync::{
    Arc,
    atomic::{
        AtomicU16, AtomicU32, AtomicU64,
        Ordering::{Acquire, Release, SeqCst},
    },
};

/// What the host does to the state of one zone. The guest does the same at the same time; every change is a full
/// barrier, as it is on the guest's side.
///
/// Implementations panic on an index that the zone does not have: indexes come from here, never from the guest.
pub trait Memory {
    /// How many areas the zone has.
    fn areas(&self) -> u32;
    /// An area's entry.
    fn area(&self, area: u32) -> u16;
    /// Replaces an area's entry if it is `old`; whether it was.
    fn replace_area(&self, area: u32, old: u16, new: u16) -> bool;
    /// Replaces the entries of four areas in one step, from one on whose number is a multiple of four; whether all were
    /// as in `old`.
    fn replace_four(&self, first: u32, old: [u16; 4], new: [u16; 4]) -> bool;
    /// Clears bits of an area's entry.
    fn clear_area(&self, area: u32, bits: u16);
    /// A word of an area's bits, of which there are eight.
    fn word(&self, area: u32, number: u32) -> u64;
    /// A tree's entry.
    fn tree(&self, tree: TreeIndex) -> u32;
    /// Replaces a tree's entry if it is `old`; what it was, if it was not.
    fn replace_tree(&self, tree: TreeIndex, old: u32, new: u32) -> Result<(), u32>;
    /// Adds to a tree's entry, modulo 2^32; what it was.
    fn add_to_tree(&self, tree: TreeIndex, difference: u32) -> u32;
    /// Clears bits of a tree's entry.
    fn clear_tree(&self, tree: TreeIndex, bits: u32);
    /// The epoch, which this side alone writes.
    fn epoch(&self) -> u32;
    /// Sets the epoch.
    fn set_epoch(&self, epoch: u32);
    /// Says how many areas the host keeps.
    fn set_held(&self, areas: u32);
    /// How many pages the guest needs free, as far as it says.
    fn reserve(&self) -> u32;
    /// How often the guest was about to kill for want of memory while the host kept areas.
    fn starved(&self) -> u32;
    /// How many areas it asked for when it last was.
    fn want(&self) -> u32;
    /// Odd if the guest lets the host discard all memory of the zone.
    fn doom(&self) -> u32;
    /// Says at which [`Memory::doom`] the host has discarded it.
    fn set_condemned(&self, doom: u32);
}

/// The state of a zone in memory that is shared with the guest. Whoever else accesses it may do whatever they like.
///
/// What is done for each area or tree is inlined into the crates that use a zone, which takes an attribute: a call
/// takes as long as what it does.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Arc<Mapping>,
    layout: ZoneLayout,
}

impl SharedMemory {
    /// The zone of that layout in the state that the mapping is of. Panics if it is not mapped as a whole.
    pub fn new(mapping: Arc<Mapping>, layout: ZoneLayout) -> Self {
        assert!(layout.end <= mapping.bytes(), "the zone's state is not mapped");
        Self { mapping, layout }
    }

    fn base(&self) -> *mut u8 {
        self.mapping.base().as_ptr()
    }

    #[inline]
    fn area_atomic(&self, area: u32) -> &AtomicU16 {
        assert!(area < self.layout.areas, "there is no area {area}");
        // SAFETY: it is within the layout, so mapped, and aligned to 2. No reference to it is ever made that is not
        // to an atomic.
        unsafe {
            AtomicU16::from_ptr(
                self.base().add(self.layout.area as usize + area as usize * 2).cast(),
            )
        }
    }

    #[inline]
    fn tree_atomic(&self, TreeIndex(tree): TreeIndex) -> &AtomicU32 {
        assert!(tree < self.layout.trees(), "there is no tree {tree}");
        self.atomic(self.layout.tree + u64::from(tree) * 4)
    }

    /// The number at an offset within the layout that is a multiple of 4.
    fn atomic(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: as for areas; all callers pass offsets of the layout.
        unsafe { AtomicU32::from_ptr(self.base().add(offset as usize).cast()) }
    }
}

impl Memory for SharedMemory {
    fn areas(&self) -> u32 {
        self.layout.areas
    }

    #[inline]
    fn area(&self, area: u32) -> u16 {
        self.area_atomic(area).load(Acquire)
    }

    #[inline]
    fn replace_area(&self, area: u32, old: u16, new: u16) -> bool {
        self.area_atomic(area).compare_exchange(old, new, SeqCst, Acquire).is_ok()
    }

    #[inline]
    fn replace_four(&self, first: u32, old: [u16; 4], new: [u16; 4]) -> bool {
        assert!(first.is_multiple_of(4) && first + 4 <= self.layout.areas, "there is no {first}");
        // The first one has the lowest bits, as in memory.
        let word = |entries: [u16; 4]| {
            entries.iter().rev().fold(0, |word, &entry| word << 16 | u64::from(entry))
        };
        let offset = self.layout.area + u64::from(first) * 2;
        // SAFETY: they are within the layout, and aligned to 8 as the array is to 64. The guest changes them by two
        // and four bytes at a time, which on x86 is atomic beside this.
        let four = unsafe { AtomicU64::from_ptr(self.base().add(offset as usize).cast()) };
        four.compare_exchange(word(old), word(new), SeqCst, Acquire).is_ok()
    }

    fn clear_area(&self, area: u32, bits: u16) {
        self.area_atomic(area).fetch_and(!bits, SeqCst);
    }

    fn word(&self, area: u32, number: u32) -> u64 {
        assert!(area < self.layout.areas && number < AREA_WORDS, "there is no word {number}");
        let offset = self.layout.bits + u64::from(area * AREA_WORDS + number) * 8;
        // SAFETY: as for areas.
        unsafe { AtomicU64::from_ptr(self.base().add(offset as usize).cast()) }.load(Acquire)
    }

    #[inline]
    fn tree(&self, tree: TreeIndex) -> u32 {
        self.tree_atomic(tree).load(Acquire)
    }

    #[inline]
    fn replace_tree(&self, tree: TreeIndex, old: u32, new: u32) -> Result<(), u32> {
        self.tree_atomic(tree).compare_exchange(old, new, SeqCst, Acquire).map(|_| ())
    }

    #[inline]
    fn add_to_tree(&self, tree: TreeIndex, difference: u32) -> u32 {
        self.tree_atomic(tree).fetch_add(difference, SeqCst)
    }

    fn clear_tree(&self, tree: TreeIndex, bits: u32) {
        self.tree_atomic(tree).fetch_and(!bits, SeqCst);
    }

    fn epoch(&self) -> u32 {
        self.atomic(self.layout.live + 4).load(Acquire)
    }

    /// A full barrier: that something is in hand is to be seen before any of it is taken.
    fn set_epoch(&self, epoch: u32) {
        self.atomic(self.layout.live + 4).swap(epoch, SeqCst);
    }

    fn set_held(&self, areas: u32) {
        self.atomic(self.layout.live).store(areas, Release);
    }

    fn reserve(&self) -> u32 {
        self.atomic(self.layout.live + GUEST_LINE + 4).load(Acquire)
    }

    fn starved(&self) -> u32 {
        self.atomic(self.layout.live + GUEST_LINE).load(Acquire)
    }

    fn want(&self) -> u32 {
        self.atomic(self.layout.live + GUEST_LINE + 8).load(Acquire)
    }

    fn doom(&self) -> u32 {
        self.atomic(self.layout.live + GUEST_LINE + 12).load(Acquire)
    }

    fn set_condemned(&self, doom: u32) {
        self.atomic(self.layout.live + 8).store(doom, Release);
    }
}
