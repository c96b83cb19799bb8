//! Areas that the host keeps: the guest has less memory until they are given back (HyperAlloc's hard limit).

use super::{
    zone::{BATCH_AREAS, ReclaimZone},
    zone_memory::TreeAreas,
};
use squeezy_llfree::{AreaSet, Free, TREE_AREAS, TreeIndex};
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

    /// Those of a tree.
    pub(super) fn of_tree(&self, TreeIndex(tree): TreeIndex) -> AreaSet {
        self.trees.get(tree as usize).copied().unwrap_or_default()
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
    /// Keeps up to so many areas more, of those that the guest can spare.
    pub(super) fn keep_more(&mut self, count: u32) -> io::Result<()> {
        let mut left = count.min(self.zone.spare_areas());
        let free: Vec<_> = self
            .zone
            .trees()
            .map(|tree| (tree, self.zone.free_areas(tree).of(self.memory.usable(tree))))
            .filter(|(_, free)| !free.areas.is_empty())
            .collect();
        // First what there may be memory of the host's behind: the rest is only a promise to the guest.
        for only_evicted in [false, true] {
            // Nothing is discarded of what is evicted, so the guest does not miss it for long.
            let most = if only_evicted { EVICTED_BATCH_AREAS } else { BATCH_AREAS };
            let mut batch = Vec::with_capacity(free.len());
            let mut batched = 0;
            for &(tree, free) in &free {
                let areas = if only_evicted { free.evicted } else { free.backed() };
                let areas = areas.lowest(left);
                if areas.is_empty() {
                    continue;
                }
                left -= areas.len();
                batched += areas.len();
                batch.push((tree, free.of(areas)));
                if batched + TREE_AREAS > most {
                    self.keep(&batch)?;
                    batch.clear();
                    batched = 0;
                }
            }
            self.keep(&batch)?;
        }
        Ok(())
    }

    fn keep(&mut self, wanted: &[(TreeIndex, Free)]) -> io::Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let hand = self.zone.hand();
        let mut touched = Vec::new();
        for &(tree, free) in wanted {
            let taken = hand.take(tree, free);
            self.kept.add(tree, taken);
            let backed = free.of(taken).backed();
            if !backed.is_empty() {
                touched.push((tree, backed));
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
        discarded.map(drop)
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
        Ok(self.memory.discard(&self.kept.areas())?.bytes)
    }
}
