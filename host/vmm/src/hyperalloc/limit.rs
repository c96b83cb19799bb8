//! Areas that the host keeps: the guest has less memory until they are given back (HyperAlloc's hard limit).

use super::{
    zone::{BATCH_AREAS, ReclaimZone},
    zone_memory::TreeAreas,
};
use squeezy_llfree::{AreaSet, TREE_AREAS, TreeIndex};
use std::io;

/// The most areas that are taken at a time that have nothing behind them.
const EVICTED_BATCH_AREAS: u32 = 4096;

/// What the host keeps of a zone.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The areas of each tree.
    trees: Vec<AreaSet>,
    /// How many there are.
    count: u32,
}

impl Kept {
    /// What somebody else has kept.
    pub(super) fn of(trees: usize, held: &[TreeAreas]) -> Self {
        let mut kept = Self { trees: vec![AreaSet::EMPTY; trees], count: 0 };
        held.iter().for_each(|&(tree, areas)| kept.add(tree, areas));
        kept
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// All of them, tree by tree.
    pub(super) fn areas(&self) -> Vec<TreeAreas> {
        let trees = (0..).map(TreeIndex).zip(self.trees.iter().copied());
        trees.filter(|(_, areas)| !areas.is_empty()).collect()
    }

    fn add(&mut self, tree: TreeIndex, areas: AreaSet) {
        self.count += areas.len();
        let kept = &mut self.trees[tree.0 as usize];
        *kept = kept.with_all(areas);
    }

    fn remove(&mut self, tree: TreeIndex, areas: AreaSet) {
        self.count -= areas.len();
        let kept = &mut self.trees[tree.0 as usize];
        *kept = kept.without(areas);
    }
}

impl ReclaimZone {
    /// Keeps up to so many areas more, of those that the guest can spare. Returns how many bytes of the host's memory
    /// were behind them.
    pub(super) fn keep_more(&mut self, count: u32) -> io::Result<u64> {
        let mut left = count.min(self.zone.spare_areas());
        let mut bytes = 0;
        // First what there may be memory of the host's behind: the rest is only a promise to the guest.
        for only_evicted in [false, true] {
            // Nothing is discarded of what is evicted, so the guest does not miss it for long.
            let most = if only_evicted { EVICTED_BATCH_AREAS } else { BATCH_AREAS };
            let mut batch = Vec::new();
            let mut batched = 0;
            for tree in self.zone.trees() {
                let free = self.zone.free_areas(tree);
                let areas =
                    if only_evicted { free.evicted } else { free.areas.without(free.evicted) };
                let areas = areas.intersection(self.memory.usable(tree)).lowest(left);
                left -= areas.len();
                batched += areas.len();
                if !areas.is_empty() {
                    batch.push((tree, areas));
                }
                if batched + TREE_AREAS > most {
                    bytes += self.keep(&batch)?;
                    batch.clear();
                    batched = 0;
                }
            }
            bytes += self.keep(&batch)?;
        }
        Ok(bytes)
    }

    fn keep(&mut self, wanted: &[TreeAreas]) -> io::Result<u64> {
        if wanted.is_empty() {
            return Ok(0);
        }
        let hand = self.zone.hand();
        let mut touched = Vec::new();
        for &(tree, areas) in wanted {
            let taken = hand.take(tree, areas);
            self.kept.add(tree, taken.areas);
            let not_evicted = taken.areas.without(taken.evicted);
            if !not_evicted.is_empty() {
                touched.push((tree, not_evicted));
            }
        }
        // The guest must not count on them while the discard is under way.
        hand.keep(self.kept.count());
        let discarded = self.memory.discard(&touched);
        if discarded.is_err() {
            for &(tree, areas) in &touched {
                hand.give_unchanged(tree, areas);
                self.kept.remove(tree, areas);
            }
            hand.keep(self.kept.count());
        }
        discarded
    }

    /// Gives so many areas back to the guest, from the last on.
    pub(super) fn keep_less(&mut self, count: u32) {
        let mut left = count;
        let hand = self.zone.hand();
        for (tree, areas) in self.kept.areas().into_iter().rev() {
            let areas = areas.lowest(left);
            if areas.is_empty() {
                break;
            }
            // What the guest has made something else of is its own loss.
            hand.give(tree, areas);
            self.kept.remove(tree, areas);
            left -= areas.len();
        }
        hand.keep(self.kept.count());
    }

    /// Discards what a guest that breaks the rules has touched of the areas that it does not have; returns how many
    /// bytes that was.
    pub(super) fn enforce(&self) -> io::Result<u64> {
        self.memory.discard(&self.kept.areas())
    }
}
