//! Where the guest says that its allocator's state is.
//!
//! Everything here is the guest's word. It is copied out of the shared memory once and checked in full, and then
//! never read again: no length, offset or address is taken from shared memory afterwards.

use crate::layout::{ALIGNMENT, AREA_BYTES, AREA_PAGES, PAGE_BYTES, TREE_AREAS, ZoneLayout};
use std::ops::Range;

const MAGIC: u64 = 0x3145_4552_464c_4c53;
const VERSION: u32 = 1;
const PAGE_SHIFT: u32 = PAGE_BYTES.trailing_zeros();
const TREE_BYTES: u64 = TREE_AREAS as u64 * AREA_BYTES;
const MAX_ZONES: usize = 272;
const ZONE_BYTES: usize = 40;
const FIXED_BYTES: usize = 32;

/// Bytes of the header.
pub const HEADER_BYTES: usize = FIXED_BYTES + MAX_ZONES * ZONE_BYTES;

/// A zone that the guest has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneDescription {
    /// The guest's physical addresses that it spans. There may be holes, which are not memory.
    pub memory: Range<u64>,
    /// Where its state is.
    pub layout: ZoneLayout,
    /// The areas that the state itself is in, if it is in the zone: they are not free, whatever the guest says.
    pub state_areas: Range<u32>,
    /// What the guest calls it: letters, digits and `-` only.
    pub name: String,
}

/// Why a state is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// There is none.
    #[error("there is no LLFree state")]
    NoState,
    /// Another version of the guest's kernel.
    #[error(
        "the guest's LLFree state has version {0}, this host knows version {VERSION}: rebuild the guest's kernel with `make kernel`"
    )]
    Version(u32),
    /// The guest's word cannot be right.
    #[error("the guest's LLFree state makes no sense: {0}")]
    Nonsense(&'static str),
}

/// Reads the header, of which `header` is a copy.
///
/// `state` is the guest's physical addresses of the state as they were announced, and `memory` all that is
/// memory of the guest and can be discarded; ranges that touch are one range. What a zone spans beside that is
/// never discarded: that is up to the caller.
pub fn read(
    header: &[u8; HEADER_BYTES],
    state: &Range<u64>,
    memory: &[Range<u64>],
) -> Result<Vec<ZoneDescription>, HeaderError> {
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap_or_default());
    let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
    let nonsense = |what| Err(HeaderError::Nonsense(what));

    let is_memory = |range: &Range<u64>| {
        range.start < range.end
            && memory.iter().any(|m| m.start <= range.start && range.end <= m.end)
    };
    if u64_at(0) != MAGIC {
        return Err(HeaderError::NoState);
    }
    if u32_at(8) != VERSION {
        return Err(HeaderError::Version(u32_at(8)));
    }
    if !is_memory(state) || !state.start.is_multiple_of(PAGE_BYTES) {
        return nonsense("it is not in the guest's memory");
    }
    let total = u64_at(16);
    if u32_at(12) as usize != HEADER_BYTES
        || total > state.end - state.start
        || u32_at(28) != PAGE_SHIFT
    {
        return nonsense("its size is wrong");
    }
    let count = u32_at(24) as usize;
    if count > MAX_ZONES {
        return nonsense("it has too many zones");
    }

    // The kernel's zones end with the memory that they are of, but may end in the middle of a tree. Each area that there
    // is takes the host a look every few seconds.
    let memory_end = memory.iter().map(|m| m.end).max().unwrap_or(0);
    let last_end = memory_end.checked_next_multiple_of(TREE_BYTES).unwrap_or(u64::MAX);
    let mut zones: Vec<ZoneDescription> = Vec::with_capacity(count);
    for number in 0..count {
        let at = FIXED_BYTES + number * ZONE_BYTES;
        let (start_page, areas, offset) = (u64_at(at), u32_at(at + 8), u64_at(at + 16));
        if areas == 0 || !start_page.is_multiple_of(u64::from(TREE_AREAS * AREA_PAGES)) {
            return nonsense("a zone is not aligned to trees");
        }
        let range = start_page
            .checked_mul(PAGE_BYTES)
            .and_then(|start| Some(start..start.checked_add(u64::from(areas) * AREA_BYTES)?));
        let has_memory = |range: &Range<u64>| memory.iter().any(|m| overlap(m, range));
        let Some(range) = range.filter(has_memory) else {
            return nonsense("a zone is not in the guest's memory");
        };
        if range.end > last_end {
            return nonsense("a zone goes on behind the end of the guest's memory");
        }
        let layout = (offset >= HEADER_BYTES as u64 && offset.is_multiple_of(ALIGNMENT))
            .then(|| ZoneLayout::new(offset, areas))
            .flatten();
        let Some(layout) = layout.filter(|layout| layout.end <= total) else {
            return nonsense("a zone's state is outside of it");
        };
        for other in &zones {
            if overlap(&other.memory, &range) {
                return nonsense("two zones overlap");
            }
            if overlap(&(other.layout.live..other.layout.end), &(layout.live..layout.end)) {
                return nonsense("two zones share their state");
            }
        }
        let state_areas = if overlap(&range, state) {
            let from = state.start.max(range.start) - range.start;
            let to = state.end.min(range.end) - range.start;
            (from / AREA_BYTES) as u32..to.div_ceil(AREA_BYTES) as u32
        } else {
            0..0
        };
        zones.push(ZoneDescription {
            memory: range,
            layout,
            state_areas,
            name: name(&header[at + 24..at + ZONE_BYTES]),
        });
    }
    Ok(zones)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The part of a name that cannot do anything to whoever prints it.
