//! Takes free memory out of a running guest, without any code of the guest taking part (HyperAlloc, EuroSys'25).
//!
//! A guest whose kernel runs with `llfree=` has its page allocator's state where the host maps it
//! (`squeezy-llfree`). [`Reclaimer`] finds what is free there and gives the memory behind it back to the host. The
//! guest keeps its size: pages that it uses again are faulted in by the host, as in a VM that has just started.
//!
//! It works the same whether an instance runs, is frozen or has ended, and whether the VM runs, is paused or hangs. A
//! VM's reclaimer has nothing in common with another VM's, so a guest can only get in its own way.
//!
//! The host may take seconds to discard memory, so all that does takes place in threads that may block.

mod limit;
mod locked_zone;
mod pace;
mod spare;
mod starving;
mod state_lock;
mod zone;
mod zone_memory;

use crate::{
    Result, VmError,
    host_memory::{FilePart, HostMemory, MemoryPiece, Strays},
};
use locked_zone::LockedZone;
use serde::{Deserialize, Serialize};
use squeezy_llfree::{AREA_BYTES, Mapping, PageFailed, SharedMemory, header};
use squeezy_protocol::LlfreeState;
use state_lock::StateLock;
use std::{
    fmt, io,
    ops::Range,
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};
use zone::ReclaimZone;
use zone_memory::ZoneMemory;

/// The most that the state of an allocator may take: that of 120 TiB.
const MAX_STATE_BYTES: u64 = 4 << 30;

/// Down to which size free memory is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grain {
    /// Areas of 2 MiB that are entirely free and that the guest has used since they were given back last. Takes
    /// microseconds for each.
    Area,
    /// Single pages, too, and what is behind free areas that the guest has not used since. Takes milliseconds for each
    /// area that is in use in part, and breaks up the host's huge page behind it, so it is for memory that is not used
    /// for some time.
    Page,
}

/// Free memory that the host has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Memory that the host had behind free pages, in bytes.
    pub bytes: u64,
    /// The part of it in areas that were entirely free.
    pub area_bytes: u64,
    /// How long it took.
    pub took: Duration,
    /// The part of that in which the host's kernel gave back entirely free areas.
    pub discarding: Duration,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB in {:.1} ms", self.bytes >> 20, self.took.as_secs_f64() * 1e3)
    }
}

/// Gives free memory of one VM back to the host.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    /// Each for itself: who works on one zone waits for nobody who works on another one.
    zones: Vec<LockedZone>,
    /// All of it.
    state: Arc<Mapping>,
    /// Keeps others from working on the same state.
    _lock: StateLock,
}

impl Reclaimer {
    /// For a guest whose state is where its agent says. Takes as long as a look at all of the state, which a guest that
    /// lies can make seconds.
    pub(crate) fn open(state: LlfreeState, memory: &HostMemory) -> Result<Self> {
        let refuse = |reason: String| VmError::AllocatorState(reason);
        let range = (state.bytes <= MAX_STATE_BYTES)
            .then(|| Some(state.address..state.address.checked_add(state.bytes)?))
            .flatten()
            .ok_or_else(|| refuse("its size makes no sense".to_owned()))?;
        // What else the guest has is discarded at times, and to read it then would have the host look for memory for it.
        let part = memory.base.iter().find_map(|piece| piece.part(&range)?.file);
        let Some(FilePart { file, start }) = part else {
            return Err(refuse("it is not in the memory that the guest boots with".to_owned()));
        };
        let lock = StateLock::new(&*file).map_err(refuse)?;
        let mapping = Mapping::new(&*file, start, state.bytes);
        let mapping = Arc::new(mapping.map_err(|error| refuse(error.to_string()))?);
        let pieces: Vec<_> = memory.pieces().map(|piece| piece.guest.clone()).collect();
        let copy = mapping.header();
        mapping.check()?;
        let zones = header::read(&copy, &range, &pieces);
        let zones = zones.map_err(|error| refuse(error.to_string()))?;
        let zones = zones.into_iter().map(|zone| {
            let is_partition = memory.regions.iter().any(|r| r.part(&zone.memory).is_some());
            let state = SharedMemory::new(mapping.clone(), zone.layout);
            let own = ZoneMemory::new(&zone, memory, mapping.clone());
            let adopted = ReclaimZone::adopt(state, own, is_partition);
            LockedZone::new(zone.memory, is_partition, adopted)
        });
        let zones = zones.collect();
        mapping.check()?;
        Ok(Self { zones, state: mapping, _lock: lock })
    }

