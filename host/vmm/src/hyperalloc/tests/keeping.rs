//! What the host keeps, and what it cannot discard, of a guest that keeps the rules.

use super::{GIB, Guest, MIB, USABLE_BYTES, ZONE_AREAS};
use crate::{
    host_memory::{FilePart, MemoryPiece},
    hyperalloc::{Grain, LockedZone, zone_memory::Discarded},
};
use squeezy_llfree::{AREA_BYTES, AreaSet, TreeIndex};
use std::{
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// Entries of areas; `docs/abi.md` has them.
const FREE: u16 = 512;
const FREE_EVICTED: u16 = 0x0800 | 512;
const HOST: u16 = 0x0c00;
const ISOLATED: u16 = 0x1000;
/// The areas of the first zone that are memory as a whole, and do not have the state in them.
const USABLE: [u32; 3] = [0, 2, 3];

impl Guest {
    /// All pages of both zones are free.
    pub(crate) fn boot(&self) {
        for layout in self.layouts {
            (0..ZONE_AREAS).for_each(|area| self.set_area(layout.area, area, FREE));
            for tree in 0..ZONE_AREAS / 8 {
                self.write(layout.tree + u64::from(tree) * 4, &4096_u32.to_le_bytes());
            }
        }
    }

    fn set_area(&self, offset: u64, area: u32, entry: u16) {
        self.write(offset + u64::from(area) * 2, &entry.to_le_bytes());
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        self.file(&self.memory.base[0]).write_all_at(bytes, super::STATE + offset).unwrap();
    }

    fn number<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file(&self.memory.base[0]).read_exact_at(&mut bytes, super::STATE + offset).unwrap();
        bytes
    }

    pub(super) fn u32(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.number(offset))
    }

    fn area(&self, zone: usize, area: u32) -> u16 {
        u16::from_le_bytes(self.number(self.layouts[zone].area + u64::from(area) * 2))
    }

    /// How many areas the host says that it keeps of the first zone.
    pub(super) fn held(&self) -> u32 {
        self.u32(self.layouts[0].live)
    }

    /// How many free pages of a zone are in areas that are isolated.
    fn isolated(&self, zone: usize) -> u32 {
        let areas = (0..ZONE_AREAS).map(|area| self.area(zone, area));
        areas.filter(|entry| entry & ISOLATED != 0).map(|entry| u32::from(entry & 0x3ff)).sum()
    }

    /// Says how many pages the guest needs free of the first zone.
    pub(super) fn set_reserve(&self, pages: u32) {
        self.write(self.layouts[0].live + 64 + 4, &pages.to_le_bytes());
    }

    /// The pages that the trees of a zone count, and how many areas the host has counted out.
    pub(super) fn counted(&self, zone: usize) -> (u32, u32) {
        let trees =
            (0..ZONE_AREAS / 8).map(|tree| self.u32(self.layouts[zone].tree + u64::from(tree) * 4));
        trees.fold((0, 0), |(pages, held), entry| {
            (pages + (entry & 0xffff), held + (entry >> 19 & 0xff).count_ones())
        })
    }

    /// Bytes of the host's memory behind what can be discarded of the first zone.
    pub(super) fn usable_resident(&self) -> u64 {
        let resident = |area: &u32| {
            let start = super::ZONE_STARTS[0] + u64::from(*area) * 2 * MIB;
            let piece = self.memory.at(&(start..start + 2 * MIB)).unwrap();
            piece.resident(std::process::id()).unwrap().resident_bytes
        };
        USABLE.iter().map(resident).sum()
    }

    /// Does this before anything is discarded of the memory that it has booted with (0) or of its region (1). Returns
    /// how often that was.
    pub(super) fn on_discard(
        self: &Arc<Self>,
        piece: usize,
        act: impl Fn(&Self) + Send + Sync + 'static,
    ) -> Arc<AtomicU32> {
        let count = Arc::new(AtomicU32::new(0));
        let (counted, guest) = (count.clone(), Arc::downgrade(self));
        let file = &self.memory.pieces().nth(piece).unwrap().file.as_ref().unwrap().file;
        file.before_discard.set(move || {
            counted.fetch_add(1, Relaxed);
            act(&guest.upgrade().unwrap());
        });
        count
    }

    /// One page of each area is in use, in both zones.
    pub(super) fn use_a_page_of_each_area(&self) {
        for layout in self.layouts {
            for area in 0..ZONE_AREAS {
                self.write(layout.bits + u64::from(area) * 64, &1_u64.to_le_bytes());
                self.set_area(layout.area, area, FREE - 1);
            }
            for tree in 0..ZONE_AREAS / 8 {
                self.write(layout.tree + u64::from(tree) * 4, &(4096_u32 - 8).to_le_bytes());
            }
        }
    }

    /// The same guest, but the host cannot discard anything of it.
    fn whose_memory_stays(mut self) -> Self {
        let stuck = |piece: &MemoryPiece| {
            let FilePart { file, start } = piece.file.as_ref().unwrap();
            let file = Arc::new(file.read_only().unwrap());
            MemoryPiece { file: Some(FilePart { file, start: *start }), ..piece.clone() }
        };
        let base = &self.memory.base[0];
        let with_state = super::STATE..super::STATE + 2 * MIB;
        let before = base.part(&(0..with_state.start)).unwrap();
        let behind = base.part(&(with_state.end..super::BASE_BYTES)).unwrap();
        let state = base.part(&with_state).unwrap();
        self.memory.base = vec![stuck(&before), state, stuck(&behind)];
        self.memory.regions = self.memory.regions.iter().map(stuck).collect();
        self
    }
}

