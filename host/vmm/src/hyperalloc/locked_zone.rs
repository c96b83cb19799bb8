//! A zone that one thread at a time works on, and what is known of it without a wait for that thread.

use super::zone::ReclaimZone;
use squeezy_llfree::AREA_BYTES;
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

/// A zone of a guest. To work on it may take seconds, for as long as the host discards.
#[derive(Debug)]
pub(super) struct LockedZone {
    /// The guest's physical addresses that it spans.
    guest: Range<u64>,
    is_partition: bool,
    /// Areas that the host keeps, as the zone counts them.
    kept: Arc<AtomicU32>,
    /// Whether the guest has asked for some of them and has had no answer.
    asked: AtomicBool,
    zone: Mutex<ReclaimZone>,
}

impl LockedZone {
    /// A zone at these of the guest's physical addresses.
    pub(super) fn new(guest: Range<u64>, is_partition: bool, zone: ReclaimZone) -> Self {
        let kept = zone.kept.counter();
        Self { guest, is_partition, kept, asked: false.into(), zone: Mutex::new(zone) }
    }

    /// Whether it is a partition's.
    pub(super) fn is_partition(&self) -> bool {
        self.is_partition
    }

    /// Whether all of it is at these of the guest's physical addresses.
    pub(super) fn is_within(&self, guest: &Range<u64>) -> bool {
        guest.start <= self.guest.start && self.guest.end <= guest.end
    }

    /// What the host keeps of it, in bytes. Of one that is being worked on: at the moment.
    pub(super) fn kept_bytes(&self) -> u64 {
        u64::from(self.kept.load(Relaxed)) * AREA_BYTES
    }

    /// Notes that the guest has asked for some of that.
    pub(super) fn note_asked(&self) {
        self.asked.store(true, Relaxed);
    }

    /// Whether it has since the last call.
    pub(super) fn has_asked(&self) -> bool {
        self.asked.swap(false, Relaxed)
    }

    /// Whether whoever worked on it last has failed in the middle.
    pub(super) fn has_failed(&self) -> bool {
        self.zone.is_poisoned()
    }

    /// The zone, once nobody else works on it. If whoever did so before has failed in the middle, what it left is put
    /// in order.
    pub(super) fn work(&self) -> MutexGuard<'_, ReclaimZone> {
        self.zone.lock().unwrap_or_else(|poisoned| self.in_order(poisoned.into_inner()))
    }

    /// The zone for no longer than a look, if nobody works on it and nobody has failed.
    pub(super) fn glance(&self) -> Option<MutexGuard<'_, ReclaimZone>> {
        self.zone.try_lock().ok()
    }

    /// As [`Self::work`], if nobody else works on it now.
    pub(super) fn work_if_idle(&self) -> Option<MutexGuard<'_, ReclaimZone>> {
        match self.zone.try_lock() {
            Ok(zone) => Some(zone),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.in_order(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn in_order<'a>(&self, mut left: MutexGuard<'a, ReclaimZone>) -> MutexGuard<'a, ReclaimZone> {
        left.recover();
        self.zone.clear_poison();
        left
    }
}
