//! The bits of the entries, as `guest/kernel/src/mm/llfree/state.h` has them.

use crate::{
    area_set::AreaSet,
    layout::{AREA_PAGES, TREE_AREAS},
};

const ALLOCATED: u16 = 0x0400;
const EVICTED: u16 = 0x0800;

/// Nobody takes pages of such an area.
pub(crate) const ISOLATED: u16 = 0x1000;
/// Of an area that is the host's.
pub(crate) const HOST: u16 = ALLOCATED | EVICTED;
/// Of an area that is free, with the host's memory behind it.
pub(crate) const FREE: u16 = AREA_PAGES as u16;
/// Of an area that is free, with nothing of the host behind it.
pub(crate) const FREE_EVICTED: u16 = AREA_PAGES as u16 | EVICTED;

const FREE_PAGES: u32 = 0xffff;
const HELD_SHIFT: u32 = 19;
/// The smallest order that a tree lacks, as far as the guest knows.
pub(crate) const LACKS: u32 = 0x7800_0000;

/// Whether all pages of an area with this entry are free; if so, whether it is evicted.
pub(crate) fn whole(area: u16) -> Option<bool> {
    (u32::from(area & !EVICTED) == AREA_PAGES).then_some(area & EVICTED != 0)
}

/// How many pages of an area are free, if it is one that nobody has as a whole and that has the host's memory
/// behind it.
pub(crate) fn some_free(area: u16) -> Option<u32> {
    (1..=AREA_PAGES as u16).contains(&area).then_some(area.into())
}

/// A tree's free pages: as many as there are at most, whatever the guest has written.
pub(crate) fn free_pages(tree: u32) -> u32 {
    (tree & FREE_PAGES).min(TREE_AREAS * AREA_PAGES)
}

/// The areas whose pages the host has taken out of a tree's count.
pub(crate) fn held(tree: u32) -> AreaSet {
    AreaSet((tree >> HELD_SHIFT) as u8)
}

/// What has to be added to a tree's entry to take the pages of areas that are not held, and to hold them.
pub(crate) fn taking(areas: AreaSet) -> u32 {
    holding(areas).wrapping_sub(areas.len() * AREA_PAGES)
}

/// What has to be added to give the pages of held areas back, and to hold them no longer.
pub(crate) fn giving(areas: AreaSet) -> u32 {
    taking(areas).wrapping_neg()
}

/// What has to be added to hold areas no longer whose pages are gone.
pub(crate) fn forgetting(areas: AreaSet) -> u32 {
    holding(areas).wrapping_neg()
}

fn holding(areas: AreaSet) -> u32 {
    u32::from(areas.0) << HELD_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_and_given_back_changes_nothing_else() {
        let areas = AreaSet(0b1010_0001);
        let tree: u32 = 0x6000_0000 | 0x0007_0000 | 4096;
        let taken = tree.wrapping_add(taking(areas));
        assert_eq!((free_pages(taken), held(taken)), (4096 - 3 * 512, areas));
        assert_eq!(taken & 0x7807_0000, tree & 0x7807_0000);
        assert_eq!(taken.wrapping_add(giving(areas)), tree);
        let forgotten = taken.wrapping_add(forgetting(areas));
        assert_eq!((free_pages(forgotten), held(forgotten)), (4096 - 3 * 512, AreaSet::EMPTY));
    }

    #[test]
    fn an_area_is_whole_when_every_page_is_free() {
        assert_eq!(whole(512), Some(false));
        assert_eq!(whole(FREE_EVICTED), Some(true));
        for entry in [0, 511, ALLOCATED, HOST, 511 | EVICTED, 512 | ALLOCATED, 512 | 1 << 12] {
            assert_eq!(whole(entry), None, "{entry:#x}");
        }
        assert_eq!(whole(512 | ISOLATED), None);
        assert_eq!((some_free(1), some_free(512)), (Some(1), Some(512)));
        for entry in [0, 513, ALLOCATED, HOST, FREE_EVICTED, 7 | ISOLATED] {
            assert_eq!(some_free(entry), None, "{entry:#x}");
        }
    }
}