#[test]
fn what_the_host_keeps_is_taken_again_from_a_guest_that_uses_it() {
    let guest = Guest::new();
    guest.boot();
    let reclaimer = guest.reclaimer();
    reclaimer.hold(USABLE_BYTES).unwrap();
    assert_eq!((reclaimer.held_bytes(), guest.held()), (USABLE_BYTES, 3));
    assert_eq!(guest.counted(0), ((ZONE_AREAS - 3) * 512, 3));
    assert_eq!((guest.usable_resident(), reclaimer.enforce().unwrap().bytes), (0, 0));

    let (first, last) = (super::ZONE_STARTS[0], super::ZONE_STARTS[0] + 8 * MIB - 4096);
    for page in [first, last] {
        guest.file(&guest.memory.base[0]).write_all_at(&[1; 4096], page).unwrap();
    }
    // The guest's word does not count.
    guest.write(guest.layouts[0].live, &0_u32.to_le_bytes());
    guest.set_area(guest.layouts[0].area, 3, 0);
    assert_eq!((guest.usable_resident(), reclaimer.enforce().unwrap().bytes), (8192, 8192));
    assert_eq!((guest.usable_resident(), reclaimer.enforce().unwrap().bytes), (0, 0));
    assert_eq!(reclaimer.held_bytes(), USABLE_BYTES);

    // What it has made something else of is lost to it.
    reclaimer.hold(0).unwrap();
    assert_eq!((reclaimer.held_bytes(), guest.held()), (0, 0));
    assert_eq!(guest.counted(0), ((ZONE_AREAS - 1) * 512, 0));
    assert_eq!([0, 2, 3].map(|area| guest.area(0, area)), [FREE_EVICTED, FREE_EVICTED, 0]);
    guest.assert_rest_is_whole();
}

#[test]
fn who_takes_over_keeps_what_was_kept_and_discards_it_again() {
    let guest = Guest::new();
    guest.boot();
    guest.reclaimer().hold(USABLE_BYTES).unwrap();
    guest.fill();
    // The one before was killed while it had an area of a partition in hand.
    let partition = guest.layouts[1];
    guest.set_area(partition.area, 9, HOST);
    guest.write(partition.tree + 4, &((4096 - 512) | (1_u32 << (19 + 1))).to_le_bytes());
    guest.write(partition.live + 4, &5_u32.to_le_bytes());

    let reclaimer = guest.reclaimer();
    assert_eq!((reclaimer.held_bytes(), guest.usable_resident()), (USABLE_BYTES, 0));
    assert_eq!(guest.counted(0), ((ZONE_AREAS - 3) * 512, 3));
    assert_eq!((guest.area(1, 9), guest.counted(1)), (FREE_EVICTED, (ZONE_AREAS * 512, 0)));
    assert_eq!(guest.u32(partition.live + 4) % 2, 0, "nothing is in hand");
    let area = guest.memory.at(&(GIB + 18 * MIB..GIB + 20 * MIB)).unwrap();
    assert_eq!(area.resident(std::process::id()).unwrap().resident_bytes, 0);
    reclaimer.hold(0).unwrap();
    assert_eq!(guest.counted(0), (ZONE_AREAS * 512, 0));
}

/// What a guest says that the host keeps, the host has to be able to take.
#[test]
fn who_takes_over_keeps_nothing_that_is_no_memory() {
    let guest = Guest::new();
    guest.boot();
    // All of its areas, also that with the state and those beyond the end of memory.
    for tree in 0..ZONE_AREAS / 8 {
        (0..8).for_each(|area| guest.set_area(guest.layouts[0].area, tree * 8 + area, HOST));
        let offset = guest.layouts[0].tree + u64::from(tree) * 4;
        guest.write(offset, &(0xff_u32 << 19).to_le_bytes());
    }
    let reclaimer = guest.reclaimer();
    assert_eq!((reclaimer.held_bytes(), guest.held()), (USABLE_BYTES, 3));
    assert_eq!(guest.counted(0), ((ZONE_AREAS - 3) * 512, 3));
    guest.assert_rest_is_whole();
}

