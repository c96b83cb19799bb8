//! A host that works on a guest's page allocator, and dies in the middle of it; and the one that comes next.

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use squeezy_llfree::{
    AREA_BYTES, AreaSet, InHand, Mapping, Memory, SharedMemory, TREE_AREAS, TreeIndex, Zone,
    header::{self, ZoneDescription},
};
use squeezy_protocol::LlfreeState;
use squeezy_vmm::Vm;
use std::{
    fs::{self, File},
    io,
    ops::Range,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

/// Memory of a guest, as whoever has its file sees it.
struct Piece {
    guest: Range<u64>,
    file: File,
}

/// Where an area is.
struct Area {
    piece: usize,
    start: u64,
}

/// What a host has taken of each tree, and not given back.
type Left = Vec<(TreeIndex, AreaSet)>;

/// What it has left behind: areas that it keeps, with nothing of the host behind them.
pub(crate) struct DeadHost {
    pieces: Vec<Piece>,
    zone: ZoneDescription,
    kept: Vec<Area>,
}

impl DeadHost {
    /// Takes free areas of a zone and discards them: first so many to keep, then so many that are in hand when it dies.
    /// Gives back before what another one has left in that zone. `region` is where the memory of the guest's device
    /// begins. Errors are those of files, and a state, a zone or areas that are not there.
    pub(crate) fn die(
        vm: &Vm,
        region: u64,
        state: LlfreeState,
        zone: &str,
        (kept, in_hand): (u32, u32),
    ) -> io::Result<Self> {
        let (mut dead, mut zone, left) = Self::adopt(vm, region, state, zone)?;
        let hand = zone.hand();
        for (tree, areas) in left {
            dead.discard(tree, areas)?;
            hand.give(tree, areas);
        }
        hand.keep(0);
        drop(hand);
        let trees: Vec<_> = zone.trees().collect();
        let hand = zone.hand();
        dead.kept = dead.take(&hand, &trees, kept)?;
        hand.keep(kept);
        dead.take(&hand, &trees, in_hand)?;
        // It never gets to the end of this.
        std::mem::forget(hand);
        Ok(dead)
    }

    /// What the next host does with what this one has left in a zone: it keeps so many areas and gives back the others.
    /// Then it has nothing in hand. Errors are those of [`DeadHost::die`].
    pub(crate) fn take_over(
        vm: &Vm,
        region: u64,
        state: LlfreeState,
        zone: &str,
        kept: u32,
    ) -> io::Result<()> {
        Self::take_over_saying(vm, region, state, zone, (kept, kept))
    }

    /// The same, and says that it keeps `said`.
    fn take_over_saying(
        vm: &Vm,
        region: u64,
        state: LlfreeState,
        zone: &str,
        (kept, said): (u32, u32),
    ) -> io::Result<()> {
        let (host, mut zone, left) = Self::adopt(vm, region, state, zone)?;
        let hand = zone.hand();
        let mut missing = kept;
        for (tree, areas) in left {
            let ours = areas.lowest(missing);
            missing -= ours.len();
            host.discard(tree, areas)?;
            hand.give(tree, areas.without(ours));
        }
        if missing > 0 {
            return Err(io::Error::other(format!("{} areas are left", kept - missing)));
        }
        hand.keep(said);
        Ok(())
    }

    /// Begins where another one has left a zone: the guest takes everything for being in hand. Returns what that one
    /// has left there, too.
    fn adopt(
        vm: &Vm,
        region: u64,
        state: LlfreeState,
        zone: &str,
    ) -> io::Result<(Self, Zone<SharedMemory>, Left)> {
        let (pieces, description, memory) = Self::find(vm, region, state, zone)?;
        let (zone, left) = Zone::adopt(memory);
        Ok((Self { pieces, zone: description, kept: Vec::new() }, zone, left))
    }

    /// Looks for a zone, without a change to it.
    fn find(
        vm: &Vm,
        region: u64,
        state: LlfreeState,
        zone: &str,
    ) -> io::Result<(Vec<Piece>, ZoneDescription, SharedMemory)> {
        let pieces = pieces(vm, region)?;
        let base = pieces.iter().find(|piece| piece.guest.contains(&state.address));
        let base = base.ok_or_else(|| io::Error::other("the state is nowhere"))?;
        let mapping = Mapping::new(&base.file, state.address - base.guest.start, state.bytes)?;
        let mapping = Arc::new(mapping);
        let memory: Vec<_> = pieces.iter().map(|piece| piece.guest.clone()).collect();
        let announced = state.address..state.address + state.bytes;
        let zones =
            header::read(&mapping.header(), &announced, &memory).map_err(io::Error::other)?;
        let description = zones.into_iter().find(|known| known.name == zone);
        let description = description.ok_or_else(|| io::Error::other("there is no such zone"))?;
        let zone = SharedMemory::new(mapping, description.layout);
        Ok((pieces, description, zone))
    }

    fn take(
        &self,
        hand: &InHand<'_, SharedMemory>,
        trees: &[TreeIndex],
        count: u32,
    ) -> io::Result<Vec<Area>> {
        let mut taken = Vec::new();
        for &tree in trees {
            let free = hand.free_areas(tree);
            let areas = hand.take(tree, free.of(free.areas.lowest(count - taken.len() as u32)));
            taken.extend(self.discard(tree, areas)?);
        }
        if taken.len() < count as usize {
            return Err(io::Error::other(format!("{} areas are free", taken.len())));
        }
        Ok(taken)
    }

    /// Discards areas of a tree; returns where they are.
    fn discard(&self, tree: TreeIndex, areas: AreaSet) -> io::Result<Vec<Area>> {
        let number = |area: u32| u64::from(tree.0 * TREE_AREAS + area);
        let first = self.zone.memory.start;
        let addresses = areas.numbers().map(|area| first + number(area) * AREA_BYTES);
        let places = addresses.map(|address| {
            let piece = self.pieces.iter().position(|piece| piece.guest.contains(&address));
            let piece = piece.ok_or_else(|| io::Error::other("a free area is no memory"))?;
            let Piece { guest, file } = &self.pieces[piece];
            let start = address - guest.start;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, flags, start, AREA_BYTES)?;
            Ok(Area { piece, start })
        });
        places.collect()
    }

    /// How many of the areas that it keeps have memory of the host's behind them.
    pub(crate) fn used_areas(&self) -> u64 {
        let is_used = |area: &&Area| {
            let data = seek(&self.pieces[area.piece].file, SeekFrom::Data(area.start));
            data.is_ok_and(|data| data < area.start + AREA_BYTES)
        };
        self.kept.iter().filter(is_used).count() as u64
    }
}

