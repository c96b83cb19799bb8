//! One zone of a guest's allocator, and the file that its memory is in.

use super::limit::Kept;
use crate::host_memory::FilePart;
use squeezy_llfree::{
    AREA_PAGES, AreaSet, InHand, SharedMemory, TREE_AREAS, TreeIndex, Zone, header::ZoneDescription,
};
use std::{io, ops::Range};

const PAGE_BYTES: u64 = 4096;
pub(super) const AREA_BYTES: u64 = AREA_PAGES as u64 * PAGE_BYTES;

/// The most areas in hand at a time. Meanwhile an allocation of the guest may have to wait: a fifth of a millisecond if the host
/// has huge pages, else 6 ms.
pub(super) const BATCH_AREAS: u32 = 32;

/// A zone that free memory is taken out of.
#[derive(Debug)]
pub(super) struct ReclaimZone {
    pub(super) zone: Zone<SharedMemory>,
    description: ZoneDescription,
    /// Its memory.
    pub(super) part: FilePart,
    /// What the guest does not have for now. Nothing of a partition, whose size is virtio-mem's.
    pub(super) kept: Kept,
    is_partition: bool,
}

/// Areas of a tree.
pub(super) type TreeAreas = (TreeIndex, AreaSet);

impl ReclaimZone {
    /// Takes the zone over from whoever had it before, and gives back what they held.
    pub(super) fn adopt(
        description: ZoneDescription,
        memory: SharedMemory,
        part: FilePart,
        is_partition: bool,
    ) -> Self {
        let (zone, held) = Zone::adopt(memory);
        let mut adopted = Self { zone, description, part, kept: Kept::default(), is_partition };
        adopted.take_over(&held);
        adopted
    }

    /// Puts in order what this process left in the middle.
    pub(super) fn recover(&mut self) {
        let held = self.zone.recover();
        self.take_over(&held);
    }

    /// Goes on with areas that somebody else held. There may be anything in them.
    fn take_over(&mut self, held: &[TreeAreas]) {
        let mut kept = if self.is_partition { &[] } else { held };
        let hand = self.zone.hand();
        let result = match self.is_partition {
            true => discard(&self.part, &hand, held),
            false => discard_areas(&self.part, held),
        };
        if let Err(error) = result {
            tracing::warn!(%error, "memory that an earlier process held stays with the guest");
            if !self.is_partition {
                kept = &[];
                for &(tree, areas) in held {
                    hand.give_unchanged(tree, areas);
                }
            }
        }
        drop(hand);
        self.kept = Kept::of(self.zone.trees().count(), kept);
        self.zone.settle(self.kept.count());
    }

    /// Whether it is a partition's.
    pub(super) fn is_partition(&self) -> bool {
        self.is_partition
    }

    /// Whether all of it is at these of the guest's physical addresses.
    pub(super) fn is_within(&self, guest: &Range<u64>) -> bool {
        let own = &self.description.memory;
        guest.start <= own.start && own.end <= guest.end
    }

    /// Gives back areas that are entirely free; returns how many bytes of the host's memory were behind them.
    pub(super) fn reclaim_areas(&mut self) -> io::Result<u64> {
        let trees: Vec<_> = self.zone.trees().map(|tree| (tree, self.worthwhile(tree))).collect();
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut batched = 0;
        for (tree, areas) in trees {
            // Nobody who needs memory must find too little of it meanwhile.
            let most = BATCH_AREAS.min(self.zone.spare_areas());
            if batched + areas.len() > most {
                bytes += self.reclaim_batch(&batch)?;
                batch.clear();
                batched = 0;
            }
            let areas = areas.lowest(most);
            if !areas.is_empty() {
                batched += areas.len();
                batch.push((tree, areas));
            }
        }
        Ok(bytes + self.reclaim_batch(&batch)?)
    }

    /// The areas of a tree that are free and have not been given back already.
    fn worthwhile(&self, tree: TreeIndex) -> AreaSet {
        let free = self.zone.free_areas(tree);
        free.areas.without(free.evicted).without(self.state_areas(tree))
    }

