//! The host beside guests that keep the rules, and beside those that break them.

mod failing;
mod hostile;
mod keeping;
mod slow;
mod starving;

use super::{LockedZone, Reclaimer};
use crate::host_memory::{HostMemory, MemoryFile, MemoryPiece};
use squeezy_llfree::{Mapping, ZoneLayout, header::HEADER_BYTES};
use squeezy_protocol::LlfreeState;
use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
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
/// What can be kept of the first zone: the state is in one of the four areas that are memory.
pub(crate) const USABLE_BYTES: u64 = 6 * MIB;

/// A guest whose memory is all there, each page with its own address in it.
pub(crate) struct Guest {
    memory: HostMemory,
    layouts: [ZoneLayout; 2],
}

impl Guest {
    pub(crate) fn new() -> Self {
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
        let zones = [0, 1]
            .map(|number| (ZONE_STARTS[number] / 4096, ZONE_AREAS, guest.layouts[number].live));
        guest.write_header(&zones);
        guest
    }

    /// The same guest with a second zone below the first, of eight areas, instead of the partition.
    fn with_a_zone_below(mut self) -> Self {
        self.layouts[1] = ZoneLayout::new(self.layouts[1].live, 8).unwrap();
        let [above, below] = self.layouts.map(|layout| layout.live);
        self.write_header(&[(0, 8, below), (ZONE_STARTS[0] / 4096, ZONE_AREAS, above)]);
        self
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

    /// As `guest/kernel/src/mm/llfree/state.h` has it, with zones by their first pages, areas and where their state is.
    fn write_header(&self, zones: &[(u64, u32, u64)]) {
        let mut header = Vec::new();
        header.extend(b"SLLFREE1");
        header.extend(1_u32.to_le_bytes());
        header.extend((HEADER_BYTES as u32).to_le_bytes());
        header.extend(STATE_BYTES.to_le_bytes());
        header.extend((zones.len() as u32).to_le_bytes());
        header.extend(12_u32.to_le_bytes());
        for (start_page, areas, offset) in zones {
            header.extend(start_page.to_le_bytes());
            header.extend(areas.to_le_bytes());
            header.extend(0_u32.to_le_bytes());
            header.extend(offset.to_le_bytes());
            header.extend([0; 16]);
        }
        self.file(&self.memory.base[0]).write_all_at(&header, STATE).unwrap();
    }

    pub(crate) fn reclaimer(&self) -> Reclaimer {
        let state = LlfreeState { address: STATE, bytes: STATE_BYTES };
        Reclaimer::open(state, &self.memory).unwrap()
    }

    /// The guest's own view of the state.
    fn state(&self) -> Mapping {
        let base = &self.memory.base[0].file.as_ref().unwrap().file;
        Mapping::new(&**base, STATE, STATE_BYTES).unwrap()
    }

    /// A page that is none of the state's and has gone, of those at these addresses.
    fn lost(&self, of: impl Fn(&u64) -> bool) -> Option<u64> {
        let mut bytes = [0; 8];
        for piece in self.memory.pieces() {
            let file = self.file(piece);
            for address in piece.guest.clone().step_by(4096).filter(&of) {
                if (STATE..STATE + STATE_BYTES).contains(&address) {
                    continue;
                }
                file.read_exact_at(&mut bytes, address - piece.guest.start).unwrap();
                if u64::from_le_bytes(bytes) != address {
                    return Some(address);
                }
            }
        }
        None
    }

    /// Panics if a page has gone that is not in a zone.
    fn assert_rest_is_whole(&self) {
        let lost = self.lost(|address| {
            let is_zone =
                ZONE_STARTS.iter().any(|start| (*start..start + 32 * MIB).contains(address));
            let is_last = (24 * MIB..BASE_BYTES).contains(address);
            // An area that is memory in part, or has the state in it, is nobody's to discard.
            !is_zone || is_last || (STATE..STATE + 2 * MIB).contains(address)
        });
        assert_eq!(lost, None, "a page of the guest is lost");
    }
}

impl Reclaimer {
    /// Nobody else works on any zone until these are dropped.
    pub(crate) fn work_on_all(&self) -> impl Sized {
        self.zones.iter().map(LockedZone::work).collect::<Vec<_>>()
    }
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
        (LlfreeState { address: BASE_BYTES, bytes: STATE_BYTES }, "that the guest boots with"),
        (LlfreeState { address: GIB, bytes: STATE_BYTES }, "that the guest boots with"),
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
