//! The allocator of the guest.

use crate::state::State;
use std::ffi::{c_int, c_long, c_uint, c_void};

/// What pages are for; `enum llfree_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Type {
    /// Pages that stay.
    Unmovable,
    /// Pages that can move.
    Movable,
    /// Whole areas.
    Huge,
}

#[repr(C)]
struct Zone {
    private: [u8; 0],
}

unsafe extern "C" {
    fn llfree_test_zone(state: *mut c_void, bytes: u64, areas: u32, init: bool) -> *mut Zone;
    fn llfree_test_forget(zone: *mut Zone);
    fn llfree_state_bytes(areas: u32) -> u64;
    fn llfree_test_get(zone: *mut Zone, order: c_uint, of: Type, evicted: *mut bool) -> c_long;
    fn llfree_put(zone: *mut Zone, page: u64, order: c_uint) -> c_int;
    fn llfree_has(zone: *const Zone, order: c_uint) -> bool;
    fn llfree_free_pages(zone: *const Zone) -> u64;
    fn llfree_unused_pages(zone: *const Zone) -> u64;
    fn llfree_get_page(zone: *mut Zone, page: u64) -> bool;
    fn llfree_is_free(zone: *const Zone, page: u64) -> bool;
    fn llfree_look_for(zone: *const Zone, order: c_uint) -> bool;
    fn llfree_get_beside(zone: *mut Zone, source: u32, order: c_uint) -> c_long;
    fn llfree_count_blocks(zone: *const Zone, blocks: *mut u64);
    fn llfree_doom(zone: *mut Zone);
    fn llfree_undoom(zone: *mut Zone) -> bool;
    fn llfree_forget_doom(zone: *mut Zone);
}

/// The guest's side of a [`State`]; its processors may all use it at once.
#[derive(Debug)]
pub struct Guest<'a> {
    zone: *mut Zone,
    state: &'a State,
}

// SAFETY: the allocator is made to be used by several processors at once, and accesses shared numbers atomically.
unsafe impl Send for Guest<'_> {}
// SAFETY: as above.
unsafe impl Sync for Guest<'_> {}

/// Bytes of the state of a zone with so many areas, as the guest has it.
pub fn state_bytes(areas: u32) -> u64 {
    // SAFETY: it only computes.
    unsafe { llfree_state_bytes(areas) }
}

/// Pages that the guest has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first.
    pub page: u64,
    /// There are 2 to the power of this.
    pub order: u32,
    /// Whether the host had nothing behind some of them.
    pub evicted: bool,
}

impl<'a> Guest<'a> {
    /// A guest that boots: all its memory is allocated, and then freed.
    pub fn boot(state: &'a State) -> Self {
        let guest = Self::new(state, true);
        for area in 0..state.areas() {
            assert!(guest.put(u64::from(area) * 512, 9), "area {area}");
        }
        guest
    }

    /// Another view of a state that has been booted.
    pub fn attach(state: &'a State) -> Self {
        Self::new(state, false)
    }

    fn new(state: &'a State, init: bool) -> Self {
        let (base, bytes) = state.memory();
        // SAFETY: so many bytes are mapped there, for as long as the state is borrowed.
        let zone = unsafe { llfree_test_zone(base.as_ptr().cast(), bytes, state.areas(), init) };
        Self { zone, state }
    }

    /// Allocates 2 to the power of `order` pages. Panics if they are anybody's.
    pub fn get(&self, order: u32, of: Type) -> Option<Block> {
        let mut evicted = false;
        // SAFETY: the zone is there, and the allocator believes nothing else.
        let page = unsafe { llfree_test_get(self.zone, order, of, &mut evicted) };
        let page = u64::try_from(page).ok()?;
        assert_eq!(page % (1 << order), 0, "page {page} of order {order} is not aligned");
        self.state.owners().take(page, 1 << order);
        Some(Block { page, order, evicted })
    }

    /// Frees pages that were allocated.
    pub fn free(&self, block: Block) {
        self.free_part(block.page, block.order);
    }

    /// Frees a part of what was allocated.
    pub fn free_part(&self, page: u64, order: u32) {
        self.state.owners().leave(page, 1 << order);
        assert!(self.put(page, order), "page {page} of order {order} cannot be freed");
    }

    /// Frees pages whether they are allocated or not; whether that was right.
    pub fn put(&self, page: u64, order: u32) -> bool {
        // SAFETY: as for `get`.
        unsafe { llfree_put(self.zone, page, order) == 0 }
    }

    /// Whether so many pages can be had, as far as the allocator knows.
    pub fn has(&self, order: u32) -> bool {
        // SAFETY: as for `get`.
        unsafe { llfree_has(self.zone, order) }
    }

    /// Whether so many pages are free in a row.
    pub fn look_for(&self, order: u32) -> bool {
        // SAFETY: as for `get`.
        unsafe { llfree_look_for(self.zone, order) }
    }

    /// How many pages are free.
    pub fn free_pages(&self) -> u64 {
        // SAFETY: as for `get`.
        unsafe { llfree_free_pages(self.zone) }
    }

    /// How many pages are nobody's in the guest: those that the host has are.
    pub fn unused_pages(&self) -> u64 {
        // SAFETY: as for `get`.
        unsafe { llfree_unused_pages(self.zone) }
    }

    /// Allocates pages to empty this area into.
    pub fn get_beside(&self, source: u32, order: u32) -> Option<Block> {
        // SAFETY: as for `get`.
        let page = unsafe { llfree_get_beside(self.zone, source, order) };
        let page = u64::try_from(page).ok()?;
        assert_ne!(page / 512, u64::from(source), "page {page} is where others are to leave");
        self.state.owners().take(page, 1 << order);
        Some(Block { page, order, evicted: false })
    }

    /// How many free blocks of each order there are.
    pub fn blocks(&self) -> [u64; 11] {
        let mut blocks = [0; 11];
        // SAFETY: as for `get`; there are as many numbers.
        unsafe { llfree_count_blocks(self.zone, blocks.as_mut_ptr()) };
        blocks
    }

    /// Allocates a certain page, if it is free.
    pub fn get_page(&self, page: u64) -> Option<Block> {
        // SAFETY: as for `get`.
        unsafe { llfree_get_page(self.zone, page) }.then(|| {
            self.state.owners().take(page, 1);
            Block { page, order: 0, evicted: false }
        })
    }

    /// Whether a page is free.
    pub fn is_free(&self, page: u64) -> bool {
        // SAFETY: as for `get`.
        unsafe { llfree_is_free(self.zone, page) }
    }

    /// Lets the host discard everything.
    pub fn doom(&self) {
        // SAFETY: the zone is there.
        unsafe { llfree_doom(self.zone) }
    }

    /// Lets it no more; false if it has done so already.
    pub fn undoom(&self) -> bool {
        // SAFETY: as for `doom`.
        unsafe { llfree_undoom(self.zone) }
    }

    /// Lets it no more, whether it has done so or not.
    pub fn forget_doom(&self) {
        // SAFETY: as for `doom`.
        unsafe { llfree_forget_doom(self.zone) }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        // SAFETY: it is not used any more.
        unsafe { llfree_test_forget(self.zone) }
    }
}