fn name(bytes: &[u8]) -> String {
    let harmless = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'-';
    bytes.iter().take_while(harmless).map(|&byte| char::from(byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// A header of so many zones, each with its first page, its areas and where its state is.
    fn header(zones: &[(u64, u32, u64)], total: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC.to_le_bytes());
        put(8, &VERSION.to_le_bytes());
        put(12, &(HEADER_BYTES as u32).to_le_bytes());
        put(16, &total.to_le_bytes());
        put(24, &(zones.len() as u32).to_le_bytes());
        put(28, &PAGE_SHIFT.to_le_bytes());
        for (number, (start, areas, offset)) in zones.iter().enumerate() {
            let at = FIXED_BYTES + number * ZONE_BYTES;
            put(at, &start.to_le_bytes());
            put(at + 8, &areas.to_le_bytes());
            put(at + 16, &offset.to_le_bytes());
            put(at + 24, b"Normal\n\x1b[2J");
        }
        bytes
    }

    /// Of a guest with 1 GiB from 256 MiB on, whose state is at 512 MiB.
    fn read_in_gib(header: &[u8; HEADER_BYTES]) -> Result<Vec<ZoneDescription>, HeaderError> {
        let memory = 256 * MIB..1280 * MIB;
        read(header, &(512 * MIB..513 * MIB), std::slice::from_ref(&memory))
    }

    #[test]
    fn zones_are_read_and_the_state_is_left_out() {
        let pages = |mib: u64| mib * 256;
        let header = header(&[(pages(256), 256, 12288), (pages(768), 8, 65536)], MIB);
        let zones = read_in_gib(&header).unwrap();
        assert_eq!(zones[0].memory, 256 * MIB..768 * MIB);
        assert_eq!(zones[0].state_areas, 128..129);
        assert_eq!(zones[1].state_areas, 0..0);
        assert_eq!(zones[1].layout, ZoneLayout::new(65536, 8).unwrap());
        assert_eq!(zones[0].name, "Normal");
    }

    /// A kernel's zones span holes, and those of a VM with devices in the middle of a tree end there.
    #[test]
    fn a_zone_may_span_a_hole_and_end_in_the_middle_of_a_tree() {
        let memory = [0..512 * MIB, 4096 * MIB..4196 * MIB];
        let read = |areas| read(&header(&[(0, areas, 12288)], MIB), &(MIB..2 * MIB), &memory);
        assert_eq!(read(2104).unwrap()[0].memory.end, 4208 * MIB);
        assert!(read(2105).unwrap_err().to_string().contains("behind the end"));
    }

    #[test]
    fn nonsense_is_refused() {
        let good = (65536, 128, 12288);
        type Zones<'a> = &'a [(u64, u32, u64)];
        let cases: [(Zones, u64, &str); 11] = [
            (&[good], 2 * MIB, "size"),
            (&[(65537, 128, 12288)], MIB, "aligned"),
            (&[(65536, 0, 12288)], MIB, "aligned"),
            (&[(0, 128, 12288)], MIB, "memory"),
            (&[(327680, 8, 12288)], MIB, "memory"),
            (&[(u64::MAX / 4096 * 4096, 128, 12288)], MIB, "memory"),
            (&[(262144, 136, 12288)], MIB, "behind the end"),
            (&[(65536, 128, 100)], MIB, "outside"),
            (&[(65536, 128, MIB - 4096)], MIB, "outside"),
            (&[good, (65536 + 4096, 8, 65536)], MIB, "overlap"),
            (&[good, (65536 + 32 * 4096, 8, 12288)], MIB, "share"),
        ];
        for (zones, total, part) in cases {
            let error = read_in_gib(&header(zones, total)).unwrap_err().to_string();
            assert!(error.contains(part), "{zones:?}: {error}");
        }
        let good = header(&[good], MIB);
        assert!(read_in_gib(&good).is_ok());
        let memory = 256 * MIB..1280 * MIB;
        let elsewhere = read(&good, &(MIB..2 * MIB), std::slice::from_ref(&memory));
        assert!(elsewhere.unwrap_err().to_string().contains("not in the guest"));
        let mut many = good;
        many[24..26].copy_from_slice(&273_u16.to_le_bytes());
        assert!(read_in_gib(&many).unwrap_err().to_string().contains("too many"));
        let mut newer = good;
        newer[8] = 2;
        assert_eq!(read_in_gib(&newer), Err(HeaderError::Version(2)));
        assert_eq!(read_in_gib(&[0; HEADER_BYTES]), Err(HeaderError::NoState));
    }

    proptest! {
        /// Whatever a guest writes, what comes of it is within its memory and its state.
        #[test]
        fn no_header_leads_outside(
            zones in proptest::collection::vec(
                (prop_oneof![0..400_000_u64, any::<u64>()], 0..600_u32, 0..MIB), 0..4),
            total in 0..2 * MIB,
            changes in proptest::collection::vec((0..HEADER_BYTES, any::<u8>()), 0..6),
        ) {
            let zones: Vec<_> = zones.into_iter().map(|(page, areas, offset)| {
                (page / 4096 * 4096, areas, offset / 64 * 64)
            }).collect();
            let mut header = header(&zones, total);
            for (at, byte) in changes {
                header[at] = byte;
            }
            for zone in read_in_gib(&header).unwrap_or_default() {
                prop_assert!(zone.memory.end > 256 * MIB && zone.memory.start < 1280 * MIB);
                prop_assert!(zone.memory.end <= 1280 * MIB);
                prop_assert_eq!((zone.memory.end - zone.memory.start) / AREA_BYTES, u64::from(zone.layout.areas));
                prop_assert!(zone.layout.live >= HEADER_BYTES as u64 && zone.layout.end <= MIB);
                let state = 512 * MIB..513 * MIB;
                for area in 0..zone.layout.areas {
                    let start = zone.memory.start + u64::from(area) * AREA_BYTES;
                    let is_left_out = zone.state_areas.contains(&area);
                    prop_assert!(is_left_out || !overlap(&(start..start + AREA_BYTES), &state));
                }
                prop_assert!(zone.name.len() <= 16);
            }
        }
    }
}
