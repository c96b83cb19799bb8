//! One zone of a guest's allocator, and the memory that it is of.

use super::{
    Grain,
    limit::Kept,
    pace::Pace,
    spare::Spare,
    starving::Asked,
    zone_memory::{Discarded, TreeAreas, ZoneMemory},
};
use squeezy_llfree::{AreaSet, Free, InHand, SharedMemory, TREE_AREAS, TreeIndex, Zone};
use std::io;

/// A zone that free memory is taken out of.
#[derive(Debug)]
pub(super) struct ReclaimZone {
    pub(super) zone: Zone<SharedMemory>,
    pub(super) memory: ZoneMemory,
    /// What the guest does not have for now. Nothing of a partition, whose size is virtio-mem's.
    pub(super) kept: Kept,
    /// What of it the guest would like to have back.
    pub(super) asked: Asked,
    /// How many areas are in hand at a time.
    pub(super) pace: Pace,
}

impl ReclaimZone {
    /// Takes the zone over from whoever had it before. Of boot memory, what they kept and what they had in hand look the
    /// same: all of it is kept until [`Reclaimer::hold`](super::Reclaimer::hold) says how much it is to be.
    pub(super) fn adopt(state: SharedMemory, memory: ZoneMemory, is_partition: bool) -> Self {
        let (zone, held) = Zone::adopt(state);
        let asked = Asked::before(&zone);
        let kept = Kept::nothing_of(zone.trees().count());
        let mut adopted = Self { zone, memory, kept, asked, pace: Pace::unknown() };
        // Of a partition nothing is kept: it was in the middle of a reclaim.
        let kept = if is_partition { AreaSet::EMPTY } else { AreaSet::first(TREE_AREAS) };
        adopted.take_over(&held, |_| kept);
        adopted
    }

    /// Puts in order what this process left in the middle.
    pub(super) fn recover(&mut self) {
        let held = self.zone.recover();
        let kept = self.kept.trees();
        self.take_over(&held, |tree| kept[tree.0 as usize]);
    }

    /// Goes on with areas that are the host's, and keeps some of them; the others go back. There may be anything in them.
    fn take_over(&mut self, held: &[TreeAreas], keep: impl Fn(TreeIndex) -> AreaSet) {
        // Of an area that is no memory, or has the state in it, the guest only says that the host had it.
        let keep = |tree| self.memory.usable(tree).intersection(keep(tree));
        let parts = |part: fn(AreaSet, AreaSet) -> AreaSet| -> Vec<TreeAreas> {
            held.iter().map(|&(tree, areas)| (tree, part(areas, keep(tree)))).collect()
        };
        let (kept, in_hand) = (parts(AreaSet::intersection), parts(AreaSet::without));
        let warn = |error| {
            tracing::warn!(%error, "memory that was taken before stays with the guest");
        };
        let hand = self.zone.hand();
        if let Err(error) = discard(&self.memory, &hand, &in_hand) {
            warn(error);
        }
        self.kept.replace(&kept);
        hand.keep(self.kept.count());
        drop(hand);
        // This may take seconds. The guest does not wait for it: these areas are not in hand.
        if let Err(error) = self.memory.discard(&kept) {
            warn(error);
            self.give_up(&kept);
        }
    }

    /// Gives back areas that are entirely free. Stops between two batches if the guest asks for kept memory.
    pub(super) fn reclaim_areas(&mut self, grain: Grain) -> io::Result<Discarded> {
        let trees: Vec<_> = self.zone.trees().collect();
        let mut spare = Spare::of_trees(trees.len());
        let mut worthwhile = Vec::new();
        for tree in trees {
            let free = self.worthwhile(tree, grain)?;
            if !free.areas.is_empty() {
                worthwhile.push((tree, free));
            }
        }
        let mut trees = worthwhile.into_iter().peekable();
        let mut sum = Discarded::default();
        loop {
            let batch = spare.next(&mut trees, self.pace.areas(), || self.zone.spare_areas());
            if batch.is_empty() {
                // The guest is not told of anything in hand.
                return Ok(sum);
            }
            sum += self.reclaim_batch(&batch)?;
            if self.is_asked() {
                return Ok(sum);
            }
        }
    }

