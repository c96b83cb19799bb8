//! Where the memory of a zone is.

use crate::host_memory::{FilePart, HostMemory, Strays};
use squeezy_llfree::{
    AREA_BYTES, AreaSet, Mapping, PAGE_BYTES, TREE_AREAS, TreeIndex, header::ZoneDescription,
};
use std::{
    io,
    ops::{AddAssign, Range},
    sync::Arc,
    time::Duration,
};

/// Areas of a tree.
pub(super) type TreeAreas = (TreeIndex, AreaSet);

/// The memory of a zone. A zone may span holes, and what the allocator's state is in: no area there is ever free,
/// whatever the guest says.
#[derive(Debug)]
pub(super) struct ZoneMemory {
    /// What says what is free.
    state: Arc<Mapping>,
    parts: Vec<Part>,
    /// The areas of each tree that can be discarded.
    usable: Vec<AreaSet>,
}

/// Memory that was given back to the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Discarded {
    /// The host's memory that was there, in bytes.
    pub(super) bytes: u64,
    /// How long the host's kernel took.
    pub(super) took: Duration,
}

impl AddAssign for Discarded {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.took += other.took;
    }
}

/// Areas in a row.
#[derive(Debug)]
struct Part {
    areas: Range<u32>,
    /// Where the first one begins.
    file: FilePart,
}

impl ZoneMemory {
    /// Of a zone of a guest with this memory, whose state is there.
    pub(super) fn new(zone: &ZoneDescription, memory: &HostMemory, state: Arc<Mapping>) -> Self {
        let trees = zone.layout.trees() as usize;
        let usable = vec![AreaSet::EMPTY; trees];
        let mut new = Self { state, parts: Vec::new(), usable };
        for piece in memory.pieces() {
            let start = piece.guest.start.max(zone.memory.start) - zone.memory.start;
            let end = piece.guest.end.min(zone.memory.end).saturating_sub(zone.memory.start);
            let areas = start.div_ceil(AREA_BYTES)..end / AREA_BYTES;
            if areas.is_empty() {
                continue;
            }
            let address = |area: u64| zone.memory.start + area * AREA_BYTES;
            let part = piece.part(&(address(areas.start)..address(areas.end)));
            let Some(file) = part.and_then(|part| part.file) else { continue };
            // A zone has fewer than 2^32 areas.
            let areas = areas.start as u32..areas.end as u32;
            for area in areas.clone().filter(|area| !zone.state_areas.contains(area)) {
                let tree = &mut new.usable[(area / TREE_AREAS) as usize];
                *tree = tree.with(area % TREE_AREAS);
            }
            new.parts.push(Part { areas, file });
        }
        new
    }

    /// The areas of a tree that can be discarded.
    pub(super) fn usable(&self, TreeIndex(tree): TreeIndex) -> AreaSet {
        self.usable[tree as usize]
    }

    /// Bytes of the host's memory behind an area.
    pub(super) fn resident(&self, tree: TreeIndex, area: u32) -> io::Result<u64> {
        self.range(tree, area).map_or(Ok(0), |(part, range)| part.file.resident(range))
    }

    /// Those of a tree's areas that have the host's memory behind them, be it a page.
    pub(super) fn filled(&self, tree: TreeIndex, areas: AreaSet) -> io::Result<AreaSet> {
        let mut filled = AreaSet::EMPTY;
        for area in areas.numbers() {
            let Some((part, range)) = self.range(tree, area) else { continue };
            if part.file.has_data(&range)? {
                filled = filled.with(area);
            }
        }
        Ok(filled)
    }

    /// Discards areas that the guest does not have.
    pub(super) fn discard(&self, areas: &[TreeAreas]) -> io::Result<Discarded> {
        self.check_state()?;
        let mut sum = Discarded::default();
        for (part, run) in self.runs(areas) {
            let (bytes, took) = part.file.discard_counted(run)?;
            sum += Discarded { bytes, took };
        }
        Ok(sum)
    }

    /// Discards what there is behind areas behind which there should be nothing; returns how many bytes that were.
    pub(super) fn discard_strays(&self, areas: &[TreeAreas]) -> io::Result<Strays> {
        self.check_state()?;
        let runs = self.runs(areas).into_iter();
        runs.map(|(part, run)| part.file.discard_strays(run, AREA_BYTES)).sum()
    }

    /// Discards what there is in a run of single pages of an area, by their numbers in it.
    pub(super) fn discard_pages(
        &self,
        tree: TreeIndex,
        area: u32,
        pages: Range<u32>,
    ) -> io::Result<()> {
        self.check_state()?;
        let Some((part, range)) = self.range(tree, area) else { return Ok(()) };
        let at = |page: u32| range.start + u64::from(page) * PAGE_BYTES;
        part.file.discard_if_any(at(pages.start)..at(pages.end))
    }

    /// Nothing is discarded any more once a page of the state has failed: what said that it may be was read before.
    fn check_state(&self) -> io::Result<()> {
        self.state.check().map_err(io::Error::other)
    }

    /// Where areas are, neighbours as one range. Areas that cannot be discarded are left out.
    fn runs(&self, areas: &[TreeAreas]) -> Vec<(&FilePart, Range<u64>)> {
        let mut runs: Vec<(&FilePart, Range<u64>)> = Vec::new();
        for (part, range) in areas.iter().flat_map(|&(tree, areas)| self.ranges(tree, areas)) {
            match runs.last_mut() {
                Some((last, run)) if run.end == range.start && std::ptr::eq(*last, part) => {
                    run.end = range.end;
                }
                _ => runs.push((part, range)),
            }
        }
        runs
    }

    /// Where an area is, if it can be discarded.
    fn range(&self, tree: TreeIndex, area: u32) -> Option<(&FilePart, Range<u64>)> {
        self.ranges(tree, AreaSet::EMPTY.with(area)).next()
    }

    /// Where those of a tree's areas are that can be discarded: in a row, and in one part, as one range.
    fn ranges(
        &self,
        tree: TreeIndex,
        areas: AreaSet,
    ) -> impl Iterator<Item = (&FilePart, Range<u64>)> {
        let first = tree.0 * TREE_AREAS;
        areas.intersection(self.usable(tree)).runs().flat_map(move |run| {
            self.parts.iter().filter_map(move |part| {
                let start = (first + run.start).max(part.areas.start);
                let end = (first + run.end).min(part.areas.end);
                let at =
                    |area: u32| part.file.start + u64::from(area - part.areas.start) * AREA_BYTES;
                (start < end).then(|| (&part.file, at(start)..at(end)))
            })
        })
    }
}
