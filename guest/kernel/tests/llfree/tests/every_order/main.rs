//! The guest's C and the host's Rust at the same time, in every order of their accesses, and with the host killed
//! before each of its own.

mod guest_alone;
mod single_pages;
mod world;

use squeezy_llfree::{TreeIndex, Zone};
use squeezy_llfree_tests::{Actor, Scenario, State, Type, explore};
use std::{cell::Cell, rc::Rc};
use world::World;

const TREE: TreeIndex = TreeIndex(0);

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
            Scenario { actors, heirs: world.heirs(is_killed.into()), check: world.all_free() }
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

/// What is kept is kept across the death of who keeps it, and lost to nobody.
#[test]
fn areas_that_are_kept_and_given_back() {
    let state: &'static State = Box::leak(Box::new(State::new(2)));
    for (order, of) in [(0, Type::Movable), (9, Type::Huge)] {
        for is_killed in [false, true] {
            let runs = explore(2, || {
                let world = World::new(state);
                let actors = vec![world.hard(world.zone().0), world.use_block(order, of)];
                Scenario { actors, heirs: world.heirs(is_killed.into()), check: world.all_free() }
            });
            println!("order {order}, host killed: {is_killed}: {runs} orders");
            assert!(runs > 100, "{runs}");
        }
    }
}

/// What the host cannot discard goes back with what is behind it.
#[test]
fn areas_that_cannot_be_discarded() {
    let state: &'static State = Box::leak(Box::new(State::new(2)));
    for (order, of) in [(0, Type::Movable), (9, Type::Huge)] {
        for is_killed in [false, true] {
            let runs = explore(2, || {
                let world = World::new(state);
                let actors = vec![world.failing(world.zone().0), world.use_block(order, of)];
                let (heirs, all) = (world.heirs(is_killed.into()), world.all_free());
                let check = Box::new(move || {
                    let (mut zone, _) = Zone::adopt(state.host());
                    let evicted = zone.free_areas(TREE).evicted;
                    zone.settle(0);
                    assert!(is_killed || evicted.is_empty(), "{evicted:?}");
                    all();
                });
                Scenario { actors, heirs, check }
            });
            println!("order {order}, host killed: {is_killed}: {runs} orders");
            assert!(runs > 100, "{runs}");
        }
    }
}

/// Whoever takes over is killed before it has come to the end of it.
#[test]
fn a_host_is_killed_and_so_is_who_takes_over() {
    let state: &'static State = Box::leak(Box::new(State::new(2)));
    for (name, act) in [
        ("soft", World::soft as fn(&Rc<World>, _) -> Actor),
        ("hard", World::hard),
        ("failing", World::failing),
        ("fine", World::fine),
    ] {
        let runs = explore(1, || {
            let world = World::new(state);
            let used = world.guest.get_page(7).unwrap();
            let actors = vec![act(&world, world.zone().0), world.use_block(1, Type::Movable)];
            let (guest, all) = (world.clone(), world.all_free());
            let check = Box::new(move || {
                assert_eq!(guest.state.problem(), None);
                guest.guest.free(used);
                all();
            });
            Scenario { actors, heirs: world.heirs(2), check }
        });
        println!("{name}: {runs} orders");
        assert!(runs > 1000, "{runs}");
    }
}

#[test]
fn two_processors_and_a_reclaim() {
    both("two processors", 2, 1, &[0, 7]);
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
            Scenario { actors, heirs: Vec::new(), check }
        });
        println!("orders {orders:?}: {runs} orders");
        assert!(runs > 100, "{runs}");
    }
}

/// Compaction moves a page of one area to another while a host takes what is whole, or single pages, and is killed.
#[test]
fn a_page_is_moved_beside_a_reclaim() {
    let state: &'static State = Box::leak(Box::new(State::new(3)));
    for (name, act) in [("soft", World::soft as fn(&Rc<World>, _) -> Actor), ("fine", World::fine)]
    {
        for is_killed in [false, true] {
            let runs = explore(1 + u32::from(!is_killed), || {
                let world = World::new(state);
                // The first area has fewer free pages than the second, which is to be emptied.
                let page = |page| world.guest.get_page(page).unwrap();
                let target = [page(7), page(8)];
                let source = page(512 + 9);
                let moves = world.clone();
                let moves: Actor = Box::new(move || {
                    let block = match moves.guest.get_beside(1, 0) {
                        Some(to) => {
                            moves.guest.free(source);
                            to
                        }
                        None => source,
                    };
                    moves.guest.free(block);
                });
                let actors =
                    vec![act(&world, world.zone().0), moves, world.use_block(1, Type::Movable)];
                let (guest, all) = (world.clone(), world.all_free());
                let check = Box::new(move || {
                    assert_eq!(guest.state.problem(), None);
                    target.into_iter().for_each(|block| guest.guest.free(block));
                    all();
                });
                Scenario { actors, heirs: world.heirs(is_killed.into()), check }
            });
            println!("{name}, host killed: {is_killed}: {runs} orders");
            assert!(runs > 100, "{runs}");
        }
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
            Scenario { actors, heirs: world.heirs(is_killed.into()), check: world.all_free() }
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
        Scenario { actors, heirs: Vec::new(), check: world.all_free() }
    });
    println!("{runs} orders");
    assert!(runs > 100, "{runs}");
}

/// The guest takes its permission to discard everything back. The host looks and discards while the guest stands still,
/// until it is done, whoever of them is killed in the middle.
#[test]
fn either_the_host_discards_everything_or_the_guest_goes_on() {
    let state: &'static State = Box::leak(Box::new(State::new(1)));
    for deaths in 0..=2 {
        let runs = explore(u32::MAX, || {
            let world = World::new(state);
            // The host has discarded it in some of the runs before.
            world.guest.forget_doom();
            world.guest.doom();
            let (gone, spared) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
            let (outcome, guest) = (spared.clone(), world.clone());
            let spares: Actor = Box::new(move || outcome.set(guest.guest.undoom()));
            let actors = vec![world.condemn(&gone), spares];
            let heirs = (0..deaths).map(|_| world.condemn(&gone)).collect();
            let check = Box::new(move || {
                assert_eq!(gone.get(), if spared.get() { 0 } else { 2 });
                assert_eq!(world.guest.undoom(), spared.get(), "it stays so");
                world.guest.forget_doom();
                let (mut host, _) = Zone::adopt(state.host());
                assert!(!host.condemn(), "nobody has allowed it");
                assert!(world.guest.undoom());
            });
            Scenario { actors, heirs, check }
        });
        println!("at most {deaths} hosts killed: {runs} orders");
        assert!(runs > [3, 20, 100][deaths], "{runs}");
    }
}