/// It may need more at any time, and what is kept is gone for longer than what is in hand.
#[test]
fn what_the_guest_needs_is_asked_again_while_the_host_takes_what_it_keeps() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    // They are taken after the rest.
    [2, 3].iter().for_each(|&area| guest.set_area(guest.layouts[0].area, area, FREE_EVICTED));
    guest.on_discard(0, |guest| guest.set_reserve(u32::MAX));
    let reclaimer = guest.reclaimer();
    reclaimer.hold(USABLE_BYTES).unwrap();
    assert_eq!((reclaimer.held_bytes(), guest.held()), (2 * MIB, 1));
}

/// The guest's kernel has read past the end of an area, say.
#[test]
fn what_is_behind_evicted_areas_goes_with_single_pages() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    USABLE.iter().for_each(|&area| guest.set_area(guest.layouts[0].area, area, FREE_EVICTED));
    let discards = guest.on_discard(0, |_| {});
    let reclaimer = guest.reclaimer();
    let take = |grain| reclaimer.take(&(0..GIB), grain).unwrap().bytes;
    assert_eq!((take(Grain::Area), discards.load(Relaxed)), (0, 0));
    assert_eq!((take(Grain::Page), guest.usable_resident()), (USABLE_BYTES, 0));
    assert_eq!(guest.counted(0), (ZONE_AREAS * 512, 0));
    assert!(USABLE.iter().all(|&area| guest.area(0, area) == FREE_EVICTED));
    // What has nothing behind it is not even in hand.
    let (epoch, before) = (guest.u32(guest.layouts[0].live + 4), discards.load(Relaxed));
    assert_eq!((take(Grain::Page), discards.load(Relaxed)), (0, before));
    assert_eq!(guest.u32(guest.layouts[0].live + 4), epoch);
}

/// What is found later in what is kept, the guest has used: it is ended for that.
#[test]
fn what_only_the_guest_says_to_be_evicted_is_discarded_too() {
    let guest = Guest::new();
    guest.boot();
    USABLE.iter().for_each(|&area| guest.set_area(guest.layouts[0].area, area, FREE_EVICTED));
    let reclaimer = guest.reclaimer();
    reclaimer.hold(USABLE_BYTES).unwrap();
    assert_eq!((reclaimer.held_bytes(), guest.usable_resident()), (USABLE_BYTES, 0));
    assert_eq!(reclaimer.enforce().unwrap().pieces, 0);
}

/// The host has to discard the rest a little at a time, and of these nothing.
#[test]
fn what_has_nothing_behind_it_is_taken_at_once_however_slow_the_host_is() {
    let guest = Guest::new();
    guest.boot();
    (0..ZONE_AREAS).for_each(|area| guest.set_area(guest.layouts[1].area, area, FREE_EVICTED));
    let reclaimer = guest.reclaimer();
    let mut zone = reclaimer.zones.iter().find(|zone| zone.is_partition()).unwrap().work();
    zone.pace.learn(Discarded { bytes: AREA_BYTES, took: Duration::from_secs(1) });
    assert!(zone.pace.areas() < ZONE_AREAS);
    // It is odd while there is something in hand.
    let epoch = || guest.u32(guest.layouts[1].live + 4);
    let before = epoch();
    zone.keep_more(ZONE_AREAS).unwrap();
    assert_eq!((guest.counted(1).1, epoch()), (ZONE_AREAS, before + 2));
}

/// It may take seconds, and a guest waits for one at most before it kills somebody.
#[test]
fn who_takes_over_has_nothing_in_hand_while_it_discards_what_was_kept() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    guest.reclaimer().hold(USABLE_BYTES).unwrap();
    guest.fill();
    let discards = guest.on_discard(0, |guest| {
        assert_eq!((guest.u32(guest.layouts[0].live + 4) % 2, guest.held()), (0, 3));
    });
    let reclaimer = guest.reclaimer();
    assert_eq!((reclaimer.held_bytes(), guest.usable_resident()), (USABLE_BYTES, 0));
    assert!(discards.load(Relaxed) > 0);
}

/// The guest must not count on what is kept while the discard is under way.
#[test]
fn the_guest_hears_what_is_kept_before_it_is_discarded() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    let discards = guest.on_discard(0, |guest| assert_eq!(guest.held(), 3));
    guest.reclaimer().hold(USABLE_BYTES).unwrap();
    assert!(discards.load(Relaxed) > 0);
}

