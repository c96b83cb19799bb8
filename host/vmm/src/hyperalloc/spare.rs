//! How much the guest can do without.

use squeezy_llfree::{Free, TREE_AREAS, TreeIndex};
use std::iter::Peekable;

/// How often the guest is asked in one reclaim what it can spare. Each time takes a look at all trees.
const MOST_ASKS: u32 = 128;

/// What a guest can spare while areas are in hand, or for good: nobody who needs memory must find too little of it.
#[derive(Debug)]
pub(super) struct Spare {
    /// For how many areas an answer holds at least, where a batch is smaller. It may need more by then, but all answers
    /// together must take no longer than the reclaim itself.
    answer_for: u32,
    /// Areas that are left of its last answer.
    left: u32,
    asks_left: u32,
}

impl Spare {
    /// Of a zone with so many trees.
    pub(super) fn of_trees(trees: usize) -> Self {
        let answer_for = u32::try_from(trees).unwrap_or(u32::MAX).div_ceil(64 / TREE_AREAS);
        Self { answer_for, left: 0, asks_left: MOST_ASKS }
    }

    /// The areas that are next, of trees that have some each: at most so many, and no more than the guest can spare,
    /// which `ask` says. None, once it has been asked too often.
    pub(super) fn next(
        &mut self,
        trees: &mut Peekable<impl Iterator<Item = (TreeIndex, Free)>>,
        most: u32,
        ask: impl FnOnce() -> u32,
    ) -> Vec<(TreeIndex, Free)> {
        let most = self.room(most, ask);
        let mut left = most;
        // Each tree has an area at least.
        let most_trees = trees.size_hint().1.unwrap_or(0).min(most as usize);
        let mut next = Vec::with_capacity(most_trees);
        while left > 0 {
            // Only the first one is taken in part, and the rest of it left out.
            let fits = |(_, free): &(_, Free)| left == most || free.areas.len() <= left;
            let Some((tree, free)) = trees.next_if(fits) else { break };
            let free = free.of(free.areas.lowest(left));
            left -= free.areas.len();
            next.push((tree, free));
        }
        self.left -= most - left;
        next
    }

    /// How many areas can be taken now, of so many.
    fn room(&mut self, most: u32, ask: impl FnOnce() -> u32) -> u32 {
        if self.left < TREE_AREAS && self.asks_left > 0 {
            self.asks_left -= 1;
            self.left = ask().min(self.answer_for.max(most));
        }
        self.left.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hyperalloc::pace::MOST_AREAS;
    use proptest::prelude::*;
    use squeezy_llfree::AreaSet;

    /// Takes all areas that a guest lets it, so many at a time, of trees that have so many each. Returns how many that
    /// were and how often it was asked.
    fn take(trees: u32, of_each: u32, most: u32, spare: impl Fn() -> u32) -> (u32, u32) {
        let free = Free { areas: AreaSet::first(of_each), evicted: AreaSet::EMPTY };
        let mut left = (0..trees).map(|tree| (TreeIndex(tree), free)).peekable();
        let mut room = Spare::of_trees(trees as usize);
        let (mut taken, mut asks) = (0, 0);
        loop {
            let next = room.next(&mut left, most, || {
                asks += 1;
                spare()
            });
            if next.is_empty() {
                return (taken, asks);
            }
            let areas: u32 = next.iter().map(|(_, free)| free.areas.len()).sum();
            assert!(areas <= most, "{areas} in hand");
            taken += areas;
        }
    }

    #[test]
    fn a_guest_that_can_spare_everything_is_reclaimed_as_a_whole() {
        // 16 MiB to 16 TiB.
        for trees in (0..=20).map(|shift| 1 << shift) {
            for (of_each, most) in [(8, 8), (8, MOST_AREAS), (5, 8), (1, 32)] {
                let (taken, asks) = take(trees, of_each, most, || u32::MAX);
                assert_eq!(taken, trees * of_each, "{most} at a time: {asks} asks");
            }
        }
    }

    #[test]
    fn a_guest_that_can_spare_nothing_is_not_asked_again() {
        assert_eq!(take(512, 8, 32, || 0), (0, 1));
    }

    #[test]
    fn a_guest_is_asked_before_each_batch_unless_it_is_a_small_part_of_all() {
        // The last time, nothing is left.
        assert_eq!(take(64, 8, 32, || u32::MAX), (512, 16 + 1));
        assert_eq!(take(4096, 8, 32, || u32::MAX), (32768, 64 + 1));
    }

    #[test]
    fn a_tree_is_taken_in_part_only_if_not_even_one_can_be_spared() {
        assert_eq!(take(1, 8, 32, || 3).0, 3);
        let free = Free { areas: AreaSet::first(8), evicted: AreaSet(0b10) };
        let mut trees = (0..3).map(|tree| (TreeIndex(tree), free)).peekable();
        let mut spare = Spare::of_trees(3);
        assert_eq!(spare.next(&mut trees, 15, || 100), [(TreeIndex(0), free)]);
        let lowest = free.of(AreaSet::first(3));
        assert_eq!(spare.next(&mut trees, 3, || 100), [(TreeIndex(1), lowest)]);
        assert_eq!(spare.next(&mut trees, 100, || 8), [(TreeIndex(2), free)]);
        assert_eq!(spare.next(&mut trees, 100, || 100), []);
    }

    proptest! {
        #[test]
        fn no_guest_is_asked_without_end(
            trees in 1..1_u32 << 16,
            of_each in 1..=8_u32,
            most in 8..=MOST_AREAS,
            answer: u32,
            shift in 0..32,
        ) {
            let (_, asks) = take(trees, of_each, most, || answer >> shift);
            prop_assert!(asks <= MOST_ASKS, "{asks}");
        }
    }
}
