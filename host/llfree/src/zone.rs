//! Taking areas of a zone, and giving them back.

use crate::{
    area_set::{AreaSet, TreeIndex},
    entry::{self, FREE, FREE_EVICTED, HOST, ISOLATED, LACKS},
    layout::{AREA_PAGES, TREE_AREAS, trees_of},
    memory::Memory,
};

/// How often the count of a tree is tried that the guest changes all the time.
const TRIES: u32 = 64;

/// A zone of a guest, as the host that works on it sees it. There is one such host at a time.
#[derive(Debug)]
pub struct Zone<M> {
    pub(crate) memory: M,
    /// What the guest was last told; the shared one is never read again.
    epoch: u32,
}

/// Areas of a tree that are entirely free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// All of them.
    pub areas: AreaSet,
    /// Those that the host has nothing behind, as far as the guest says.
    pub evicted: AreaSet,
}

impl Free {
    /// Those of them that are in `areas`.
    #[must_use]
    pub fn of(self, areas: AreaSet) -> Self {
        Self { areas: self.areas.intersection(areas), evicted: self.evicted.intersection(areas) }
    }

    /// Those with memory of the host's behind them.
    pub fn backed(self) -> AreaSet {
        self.areas.without(self.evicted)
    }
}

impl<M: Memory> Zone<M> {
    /// Takes the work over: from whoever did it before and was killed, or as the first. What the host holds comes
    /// with it, tree by tree. There may be anything in those areas by now, so they have to be discarded again.
    ///
    /// Until [`Zone::settle`] is called or an [`InHand`] is dropped, the guest takes everything for being in hand.
    pub fn adopt(memory: M) -> (Self, Vec<(TreeIndex, AreaSet)>) {
        let epoch = memory.epoch();
        let mut zone = Self { memory, epoch };
        let held = zone.recover();
        (zone, held)
    }

    /// The same for who worked on it before and has failed in the middle of something.
    pub fn recover(&mut self) -> Vec<(TreeIndex, AreaSet)> {
        self.epoch |= 1;
        self.memory.set_epoch(self.epoch);
        let held = self.trees().filter_map(|tree| {
            let areas = self.adopt_tree(tree);
            (!areas.is_empty()).then_some((tree, areas))
        });
        held.collect()
    }

    /// What was taken and not given back stays the host's; what was left in the middle is finished (L4, L5).
    fn adopt_tree(&self, tree: TreeIndex) -> AreaSet {
        let marked = entry::held(self.memory.tree(tree)).intersection(self.areas_of(tree));
        let is_ours = |&area: &u32| self.memory.area(area_of(tree, area)) == HOST;
        let ours = marked.numbers().filter(is_ours).fold(AreaSet::EMPTY, AreaSet::with);
        let left = marked.without(ours);
        if !left.is_empty() {
            self.memory.add_to_tree(tree, entry::giving(left));
        }
        let isolated = |&area: &u32| self.memory.area(area_of(tree, area)) & ISOLATED != 0;
        for area in self.areas_of(tree).numbers().filter(isolated) {
            self.memory.clear_area(area_of(tree, area), ISOLATED);
        }
        // Whoever was killed may have given back before it came to that.
        self.memory.clear_tree(tree, LACKS);
        ours
    }

    /// Ends what [`Zone::adopt`] began: nothing is in hand any more, and so many areas are kept.
    pub fn settle(&mut self, held: u32) {
        self.memory.set_held(held);
        self.advance_to(0);
    }

    /// How many free pages of these trees the guest can spare: what is free beyond what it needs to work. Both are the
    /// guest's word.
    pub fn spare_pages(&self, trees: impl IntoIterator<Item = TreeIndex>) -> u64 {
        let free = trees.into_iter().map(|tree| entry::free_pages(self.memory.tree(tree)));
        free.map(u64::from).sum::<u64>().saturating_sub(self.memory.reserve().into())
    }

    /// How many free areas the guest can spare: more than there are only if it lies.
    pub fn spare_areas(&self) -> u32 {
        let spare = self.spare_pages(self.trees()) / u64::from(AREA_PAGES);
        u32::try_from(spare).unwrap_or(u32::MAX)
    }

    /// How many pages of an area are free at the moment, if it is one of [`Zone::partly_free_areas`].
    pub fn free_pages(&self, tree: TreeIndex, area: u32) -> Option<u32> {
        entry::some_free(self.memory.area(area_of(tree, area)))
    }

    /// How often the guest was about to kill somebody for want of memory while the host kept areas, as far as it says.
    pub fn starved(&self) -> u32 {
        self.memory.starved()
    }

    /// How many areas it asked for when [`Zone::starved`] last changed. It may say anything.
    pub fn wanted_areas(&self) -> u32 {
        self.memory.want()
    }

    /// Asks whether all memory of the zone may be discarded, what the guest uses, too, and if so, tells the guest that
    /// it has been. Only for a guest that stands still from before this call until after the discard.
    pub fn condemn(&mut self) -> bool {
        let doom = self.memory.doom();
        let may = !doom.is_multiple_of(2);
        if may {
            self.memory.set_condemned(doom);
        }
        may
    }

