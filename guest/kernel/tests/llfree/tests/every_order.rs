//! The guest's C and the host's Rust at the same time, in every order of their accesses, and with the host killed
//! before each of its own.

use squeezy_llfree::{AreaSet, SharedMemory, TreeIndex, Zone};
use squeezy_llfree_tests::{Actor, Guest, Scenario, State, Stepping, Type, explore, step};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

const TREE: TreeIndex = TreeIndex(0);

/// A zone of one tree, and the guest that it is of.
struct World {
    state: &'static State,
    guest: Guest<'static>,
}

impl World {
    /// A guest that has just booted.
    fn new(state: &'static State) -> Rc<Self> {
        Rc::new(Self { state, guest: Guest::boot(state) })
    }

    fn zone(&self) -> (Zone<Stepping<SharedMemory>>, Vec<(TreeIndex, AreaSet)>) {
        Zone::adopt(Stepping(self.state.host()))
    }

    /// The host discards all that is free and gives it back.
    fn soft(self: &Rc<Self>, mut zone: Zone<Stepping<SharedMemory>>) -> Actor {
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

    /// What the host holds is nobody else's, for however long the discard takes.
    fn discard(&self, areas: AreaSet) {
        for _ in 0..2 {
            for area in areas.numbers() {
                self.state.owners().assert_host_may_discard(area);
            }
            step();
        }
    }

    /// The host discards single pages of an area.
    fn fine(self: &Rc<Self>, mut zone: Zone<Stepping<SharedMemory>>) -> Actor {
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

    /// Whoever works on after a host that was killed, and gives everything back.
    fn heir(self: &Rc<Self>) -> Actor {
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

    /// The guest takes a block, and frees it, in two parts if it can.
    fn use_block(self: &Rc<Self>, order: u32, of: Type) -> Actor {
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
    fn all_free(self: &Rc<Self>) -> Box<dyn FnOnce()> {
        let world = self.clone();
        Box::new(move || {
            assert_eq!(world.state.problem(), None);
            let all = u64::from(world.state.areas()) * 512;
            assert_eq!((world.guest.free_pages(), world.guest.unused_pages()), (all, all));
        })
    }
}

/// Runs a host that is killed, and one that is not, beside guests that use blocks of these orders.
fn both(name: &str, preemptions: u32, areas: u32, orders: &'static [u32]) {
    // Actors may be killed, and never give anything back then.
    let state: &'static State = Box::leak(Box::new(State::new(areas)));
    for is_killed in [false, true] {
        let runs = explore(preemptions, || {
            let world = World::new(state);
            let mut actors = vec![world.soft(world.zone().0)];
            for (number, &order) in orders.iter().enumerate() {
                let of = [Type::Movable, Type::Unmovable][number % 2];
                actors.push(world.use_block(order, if order < 9 { of } else { Type::Huge }));
            }
            let heir = is_killed.then(|| world.heir());
            Scenario { actors, heir, check: world.all_free() }
        });
        println!("{name}, host killed: {is_killed}: {runs} orders");
        assert!(runs > 100, "{runs}");
    }
}

#[test]
fn a_page_and_a_reclaim() {
    both("a page", 3, 1, &[0]);
}

#[test]
fn a_huge_page_and_a_reclaim() {
    both("a huge page", 3, 1, &[9]);
}

#[test]
fn a_huge_page_in_two_areas() {
    both("a huge page of two areas", 3, 2, &[9]);
}

#[test]
fn four_mebibytes_and_a_reclaim() {
    both("4 MiB", 3, 2, &[10]);
}

/// The host takes four areas in one step.
#[test]
fn four_areas_at_once() {
    both("a huge page of four areas", 2, 4, &[9]);
    both("a page of four areas", 2, 4, &[0]);
    both("4 MiB of five areas", 2, 5, &[10]);
}

#[test]
fn two_processors_and_a_reclaim() {
    both("two processors", 2, 1, &[0, 7]);
}

/// Single pages are discarded of an area in which these pages are in use and blocks of these orders come and go.
fn single_pages(name: &str, preemptions: u32, used: &'static [u64], orders: &'static [u32]) {
    let state: &'static State = Box::leak(Box::new(State::new(1)));
    // A death adds so many orders that fewer preemptions have to do.
    for (is_killed, preemptions) in [(false, preemptions), (true, (preemptions - 1).min(2))] {
        let runs = explore(preemptions, || {
            let world = World::new(state);
            let used: Vec<_> =
                used.iter().map(|&page| world.guest.get_page(page).unwrap()).collect();
            let mut actors = vec![world.fine(world.zone().0)];
            actors.extend(orders.iter().map(|&order| world.use_block(order, Type::Movable)));
            let all = world.all_free();
            let guest = world.clone();
            let check = Box::new(move || {
                used.into_iter().for_each(|block| guest.guest.free(block));
                all();
            });
            Scenario { actors, heir: is_killed.then(|| world.heir()), check }
        });
        println!("{name}, host killed: {is_killed}: {runs} orders");
        assert!(runs > 100, "{runs}");
    }
}

#[test]
fn single_pages_beside_a_page() {
    single_pages("single pages, a page", 3, &[7], &[0]);
}

#[test]
fn single_pages_beside_two_processors() {
    single_pages("single pages, two processors", 2, &[7], &[0, 3]);
}

/// Half of the area has to be found, and its first half is not free as a whole.
#[test]
fn single_pages_beside_what_is_tried_and_given_back() {
    single_pages("single pages, what is tried", 4, &[3 * 64], &[8]);
}

/// The usual case: pages come from the word that the last ones came from.
#[test]
fn two_processors_go_on_in_one_word() {
    let state: &'static State = Box::leak(Box::new(State::new(1)));
    for orders in [[0, 0], [0, 2], [6, 0]] {
        let runs = explore(3, || {
            let world = World::new(state);
            let last = world.guest.get(0, Type::Movable).unwrap();
            let mut actors = vec![world.soft(world.zone().0)];
            actors.extend(orders.map(|order| world.use_block(order, Type::Movable)));
            let (guest, all) = (world.clone(), world.all_free());
            let check = Box::new(move || {
                guest.guest.free(last);
                all();
            });
            Scenario { actors, heir: None, check }
        });
        println!("orders {orders:?}: {runs} orders");
        assert!(runs > 100, "{runs}");
    }
}

/// Whether a partition is empty is asked while the host works on it, or has been killed in the middle.
#[test]
fn what_nobody_has_is_counted_at_any_moment() {
    let state: &'static State = Box::leak(Box::new(State::new(9)));
    for is_killed in [false, true] {
        let runs = explore(3, || {
            let world = World::new(state);
            let asks = world.clone();
            let asks: Actor = Box::new(move || {
                assert_eq!(asks.guest.unused_pages(), 9 * 512);
                assert_eq!(asks.guest.unused_pages(), 9 * 512);
            });
            let actors = vec![world.soft(world.zone().0), asks];
            Scenario { actors, heir: is_killed.then(|| world.heir()), check: world.all_free() }
        });
        println!("host killed: {is_killed}: {runs} orders");
        assert!(runs > 100, "{runs}");
    }
}

#[test]
fn a_certain_page_and_a_reclaim() {
    let state: &'static State = Box::leak(Box::new(State::new(1)));
    let runs = explore(3, || {
        let world = World::new(state);
        let certain = world.clone();
        let certain: Actor = Box::new(move || {
            if let Some(block) = certain.guest.get_page(77) {
                certain.guest.free(block);
            }
        });
        let actors = vec![world.soft(world.zone().0), certain, world.use_block(0, Type::Movable)];
        Scenario { actors, heir: None, check: world.all_free() }
    });
    println!("{runs} orders");
    assert!(runs > 100, "{runs}");
}

/// L1: whoever has seen that there are pages, and is alone in taking some, gets one.
#[test]
fn what_is_counted_can_be_had() {
    let state: &'static State = Box::leak(Box::new(State::new(1)));
    for (order, of, freed) in [
        (0, Type::Huge, 0),
        (3, Type::Huge, 0),
        (7, Type::Huge, 0),
        (9, Type::Huge, 0),
        // Where the last page came from, and elsewhere.
        (0, Type::Movable, 500),
        (0, Type::Movable, 0),
        (3, Type::Movable, 60),
    ] {
        let runs = explore(u32::MAX, || {
            let world = World::new(state);
            // All but what is freed is in use.
            let mut used: Vec<_> =
                (0..512 >> order).map(|_| world.guest.get(order, of).unwrap()).collect();
            let frees = world.clone();
            let block = used.swap_remove(freed);
            let frees: Actor = Box::new(move || frees.guest.free(block));
            let takes = world.clone();
            let takes: Actor = Box::new(move || {
                if takes.guest.free_pages() > 0 {
                    let block = takes.guest.get(0, Type::Movable).expect("it was counted");
                    takes.guest.free(block);
                }
            });
            let all = world.all_free();
            let guest = world.clone();
            let check = Box::new(move || {
                used.iter().for_each(|&block| guest.guest.free(block));
                all();
            });
            Scenario { actors: vec![frees, takes], heir: None, check }
        });
        println!("order {order}: {runs} orders");
        assert!(runs > 5, "{runs}");
    }
}

/// Two processors free the two halves of one block.
#[test]
fn a_block_is_freed_in_parts_at_once() {
    let state: &'static State = Box::leak(Box::new(State::new(2)));
    for order in [1, 8, 9, 10] {
        let runs = explore(4, || {
            let world = World::new(state);
            let block = world.guest.get(order, Type::Huge).unwrap();
            let half = |number: u64| -> Actor {
                let world = world.clone();
                let page = block.page + (number << (order - 1));
                Box::new(move || world.guest.free_part(page, order - 1))
            };
            Scenario { actors: vec![half(0), half(1)], heir: None, check: world.all_free() }
        });
        println!("order {order}: {runs} orders");
        assert!(runs > 10, "{runs}");
    }
}

/// A tree that has no run of an order is said to have none, but not because the host was at it.
#[test]
fn what_a_tree_lacks_is_not_what_the_host_has() {
    // Of the first area, two pages are free that are no run. The second one is free as a whole.
    let state: &'static State = Box::leak(Box::new(State::new(2)));
    for is_killed in [false, true] {
        let runs = explore(2, || {
            let world = World::new(state);
            let mut used: Vec<_> =
                (2..9).rev().map(|order| world.guest.get(order, Type::Movable).unwrap()).collect();
            used.extend([508, 510].map(|page| world.guest.get_page(page).unwrap()));
            let used = Rc::new(RefCell::new(used));
            let (guest, more) = (world.clone(), used.clone());
            let takes: Actor = Box::new(move || {
                // There may be no run now, and then there is, in an area that is in use.
                for order in [1, 0, 0, 0] {
                    more.borrow_mut().extend(guest.guest.get(order, Type::Movable));
                }
            });
            let (guest, all) = (world.clone(), world.all_free());
            let check = Box::new(move || {
                assert_eq!(guest.state.problem(), None);
                used.take().into_iter().for_each(|block| guest.guest.free(block));
                all();
            });
            let actors = vec![world.soft(world.zone().0), takes];
            Scenario { actors, heir: is_killed.then(|| world.heir()), check }
        });
        println!("host killed: {is_killed}: {runs} orders");
        assert!(runs > 100, "{runs}");
    }
}

/// The same for an area whose single pages it discards.
#[test]
fn what_a_tree_lacks_is_not_what_the_host_spares() {
    let state: &'static State = Box::leak(Box::new(State::new(1)));
    for is_killed in [false, true] {
        let runs = explore(2, || {
            let world = World::new(state);
            let used = Rc::new(RefCell::new(vec![world.guest.get_page(7).unwrap()]));
            let (guest, more) = (world.clone(), used.clone());
            let takes: Actor = Box::new(move || {
                more.borrow_mut().extend(guest.guest.get(1, Type::Movable));
            });
            let (guest, all) = (world.clone(), world.all_free());
            let check = Box::new(move || {
                assert_eq!(guest.state.problem(), None);
                used.take().into_iter().for_each(|block| guest.guest.free(block));
                all();
            });
            let actors = vec![world.fine(world.zone().0), takes];
            Scenario { actors, heir: is_killed.then(|| world.heir()), check }
        });
        println!("host killed: {is_killed}: {runs} orders");
        assert!(runs > 100, "{runs}");
    }
}

/// The guest takes its permission to discard everything back. The host looks while the guest stands still.
#[test]
fn either_the_host_discards_everything_or_the_guest_goes_on() {
    let state: &'static State = Box::leak(Box::new(State::new(1)));
    let runs = explore(u32::MAX, || {
        let world = World::new(state);
        // The host has discarded it in some of the runs before.
        world.guest.forget_doom();
        world.guest.doom();
        let (mut host, _) = Zone::adopt(state.host());
        let (condemned, spared) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let outcome = condemned.clone();
        let condemns: Actor = Box::new(move || {
            step();
            outcome.set(host.condemn());
        });
        let (outcome, guest) = (spared.clone(), world.clone());
        let spares: Actor = Box::new(move || outcome.set(guest.guest.undoom()));
        let check = Box::new(move || {
            assert_ne!(condemned.get(), spared.get());
            assert_eq!(world.guest.undoom(), spared.get(), "it stays so");
            world.guest.forget_doom();
            let (mut host, _) = Zone::adopt(state.host());
            assert!(!host.condemn(), "nobody has allowed it");
            assert!(world.guest.undoom());
        });
        Scenario { actors: vec![condemns, spares], heir: None, check }
    });
    println!("{runs} orders");
    assert!(runs > 3, "{runs}");
}
