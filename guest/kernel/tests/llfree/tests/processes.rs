//! Processors of the guest and a host at full speed, the host in a process of its own that is killed at random.
//!
//! `SQUEEZY_LLFREE_SECONDS` says for how long each test runs; `make stress` does so for minutes.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use squeezy_llfree::{AreaSet, SharedMemory, TreeIndex, Zone};
use squeezy_llfree_tests::{Block, Guest, State, Type};
use std::{
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::{Child, Command},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const AREAS: u32 = 60;
/// In a process that is the host: the number of the state's file.
const FILE: &str = "SQUEEZY_LLFREE_FILE";
/// Blocks that a processor has at most.
const MOST_BLOCKS: usize = 2000;

fn time() -> Duration {
    let seconds = std::env::var("SQUEEZY_LLFREE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Allocates and frees until it is told to stop, in waves that fill the zone and empty it.
fn processor(guest: &Guest, seed: u64, stop: &AtomicBool) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut blocks: Vec<Block> = Vec::new();
    let mut calls = 0_u64;
    while !stop.load(Relaxed) {
        calls += 1;
        let number = random.next_u32();
        let fills = (calls >> 13).is_multiple_of(2);
        if blocks.len() < MOST_BLOCKS && number % 8 < if fills { 5 } else { 3 } {
            let order =
                [0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10][(number >> 8) as usize % 16];
            let of = match order {
                9.. => Type::Huge,
                _ if number >> 16 & 1 == 0 => Type::Movable,
                _ => Type::Unmovable,
            };
            blocks.extend(guest.get(order, of));
        } else if !blocks.is_empty() {
            let Block { page, order, .. } = blocks.swap_remove(number as usize % blocks.len());
            let part = if number >> 20 & 3 == 0 { order.min(number >> 24 & 3) } else { order };
            for piece in 0..1 << (order - part) {
                guest.free_part(page + (piece << part), part);
            }
        }
    }
    blocks.drain(..).for_each(|block| guest.free(block));
    calls
}

/// Takes areas, as if to discard what is in them, and gives them back; keeps some for a while.
fn reclaim(
    state: &State,
    zone: &mut Zone<SharedMemory>,
    kept: &mut [AreaSet],
    random: &mut ChaCha8Rng,
) {
    let hand = zone.hand();
    let mut held = kept.iter().map(|areas| areas.len()).sum::<u32>();
    let mut areas_moved = 0;
    let discard = |tree: TreeIndex, areas: AreaSet| {
        for area in areas.numbers() {
            state.owners().assert_host_may_discard(tree.0 * 8 + area);
        }
    };
    for _ in 0..4 {
        let tree = TreeIndex(random.next_u32() % kept.len() as u32);
        let ours = &mut kept[tree.0 as usize];
        let wanted = AreaSet(random.next_u32() as u8).without(*ours);
        let taken = hand.take(tree, hand.free_areas(tree).of(wanted));
        areas_moved += u64::from(taken.len());
        discard(tree, taken);
        let keep = taken.intersection(AreaSet(random.next_u32() as u8));
        held += keep.len();
        hand.keep(held);
        *ours = AreaSet(ours.0 | keep.0);
        let back = taken.without(keep);
        discard(tree, back);
        assert!(hand.give(tree, back).is_empty());
        if random.next_u32().is_multiple_of(2) {
            let back = std::mem::take(ours);
            discard(tree, back);
            assert!(hand.give(tree, back).is_empty());
            held -= back.len();
            hand.keep(held);
        }
    }
    state.counter().fetch_add(areas_moved, Relaxed);
}

/// A host from the moment it adopts the zone until it is told to stop.
fn host(state: &State, seed: u64, stop: &AtomicBool) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut zone, held) = Zone::adopt(state.host());
    let mut kept = vec![AreaSet::EMPTY; zone.trees().count()];
    for (tree, areas) in held {
        areas.numbers().for_each(|area| state.owners().assert_host_may_discard(tree.0 * 8 + area));
        kept[tree.0 as usize] = areas;
    }
    zone.settle(kept.iter().map(|areas| areas.len()).sum());
    while !stop.load(Relaxed) {
        reclaim(state, &mut zone, &mut kept, &mut random);
    }
}

/// Everything that a host had is given back, everything is free, and nothing is lost.
fn assert_all_free(state: &State, guest: &Guest) {
    let (mut zone, held) = Zone::adopt(state.host());
    let hand = zone.hand();
    for (tree, areas) in held {
        assert!(hand.give(tree, areas).is_empty());
    }
    drop(hand);
    zone.settle(0);
    assert_eq!(state.problem(), None);
    assert_eq!(
        (guest.free_pages(), guest.unused_pages()),
        (u64::from(AREAS) * 512, u64::from(AREAS) * 512)
    );
}

/// Runs processors of the guest for as long as `others` takes.
fn with_processors(guest: &Guest, others: impl FnOnce()) -> u64 {
    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (stop, calls) = (&stop, &calls);
            scope.spawn(move || calls.fetch_add(processor(guest, seed, stop), Relaxed));
        }
        /// Also when `others` panics: nobody would end otherwise.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _stop = Stop(&stop);
        others();
    });
    calls.into_inner()
}

#[test]
fn a_host_in_a_thread() {
    let state = State::new(AREAS);
    let guest = Guest::boot(&state);
    let calls = with_processors(&guest, || {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| host(&state, 1, &stop));
            thread::sleep(time());
            stop.store(true, Relaxed);
        });
    });
    assert_all_free(&state, &guest);
    let areas = state.counter().load(Relaxed);
    println!("{calls} calls of the guest, {areas} areas taken by the host");
    assert!(calls > 1000 && areas > 1000);
}

#[test]
fn a_host_that_is_killed_again_and_again() {
    let state = State::new(AREAS);
    let guest = Guest::boot(&state);
    let mut killed = 0;
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let calls = with_processors(&guest, || {
        let end = Instant::now() + time();
        while Instant::now() < end {
            let before = state.counter().load(Relaxed);
            let mut host = another_process(&state);
            // Until it works, and then at any moment.
            while state.counter().load(Relaxed) == before {
                assert_eq!(host.try_wait().unwrap(), None, "the host has ended by itself");
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_micros(u64::from(random.next_u32() % 3000)));
            host.kill().unwrap();
            assert_eq!(host.wait().unwrap().signal(), Some(9), "the host has failed");
            killed += 1;
        }
    });
    assert_all_free(&state, &guest);
    let areas = state.counter().load(Relaxed);
    println!("{calls} calls of the guest, {areas} areas taken by {killed} hosts that were killed");
    assert!(killed > 10);
}

/// This program once more, as a host on the same state.
fn another_process(state: &State) -> Child {
    let file = state.file();
    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "another_process_is_the_host", "--ignored", "--nocapture"])
        .env(FILE, file.as_raw_fd().to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "this is what `a_host_that_is_killed_again_and_again` starts"]
fn another_process_is_the_host() {
    let file = std::env::var(FILE).unwrap().parse().unwrap();
    // SAFETY: the parent passes the file on under this number, and nobody else here uses it.
    let state = State::open(unsafe { OwnedFd::from_raw_fd(file) }, AREAS);
    host(&state, std::process::id().into(), &AtomicBool::new(false));
}