    /// Begins to take areas that go back at once. Meanwhile an allocation of the guest that finds nothing knows
    /// that it may only have to wait.
    pub fn hand(&mut self) -> InHand<'_, M> {
        self.advance_to(1);
        InHand { zone: self }
    }

    /// Makes the epoch even or odd.
    fn advance_to(&mut self, parity: u32) {
        if self.epoch % 2 != parity {
            self.epoch = self.epoch.wrapping_add(1);
            self.memory.set_epoch(self.epoch);
        }
    }

    /// Replaces the entries of areas, four at a time where it can; returns those whose entry was `old`.
    fn replace(
        &self,
        tree: TreeIndex,
        areas: AreaSet,
        old: impl Fn(u32) -> u16,
        new: u16,
    ) -> AreaSet {
        let mut done = AreaSet::EMPTY;
        for first in [0, 4] {
            let four = AreaSet(0b1111 << first);
            let ours = areas.intersection(four);
            let entries = || std::array::from_fn(|number| old(first + number as u32));
            if ours == four && self.memory.replace_four(area_of(tree, first), entries(), [new; 4]) {
                done = done.with_all(four);
                continue;
            }
            let replaced =
                |&area: &u32| self.memory.replace_area(area_of(tree, area), old(area), new);
            done = ours.numbers().filter(replaced).fold(done, AreaSet::with);
        }
        done
    }

    /// Every tree.
    pub fn trees(&self) -> impl Iterator<Item = TreeIndex> + use<M> {
        (0..trees_of(self.memory.areas())).map(TreeIndex)
    }

    /// The areas that a tree has.
    fn areas_of(&self, TreeIndex(tree): TreeIndex) -> AreaSet {
        AreaSet::first(self.memory.areas().saturating_sub(tree * TREE_AREAS))
    }

    /// The areas of a tree in which some pages are free at the moment, or all of them, with the host's memory behind
    /// them.
    pub fn partly_free_areas(&self, tree: TreeIndex) -> AreaSet {
        let is_partly_free = |&area: &u32| self.free_pages(tree, area).is_some();
        self.areas_of(tree).numbers().filter(is_partly_free).fold(AreaSet::EMPTY, AreaSet::with)
    }

    /// The areas of a tree that are entirely free at the moment.
    pub fn free_areas(&self, tree: TreeIndex) -> Free {
        let mut free = Free::default();
        for area in self.areas_of(tree).numbers() {
            if let Some(evicted) = entry::whole(self.memory.area(area_of(tree, area))) {
                free.areas = free.areas.with(area);
                if evicted {
                    free.evicted = free.evicted.with(area);
                }
            }
        }
        free
    }
}

/// Areas that are in hand: taken, and going back at once, or being kept.
#[derive(Debug)]
pub struct InHand<'a, M: Memory> {
    zone: &'a mut Zone<M>,
}

impl<M: Memory> InHand<'_, M> {
    pub(crate) fn zone(&self) -> &Zone<M> {
        self.zone
    }

    /// As [`Zone::free_areas`].
    pub fn free_areas(&self, tree: TreeIndex) -> Free {
        self.zone.free_areas(tree)
    }

    /// Takes areas that were free when they were looked at just now, by [`Zone::free_areas`]. What the guest wants at
    /// the same moment is left to it.
    pub fn take(&self, tree: TreeIndex, free: Free) -> AreaSet {
        let memory = &self.zone.memory;
        let Some(counted) = self.take_count(tree, free.areas) else { return AreaSet::EMPTY };
        let old = |area| if free.evicted.contains(area) { FREE_EVICTED } else { FREE };
        let areas = self.zone.replace(tree, counted, old, HOST);
        let missed = counted.without(areas);
        if !missed.is_empty() {
            memory.add_to_tree(tree, entry::giving(missed));
        }
        areas
    }

    /// Takes the pages of as many of the areas as there are out of the tree's count, in one step.
    fn take_count(&self, tree: TreeIndex, areas: AreaSet) -> Option<AreaSet> {
        let memory = &self.zone.memory;
        let mut old = memory.tree(tree);
        for _ in 0..TRIES {
            let possible = entry::free_pages(old) / AREA_PAGES;
            let areas = areas.without(entry::held(old)).lowest(possible);
            if areas.is_empty() {
                return None;
            }
            match memory.replace_tree(tree, old, old.wrapping_add(entry::taking(areas))) {
                Ok(()) => return Some(areas),
                Err(seen) => old = seen,
            }
        }
        None
    }

    /// Gives areas back that were taken, with nothing of the host behind them. Those that the guest has made
    /// something else of are returned: it has broken the rules, and they are lost to it.
    pub fn give(&self, tree: TreeIndex, areas: AreaSet) -> AreaSet {
        self.give_as(tree, areas, FREE_EVICTED)
    }

    /// The same for areas that the host could not discard.
    pub fn give_unchanged(&self, tree: TreeIndex, areas: AreaSet) -> AreaSet {
        self.give_as(tree, areas, FREE)
    }

    fn give_as(&self, tree: TreeIndex, areas: AreaSet, entry: u16) -> AreaSet {
        let memory = &self.zone.memory;
        let given = self.zone.replace(tree, areas, |_| HOST, entry);
        let broken = areas.without(given);
        let difference = entry::giving(given).wrapping_add(entry::forgetting(broken));
        // The guest may have looked for a run while these were the host's. Who looks from now on sees them.
        if memory.add_to_tree(tree, difference) & LACKS != 0 {
            memory.clear_tree(tree, LACKS);
        }
        broken
    }

    /// Says how many areas the host keeps from now on, before it discards what is in them: the guest must not
    /// count on them while the discard is under way.
    pub fn keep(&self, held: u32) {
        self.zone.memory.set_held(held);
    }
}

impl<M: Memory> Drop for InHand<'_, M> {
    fn drop(&mut self) {
        self.zone.advance_to(0);
    }
}

pub(crate) fn area_of(TreeIndex(tree): TreeIndex, area: u32) -> u32 {
    tree * TREE_AREAS + area
}
