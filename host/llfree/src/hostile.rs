//! How long a guest can keep the host at it that answers every question as it likes. What counts is accesses, which a
//! busy machine does not change.

use crate::{
    area_set::{AreaSet, TreeIndex},
    layout::{AREA_WORDS, TREE_AREAS},
    memory::Memory,
    zone::{Free, Zone},
};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng},
};
use std::cell::{Cell, RefCell};

/// A state in which nothing is what it was a moment ago.
struct Liar<'a> {
    areas: u32,
    random: RefCell<TestRng>,
    /// Of 16 changes, so many succeed.
    willing: u32,
    accesses: &'a Cell<u32>,
}

impl Liar<'_> {
    fn any(&self) -> u32 {
        self.accesses.set(self.accesses.get() + 1);
        self.random.borrow_mut().next_u32()
    }

    fn agrees(&self) -> bool {
        self.any() % 16 < self.willing
    }
}

impl Memory for Liar<'_> {
    fn areas(&self) -> u32 {
        self.areas
    }

    fn area(&self, area: u32) -> u16 {
        assert!(area < self.areas);
        let number = self.any();
        // Mostly what there is something to do about.
        let likely = [512, 0x0a00, 0x0c00, 0x1000 | 256, 256, 511];
        if number.is_multiple_of(4) {
            (number >> 16) as u16
        } else {
            likely[(number >> 8) as usize % 6]
        }
    }

    fn replace_area(&self, area: u32, _: u16, _: u16) -> bool {
        assert!(area < self.areas);
        self.agrees()
    }

    fn replace_four(&self, first: u32, _: [u16; 4], _: [u16; 4]) -> bool {
        assert!(first.is_multiple_of(4) && first + 3 < self.areas);
        self.agrees()
    }

    fn clear_area(&self, area: u32, _: u16) {
        assert!(area < self.areas);
        self.any();
    }

    fn word(&self, area: u32, number: u32) -> u64 {
        assert!(area < self.areas && number < AREA_WORDS);
        // The same now and then, so that two looks agree.
        [0, u64::MAX][self.agrees() as usize]
    }

    fn tree(&self, tree: TreeIndex) -> u32 {
        assert!(tree.0 < self.areas.div_ceil(TREE_AREAS));
        self.any()
    }

    fn replace_tree(&self, tree: TreeIndex, _: u32, _: u32) -> Result<(), u32> {
        assert!(tree.0 < self.areas.div_ceil(TREE_AREAS));
        let seen = self.any();
        if self.agrees() { Ok(()) } else { Err(seen) }
    }

    fn add_to_tree(&self, _: TreeIndex, _: u32) -> u32 {
        self.any()
    }

    fn clear_tree(&self, _: TreeIndex, _: u32) {
        self.any();
    }

    fn epoch(&self) -> u32 {
        self.any()
    }

    fn set_epoch(&self, _: u32) {
        self.any();
    }

    fn set_held(&self, _: u32) {
        self.any();
    }

    fn reserve(&self) -> u32 {
        self.any()
    }

    fn starved(&self) -> u32 {
        self.any()
    }

    fn want(&self) -> u32 {
        self.any()
    }

    fn doom(&self) -> u32 {
        self.any()
    }

    fn set_condemned(&self, _: u32) {
        self.any();
    }
}

proptest! {
    /// What a call takes is bounded by the size of the zone, whatever the guest does meanwhile.
    #[test]
    fn no_guest_keeps_the_host_at_it(areas in 1..200_u32, seed: [u8; 32], willing in 0..=16_u32) {
        let accesses = Cell::new(0);
        let random = RefCell::new(TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let took = || accesses.replace(0);
        let (mut zone, held) =
            Zone::adopt(Liar { areas, random, willing, accesses: &accesses });
        let trees = areas.div_ceil(TREE_AREAS);
        prop_assert!(took() <= 2 + trees * 28);
        zone.settle(held.iter().map(|(_, areas)| areas.len()).sum());
        prop_assert!(took() <= 2);
        zone.spare_areas();
        prop_assert!(took() <= trees + 1);
        zone.condemn();
        prop_assert!(took() <= 2);
        zone.starved();
        zone.wanted_areas();
        prop_assert!(took() <= 2);
        let hand = zone.hand();
        prop_assert!(took() <= 1);
        for tree in (0..trees).map(TreeIndex) {
            let free = hand.free_areas(tree);
            prop_assert!(took() <= TREE_AREAS);
            let taken = hand.take(tree, free);
            prop_assert!(taken.without(free.areas).is_empty());
            // One look, 64 tries of two questions each; then each area, four at a time first.
            prop_assert!(took() <= 1 + 64 * 2 + 2 + TREE_AREAS + 1);
            let broken = hand.give(tree, taken);
            prop_assert!(broken.without(taken).is_empty());
            prop_assert!(took() <= 2 + TREE_AREAS + 2);
            hand.isolate(tree, 0);
            prop_assert!(took() <= 4 * (2 + 2 * AREA_WORDS));
            hand.release(tree, AreaSet::first(1));
            prop_assert!(took() <= 1);
            prop_assert_eq!(hand.take(tree, Free::default()), AreaSet::EMPTY);
            took();
        }
        drop(hand);
        prop_assert!(took() <= 1);
    }
}
