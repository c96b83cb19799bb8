//! The disk that images of layers and pools are on, beside much else of the node's.

use rustix::fs::fstatvfs;
use std::{io, os::fd::AsFd};

/// The part of a disk, as a divisor, that is left to others.
const LEFT_PART: u64 = 20;
/// How many such parts are to be free as long as there is something that can be made again. kubelet takes a disk with less
/// for short: it removes images of containers, and soon evicts pods.
const FREE_PARTS: u64 = 3;

/// What a disk has, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disk {
    pub(super) free_bytes: u64,
    pub(super) all_bytes: u64,
}

impl Disk {
    /// The one that this is on.
    pub(super) fn of(file: impl AsFd) -> io::Result<Self> {
        let found = fstatvfs(file)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Self { free_bytes: bytes(found.f_bavail), all_bytes: bytes(found.f_blocks) })
    }

    /// Whether it has room for so much more, in bytes. Nobody sees what is in the pools of VMs, and when a disk is full
    /// others pay for it.
    pub(super) fn has_room(self, more_bytes: u64) -> bool {
        self.free_bytes.saturating_sub(more_bytes) >= self.all_bytes / LEFT_PART
    }

    /// How much it lacks, in bytes, once it has so much more.
    pub(super) fn lacks_bytes(self, more_bytes: u64) -> u64 {
        let wanted_bytes = (self.all_bytes / LEFT_PART * FREE_PARTS).saturating_add(more_bytes);
        wanted_bytes.saturating_sub(self.free_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(free_bytes: u64, all_bytes: u64) -> Disk {
        Disk { free_bytes, all_bytes }
    }

    #[test]
    fn a_part_of_the_disk_is_left_to_others() {
        let has_room = |free, all, more| disk(free, all).has_room(more);
        assert!(has_room(10, 100, 5) && has_room(5, 100, 0) && has_room(0, 19, 0));
        assert!(!has_room(10, 100, 6) && !has_room(4, 100, 0) && !has_room(4, 100, u64::MAX));
    }

    #[test]
    fn a_disk_is_short_before_it_has_no_room() {
        for (free, more, lacks) in [(15, 0, 0), (14, 0, 1), (0, 0, 15), (15, 7, 7), (30, 7, 0)] {
            assert_eq!(disk(free, 100).lacks_bytes(more), lacks, "{free} and {more}");
        }
        assert_eq!(disk(0, u64::MAX).lacks_bytes(u64::MAX), u64::MAX);
    }
}