    /// The areas of a tree that are free and have the host's memory behind them. The guest's kernel reads a few bytes
    /// past the end of what it uses, so there may be some behind evicted ones, too. Each of them has to be looked at,
    /// for so little that only who wants single pages does it.
    fn worthwhile(&self, tree: TreeIndex, grain: Grain) -> io::Result<Free> {
        let free = self.zone.free_areas(tree).of(self.memory.usable(tree));
        let areas = match grain {
            Grain::Area => free.backed(),
            Grain::Page => free.backed().with_all(self.memory.filled(tree, free.evicted)?),
        };
        Ok(free.of(areas))
    }

    fn reclaim_batch(&mut self, wanted: &[(TreeIndex, Free)]) -> io::Result<Discarded> {
        let hand = self.zone.hand();
        let taken: Vec<_> =
            wanted.iter().map(|&(tree, free)| (tree, hand.take(tree, free))).collect();
        let discarded = discard(&self.memory, &hand, &taken)?;
        self.pace.learn(discarded);
        Ok(discarded)
    }

    /// Gives back free pages of areas that are in use in part; returns how many bytes of the host's memory were behind
    /// them. Stops between two areas once it should not go on, or if the guest asks for kept memory.
    pub(super) fn reclaim_pages(&mut self, goes_on: impl Fn() -> bool) -> io::Result<u64> {
        // Only these can have free pages. Each area takes a look at them, so a guest that lies must not have more.
        let trees = self.zone.trees().filter(|&tree| !self.memory.usable(tree).is_empty());
        let trees: Vec<_> = trees.collect();
        let mut bytes = 0;
        for &tree in &trees {
            let areas = self.zone.partly_free_areas(tree).intersection(self.memory.usable(tree));
            for area in areas.numbers() {
                if !goes_on() || self.is_asked() {
                    return Ok(bytes);
                }
                bytes += self.reclaim_pages_of(tree, area, &trees)?;
            }
        }
        Ok(bytes)
    }

    /// The same for one area, unless the guest, whose free pages are in `trees`, needs those of this one.
    fn reclaim_pages_of(
        &mut self,
        tree: TreeIndex,
        area: u32,
        trees: &[TreeIndex],
    ) -> io::Result<u64> {
        let before = self.memory.resident(tree, area)?;
        if before == 0 {
            return Ok(0);
        }
        // While the area is isolated, all of them look taken.
        let free = self.zone.free_pages(tree, area).unwrap_or(0);
        if u64::from(free) > self.zone.spare_pages(trees.iter().copied()) {
            return Ok(0);
        }
        let hand = self.zone.hand();
        let discarded = match hand.isolate(tree, area) {
            Some(pages) => {
                pages.runs().try_for_each(|run| self.memory.discard_pages(tree, area, run))
            }
            // The guest is about to use it.
            None => Ok(()),
        };
        hand.release(tree, AreaSet::EMPTY.with(area));
        discarded?;
        // The host may have to break up a huge page for it, and may not be able to.
        Ok(before.saturating_sub(self.memory.resident(tree, area)?))
    }
}

/// Discards areas that are in hand and gives them back to the guest.
fn discard(
    memory: &ZoneMemory,
    hand: &InHand<'_, SharedMemory>,
    taken: &[TreeAreas],
) -> io::Result<Discarded> {
    let result = memory.discard(taken);
    for &(tree, areas) in taken {
        let broken = match result {
            Ok(_) => hand.give(tree, areas),
            // Something of the host's may still be behind them.
            Err(_) => hand.give_unchanged(tree, areas),
        };
        if !broken.is_empty() {
            tracing::debug!(
                tree = tree.0,
                "the guest has changed areas that the host had; they are lost to it"
            );
        }
    }
    result
}
