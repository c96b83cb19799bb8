//! Who works on a state, an access at a time.

use crate::TREE;
use squeezy_llfree::{AreaSet, Memory, SharedMemory, TreeIndex, Zone};
use squeezy_llfree_tests::{Actor, Guest, State, Stepping, Type, hold_others, step};
use std::{cell::Cell, rc::Rc};

/// A zone of one tree, and the guest that it is of.
pub(crate) struct World {
    pub(crate) state: &'static State,
    pub(crate) guest: Guest<'static>,
}

impl World {
    /// A guest that has just booted.
    pub(crate) fn new(state: &'static State) -> Rc<Self> {
        Rc::new(Self { state, guest: Guest::boot(state) })
    }

    pub(crate) fn zone(&self) -> (Zone<Stepping<SharedMemory>>, Vec<(TreeIndex, AreaSet)>) {
        Zone::adopt(Stepping(self.state.host()))
    }

    /// The host discards all that is free and gives it back.
    pub(crate) fn soft(self: &Rc<Self>, mut zone: Zone<Stepping<SharedMemory>>) -> Actor {
        let world = self.clone();
        Box::new(move || {
            let hand = zone.hand();
            let taken = hand.take(TREE, hand.free_areas(TREE));
            if !taken.is_empty() {
                world.discard(taken);
                assert!(hand.give(TREE, taken).is_empty());
            }
        })
    }

    /// The host keeps all that is free, and later gives it back.
    pub(crate) fn hard(self: &Rc<Self>, zone: Zone<Stepping<SharedMemory>>) -> Actor {
        self.keeping(zone, true)
    }

    /// The host wants to keep all that is free, cannot discard it, and gives it back as it is.
    pub(crate) fn failing(self: &Rc<Self>, zone: Zone<Stepping<SharedMemory>>) -> Actor {
        self.keeping(zone, false)
    }

    fn keeping(
        self: &Rc<Self>,
        mut zone: Zone<Stepping<SharedMemory>>,
        can_discard: bool,
    ) -> Actor {
        let world = self.clone();
        Box::new(move || {
            let hand = zone.hand();
            let taken = hand.take(TREE, hand.free_areas(TREE));
            hand.keep(taken.len());
            world.discard(taken);
            drop(hand);
            if can_discard {
                world.discard(taken);
            }
            let hand = zone.hand();
            let broken = match can_discard {
                true => hand.give(TREE, taken),
                false => hand.give_unchanged(TREE, taken),
            };
            assert!(broken.is_empty());
            hand.keep(0);
        })
    }

    /// What the host holds is nobody else's, for however long the discard takes.
    pub(crate) fn discard(&self, areas: AreaSet) {
        for _ in 0..2 {
            for area in areas.numbers() {
                self.state.owners().assert_host_may_discard(area);
            }
            step();
        }
    }

    /// The host discards single pages of an area.
    pub(crate) fn fine(self: &Rc<Self>, mut zone: Zone<Stepping<SharedMemory>>) -> Actor {
        let world = self.clone();
        Box::new(move || {
            let hand = zone.hand();
            if let Some(pages) = hand.isolate(TREE, 0) {
                for _ in 0..2 {
                    for run in pages.runs() {
                        world.state.owners().assert_host_may_discard_pages(0, run);
                    }
                    step();
                }
            }
            hand.release(TREE, AreaSet::first(1));
        })
    }

    /// The host has the guest stand still, and discards everything in two parts if it may. Whoever comes after one that
    /// was killed in the middle does the same. `gone` is how many parts are.
    pub(crate) fn condemn(self: &Rc<Self>, gone: &Rc<Cell<u32>>) -> Actor {
        let (world, gone) = (self.clone(), gone.clone());
        Box::new(move || {
            step();
            hold_others(true);
            let (mut zone, _) = world.zone();
            if zone.condemn() {
                for part in 1..=2 {
                    step();
                    gone.set(part.max(gone.get()));
                }
            }
            step();
            hold_others(false);
        })
    }

    /// Whoever works on after a host that was killed, and gives everything back.
    pub(crate) fn heir(self: &Rc<Self>) -> Actor {
        let world = self.clone();
        Box::new(move || {
            let (mut zone, held) = world.zone();
            let hand = zone.hand();
            for (tree, areas) in held {
                world.discard(areas);
                assert!(hand.give(tree, areas).is_empty());
            }
            drop(hand);
            zone.settle(0);
        })
    }

    /// So many of them, for hosts that are killed.
    pub(crate) fn heirs(self: &Rc<Self>, count: usize) -> Vec<Actor> {
        (0..count).map(|_| self.heir()).collect()
    }

    /// The guest takes a block, and frees it, in two parts if it can.
    pub(crate) fn use_block(self: &Rc<Self>, order: u32, of: Type) -> Actor {
        let world = self.clone();
        Box::new(move || {
            let Some(block) = world.guest.get(order, of) else { return };
            if order == 0 {
                return world.guest.free(block);
            }
            world.guest.free_part(block.page, order - 1);
            world.guest.free_part(block.page + (1 << (order - 1)), order - 1);
        })
    }

    /// Everything is free again, and nobody has anything in hand.
    pub(crate) fn all_free(self: &Rc<Self>) -> Box<dyn FnOnce()> {
        let world = self.clone();
        Box::new(move || {
            assert_eq!(world.state.problem(), None);
            let all = u64::from(world.state.areas()) * 512;
            assert_eq!((world.guest.free_pages(), world.guest.unused_pages()), (all, all));
            assert_eq!((world.state.held(), world.state.host().epoch() % 2), (0, 0));
        })
    }
}
