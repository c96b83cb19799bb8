//! Areas that the host keeps: the guest has less memory until they are given back (HyperAlloc's hard limit).

use super::{
    spare::Spare,
    zone::ReclaimZone,
    zone_memory::{Discarded, TreeAreas},
};
use crate::host_memory::Strays;
use squeezy_llfree::{AreaSet, Free, TreeIndex};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// The most areas with nothing behind them that are taken at a time.
const EVICTED_BATCH_AREAS: u32 = 4096;

/// What the host keeps of a zone.
#[derive(Debug)]
pub(super) struct Kept {
    /// The areas of each tree.
    trees: Vec<AreaSet>,
    /// How many there are, for those who do not wait for the zone. Only who has the zone changes it.
    count: Arc<AtomicU32>,
}

impl Kept {
    /// Nothing, of so many trees.
    pub(super) fn nothing_of(trees: usize) -> Self {
        Self { trees: vec![AreaSet::EMPTY; trees], count: Arc::default() }
    }

    /// How many areas there are.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Where that number is.
    pub(super) fn counter(&self) -> Arc<AtomicU32> {
        self.count.clone()
    }

    /// Those of each tree.
    pub(super) fn trees(&self) -> Vec<AreaSet> {
        self.trees.clone()
    }

    /// All of them, by trees that have some.
    pub(super) fn areas(&self) -> Vec<TreeAreas> {
        let trees = (0..).map(TreeIndex).zip(self.trees.iter().copied());
        trees.filter(|(_, areas)| !areas.is_empty()).collect()
    }

    /// Keeps these instead.
    pub(super) fn replace(&mut self, areas: &[TreeAreas]) {
        self.trees.fill(AreaSet::EMPTY);
        for &(tree, areas) in areas {
            self.trees[tree.0 as usize] = areas;
        }
        self.count.store(self.trees.iter().map(|areas| areas.len()).sum(), Relaxed);
    }

    /// Keeps these, too. A guest that lies may have had some of them taken again.
    fn add(&mut self, tree: TreeIndex, areas: AreaSet) {
        let kept = &mut self.trees[tree.0 as usize];
        let more = areas.without(*kept);
        *kept = kept.with_all(more);
        self.count.store(self.count() + more.len(), Relaxed);
    }

    pub(super) fn remove(&mut self, tree: TreeIndex, areas: AreaSet) {
        let kept = &mut self.trees[tree.0 as usize];
        let less = areas.intersection(*kept);
        *kept = kept.without(less);
        self.count.store(self.count() - less.len(), Relaxed);
    }
}

impl ReclaimZone {
    /// Keeps up to so many areas more, of those that the guest can spare, which may change until the last of them is
    /// discarded. Stops between two batches if the guest asks for some of them.
    pub(super) fn keep_more(&mut self, count: u32) -> io::Result<Discarded> {
        let (mut left, mut sum) = (count, Discarded::default());
        let free: Vec<_> = self
            .zone
            .trees()
            .map(|tree| (tree, self.zone.free_areas(tree).of(self.memory.usable(tree))))
            .collect();
        let mut spare = Spare::of_trees(free.len());
        // First what there may be memory of the host's behind: the rest is only a promise to the guest.
        for only_evicted in [false, true] {
            let part = |free: &Free| if only_evicted { free.evicted } else { free.backed() };
            let trees = free.iter().map(|(tree, free)| (*tree, free.of(part(free))));
            let mut trees = trees.filter(|(_, free)| !free.areas.is_empty()).peekable();
            // Asked while there is nothing to take, the guest's answer for a small batch would hold for a large one.
            while left > 0 && trees.peek().is_some() {
                // Nothing is discarded of what is evicted, so the guest does not miss it for long.
                let most = if only_evicted { EVICTED_BATCH_AREAS } else { self.pace.areas() };
                let batch = spare.next(&mut trees, most.min(left), || self.zone.spare_areas());
                if batch.is_empty() {
                    break;
                }
                left -= batch.iter().map(|(_, free)| free.areas.len()).sum::<u32>();
                sum += self.keep(&batch, only_evicted)?;
                if self.is_asked() {
                    return Ok(sum);
                }
            }
        }
        Ok(sum)
    }

    /// Keeps areas of which all are evicted, or none is.
    fn keep(&mut self, wanted: &[(TreeIndex, Free)], are_evicted: bool) -> io::Result<Discarded> {
        let hand = self.zone.hand();
        let mut taken = Vec::with_capacity(wanted.len());
        for &(tree, free) in wanted {
            let areas = hand.take(tree, free);
            self.kept.add(tree, areas);
            taken.push((tree, areas));
        }
        // The guest must not count on them while the discard is under way.
        hand.keep(self.kept.count());
        let discarded = if are_evicted {
            drop(hand);
            // That there is nothing behind these is the guest's word. What is found later, it has used.
            self.memory.discard_strays(&taken).map(|_| Discarded::default())
        } else {
            let discarded = self.memory.discard(&taken);
            drop(hand);
            discarded
        };
        match discarded {
            Ok(discarded) => self.pace.learn(discarded),
            Err(_) => self.give_up(&taken),
        }
        discarded
    }

    /// Gives areas back that are kept and that the host could not discard.
    pub(super) fn give_up(&mut self, areas: &[TreeAreas]) {
        let hand = self.zone.hand();
        for &(tree, areas) in areas {
            hand.give_unchanged(tree, areas);
            self.kept.remove(tree, areas);
        }
        hand.keep(self.kept.count());
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

    /// Discards what the guest has touched of the areas that it does not have.
    pub(super) fn enforce(&self) -> io::Result<Strays> {
        self.memory.discard_strays(&self.kept.areas())
    }
}
