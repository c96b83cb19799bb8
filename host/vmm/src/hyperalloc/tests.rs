//! A guest that breaks every rule.
//!
//! `SQUEEZY_LLFREE_SECONDS` says for how long it scribbles; `make stress` does so for longer.

use super::{Grain, Reclaimer};
use crate::host_memory::{HostMemory, MemoryFile, MemoryPiece};
use proptest::test_runner::{RngAlgorithm, TestRng};
use squeezy_llfree::{Mapping, ZoneLayout, header::HEADER_BYTES};
use squeezy_protocol::LlfreeState;
use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const STATE: u64 = 18 * MIB;
const STATE_BYTES: u64 = 64 << 10;
const ZONE_AREAS: u32 = 16;
/// The memory that it has booted with begins before its zone, ends in the middle of it and has the state in it. The
/// region has two partitions, and only the first is LLFree's.
const ZONE_STARTS: [u64; 2] = [16 * MIB, GIB];
const BASE_BYTES: u64 = 25 * MIB;
const REGION_BYTES: u64 = 64 * MIB;

/// A guest whose memory is all there, each page with its own address in it.
struct Guest {
    memory: HostMemory,
    layouts: [ZoneLayout; 2],
}

impl Guest {
    fn new() -> Self {
        let piece = |start: u64, bytes| MemoryPiece {
            guest: start..start + bytes,
            host_start: 0,
            file: None,
        };
        let mut memory = HostMemory {
            base: vec![piece(0, BASE_BYTES)],
            regions: vec![piece(GIB, REGION_BYTES)],
        };
        let files = [BASE_BYTES, REGION_BYTES];
        memory.set_files(files.map(|bytes| MemoryFile::new("guest", bytes).unwrap()).into());
        let layouts = [12288, 20480].map(|offset| ZoneLayout::new(offset, ZONE_AREAS).unwrap());
        let guest = Self { memory, layouts };
        guest.fill();
        guest.write_header();
        guest
    }

    /// The file of a piece, for the guest to write to.
    fn file(&self, piece: &MemoryPiece) -> File {
        File::from(piece.file.as_ref().unwrap().file.descriptor().unwrap())
    }

    fn fill(&self) {
        for piece in self.memory.pieces() {
            let file = self.file(piece);
            for offset in (0..piece.bytes()).step_by(4096) {
                if !(piece.guest.start == 0 && (STATE..STATE + STATE_BYTES).contains(&offset)) {
                    file.write_all_at(&(piece.guest.start + offset).to_le_bytes(), offset).unwrap();
                }
            }
        }
    }

    /// As `guest/kernel/src/mm/llfree/state.h` has it.
    fn write_header(&self) {
        let mut header = Vec::new();
        header.extend(b"SLLFREE1");
        header.extend(1_u32.to_le_bytes());
        header.extend((HEADER_BYTES as u32).to_le_bytes());
        header.extend(STATE_BYTES.to_le_bytes());
        header.extend(2_u32.to_le_bytes());
        header.extend(12_u32.to_le_bytes());
        for (number, start) in ZONE_STARTS.into_iter().enumerate() {
            header.extend((start / 4096).to_le_bytes());
            header.extend(ZONE_AREAS.to_le_bytes());
            header.extend(0_u32.to_le_bytes());
            header.extend(self.layouts[number].live.to_le_bytes());
            header.extend([0; 16]);
        }
        self.file(&self.memory.base[0]).write_all_at(&header, STATE).unwrap();
    }

    fn reclaimer(&self) -> Reclaimer {
        let state = LlfreeState { address: STATE, bytes: STATE_BYTES };
        Reclaimer::open(state, &self.memory).unwrap()
    }

    /// The guest's own view of the state.
    fn state(&self) -> Mapping {
        let base = &self.memory.base[0].file.as_ref().unwrap().file;
        Mapping::new(&**base, STATE, STATE_BYTES).unwrap()
    }

