//! Layers of roots: read-only file systems (erofs) in ranges of one drive, the pool.
//!
//! The host writes a layer to a free range of the pool, tells the agent of it, and starts any number of instances on it.
//! All of them share its page cache.

use serde::{Deserialize, Serialize};

/// A layer in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Where it begins, in bytes from the start of the drive; a multiple of [`Layer::GRANULE_BYTES`].
    pub offset_bytes: u64,
    /// Its length in bytes, likewise.
    pub length_bytes: u64,
}

/// Why a range is no place for a [`Layer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a layer begins at a multiple of {} bytes, has a length of at least one and ends within the pool",
    Layer::GRANULE_BYTES
)]
pub struct InvalidLayer;

impl Layer {
    /// `serial` of the virtio-blk drive that is the pool.
    pub const POOL_SERIAL: &'static str = "pool";
    /// What offsets and lengths are multiples of: a page, and a block of the file system.
    pub const GRANULE_BYTES: u64 = 4096;
    /// Most layers of a VM: Linux has 255 partitions of a drive.
    pub const MAX_COUNT: usize = 255;
    /// Most layers of one root, as in containerd.
    pub const MAX_OF_ROOT: usize = 128;

    /// Checks that it is a range of a pool of this size, in bytes.
    ///
    /// # Errors
    /// It is not.
    pub fn check(self, pool_bytes: u64) -> Result<(), InvalidLayer> {
        let aligned = (self.offset_bytes | self.length_bytes).is_multiple_of(Self::GRANULE_BYTES);
        let end = self.offset_bytes.checked_add(self.length_bytes);
        let fits = self.length_bytes > 0 && end.is_some_and(|end| end <= pool_bytes);
        if aligned && fits { Ok(()) } else { Err(InvalidLayer) }
    }

    /// Whether it shares a byte with another one. Both must be valid.
    pub fn overlaps(self, other: Self) -> bool {
        self.offset_bytes < other.offset_bytes + other.length_bytes
            && other.offset_bytes < self.offset_bytes + self.length_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(offset_bytes: u64, length_bytes: u64) -> Layer {
        Layer { offset_bytes, length_bytes }
    }

    #[test]
    fn a_layer_is_a_range_of_whole_pages_within_the_pool() {
        let pool_bytes = 1 << 20;
        for (offset, length) in [(0, 4096), (4096, 8192), (0, 1 << 20), ((1 << 20) - 4096, 4096)] {
            assert_eq!(layer(offset, length).check(pool_bytes), Ok(()), "{offset} {length}");
        }
        for (offset, length) in [
            (0, 0),
            (1, 4096),
            (0, 4097),
            (512, 4096),
            (4096, 1 << 20),
            (1 << 20, 4096),
            (u64::MAX - 4095, 4096),
            (4096, u64::MAX - 4095),
        ] {
            assert_eq!(
                layer(offset, length).check(pool_bytes),
                Err(InvalidLayer),
                "{offset} {length}"
            );
        }
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let middle = layer(8192, 8192);
        for (offset, length, overlaps) in [
            (0, 8192, false),
            (16384, 4096, false),
            (4096, 8192, true),
            (12288, 4096, true),
            (0, 65536, true),
            (8192, 4096, true),
        ] {
            let other = layer(offset, length);
            assert_eq!(middle.overlaps(other), overlaps, "{other:?}");
            assert_eq!(other.overlaps(middle), overlaps, "{other:?}");
        }
    }
}
