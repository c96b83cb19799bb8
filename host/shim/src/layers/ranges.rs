//! Which ranges of a pool are taken, and by what.

use super::Key;
use squeezy_protocol::Layer;
use std::collections::BTreeMap;

/// What ranges begin at multiples of, in bytes. The first such piece stays empty, so that no layer is taken for a table
/// of partitions.
const ALIGNMENT_BYTES: u64 = 1 << 20;

/// The ranges of a pool that are taken.
pub struct Ranges {
    pool_bytes: u64,
    /// By their offsets.
    taken: BTreeMap<u64, Range>,
    /// Counts uses.
    uses: u64,
}

struct Range {
    layer: Layer,
    /// What it holds; nothing before that is there, or if it could not be given back.
    key: Option<Key>,
    users: usize,
    last_use: u64,
}

impl Ranges {
    /// An empty pool of this size, in bytes.
    pub fn new(pool_bytes: u64) -> Self {
        Self { pool_bytes, taken: BTreeMap::new(), uses: 0 }
    }

    /// Adds a user to the range that holds this; returns its offset.
    pub fn take(&mut self, key: &Key) -> Option<u64> {
        self.uses += 1;
        let found = self.taken.iter_mut().find(|(_, range)| range.key.as_ref() == Some(key));
        found.map(|(offset, range)| {
            range.users += 1;
            range.last_use = self.uses;
            *offset
        })
    }

    /// Removes a user of the range at this offset.
    pub fn leave(&mut self, offset_bytes: u64) {
        if let Some(range) = self.taken.get_mut(&offset_bytes) {
            range.users = range.users.saturating_sub(1);
        }
    }

    /// The first free range of this length, in bytes, if there is one and there may be one more.
    pub fn find_free(&self, length_bytes: u64) -> Option<Layer> {
        if self.taken.len() >= Layer::MAX_COUNT {
            return None;
        }
        let length_bytes = length_bytes.checked_next_multiple_of(Layer::GRANULE_BYTES)?;
        let mut offset_bytes = ALIGNMENT_BYTES;
        for range in self.taken.values() {
            if offset_bytes.checked_add(length_bytes)? <= range.layer.offset_bytes {
                break;
            }
            let end = range.layer.offset_bytes + range.layer.length_bytes;
            offset_bytes = end.next_multiple_of(ALIGNMENT_BYTES);
        }
        let layer = Layer { offset_bytes, length_bytes };
        layer.check(self.pool_bytes).is_ok().then_some(layer)
    }

    /// Takes a free range, which holds nothing yet.
    pub fn add(&mut self, layer: Layer) {
        let range = Range { layer, key: None, users: 0, last_use: self.uses };
        self.taken.insert(layer.offset_bytes, range);
    }

    /// A range holds this from now on, for its first user.
    pub fn fill(&mut self, offset_bytes: u64, key: Key) {
        self.uses += 1;
        if let Some(range) = self.taken.get_mut(&offset_bytes) {
            range.key = Some(key);
            range.users = 1;
            range.last_use = self.uses;
        }
    }

    /// The range without users that was not used for longest. It holds nothing from now on, and is taken until it is
    /// [removed](Self::remove).
    pub fn clear_oldest(&mut self) -> Option<Layer> {
        let unused = self.taken.values_mut().filter(|range| range.users == 0);
        let oldest = unused.min_by_key(|range| range.last_use)?;
        oldest.key = None;
        // Others come first if it stays.
        oldest.last_use = self.uses;
        Some(oldest.layer)
    }

    /// Gives a range back.
    pub fn remove(&mut self, offset_bytes: u64) {
        self.taken.remove(&offset_bytes);
    }

    /// What the ranges at these offsets hold, and their lengths, in bytes.
    pub fn lengths(&self, offsets: &[u64]) -> BTreeMap<Key, u64> {
        let ranges = offsets.iter().filter_map(|offset| self.taken.get(offset));
        ranges.filter_map(|range| Some((range.key.clone()?, range.layer.length_bytes))).collect()
    }

    /// Whether an empty pool of this size has place for ranges of these lengths, in bytes, all at once.
    pub fn would_hold(&self, lengths: impl IntoIterator<Item = u64>) -> bool {
        let mut empty = Self::new(self.pool_bytes);
        lengths.into_iter().all(|length_bytes| {
            let free = empty.find_free(length_bytes);
            free.inspect(|layer| empty.add(*layer)).is_some()
        })
    }

    /// How many are taken.
    pub fn count(&self) -> usize {
        self.taken.len()
    }
}
