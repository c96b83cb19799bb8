//! A guest that breaks every rule.
//!
//! `SQUEEZY_LLFREE_SECONDS` says for how long it scribbles; `make stress` does so for longer.

use super::{GIB, Guest, MIB, STATE, STATE_BYTES, USABLE_BYTES, ZONE_AREAS};
use crate::hyperalloc::{Grain, Reclaimer};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng},
};
use squeezy_llfree::{Mapping, ZoneLayout, header};
use squeezy_protocol::LlfreeState;
use std::{
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Writes anything anywhere in the zone's state, mostly what looks like something.
fn scribble(state: &Mapping, layout: &ZoneLayout, seed: u8, stop: &AtomicBool) {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let word = |offset: u64| {
        // SAFETY: the offset is within the mapping and a multiple of 8.
        unsafe { AtomicU64::from_ptr(state.base().as_ptr().add(offset as usize).cast()) }
    };
    let plausible: [u64; 6] = [
        0x0200_0200_0200_0200,
        0x0c00_0a00_0200_0400,
        0x0a00_0a00_0a00_0a00,
        0x1200_1001_0007_0200,
        0x0000_1000_07f8_1000,
        0,
    ];
    while !stop.load(Relaxed) {
        let number = random.next_u64();
        let parts = [
            (layout.live, layout.bits),
            (layout.bits, layout.area),
            (layout.area, layout.tree),
            (layout.tree, layout.end),
        ];
        let (start, end) = parts[number as usize % parts.len()];
        let offset = (start + (number >> 8) % (end - start)) & !7;
        let value = match number >> 60 {
            0..4 => random.next_u64(),
            _ => plausible[(number >> 40) as usize % plausible.len()]
                .rotate_left((number >> 32) as u32 % 4 * 16),
        };
        word(offset).store(value, Relaxed);
    }
}

/// Ends those who scribble, also if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_guest_that_scribbles_loses_nothing_but_its_zone() {
    let seconds = std::env::var("SQUEEZY_LLFREE_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(3));
    let guest = Guest::new();
    let state = guest.state();
    let stop = AtomicBool::new(false);
    let (mut calls, mut condemned, mut bytes, mut longest) = (0_u64, 0_u64, 0_u64, Duration::ZERO);
    let is_enough =
        |calls: u64, bytes: u64, condemned: u64| calls > 100 && bytes > 0 && condemned > 0;
    thread::scope(|scope| {
        for seed in 0..2 {
            let (state, layout, stop) = (&state, &guest.layouts[usize::from(seed)], &stop);
            scope.spawn(move || scribble(state, layout, seed, stop));
        }
        let _stop = StopAtEnd(&stop);
        let begin = Instant::now();
        let mut reclaimer = guest.reclaimer();
        let region = &guest.memory.regions[0];
        let partition = region.part(&(GIB..GIB + u64::from(ZONE_AREAS) * 2 * MIB)).unwrap();
        // On a busy machine those who scribble may not have begun by then.
        while begin.elapsed() < time
            || !is_enough(calls, bytes, condemned) && begin.elapsed() < 20 * time
        {
            let grain = if calls.is_multiple_of(2) { Grain::Area } else { Grain::Page };
            let taken = reclaimer.take(&(0..u64::MAX), grain).unwrap();
            bytes += taken.bytes;
            reclaimer.hold((calls % 5) * 4 * MIB).unwrap();
            assert!(reclaimer.held_bytes() <= USABLE_BYTES, "{} bytes", reclaimer.held_bytes());
            assert!(reclaimer.asked_bytes() <= reclaimer.held_bytes());
            assert!(reclaimer.give_asked(2 * MIB) <= 2 * MIB);
            reclaimer.enforce().unwrap();
            if let Some(bytes) = reclaimer.condemn(&partition).unwrap() {
                assert!(bytes <= partition.bytes(), "{bytes} bytes of a partition");
                condemned += 1;
            }
            longest = longest.max(taken.took);
            calls += 1;
            if calls.is_multiple_of(3) {
                // Whoever takes over finds nonsense, too.
                drop(reclaimer);
                reclaimer = guest.reclaimer();
                assert!(reclaimer.held_bytes() <= USABLE_BYTES, "adopted");
            }
            if calls.is_multiple_of(300) {
                guest.assert_rest_is_whole();
                guest.fill();
            }
        }
    });
    guest.assert_rest_is_whole();
    println!("{calls} calls took {bytes} bytes, the longest {longest:?}; {condemned} condemned");
    assert!(is_enough(calls, bytes, condemned), "{calls} calls, {bytes} bytes, {condemned}");
}

/// However long the work on one guest takes: nobody else's waits for it, because there is nothing that both need. So
/// how long it may take at most need not be measured here; what bounds it is counted in `squeezy-llfree` and in
/// `spare.rs`.
#[test]
fn a_guest_that_is_worked_on_without_end_holds_up_no_other() {
    let (stuck, other) = (Guest::new(), Guest::new());
    let (endless, reclaimer) = (stuck.reclaimer(), other.reclaimer());
    let _worked_on = endless.work_on_all();
    let (done, is_done) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            reclaimer.take(&(0..u64::MAX), Grain::Page).unwrap();
            reclaimer.hold(4 * MIB).unwrap();
            reclaimer.enforce().unwrap();
            reclaimer.condemn(&other.memory.regions[0]).unwrap();
            drop(reclaimer);
            drop(other.reclaimer());
            done.send(()).unwrap();
        });
        if is_done.recv_timeout(Duration::from_secs(60)).is_err() {
            // The scope would wait for it for ever.
            eprintln!("one guest waits for the work on another");
            std::process::abort();
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever a guest says of its zones, the host discards nothing outside of them, and not the state.
    #[test]
    fn no_header_makes_the_host_discard_anything_else(
        zones in proptest::collection::vec(
            (prop_oneof![0..16_u64, Just(64), any::<u64>()], 0..40_u32, 190..700_u64), 0..4),
        changes in proptest::collection::vec((0..200_u64, any::<u8>()), 0..4),
    ) {
        let guest = Guest::new();
        let zones: Vec<_> = zones
            .into_iter()
            .map(|(tree, areas, offset)| (tree.wrapping_mul(4096), areas, offset * 64))
            .collect();
        let file = guest.file(&guest.memory.base[0]);
        // Read as an area, it is free.
        let free: Vec<_> = std::iter::repeat_n(512_u16.to_le_bytes(), 20_000).flatten().collect();
        file.write_all_at(&free, STATE + 12288).unwrap();
        guest.write_header(&zones);
        for (at, byte) in changes {
            file.write_all_at(&[byte], STATE + at).unwrap();
        }
        let header = guest.state().header();
        let pieces: Vec<_> = guest.memory.pieces().map(|piece| piece.guest.clone()).collect();
        let described = header::read(&header, &(STATE..STATE + STATE_BYTES), &pieces);
        let state = LlfreeState { address: STATE, bytes: STATE_BYTES };
        let opened = Reclaimer::open(state, &guest.memory);
        prop_assert_eq!(opened.is_ok(), described.is_ok());
        let (Ok(reclaimer), Ok(described)) = (opened, described) else { return Ok(()) };
        for grain in [Grain::Area, Grain::Page] {
            reclaimer.take(&(0..u64::MAX), grain).unwrap();
        }
        reclaimer.hold(8 * MIB).unwrap();
        reclaimer.hold(0).unwrap();
        let is_zones = |address: &u64| described.iter().any(|zone| zone.memory.contains(address));
        let is_beside = |address: &u64| (STATE..STATE + 2 * MIB).contains(address);
        prop_assert_eq!(guest.lost(|address| !is_zones(address) || is_beside(address)), None);
    }
}

/// More of them with `PROPTEST_CASES`, as in `make stress`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}
