//! How much may be in hand at a time.

use super::zone::BATCH_AREAS;
use squeezy_llfree::TREE_AREAS;

/// How often the guest is asked in one reclaim what it can spare. Each time takes a look at all trees.
const MOST_ASKS: u32 = 128;

/// What a guest can spare while areas are in hand: nobody who needs memory must find too little of it meanwhile.
#[derive(Debug)]
pub(super) struct Spare {
    /// After how many areas it is asked again: it may need more by then. A part of all areas, so that all answers
    /// together take no longer than the reclaim itself.
    answer_for: u32,
    /// Areas that are left of its last answer.
    left: u32,
    asks_left: u32,
}

impl Spare {
    /// Of a zone with so many trees.
    pub(super) fn of_trees(trees: usize) -> Self {
        let part = u32::try_from(trees).unwrap_or(u32::MAX).div_ceil(64 / TREE_AREAS);
        Self { answer_for: BATCH_AREAS.max(part), left: 0, asks_left: MOST_ASKS }
    }

    /// How many areas may be in hand now. `ask` says how many the guest can spare. None, once it has been asked too
    /// often.
    pub(super) fn batch(&mut self, ask: impl FnOnce() -> u32) -> u32 {
        if self.left < TREE_AREAS && self.asks_left > 0 {
            self.asks_left -= 1;
            self.left = ask().min(self.answer_for);
        }
        self.left.min(BATCH_AREAS)
    }

    /// So many were in hand.
    pub(super) fn were_in_hand(&mut self, areas: u32) {
        self.left = self.left.saturating_sub(areas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes all areas that a guest lets it, and returns how many that were and how often it was asked.
    fn take(areas: u32, spare: impl Fn() -> u32) -> (u32, u32) {
        let (mut taken, mut asks) = (0, 0);
        let mut room = Spare::of_trees(areas.div_ceil(TREE_AREAS) as usize);
        while taken < areas {
            let most = room.batch(|| {
                asks += 1;
                spare()
            });
            if most == 0 {
                break;
            }
            // Trees are not taken in parts if more areas than one are possible.
            let batch = most.min(areas - taken);
            let batch = if batch > TREE_AREAS { batch - TREE_AREAS + 1 } else { batch };
            room.were_in_hand(batch);
            taken += batch;
        }
        (taken, asks)
    }

    #[test]
    fn a_guest_that_can_spare_everything_is_reclaimed_as_a_whole() {
        // 2 MiB to 64 TiB.
        for areas in (0..=25).map(|shift| 1 << shift) {
            let (taken, asks) = take(areas, || areas);
            assert_eq!(taken, areas, "{asks} asks");
        }
    }

    #[test]
    fn a_guest_that_can_spare_nothing_is_not_asked_again() {
        assert_eq!(take(4096, || 0), (0, 1));
    }

    proptest! {
        #[test]
        fn no_guest_is_asked_without_end(areas in 1..1_u32 << 25, answer: u32, shift in 0..32) {
            let (_, asks) = take(areas, || answer >> shift);
            prop_assert!(asks <= MOST_ASKS, "{asks}");
        }
    }
}
