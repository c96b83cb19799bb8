//! Processors of the guest, without a host.

use crate::world::World;
use squeezy_llfree_tests::{Actor, Scenario, State, Type, explore};

/// Who looks for a huge page where there is none does not keep others from single pages meanwhile.
#[test]
fn who_finds_no_huge_page_is_in_nobodys_way() {
    let state: &'static State = Box::leak(Box::new(State::new(2)));
    let runs = explore(3, || {
        let world = World::new(state);
        // 600 pages are free, 300 in each area.
        let used: Vec<_> = [0, 512]
            .map(|area| (area..area + 212).map(|page| world.guest.get_page(page).unwrap()))
            .into_iter()
            .flatten()
            .collect();
        let huge = world.clone();
        let huge: Actor = Box::new(move || assert_eq!(huge.guest.get(9, Type::Huge), None));
        let page = || -> Actor {
            let world = world.clone();
            Box::new(move || {
                let page = world.guest.get(0, Type::Movable).expect("there are 600");
                world.guest.free(page);
            })
        };
        let (guest, all) = (world.clone(), world.all_free());
        let check = Box::new(move || {
            used.into_iter().for_each(|block| guest.guest.free(block));
            all();
        });
        Scenario { actors: vec![huge, page(), page()], heirs: Vec::new(), check }
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
            Scenario { actors: vec![frees, takes], heirs: Vec::new(), check }
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
            Scenario { actors: vec![half(0), half(1)], heirs: Vec::new(), check: world.all_free() }
        });
        println!("order {order}: {runs} orders");
        assert!(runs > 10, "{runs}");
    }
}
