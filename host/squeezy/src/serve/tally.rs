//! How many there are of each kind.

use std::collections::BTreeMap;

/// A count for each kind of which there is any.
#[derive(Debug)]
pub struct Tally<K>(BTreeMap<K, usize>);

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Tally<K> {
    /// How many there are of a kind.
    pub fn of(&self, kind: &K) -> usize {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// How many there are of all kinds of which `is_one` says so.
    pub fn of_those(&self, is_one: impl Fn(&K) -> bool) -> usize {
        self.0.iter().filter(|(kind, _)| is_one(kind)).map(|(_, count)| count).sum()
    }

    /// How many there are.
    pub fn all(&self) -> usize {
        self.0.values().sum()
    }

    /// There is one more.
    pub fn add(&mut self, kind: K) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// There is one less.
    pub fn remove(&mut self, kind: &K) {
        if let Some(count) = self.0.get_mut(kind) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(kind);
            }
        }
    }

    /// Whether there is none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_not_counted() {
        let mut tally = Tally::default();
        for kind in ["a", "a", "b"] {
            tally.add(kind);
        }
        assert_eq!((tally.of(&"a"), tally.of(&"c"), tally.all()), (2, 0, 3));
        assert_eq!(tally.of_those(|kind| *kind != "a"), 1);
        for kind in ["a", "c", "b", "a", "a"] {
            tally.remove(&kind);
        }
        assert!(tally.is_empty());
    }
}