    /// Fails if a page of the state has failed. The VM has to end then.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.state.check()?)
    }

    /// Discards all memory of a partition whose instance can only be killed, if the guest's kernel says that this is so;
    /// returns how many bytes of host memory that were. The guest has to stand still meanwhile.
    pub(crate) fn condemn(&self, partition: &MemoryPiece) -> Result<Option<u64>> {
        let zone = self.zones.iter().find(|zone| zone.is_within(&partition.guest));
        let (Some(zone), Some(FilePart { file, start })) = (zone, &partition.file) else {
            return Ok(None);
        };
        let mut zone = zone.work();
        if !zone.zone.condemn() {
            return Ok(None);
        }
        // If it has, the guest may not have been told.
        self.check()?;
        let (bytes, _) = file
            .discard_counted(*start..*start + partition.bytes())
            .map_err(|error| VmError::system("a partition cannot be discarded", error))?;
        Ok(Some(bytes))
    }

    #[cfg(test)]
    pub(crate) fn take(&self, guest: &Range<u64>, grain: Grain) -> Result<Taken> {
        self.take_while(guest, grain, || true)
    }

    /// Gives back the free memory of the zones that are within these of the guest's physical addresses. May take
    /// milliseconds for each GiB. Single pages are taken only as long as `goes_on`.
    pub(crate) fn take_while(
        &self,
        guest: &Range<u64>,
        grain: Grain,
        goes_on: impl Fn() -> bool,
    ) -> Result<Taken> {
        let zones = self.zones.iter().filter(|zone| zone.is_within(guest));
        take_of(zones.map(LockedZone::work), grain, goes_on)
    }

    /// The same for all zones, but for those that somebody else works on at the moment.
    pub(crate) fn take_idle(&self, grain: Grain, goes_on: impl Fn() -> bool) -> Result<Taken> {
        take_of(self.zones.iter().filter_map(LockedZone::work_if_idle), grain, goes_on)
    }
}

fn take_of<'a>(
    zones: impl Iterator<Item = MutexGuard<'a, ReclaimZone>>,
    grain: Grain,
    goes_on: impl Fn() -> bool,
) -> Result<Taken> {
    let begin = Instant::now();
    let mut sum = Taken::default();
    for mut zone in zones {
        let areas = zone.reclaim_areas(grain).map_err(cannot_give_back)?;
        sum.area_bytes += areas.bytes;
        sum.discarding += areas.took;
        if grain == Grain::Page {
            sum.bytes += zone.reclaim_pages(&goes_on).map_err(cannot_give_back)?;
        }
    }
    sum.bytes += sum.area_bytes;
    sum.took = begin.elapsed();
    Ok(sum)
}

/// What the host keeps of the memory that the guest has booted with, until it gives it back.
impl Reclaimer {
    /// How much that is, in bytes. Waits for nobody.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.boot_zones().map(LockedZone::kept_bytes).sum()
    }

    /// Makes it so many bytes, a multiple of 2 MiB, or as near to that as the guest can spare. May take milliseconds
    /// for each GiB. Returns for how much of that the host's kernel discarded.
    pub(crate) fn hold(&self, bytes: u64) -> Result<Duration> {
        let target = bytes / AREA_BYTES;
        let mut discarding = Duration::ZERO;
        // Memory above 4 GiB first: some devices need the rest.
        for zone in self.boot_zones().rev() {
            let mut zone = zone.work();
            let held = self.held_bytes() / AREA_BYTES;
            let count = |areas: u64| u32::try_from(areas).unwrap_or(u32::MAX);
            if held < target {
                let discarded = zone.keep_more(count(target - held));
                discarding += discarded.map_err(cannot_give_back)?.took;
            } else if held > target {
                zone.keep_less(count(held - target));
            }
        }
        Ok(discarding)
    }

    /// Discards what the guest has touched of it. Puts zones in order that somebody has failed with, too.
    pub(crate) fn enforce(&self) -> Result<Strays> {
        let zones = self.zones.iter().filter(|zone| zone.kept_bytes() > 0 || zone.has_failed());
        zones.map(|zone| zone.work().enforce().map_err(cannot_give_back)).sum()
    }

    fn boot_zones(&self) -> impl DoubleEndedIterator<Item = &LockedZone> {
        self.zones.iter().filter(|zone| !zone.is_partition())
    }
}

fn cannot_give_back(error: io::Error) -> VmError {
    match error.downcast::<PageFailed>() {
        Ok(failed) => failed.into(),
        Err(error) => VmError::system("free memory cannot be given back to the host", error),
    }
}

#[cfg(test)]
pub(crate) mod tests;
