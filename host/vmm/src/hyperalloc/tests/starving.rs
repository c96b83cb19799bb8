//! A guest that asks for what the host keeps, and one that does so without end.

use super::{GIB, Guest, MIB, USABLE_BYTES, ZONE_AREAS};
use crate::hyperalloc::Grain;
use proptest::prelude::*;
use std::sync::Arc;

impl Guest {
    /// As the kernel does before it kills.
    pub(super) fn ask(&self, zone: usize, areas: u32) {
        let line = self.layouts[zone].live + 64;
        self.write(line + 8, &areas.to_le_bytes());
        self.write(line, &self.u32(line).wrapping_add(1).to_le_bytes());
    }
}

#[test]
fn what_the_guest_asks_for_goes_back_as_far_as_it_may() {
    let guest = Guest::new();
    guest.boot();
    guest.ask(0, 1);
    let reclaimer = guest.reclaimer();
    assert_eq!(reclaimer.asked_bytes(), 0, "whoever asked before now has killed");
    guest.ask(0, 1);
    assert_eq!(reclaimer.asked_bytes(), 0, "nothing is kept");

    reclaimer.hold(USABLE_BYTES).unwrap();
    assert_eq!((reclaimer.asked_bytes(), reclaimer.give_asked(u64::MAX)), (0, 0));
    guest.ask(0, 2);
    assert_eq!((reclaimer.asked_bytes(), reclaimer.asked_bytes()), (4 * MIB, 0));
    assert_eq!(reclaimer.give_asked(3 * MIB), 2 * MIB);
    assert_eq!((reclaimer.held_bytes(), guest.held()), (USABLE_BYTES - 2 * MIB, 2));
    assert_eq!(reclaimer.give_asked(u64::MAX), 0, "it has had its answer");

    // A refusal changes nothing.
    guest.ask(0, 1);
    assert_eq!((reclaimer.asked_bytes(), reclaimer.give_asked(0)), (2 * MIB, 0));
    assert_eq!(guest.held(), 2);
    guest.ask(0, u32::MAX);
    assert_eq!(reclaimer.asked_bytes(), 4 * MIB, "never more than is kept");
    assert_eq!(reclaimer.give_asked(u64::MAX), 4 * MIB);
    assert_eq!((reclaimer.held_bytes(), guest.held()), (0, 0));
}

#[test]
fn a_partition_has_nothing_to_ask_for() {
    let guest = Guest::new();
    guest.boot();
    let reclaimer = guest.reclaimer();
    reclaimer.hold(USABLE_BYTES).unwrap();
    guest.ask(1, 8);
    assert_eq!((reclaimer.asked_bytes(), reclaimer.give_asked(u64::MAX)), (0, 0));
}

/// It waits for a quarter of a second, and its answer for whoever works on the zone.
#[test]
fn whoever_works_on_a_zone_makes_way_for_the_answer() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    let reclaimer = guest.reclaimer();
    reclaimer.hold(2 * MIB).unwrap();
    guest.on_discard(0, |guest| guest.ask(0, 1));
    let is_asked = || assert_eq!(reclaimer.asked_bytes(), 2 * MIB);

    // One area at a time.
    guest.set_reserve((ZONE_AREAS - 1 - 1) * 512);
    assert_eq!(reclaimer.take(&(0..GIB), Grain::Area).unwrap().bytes, 2 * MIB);
    is_asked();

    // What there is something behind comes first.
    guest.set_reserve(0);
    reclaimer.hold(USABLE_BYTES).unwrap();
    assert_eq!(reclaimer.held_bytes(), 4 * MIB);
    is_asked();
    reclaimer.hold(2 * MIB).unwrap();

    guest.use_a_page_of_each_area();
    guest.fill();
    assert_eq!(reclaimer.take(&(0..GIB), Grain::Page).unwrap().bytes, 511 * 4096);
    is_asked();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// However often it asks, and for whatever: it has what it was given, and nothing else.
    #[test]
    fn who_asks_without_end_gets_no_more_than_it_is_given(
        asks in proptest::collection::vec((any::<u32>(), 0..3_u64, any::<bool>()), 1..40),
    ) {
        let guest = Guest::new();
        guest.boot();
        let reclaimer = guest.reclaimer();
        reclaimer.hold(USABLE_BYTES).unwrap();
        let mut given = 0;
        for (want, most, is_answered) in asks {
            let kept = reclaimer.held_bytes();
            guest.ask(0, want);
            prop_assert!(reclaimer.asked_bytes() <= kept);
            if is_answered {
                let bytes = reclaimer.give_asked(most * 2 * MIB);
                prop_assert!(bytes <= most * 2 * MIB);
                given += bytes;
            }
            reclaimer.take(&(0..u64::MAX), Grain::Area).unwrap();
            guest.fill();
            reclaimer.enforce().unwrap();
            prop_assert_eq!(reclaimer.held_bytes(), USABLE_BYTES - given);
            prop_assert!(guest.usable_resident() <= given);
        }
    }
}
