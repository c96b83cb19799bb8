//! Processors of the guest, without a host.

use crate::world::World;
use squeezy_llfree_tests::{Actor, Block, Scenario, State, Type, explore};
use std::{cell::RefCell, rc::Rc};

/// Which pages are free.
type Free = fn(u64) -> bool;

/// Takes all others.
fn all_but(world: &World, free: Free) -> Vec<Block> {
    let pages = u64::from(world.state.areas()) * 512;
    (0..pages).filter(|&page| !free(page)).map(|page| world.guest.get_page(page).unwrap()).collect()
}

/// Who looks for a block where there is none does not keep others from single pages meanwhile: one page more is
/// free than such a block has, and two processors want one.
fn in_nobodys_way(name: &str, order: u32, free: Free) {
    let areas = if order > 9 { 4 } else { 2 };
    let state: &'static State = Box::leak(Box::new(State::new(areas)));
    let runs = explore(2, || {
        let world = World::new(state);
        let of = if order < 9 { Type::Movable } else { Type::Huge };
        // It begins where the last one was.
        let before = world.guest.get(order, of).unwrap();
        world.guest.free(before);
        let used = all_but(&world, free);
        assert_eq!(world.guest.free_pages(), (1 << order) + 1);
        let large = world.clone();
        let large: Actor = Box::new(move || assert_eq!(large.guest.get(order, of), None));
        let page = || -> Actor {
            let world = world.clone();
            Box::new(move || {
                let page = world.guest.get(0, Type::Unmovable).expect("there are enough");
                world.guest.free(page);
            })
        };
        let (guest, all) = (world.clone(), world.all_free());
        let check = Box::new(move || {
            assert_eq!(guest.state.problem(), None);
            used.into_iter().for_each(|block| guest.guest.free(block));
            all();
        });
        Scenario { actors: vec![large, page(), page()], heirs: Vec::new(), check }
    });
    println!("{name}: {runs} orders");
    assert!(runs > 100, "{runs}");
}

#[test]
fn who_finds_no_pair_of_huge_pages_is_in_nobodys_way() {
    in_nobodys_way("order 10", 10, |page| page == 0 || (512..1536).contains(&page));
}

#[test]
fn who_finds_no_huge_page_is_in_nobodys_way() {
    in_nobodys_way("order 9", 9, |page| page % 512 > 254 && page != 255);
}

#[test]
fn who_finds_no_large_block_is_in_nobodys_way() {
    in_nobodys_way("order 8", 8, |page| matches!(page, 1..256 | 300..302));
    in_nobodys_way("order 7", 7, |page| matches!(page, 1..128 | 300..302));
}

#[test]
fn who_finds_no_small_block_is_in_nobodys_way() {
    in_nobodys_way("order 6", 6, |page| matches!(page, 1..64 | 300..302));
    in_nobodys_way("order 1", 1, |page| matches!(page, 1 | 3 | 300));
}

/// A tree is not said to lack what others free, or have held for a moment, while it is looked for.
fn what_a_tree_lacks(name: &str, free: Free, acts: &'static [Act]) {
    let state: &'static State = Box::leak(Box::new(State::new(2)));
    // Three actors have so many orders that fewer preemptions have to do.
    let runs = explore(if acts.len() > 2 { 2 } else { 3 }, || {
        let world = World::new(state);
        let used = Rc::new(RefCell::new(all_but(&world, free)));
        let act = |&act: &Act| -> Actor {
            let (world, used) = (world.clone(), used.clone());
            Box::new(move || match act {
                Act::Get(order) => {
                    let got = world.guest.get(order, Type::Movable);
                    used.borrow_mut().extend(got);
                }
                Act::Free(page) => {
                    let mut blocks = used.borrow_mut();
                    let at = blocks.iter().position(|block| block.page == page).unwrap();
                    let block = blocks.swap_remove(at);
                    drop(blocks);
                    world.guest.free(block);
                }
            })
        };
        let (guest, rest, all) = (world.clone(), used.clone(), world.all_free());
        let check = Box::new(move || {
            // With what is still allocated: all is forgotten as soon as it is free.
            assert_eq!(guest.state.problem(), None);
            rest.take().into_iter().for_each(|block| guest.guest.free(block));
            all();
        });
        Scenario { actors: acts.iter().map(act).collect(), heirs: Vec::new(), check }
    });
    println!("{name}: {runs} orders");
    assert!(runs > 50, "{runs}");
}

#[derive(Clone, Copy)]
enum Act {
    Get(u32),
    Free(u64),
}

#[test]
fn what_a_tree_lacks_is_not_what_is_freed_meanwhile() {
    use Act::{Free, Get};
    let two = |page| matches!(page, 508 | 510);
    what_a_tree_lacks("a page between two", two, &[Get(1), Free(509)]);
    // The count is the same again when the one who looks comes back.
    let three = |page| matches!(page, 3 | 508 | 510);
    what_a_tree_lacks("and another is taken", three, &[Get(1), Free(509), Get(0)]);
}

/// Order 8 finds three words of the four that it needs, and counts so many pages of an area that too few are left for
/// another order; elsewhere there are enough, but only single ones.
#[test]
fn what_a_tree_lacks_is_not_what_another_has_tried() {
    use Act::Get;
    let free = |page| match page {
        0..512 => matches!(page, 0..192 | 300..408),
        _ => page < 900 && page % 2 == 0,
    };
    what_a_tree_lacks("6 and 8", free, &[Get(6), Get(8)]);
    what_a_tree_lacks("7 and 8", free, &[Get(7), Get(8)]);
    what_a_tree_lacks("6, 7 and 8", free, &[Get(8), Get(7), Get(6)]);
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
