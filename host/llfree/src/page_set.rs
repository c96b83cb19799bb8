//! Which pages of an area.

use crate::{
    layout::{AREA_PAGES, AREA_WORDS},
    runs::runs,
};
use std::ops::Range;

/// Pages of one area, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSet(pub(crate) [u64; AREA_WORDS as usize]);

impl PageSet {
    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether page `number` of the area is one of them.
    pub fn contains(&self, number: u32) -> bool {
        self.0[(number / 64) as usize] >> (number % 64) & 1 != 0
    }

    /// Pages in a row, as numbers in the area, from the lowest up.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> {
        runs(AREA_PAGES, |number| self.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_all_there_is_and_as_long_as_can_be(words: [u64; 8]) {
            let pages = PageSet(words);
            let mut again = [0_u64; 8];
            let mut before = None;
            for run in pages.runs() {
                prop_assert!(run.start < run.end && before.is_none_or(|end| end < run.start));
                before = Some(run.end);
                run.for_each(|number| again[number as usize / 64] |= 1 << (number % 64));
            }
            prop_assert_eq!(again, words);
        }
    }

    #[test]
    fn a_whole_area_is_one_run() {
        let pages = PageSet([u64::MAX; 8]);
        assert_eq!(pages.runs().next(), Some(0..512));
        assert_eq!((pages.len(), PageSet([0; 8]).len()), (512, 0));
    }
}