    /// Panics if a page has gone that is not in the zone.
    fn assert_rest_is_whole(&self) {
        let mut bytes = [0; 8];
        for piece in self.memory.pieces() {
            let file = self.file(piece);
            for offset in (0..piece.bytes()).step_by(4096) {
                let address = piece.guest.start + offset;
                let is_zone =
                    ZONE_STARTS.iter().any(|start| (*start..start + 32 * MIB).contains(&address));
                let is_last = (24 * MIB..BASE_BYTES).contains(&address);
                let is_state = (STATE..STATE + STATE_BYTES).contains(&address);
                let is_beside = (STATE + STATE_BYTES..STATE + 2 * MIB).contains(&address);
                // An area that is memory in part, or has the state in it, is nobody's to discard.
                if is_state || is_zone && !is_last && !is_beside {
                    continue;
                }
                file.read_exact_at(&mut bytes, offset).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), address, "a page of the guest is lost");
            }
        }
    }
}

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
        use proptest::prelude::Rng;
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
    let (mut calls, mut bytes, mut longest) = (0_u64, 0_u64, Duration::ZERO);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (state, layout, stop) = (&state, &guest.layouts[usize::from(seed)], &stop);
            scope.spawn(move || scribble(state, layout, seed, stop));
        }
        let _stop = StopAtEnd(&stop);
        let begin = Instant::now();
        let mut reclaimer = guest.reclaimer();
        // On a busy machine those who scribble may not have begun by then.
        while begin.elapsed() < time || bytes == 0 && begin.elapsed() < 20 * time {
            let grain = if calls.is_multiple_of(2) { Grain::Area } else { Grain::Page };
            let taken = reclaimer.take(&(0..u64::MAX), grain).unwrap();
            bytes += taken.bytes;
            reclaimer.hold((calls % 5) * 4 * MIB).unwrap();
            reclaimer.enforce().unwrap();
            longest = longest.max(taken.took);
            calls += 1;
            if calls.is_multiple_of(3) {
                // Whoever takes over finds nonsense, too.
                drop(reclaimer);
                reclaimer = guest.reclaimer();
            }
            if calls.is_multiple_of(300) {
                guest.assert_rest_is_whole();
                guest.fill();
            }
        }
    });
    guest.assert_rest_is_whole();
    println!("{calls} calls took {bytes} bytes, the longest {longest:?}");
    assert!(calls > 100 && bytes > 0, "{calls} calls, {bytes} bytes");
}

#[test]
fn a_partition_is_discarded_as_a_whole_if_its_guest_says_that_it_is_doomed() {
    const ZONE_BYTES: u64 = ZONE_AREAS as u64 * 2 * MIB;
    let guest = Guest::new();
    let (reclaimer, state) = (guest.reclaimer(), guest.state());
    let number = |offset: u64| {
        // SAFETY: the offset is within the mapping and a multiple of 4.
        unsafe { AtomicU32::from_ptr(state.base().as_ptr().add(offset as usize).cast()) }
    };
    let live = guest.layouts[1].live;
    let (condemned, doom) = (number(live + 8), number(live + 64 + 12));
    let partition = |start| guest.memory.regions[0].part(&(start..start + ZONE_BYTES)).unwrap();
    let first = partition(GIB);
    for even in [0, 6] {
        doom.store(even, Relaxed);
        assert_eq!(reclaimer.condemn(&first).unwrap(), None);
    }
    assert_eq!(condemned.load(Relaxed), 0);

    doom.store(7, Relaxed);
    assert_eq!(reclaimer.condemn(&partition(GIB + ZONE_BYTES)).unwrap(), None, "another one");
    assert_eq!(reclaimer.condemn(&first).unwrap(), Some(ZONE_BYTES));
    assert_eq!(condemned.load(Relaxed), 7);
    assert_eq!(first.resident(std::process::id()).unwrap().resident_bytes, 0);
    guest.assert_rest_is_whole();
    assert_eq!(reclaimer.condemn(&first).unwrap(), Some(0), "it is gone");
}

#[test]
fn two_cannot_work_on_one_state() {
    let guest = Guest::new();
    let first = guest.reclaimer();
    let state = LlfreeState { address: STATE, bytes: STATE_BYTES };
    let error = Reclaimer::open(state, &guest.memory).unwrap_err().to_string();
    assert!(error.contains("somebody else"), "{error}");
    drop(first);
    guest.reclaimer();
}

#[test]
fn a_state_that_cannot_be_is_refused() {
    let guest = Guest::new();
    let cases = [
        (LlfreeState { address: 0, bytes: STATE_BYTES }, "no LLFree state"),
        (LlfreeState { address: BASE_BYTES, bytes: STATE_BYTES }, "not in the guest's memory"),
        (LlfreeState { address: u64::MAX - 4095, bytes: STATE_BYTES }, "makes no sense"),
        (LlfreeState { address: STATE, bytes: u64::MAX }, "makes no sense"),
        (LlfreeState { address: STATE, bytes: 4096 }, "too small"),
        (LlfreeState { address: STATE + 8, bytes: STATE_BYTES }, "nvalid"),
    ];
    for (state, part) in cases {
        let error = Reclaimer::open(state, &guest.memory).unwrap_err().to_string();
        assert!(error.contains(part), "{state:?}: {error}");
    }
    guest.file(&guest.memory.base[0]).write_all_at(&[2], STATE + 8).unwrap();
    let state = LlfreeState { address: STATE, bytes: STATE_BYTES };
    let error = Reclaimer::open(state, &guest.memory).unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("make kernel"), "{error}");
}
