//! Where the state of a zone is.

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Pages of an area.
pub const AREA_PAGES: u32 = 512;
/// Bytes of an area.
pub const AREA_BYTES: u64 = AREA_PAGES as u64 * PAGE_BYTES;
/// Words of an area's bits.
pub(crate) const AREA_WORDS: u32 = AREA_PAGES / 64;
/// Areas of a tree.
pub const TREE_AREAS: u32 = 8;

/// Bytes to which each part is aligned.
pub(crate) const ALIGNMENT: u64 = 64;
/// Bytes of the numbers of a zone that change: a line that the host writes, and one that the guest does.
const LIVE_BYTES: u64 = 128;
/// Where the guest's line of them begins.
pub(crate) const GUEST_LINE: u64 = 64;
/// Bytes of an area's bits.
const AREA_BITS_BYTES: u64 = AREA_PAGES as u64 / 8;

/// Where the parts of a zone's state are, as offsets in bytes from the header. Computed from two numbers, so
/// that there is nothing else of the guest's to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLayout {
    /// Areas of the zone.
    pub areas: u32,
    /// The numbers that change.
    pub live: u64,
    /// A bit for each page.
    pub bits: u64,
    /// An entry of 16 bits for each area.
    pub area: u64,
    /// An entry of 32 bits for each tree.
    pub tree: u64,
    /// The end.
    pub end: u64,
}

impl ZoneLayout {
    /// Of a zone of so many areas whose state begins at `offset`, a multiple of 64; nothing if there are no such
    /// offsets.
    pub fn new(offset: u64, areas: u32) -> Option<Self> {
        let live = offset;
        let bits = live.checked_add(LIVE_BYTES)?;
        let area = bits.checked_add(u64::from(areas) * AREA_BITS_BYTES)?;
        let tree = area.checked_add((u64::from(areas) * 2).next_multiple_of(ALIGNMENT))?;
        let trees_bytes = (u64::from(trees_of(areas)) * 4).next_multiple_of(ALIGNMENT);
        let end = tree.checked_add(trees_bytes)?;
        Some(Self { areas, live, bits, area, tree, end })
    }

    /// Trees of the zone; the last one may be smaller.
    pub fn trees(&self) -> u32 {
        trees_of(self.areas)
    }
}

/// Trees of so many areas; the last one may be smaller.
pub(crate) fn trees_of(areas: u32) -> u32 {
    areas.div_ceil(TREE_AREAS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_takes_at_most_36_kib_for_each_gib() {
        for gib in 1..64 {
            let layout = ZoneLayout::new(0, gib * 512).unwrap();
            assert!(layout.end <= u64::from(gib) * (36 << 10), "{gib} GiB: {layout:?}");
        }
    }

    #[test]
    fn parts_do_not_overlap_and_are_aligned() {
        for areas in 1..100 {
            let layout = ZoneLayout::new(4096, areas).unwrap();
            let ends = [
                (layout.live + LIVE_BYTES, layout.bits),
                (layout.bits + u64::from(areas) * 64, layout.area),
                (layout.area + u64::from(areas) * 2, layout.tree),
                (layout.tree + u64::from(layout.trees()) * 4, layout.end),
            ];
            assert!(
                ends.iter().all(|(end, next)| end <= next && next % ALIGNMENT == 0),
                "{layout:?}"
            );
        }
        assert_eq!(ZoneLayout::new(u64::MAX - 63, 1), None);
    }
}
