//! Single pages of areas that the guest uses in part.
//!
//! An area's free pages can be discarded if nobody takes any of them meanwhile. So the host sets ISOLATED in the
//! area's entry: from then on nobody takes the *count* of a page, which comes before its bit (L1). Who had taken the
//! count before may still be about to set bits, and bits alone do not say so. But then more bits are 0 than the
//! entry counts; it is the same for who has cleared bits and has yet to count them. If as many bits are 0 as are
//! counted, nobody is in the middle of anything, and the pages are nobody's until ISOLATED is cleared (L5).
//!
//! Nothing is taken, so there is nothing to be lost: whoever finds ISOLATED set by a host that was killed clears
//! it. A guest whose processors are stopped in the middle of an allocation is only spared that area.

use crate::{
    area_set::{AreaSet, TreeIndex},
    entry::{self, ISOLATED},
    memory::Memory,
    page_set::PageSet,
    zone::{InHand, area_of},
};

/// How often an area is tried that the guest changes all the time.
const TRIES: u32 = 4;

impl<M: Memory> InHand<'_, M> {
    /// Isolates an area of which some pages are free, and returns those; `None` if none are, or the guest is in the
    /// middle of something there. [`InHand::release`] has to follow, whatever this returns.
    pub fn isolate(&self, tree: TreeIndex, area: u32) -> Option<PageSet> {
        let area = area_of(tree, area);
        (0..TRIES).find_map(|_| self.try_to_isolate(area))
    }

    fn try_to_isolate(&self, area: u32) -> Option<PageSet> {
        let memory = &self.zone().memory;
        let old = memory.area(area);
        let free = entry::some_free(old & !ISOLATED)?;
        let isolated = old | ISOLATED;
        if old != isolated && !memory.replace_area(area, old, isolated) {
            return None;
        }
        // Two looks: the guest takes runs of more than 64 pages a word at a time, and puts the words back if it
        // does not get all of them. Words that look the same twice were all like that at one moment between the
        // looks, so they are not all that such an allocation has counted. What is freed meanwhile makes `pages` more.
        let pages = self.unset_bits(area);
        (pages == self.unset_bits(area) && pages.len() == free).then_some(pages)
    }

    fn unset_bits(&self, area: u32) -> PageSet {
        PageSet(std::array::from_fn(|number| !self.zone().memory.word(area, number as u32)))
    }

    /// Lets the guest have areas again.
    pub fn release(&self, tree: TreeIndex, areas: AreaSet) {
        for area in areas.numbers() {
            self.zone().memory.clear_area(area_of(tree, area), ISOLATED);
        }
    }
}
