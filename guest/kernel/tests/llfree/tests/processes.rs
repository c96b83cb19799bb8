//! Processors of the guest and a host at full speed, the host in a process of its own that is killed at random.
//!
//! `SQUEEZY_LLFREE_OPERATIONS` says how many operations of the host there are; `make stress` asks for 10^8. One is an
//! area that is taken, one that is given back, or the single pages of an area that are discarded.

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

/// How many operations a host does that is left alone; one that is killed does a tenth of that.
fn operations() -> u64 {
    let wanted = std::env::var("SQUEEZY_LLFREE_OPERATIONS").ok();
    wanted.map_or(300_000, |text| text.parse().expect("a number of operations"))
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

/// Takes areas, as if to discard what is in them, and gives them back; keeps some for a while. And now and then
/// discards single pages of an area.
fn reclaim(
    state: &State,
    zone: &mut Zone<SharedMemory>,
    kept: &mut [AreaSet],
    random: &mut ChaCha8Rng,
) {
    let hand = zone.hand();
    let mut held = kept.iter().map(|areas| areas.len()).sum::<u32>();
    let discard = |tree: TreeIndex, areas: AreaSet| {
        for area in areas.numbers() {
            state.owners().assert_host_may_discard(tree.0 * 8 + area);
        }
        state.operations().fetch_add(areas.len().into(), Relaxed);
    };
    for _ in 0..4 {
        let tree = TreeIndex(random.next_u32() % kept.len() as u32);
        let ours = &mut kept[tree.0 as usize];
        let wanted = AreaSet(random.next_u32() as u8).without(*ours);
        let taken = hand.take(tree, hand.free_areas(tree).of(wanted));
        discard(tree, taken);
        let keep = taken.intersection(AreaSet(random.next_u32() as u8));
        held += keep.len();
        hand.keep(held);
        *ours = ours.with_all(keep);
        let back = taken.without(keep);
        discard(tree, back);
        assert!(hand.give(tree, back).is_empty());
        let number = random.next_u32();
        if number.is_multiple_of(2) {
            let back = std::mem::take(ours);
            discard(tree, back);
            // Some of it could not be discarded.
            let unchanged = back.intersection(AreaSet((number >> 8) as u8));
            assert!(hand.give_unchanged(tree, unchanged).is_empty());
            assert!(hand.give(tree, back.without(unchanged)).is_empty());
            held -= back.len();
            hand.keep(held);
        }
    }
    let area = random.next_u32() % AREAS;
    let (tree, area) = (TreeIndex(area / 8), area % 8);
    if let Some(pages) = hand.isolate(tree, area) {
        for _ in 0..2 {
            for run in pages.runs() {
                state.owners().assert_host_may_discard_pages(tree.0 * 8 + area, run);
            }
        }
        state.operations().fetch_add(1, Relaxed);
    }
    hand.release(tree, AreaSet::EMPTY.with(area));
}

/// A host from the moment it adopts the zone until it is told to stop.
fn host(state: &State, seed: u64, stop: &AtomicBool) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    state.hosts().fetch_add(1, Relaxed);
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

/// How fast it was, for people.
fn say(calls: u64, operations: u64, begin: Instant) {
    let seconds = begin.elapsed().as_secs_f64();
    println!("{calls} calls of the guest, {operations} operations of the host in {seconds:.1} s");
}

#[test]
fn a_host_in_a_thread() {
    let (state, begin) = (State::new(AREAS), Instant::now());
    let guest = Guest::boot(&state);
    let done = || state.operations().load(Relaxed);
    let calls = with_processors(&guest, || {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let host = scope.spawn(|| host(&state, 1, &stop));
            while done() < operations() && !host.is_finished() {
                thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
        });
    });
    assert_all_free(&state, &guest);
    say(calls, done(), begin);
    assert!(calls > 1000 && done() >= operations());
}

#[test]
fn a_host_that_is_killed_again_and_again() {
    let (state, begin) = (State::new(AREAS), Instant::now());
    let guest = Guest::boot(&state);
    let mut killed = 0;
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let wanted = operations() / 10;
    let done = || state.operations().load(Relaxed);
    let calls = with_processors(&guest, || {
        while done() < wanted || killed < 20 {
            let before = state.hosts().load(Relaxed);
            let mut host = another_process(&state);
            while state.hosts().load(Relaxed) == before {
                assert_eq!(host.try_wait().unwrap(), None, "the host has ended by itself");
                thread::yield_now();
            }
            // At any moment, and one in four while it takes over from the one before.
            let number = random.next_u32();
            let life = if number % 4 == 0 { number % 50 } else { number % 20_000 };
            let end = Instant::now() + Duration::from_micros(life.into());
            while Instant::now() < end {
                if end - Instant::now() > Duration::from_micros(200) {
                    thread::sleep(Duration::from_micros(100));
                }
            }
            host.kill().unwrap();
            assert_eq!(host.wait().unwrap().signal(), Some(9), "the host has failed");
            killed += 1;
        }
    });
    assert_all_free(&state, &guest);
    say(calls, done(), begin);
    println!("{killed} hosts were killed");
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