/// Whether areas go back at once or are kept: a guest that needs them gets them first.
#[test]
fn what_the_guest_needs_is_never_in_hand() {
    for spare in 0..3 {
        let guest = Arc::new(Guest::new());
        guest.boot();
        guest.set_reserve((ZONE_AREAS - spare) * 512);
        let discards = guest.on_discard(0, move |guest| assert!(guest.counted(0).1 <= spare));
        let reclaimer = guest.reclaimer();
        let taken = reclaimer.take(&(0..GIB), Grain::Area).unwrap();
        assert_eq!((taken.bytes > 0, discards.load(Relaxed) > 0), (spare > 0, spare > 0));
        reclaimer.hold(USABLE_BYTES).unwrap();
        assert_eq!(reclaimer.held_bytes(), u64::from(spare) * 2 * MIB);
    }
}

/// While an area is isolated, all of its free pages look taken to the guest.
#[test]
fn single_pages_that_the_guest_needs_are_not_isolated() {
    /// Of the first tree. The second has no memory, so what it says does not count.
    const FREE_PAGES: u32 = 8 * 511;
    for (spare, areas) in [(0, 0), (510, 0), (511, 3), (FREE_PAGES, 3)] {
        let guest = Arc::new(Guest::new());
        guest.boot();
        guest.use_a_page_of_each_area();
        guest.set_reserve(FREE_PAGES - spare);
        let isolated = guest.on_discard(0, move |guest| assert!(guest.isolated(0) <= spare));
        let taken = guest.reclaimer().take(&(0..GIB), Grain::Page).unwrap();
        assert_eq!((taken.bytes, isolated.load(Relaxed)), (u64::from(areas) * 511 * 4096, areas));
        assert_eq!(guest.isolated(0), 0);
    }
}

/// It may need more at any time.
#[test]
fn what_the_guest_needs_is_asked_before_each_area() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    guest.use_a_page_of_each_area();
    guest.on_discard(0, |guest| guest.set_reserve(u32::MAX));
    let taken = guest.reclaimer().take(&(0..GIB), Grain::Page).unwrap();
    assert_eq!(taken.bytes, 511 * 4096);
}

/// Somebody has failed with areas in hand. Who comes next does not take them for kept.
#[test]
fn what_was_left_in_the_middle_goes_back() {
    let guest = Guest::new();
    guest.boot();
    let reclaimer = guest.reclaimer();
    reclaimer.hold(2 * MIB).unwrap();
    let fails = || {
        let mut zones: Vec<_> = reclaimer.zones.iter().map(LockedZone::work).collect();
        for zone in &mut zones {
            let hand = zone.zone.hand();
            let free = hand.free_areas(TreeIndex(0)).of(AreaSet(0b1100));
            assert_eq!(hand.take(TreeIndex(0), free), free.areas);
        }
        panic!("in the middle of it, as this test wants");
    };
    thread::scope(|scope| scope.spawn(fails).join().unwrap_err());
    assert_eq!((guest.counted(0).1, guest.counted(1).1), (3, 2));

    let partition = super::ZONE_STARTS[1]..super::ZONE_STARTS[1] + 32 * MIB;
    reclaimer.take(&partition, Grain::Area).unwrap();
    assert_eq!(guest.counted(1), (ZONE_AREAS * 512, 0));
    assert_eq!(reclaimer.enforce().unwrap().pieces, 0);
    assert_eq!((reclaimer.held_bytes(), guest.held()), (2 * MIB, 1));
    assert_eq!(guest.counted(0), ((ZONE_AREAS - 1) * 512, 1));
    assert_eq!([0, 2, 3].map(|area| guest.area(0, area)), [HOST, FREE_EVICTED, FREE_EVICTED]);
    assert_eq!(guest.usable_resident(), 0);
}

/// The host may be short of memory itself, which it needs to break up a huge page, say.
#[test]
fn what_cannot_be_discarded_stays_with_the_guest() {
    let guest = Guest::new();
    guest.boot();
    let guest = guest.whose_memory_stays();
    let reclaimer = guest.reclaimer();
    let resident = guest.usable_resident();
    let unchanged = || {
        for zone in 0..2 {
            assert_eq!(guest.counted(zone), (ZONE_AREAS * 512, 0));
            assert!((0..ZONE_AREAS).all(|area| guest.area(zone, area) == FREE));
            assert_eq!(guest.u32(guest.layouts[zone].live + 4) % 2, 0, "nothing is in hand");
        }
        assert_eq!((guest.held(), guest.usable_resident()), (0, resident));
    };
    for _ in 0..2 {
        for grain in [Grain::Area, Grain::Page] {
            let error = reclaimer.take(&(0..u64::MAX), grain).unwrap_err().to_string();
            assert!(error.contains("cannot be given back"), "{error}");
            unchanged();
        }
        reclaimer.hold(USABLE_BYTES).unwrap_err();
        assert_eq!(reclaimer.held_bytes(), 0);
        unchanged();
    }
}
