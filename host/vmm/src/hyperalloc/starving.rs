//! A guest that is about to kill somebody for want of memory, while the host keeps some of it.
//!
//! All that the guest says is how often, and how much would do. Both may be lies, so what it gets is up to the caller.

use super::{LockedZone, Reclaimer, zone::ReclaimZone};
use squeezy_llfree::{AREA_BYTES, SharedMemory, Zone};
use std::time::{Duration, Instant};

/// For how long what a guest has asked for can be given. Of two zones it asks one after the other, each for a quarter
/// of a second.
const ASKED_FOR: Duration = Duration::from_millis(500);

/// What a guest asks for.
#[derive(Debug)]
pub(super) struct Asked {
    /// How often it had asked when the host last looked.
    seen: u32,
    /// Areas that it asked for then and has not been given, and when that was.
    areas: Option<(u32, Instant)>,
    /// Since when whoever works on the zone knows that it has asked once more.
    unheard: Option<Instant>,
}

impl Asked {
    /// Nothing: whoever asked before now has killed.
    pub(super) fn before(zone: &Zone<SharedMemory>) -> Self {
        Self { seen: zone.starved(), areas: None, unheard: None }
    }

    /// Whether somebody may still answer a guest that has asked so often. Who does not listen has refused.
    fn may_be_answered(&mut self, starved: u32, now: Instant) -> bool {
        starved != self.seen && now.duration_since(*self.unheard.get_or_insert(now)) < ASKED_FOR
    }
}

impl ReclaimZone {
    /// Whether the guest has asked since the last look, of a zone of which something is kept. Whoever works on the zone
    /// then ends soon: the answer waits for that, and the guest not long for the answer.
    pub(super) fn is_asked(&mut self) -> bool {
        let starved = self.zone.starved();
        self.kept.count() > 0 && self.asked.may_be_answered(starved, Instant::now())
    }

    /// Areas that the guest has asked for since the last look, of those that are kept.
    fn asked_since(&mut self) -> u32 {
        let starved = self.zone.starved();
        self.asked.unheard = None;
        if std::mem::replace(&mut self.asked.seen, starved) == starved {
            return 0;
        }
        let areas = self.zone.wanted_areas().min(self.kept.count());
        self.asked.areas = Some((areas, Instant::now()));
        areas
    }

    /// Gives back what the guest has asked for, but no more areas than this; returns how many.
    fn give_asked(&mut self, most: u32) -> u32 {
        let asked = self.asked.areas.take().filter(|(_, since)| since.elapsed() < ASKED_FOR);
        let areas = asked.map_or(0, |(areas, _)| areas.min(self.kept.count()).min(most));
        if areas > 0 {
            self.keep_less(areas);
        }
        areas
    }
}

impl Reclaimer {
    /// How many bytes the guest has asked for since the last look, of what the host keeps. Waits for nobody: what
    /// somebody else works on is looked at the next time.
    pub(crate) fn asked_bytes(&self) -> u64 {
        let asked = |zone: &LockedZone| {
            let areas = zone.glance()?.asked_since();
            if areas > 0 {
                zone.note_asked();
            }
            Some(u64::from(areas) * AREA_BYTES)
        };
        self.boot_zones().filter_map(asked).sum()
    }

    /// Gives back what the last look has found, but no more bytes than this; returns how many. Each zone gets its own:
    /// the guest waits for that. What somebody else works on is waited for when the others have been given theirs.
    pub(crate) fn give_asked(&self, most_bytes: u64) -> u64 {
        let mut left = most_bytes / AREA_BYTES;
        let most = left;
        let mut give = |zone: &mut ReclaimZone| {
            let most = u32::try_from(left).unwrap_or(u32::MAX);
            left -= u64::from(zone.give_asked(most));
        };
        let mut busy = Vec::new();
        for zone in self.boot_zones().filter(|zone| zone.has_asked()) {
            match zone.work_if_idle() {
                Some(mut zone) => give(&mut zone),
                None => busy.push(zone),
            }
        }
        busy.into_iter().for_each(|zone| give(&mut zone.work()));
        (most - left) * AREA_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However often the guest asks: nobody listens.
    #[test]
    fn whoever_works_on_a_zone_does_not_make_way_for_an_answer_that_never_comes() {
        let mut asked = Asked { seen: u32::MAX, areas: None, unheard: None };
        let start = Instant::now();
        assert!(!asked.may_be_answered(u32::MAX, start), "it has not asked");
        let later = start + Duration::from_mins(1);
        assert!(asked.may_be_answered(0, later));
        assert!(asked.may_be_answered(1, later + ASKED_FOR / 2));
        assert!(!asked.may_be_answered(1, later + ASKED_FOR));
        assert!(!asked.may_be_answered(2, later + 2 * ASKED_FOR));
    }
}
