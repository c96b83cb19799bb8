//! Which areas of a tree.

use crate::{layout::TREE_AREAS, runs::runs};
use std::ops::Range;

/// A tree of a zone, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeIndex(pub u32);

/// Areas of one tree; bit `n` is its area `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AreaSet(pub u8);

impl AreaSet {
    /// None of them.
    pub const EMPTY: Self = Self(0);

    /// The first so many, at most eight.
    pub fn first(count: u32) -> Self {
        Self(if count >= TREE_AREAS { u8::MAX } else { (1 << count) - 1 })
    }

    /// How many there are.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether area `number` is one of them.
    pub fn contains(self, number: u32) -> bool {
        self.0 >> number & 1 != 0
    }

    /// With area `number`, which is below eight.
    #[must_use]
    pub fn with(self, number: u32) -> Self {
        Self(self.0 | 1 << number)
    }

    /// With those of `others`.
    #[must_use]
    pub fn with_all(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those that are not in `others`.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Those that are in both.
    #[must_use]
    pub fn intersection(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// The lowest so many of them.
    #[must_use]
    pub fn lowest(self, count: u32) -> Self {
        if self.len() <= count {
            return self;
        }
        self.numbers().take(count as usize).fold(Self::EMPTY, Self::with)
    }

    /// Areas in a row, as numbers in the tree, from the lowest up.
    pub fn runs(self) -> impl Iterator<Item = Range<u32>> {
        runs(TREE_AREAS, move |number| self.contains(number))
    }

    /// Their numbers, from the lowest up.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (0..TREE_AREAS).filter(move |&number| self.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        let set = AreaSet::EMPTY.with(7).with(2).with(5);
        assert_eq!(set.numbers().collect::<Vec<_>>(), [2, 5, 7]);
        assert_eq!(set.with(6).runs().collect::<Vec<_>>(), [2..3, 5..8]);
        assert_eq!(AreaSet::first(8).runs().next(), Some(0..8));
        assert_eq!(AreaSet::EMPTY.runs().next(), None);
        assert_eq!(set.lowest(2), AreaSet::EMPTY.with(2).with(5));
        assert_eq!((set.lowest(3), set.lowest(9), set.lowest(0)), (set, set, AreaSet::EMPTY));
        assert_eq!(set.without(AreaSet::EMPTY.with(5)).len(), 2);
        assert_eq!(AreaSet::first(3), AreaSet(0b111));
        assert_eq!(AreaSet::first(8).len(), 8);
        assert!(set.intersection(AreaSet::first(2)).is_empty());
    }
}
