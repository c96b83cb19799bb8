//! Areas that are in use in part.

use crate::world::World;
use squeezy_llfree::{SharedMemory, Zone};
use squeezy_llfree_tests::{Actor, Scenario, State, Stepping, Type, explore};
use std::{cell::RefCell, rc::Rc};

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
            Scenario { actors, heirs: world.heirs(is_killed.into()), check }
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

/// A tree that has no run of an order is said to have none, but not because the host was at it.
#[test]
fn what_a_tree_lacks_is_not_what_the_host_has() {
    // Of the first area, two pages are free that are no run. The second one is free as a whole.
    let state: &'static State = Box::leak(Box::new(State::new(2)));
    type Act = fn(&Rc<World>, Zone<Stepping<SharedMemory>>) -> Actor;
    let (soft, hard): (Act, Act) = (World::soft, World::hard);
    for (act, is_killed) in [(soft, false), (hard, false), (hard, true)] {
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
            let actors = vec![act(&world, world.zone().0), takes];
            Scenario { actors, heirs: world.heirs(is_killed.into()), check }
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
            Scenario { actors, heirs: world.heirs(is_killed.into()), check }
        });
        println!("host killed: {is_killed}: {runs} orders");
        assert!(runs > 100, "{runs}");
    }
}
