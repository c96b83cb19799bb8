//! A host that takes long to discard something.

use super::{GIB, Guest, MIB, USABLE_BYTES, ZONE_AREAS};
use crate::hyperalloc::{Grain, Reclaimer, zone::ReclaimZone};
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes that waits for nobody.
const LONG: Duration = Duration::from_secs(60);

impl Guest {
    /// Its first discard of a piece of memory takes until it is told to go on.
    fn hold_up(self: &Arc<Self>, piece: usize) -> (Receiver<()>, Sender<()>) {
        let (begun, has_begun) = channel();
        let (go_on, may_go_on) = channel();
        let may_go_on = Mutex::new(may_go_on);
        self.on_discard(piece, move |_| {
            let _ = begun.send(());
            // Nobody holds it up any more once the sender is gone.
            let _ = may_go_on.lock().unwrap().recv_timeout(LONG);
        });
        (has_begun, go_on)
    }
}

/// Runs `others` while `slow` waits for a discard, and fails if one of them waits for it, too.
fn beside(
    guest: &Arc<Guest>,
    piece: usize,
    slow: impl FnOnce(&Reclaimer) + Send,
    others: impl FnOnce(&Reclaimer) + Send,
) {
    let reclaimer = guest.reclaimer();
    let (has_begun, go_on) = guest.hold_up(piece);
    let (done, is_done) = channel();
    thread::scope(|scope| {
        scope.spawn(|| slow(&reclaimer));
        has_begun.recv_timeout(LONG).unwrap();
        let reclaimer = &reclaimer;
        scope.spawn(move || {
            others(reclaimer);
            done.send(()).unwrap();
        });
        let waited = is_done.recv_timeout(LONG / 3);
        drop(go_on);
        waited.expect("somebody waits for a discard that is not theirs");
    });
}

#[test]
fn a_slow_discard_of_one_zone_delays_nobody_who_works_on_another() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    let partition = GIB..GIB + u64::from(ZONE_AREAS) * 2 * MIB;
    let whole = guest.memory.regions[0].part(&partition).unwrap();
    let slow = |reclaimer: &Reclaimer| {
        reclaimer.hold(USABLE_BYTES).unwrap();
    };
    beside(&guest, 0, slow, |reclaimer| {
        assert!(reclaimer.take(&partition, Grain::Page).unwrap().bytes > 0);
        assert_eq!(reclaimer.condemn(&whole).unwrap(), None);
        assert_eq!(reclaimer.take_idle(Grain::Area, || true).unwrap().bytes, 0);
        assert_eq!(reclaimer.held_bytes(), USABLE_BYTES, "what is discarded is not the guest's");
        assert_eq!(reclaimer.asked_bytes(), 0);
    });
}

#[test]
fn a_slow_discard_of_a_partition_delays_no_limit_and_no_sweep() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    let partition = GIB..GIB + u64::from(ZONE_AREAS) * 2 * MIB;
    let slow = |reclaimer: &Reclaimer| {
        assert!(reclaimer.take(&partition, Grain::Area).unwrap().bytes > 0);
    };
    beside(&guest, 1, slow, |reclaimer| {
        // What the sweep leaves out is taken by whoever works on it.
        assert_eq!(reclaimer.take_idle(Grain::Area, || true).unwrap().bytes, USABLE_BYTES);
        reclaimer.hold(USABLE_BYTES).unwrap();
        assert_eq!(
            (reclaimer.enforce().unwrap().pieces, reclaimer.held_bytes()),
            (0, USABLE_BYTES)
        );
    });
}

/// A guest that asks waits for a quarter of a second, and then kills.
#[test]
fn slow_work_on_one_zone_delays_no_answer_of_another() {
    let guest = Guest::new().with_a_zone_below();
    guest.boot();
    let reclaimer = guest.reclaimer();
    reclaimer.hold(USABLE_BYTES + 4 * MIB).unwrap();
    for both_ask in [false, true] {
        let kept = reclaimer.held_bytes();
        guest.ask(0, 1);
        if both_ask {
            guest.ask(1, 1);
        }
        assert_eq!(reclaimer.asked_bytes(), 2 * MIB * (1 + u64::from(both_ask)));
        let below = reclaimer.zones.iter().find(|zone| zone.is_within(&(0..16 * MIB))).unwrap();
        thread::scope(|scope| {
            let slow = below.work();
            let answer = scope.spawn(|| reclaimer.give_asked(u64::MAX));
            let is_answered = || reclaimer.held_bytes() == kept - 2 * MIB;
            let begin = Instant::now();
            // Only who is asked for the memory of the other zone, too, waits for it.
            while !(is_answered() && (both_ask || answer.is_finished())) {
                assert!(begin.elapsed() < LONG / 3, "the answer waits for another zone");
                thread::sleep(Duration::from_millis(1));
            }
            drop(slow);
            assert!(answer.join().unwrap() >= 2 * MIB);
        });
    }
}

/// A host that keeps nothing has nothing to enforce.
#[test]
fn nobody_waits_to_enforce_nothing() {
    let guest = Arc::new(Guest::new());
    guest.boot();
    let slow = |reclaimer: &Reclaimer| {
        assert!(reclaimer.take(&(0..GIB), Grain::Area).unwrap().bytes > 0);
    };
    beside(&guest, 0, slow, |reclaimer| assert_eq!(reclaimer.enforce().unwrap().pieces, 0));
}

/// Its VM has been resumed, say.
#[test]
fn a_sweep_of_single_pages_ends_between_two_areas() {
    let guest = Guest::new();
    guest.boot();
    guest.use_a_page_of_each_area();
    let reclaimer = guest.reclaimer();
    let looks = Cell::new(0);
    let goes_on = || looks.replace(looks.get() + 1) < 2;
    let taken = reclaimer.take_idle(Grain::Page, goes_on).unwrap();
    assert_eq!(taken.bytes, 2 * 511 * 4096);
    let rest = reclaimer.take_idle(Grain::Page, || true).unwrap();
    assert_eq!(rest.bytes, (3 + u64::from(ZONE_AREAS) - 2) * 511 * 4096);
}

/// How many areas of a partition its guest lacks at each discard while this is done twice. Each discard takes ten times
/// as long as areas are to be in hand.
fn lacks_at_discards(work: impl Fn(&mut ReclaimZone)) -> Vec<u32> {
    let guest = Arc::new(Guest::new());
    guest.boot();
    let (lacks, at_discards) = channel();
    guest.on_discard(1, move |guest| {
        lacks.send(guest.counted(1).1).unwrap();
        thread::sleep(Duration::from_millis(20));
    });
    let reclaimer = guest.reclaimer();
    let partition = reclaimer.zones.iter().find(|zone| zone.is_partition()).unwrap();
    for _ in 0..2 {
        work(&mut partition.work());
        // It uses all of it, and frees it.
        guest.fill();
        guest.boot();
    }
    at_discards.try_iter().collect()
}

#[test]
fn fewer_areas_are_in_hand_at_a_time_after_a_slow_discard() {
    let given_back = lacks_at_discards(|zone| {
        zone.reclaim_areas(Grain::Area).unwrap();
    });
    assert_eq!(given_back, [16, 8, 8]);
    let kept = lacks_at_discards(|zone| {
        zone.keep_more(ZONE_AREAS).unwrap();
        zone.keep_less(ZONE_AREAS);
    });
    assert_eq!(kept, [16, 8, 8 + 8]);
}