/// How long after the guest has asked for what is kept it waits for what is in hand: from a quarter of a second on until
/// one and a quarter, and begins to wait again during the first second.
const RELIEF_DELAY: Duration = Duration::from_millis(600);
/// How long it finds the host at work on the other zone.
const DISTURBANCE: Duration = Duration::from_millis(400);
/// How long it may take until it asks: the debug kernel fills its memory for minutes.
const ASKED_LIMIT: Duration = Duration::from_secs(600);
const ASKED_PAUSE: Duration = Duration::from_millis(5);

/// What the next host does by itself when the guest is short of a zone's memory.
pub(crate) struct Relief {
    pub(crate) region: u64,
    pub(crate) state: LlfreeState,
    pub(crate) zone: String,
    /// How many areas the dead host has left of it.
    pub(crate) left: u32,
    /// How many of them are not given back.
    pub(crate) kept: u32,
    /// A zone of which the host has something in hand between the end of the first wait and the relief.
    pub(crate) disturbed: Option<String>,
}

/// How often a guest has asked for what is kept of a zone.
pub(crate) struct Asked {
    zone: SharedMemory,
    before: u32,
}

impl Relief {
    /// How often the guest has asked until now. Errors are those of [`DeadHost::die`].
    pub(crate) fn asked(&self, vm: &Vm) -> io::Result<Asked> {
        let (_, _, zone) = DeadHost::find(vm, self.region, self.state, &self.zone)?;
        Ok(Asked { before: zone.starved(), zone })
    }

    /// Waits until the guest asks once more, and does it. Errors are those of [`DeadHost::die`], and a guest that does
    /// not ask.
    pub(crate) fn give(&self, vm: &Vm, asked: &Asked) -> io::Result<()> {
        let start = Instant::now();
        while asked.zone.starved() == asked.before {
            if start.elapsed() > ASKED_LIMIT {
                return Err(io::Error::other("the guest does not ask"));
            }
            sleep(ASKED_PAUSE);
        }
        sleep(RELIEF_DELAY);
        let take_over =
            |zone: &str, kept| DeadHost::take_over(vm, self.region, self.state, zone, kept);
        if let Some(disturbed) = &self.disturbed {
            drop(DeadHost::die(vm, self.region, self.state, disturbed, (0, 0))?);
            // The guest counts its free pages roughly: with one area less there is none after the first wait.
            let said = (self.left, self.left + 1);
            DeadHost::take_over_saying(vm, self.region, self.state, &self.zone, said)?;
            sleep(DISTURBANCE);
        }
        take_over(&self.zone, self.kept)?;
        self.disturbed.iter().try_for_each(|disturbed| take_over(disturbed, 0))
    }
}

/// The memory of a VM of this process: what it has booted with, and that of its device.
fn pieces(vm: &Vm, region: u64) -> io::Result<Vec<Piece>> {
    let base_bytes = vm.config().base_bytes;
    let link = format!("/memfd:{} (deleted)", vm.config().name);
    let mut pieces: Vec<Piece> = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        if fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == &*link) {
            let file = File::options().read(true).write(true).open(entry.path())?;
            let bytes = file.metadata()?.len();
            let start = if bytes == base_bytes { 0 } else { region };
            // The daemon may have several descriptors of one.
            if pieces.iter().all(|piece| piece.guest.start != start) {
                pieces.push(Piece { guest: start..start + bytes, file });
            }
        }
    }
    Ok(pieces)
}