    /// The areas of a tree that the allocator's state is in. They are never free, whatever the guest says.
    pub(super) fn state_areas(&self, tree: TreeIndex) -> AreaSet {
        let of_state =
            |area: &u32| self.description.state_areas.contains(&(tree.0 * TREE_AREAS + area));
        AreaSet::first(TREE_AREAS).numbers().filter(of_state).fold(AreaSet::EMPTY, AreaSet::with)
    }

    fn reclaim_batch(&mut self, wanted: &[TreeAreas]) -> io::Result<u64> {
        if wanted.is_empty() {
            // The guest is not told of anything in hand.
            return Ok(0);
        }
        let hand = self.zone.hand();
        let taken: Vec<_> =
            wanted.iter().map(|&(tree, areas)| (tree, hand.take(tree, areas).areas)).collect();
        discard(&self.part, &hand, &taken)
    }

    /// Gives back free pages of areas that are in use in part; returns how many bytes of the host's memory were behind
    /// them.
    pub(super) fn reclaim_pages(&mut self) -> io::Result<u64> {
        let trees: Vec<_> = self.zone.trees().collect();
        let mut bytes = 0;
        for tree in trees {
            for area in self.zone.partly_free_areas(tree).without(self.state_areas(tree)).numbers()
            {
                bytes += self.reclaim_pages_of(tree, area)?;
            }
        }
        Ok(bytes)
    }

    fn reclaim_pages_of(&mut self, tree: TreeIndex, area: u32) -> io::Result<u64> {
        let range = area_range(&self.part, tree, area);
        let before = self.part.file.resident(range.clone())?;
        if before == 0 {
            return Ok(0);
        }
        let hand = self.zone.hand();
        let discarded = match hand.isolate(tree, area) {
            Some(pages) => {
                let mut runs = pages.runs().map(|run| {
                    let start = range.start + u64::from(run.start) * PAGE_BYTES;
                    start..range.start + u64::from(run.end) * PAGE_BYTES
                });
                runs.try_for_each(|run| discard_data(&self.part, run))
            }
            // The guest is about to use it.
            None => Ok(()),
        };
        hand.release(tree, AreaSet::EMPTY.with(area));
        discarded?;
        // The host may have to break up a huge page for it, and may not be able to.
        Ok(before.saturating_sub(self.part.file.resident(range)?))
    }
}

/// Discards areas that are in hand and gives them back to the guest; returns how many bytes of the host's memory were
/// behind them.
fn discard(
    part: &FilePart,
    hand: &InHand<'_, SharedMemory>,
    taken: &[TreeAreas],
) -> io::Result<u64> {
    let result = discard_areas(part, taken);
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

/// Discards areas that the guest does not have; returns how many bytes of the host's memory were behind them.
pub(super) fn discard_areas(part: &FilePart, areas: &[TreeAreas]) -> io::Result<u64> {
    let mut bytes = 0;
    for run in runs(part, areas) {
        let resident = part.file.resident(run.clone())?;
        if resident > 0 {
            part.file.discard(run)?;
        }
        bytes += resident;
    }
    Ok(bytes)
}

/// Discards what there is in a run of single pages.
fn discard_data(part: &FilePart, run: Range<u64>) -> io::Result<()> {
    part.file.data(run).try_for_each(|found| part.file.discard(found?))
}

/// Where areas are in the file, neighbours as one range.
fn runs(part: &FilePart, taken: &[TreeAreas]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &(tree, areas) in taken {
        for range in areas.numbers().map(|area| area_range(part, tree, area)) {
            match runs.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => runs.push(range),
            }
        }
    }
    runs
}

fn area_range(part: &FilePart, tree: TreeIndex, area: u32) -> Range<u64> {
    let start = part.start + u64::from(tree.0 * TREE_AREAS + area) * AREA_BYTES;
    start..start + AREA_BYTES
}
