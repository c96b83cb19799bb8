//! The allocator by itself: what it gives, and what it chooses.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use squeezy_llfree::{AreaSet, Memory, TreeIndex, Zone, ZoneLayout};
use squeezy_llfree_tests::{Block, Guest, State, Type, state_bytes};
use std::collections::HashSet;

/// Takes all there is, in blocks of an order.
fn take_all(guest: &Guest, order: u32, of: Type) -> Vec<Block> {
    std::iter::from_fn(|| guest.get(order, of)).collect()
}

/// Leaves nothing behind the areas of a tree that are free; which these are.
fn evict<M: Memory>(zone: &mut Zone<M>, tree: TreeIndex) -> AreaSet {
    let hand = zone.hand();
    let taken = hand.take(tree, hand.free_areas(tree));
    assert!(hand.give(tree, taken).is_empty());
    taken
}

/// The same of each tree but one.
fn evict_all_but<M: Memory>(zone: &mut Zone<M>, kept: u64) {
    for tree in zone.trees().filter(|tree| u64::from(tree.0) != kept) {
        evict(zone, tree);
    }
}

/// What a type is for.
fn of_order(order: u32, random: u32) -> Type {
    match order {
        9.. => Type::Huge,
        _ if random.is_multiple_of(2) => Type::Movable,
        _ => Type::Unmovable,
    }
}

#[test]
fn the_state_is_as_large_as_the_host_takes_it_for_and_at_most_36_kib_for_each_gib() {
    for areas in 1..=64 * 512 {
        let bytes = state_bytes(areas);
        assert_eq!(bytes, ZoneLayout::new(0, areas).unwrap().end, "{areas} areas");
        // What a zone takes beside that, however small it is, is some lines.
        assert!(bytes <= (u64::from(areas) * (36 << 10)).div_ceil(512) + 256, "{areas} areas");
    }
}

#[test]
fn all_memory_can_be_had_in_blocks_of_every_order() {
    for areas in [1, 2, 7, 8, 9, 64, 101] {
        let state = State::new(areas);
        let guest = Guest::boot(&state);
        for order in 0..=10 {
            let blocks = take_all(&guest, order, of_order(order, 0));
            // A pair of areas begins with an even one.
            let pages = u64::from(if order == 10 { areas / 2 * 2 } else { areas }) * 512;
            assert_eq!(blocks.len() as u64, pages >> order, "order {order}, {areas} areas");
            assert!(!guest.has(order));
            for &block in &blocks {
                guest.free(block);
            }
            assert!(guest.has(order.min(9)));
            assert_eq!(state.problem(), None);
        }
        assert_eq!(
            (guest.free_pages(), guest.unused_pages()),
            (u64::from(areas) * 512, u64::from(areas) * 512)
        );
    }
}

#[test]
fn blocks_are_freed_in_other_sizes_than_they_were_allocated_in() {
    let state = State::new(16);
    let guest = Guest::boot(&state);
    for order in 1..=10 {
        for part in 0..order {
            let block = guest.get(order, Type::Huge).unwrap();
            for number in 0..1 << (order - part) {
                guest.free_part(block.page + (number << part), part);
            }
            assert_eq!(state.problem(), None);
        }
    }
    // And pages that were allocated one by one as one block.
    let pages = take_all(&guest, 0, Type::Movable);
    assert_eq!(pages.len(), 16 * 512);
    for block in (0..8).map(|block| block * 1024) {
        guest.free_part(block, 10);
    }
    assert_eq!(state.problem(), None);
    assert_eq!(guest.free_pages(), 16 * 512);
}

#[test]
fn what_is_not_allocated_cannot_be_freed() {
    let state = State::new(4);
    let guest = Guest::boot(&state);
    let block = guest.get(3, Type::Movable).unwrap();
    let outside = 4 * 512;
    for (page, order) in
        [(block.page + 8, 3), (block.page, 4), (1024, 9), (outside, 0), (1, 1), (0, 11)]
    {
        assert!(!guest.put(page, order), "page {page}, order {order}");
    }
    for page in [outside, u64::MAX, outside + (1 << 40)] {
        assert!(!guest.is_free(page), "page {page}");
        assert_eq!(guest.get_page(page), None, "page {page}");
    }
    guest.free(block);
    assert!(!guest.put(block.page, 3), "twice");
    let (mut zone, _) = Zone::adopt(state.host());
    let hand = zone.hand();
    assert_eq!(
        hand.take(TreeIndex(0), hand.free_areas(TreeIndex(0)).of(AreaSet::EMPTY.with(2))).len(),
        1
    );
    assert!(!guest.put(1024, 9) && !guest.put(1024, 0), "the host's");
    assert!(guest.is_free(1024));
    assert!(hand.give(TreeIndex(0), AreaSet::EMPTY.with(2)).is_empty());
    drop(hand);
    assert_eq!(state.problem(), None);
}

#[test]
fn random_use_leaves_everything_free() {
    for seed in 0..20 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let state = State::new(1 + random.next_u32() % 40);
        let guest = Guest::boot(&state);
        let mut blocks: Vec<Block> = Vec::new();
        let mut pages = 0;
        for _ in 0..20_000 {
            let number = random.next_u32();
            if number % 5 < 3 {
                // Mostly small ones.
                let order = (random.next_u32() % 11).min(random.next_u32() % 11);
                if let Some(block) = guest.get(order, of_order(order, number >> 8)) {
                    pages += 1 << order;
                    blocks.push(block);
                } else {
                    assert!(order > 0 || guest.free_pages() == 0);
                }
            } else if !blocks.is_empty() {
                let block = blocks.swap_remove(number as usize % blocks.len());
                pages -= 1 << block.order;
                guest.free(block);
            }
            assert_eq!(guest.free_pages(), u64::from(state.areas()) * 512 - pages);
        }
        assert_eq!(state.problem(), None, "seed {seed}");
        blocks.drain(..).for_each(|block| guest.free(block));
        assert_eq!(take_all(&guest, 9, Type::Huge).len(), state.areas() as usize, "seed {seed}");
    }
}

/// Long-lived pages of one type do not keep areas from becoming free that another type used.
#[test]
fn types_are_kept_apart() {
    let state = State::new(64);
    let guest = Guest::boot(&state);
    let mut movable = Vec::new();
    let mut unmovable = Vec::new();
    for number in 0..8192 {
        movable.push(guest.get(0, Type::Movable).unwrap());
        if number % 16 == 0 {
            unmovable.push(guest.get(0, Type::Unmovable).unwrap());
        }
    }
    movable.drain(..).for_each(|block| guest.free(block));
    // 512 pages that stay, all in the areas of one tree.
    assert!(take_all(&guest, 9, Type::Huge).len() >= 64 - 8);
}

/// What is left of one type in a tree does not attract another type while there are empty trees.
#[test]
fn a_tree_in_use_is_left_to_its_type() {
    let state = State::new(32);
    let guest = Guest::boot(&state);
    // Three trees, one after the other, of which half is free again.
    let movable: Vec<_> =
        (0..2 * 4096 + 100).map(|_| guest.get(0, Type::Movable).unwrap()).collect();
    let trees: Vec<_> = movable.iter().map(|block| block.page / 4096).collect();
    for block in movable.iter().filter(|block| block.page % 2 == 0) {
        guest.free(*block);
    }
    let unmovable = guest.get(0, Type::Unmovable).unwrap();
    assert!(!trees.contains(&(unmovable.page / 4096)), "{unmovable:?}");
}

/// Rather than that the host brings something back, pages that stay would spoil areas, one page each.
#[test]
fn types_are_apart_where_the_host_has_evicted_the_rest() {
    let state = State::new(64);
    let guest = Guest::boot(&state);
    let (mut zone, _) = Zone::adopt(state.host());
    let (mut movable, mut unmovable) = (HashSet::new(), HashSet::new());
    for number in 0..20 * 512 {
        if number % 64 == 0 {
            for tree in zone.trees() {
                evict(&mut zone, tree);
            }
        }
        movable.insert(guest.get(0, Type::Movable).unwrap().page / 512);
        if number % 8 == 0 {
            unmovable.insert(guest.get(0, Type::Unmovable).unwrap().page / 512);
        }
    }
    assert!(movable.is_disjoint(&unmovable), "{movable:?} and {unmovable:?}");
    assert!(movable.len() <= 21 && unmovable.len() <= 4, "{movable:?} and {unmovable:?}");
}

/// The same for blocks of several sizes, some of which are freed again.
#[test]
fn types_of_every_order_are_apart_where_the_host_has_evicted_the_rest() {
    for seed in 0..4 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let state = State::new(128);
        let guest = Guest::boot(&state);
        let (mut zone, _) = Zone::adopt(state.host());
        let mut blocks: Vec<(Block, Type)> = Vec::new();
        for number in 0..4000 {
            if number % 64 == 0 {
                for tree in zone.trees() {
                    evict(&mut zone, tree);
                }
            }
            let of = if number % 8 == 0 { Type::Unmovable } else { Type::Movable };
            // Half of each order below.
            let order = random.next_u32().trailing_zeros().min(8);
            blocks.push((guest.get(order, of).unwrap(), of));
            while blocks.len() > 1500 {
                let (block, _) = blocks.swap_remove(random.next_u32() as usize % blocks.len());
                guest.free(block);
            }
            let areas = |of| {
                let of = blocks.iter().filter(move |(_, other)| *other == of);
                of.map(|(block, _)| block.page / 512).collect::<HashSet<_>>()
            };
            let (movable, unmovable) = (areas(Type::Movable), areas(Type::Unmovable));
            assert!(movable.is_disjoint(&unmovable), "seed {seed}: {movable:?} and {unmovable:?}");
        }
    }
}

/// Where single pages of an area are free and all others of the tree are evicted, a larger block brings one of these
/// back, and leaves alone what others have.
#[test]
fn a_block_brings_an_area_of_its_tree_back_rather_than_stay_among_pages_that_move() {
    let state = State::new(24);
    let guest = Guest::boot(&state);
    let (mut zone, _) = Zone::adopt(state.host());
    let movable: Vec<_> = (0..100).map(|_| guest.get(0, Type::Movable).unwrap()).collect();
    let unmovable: Vec<_> = (0..512).map(|_| guest.get(0, Type::Unmovable).unwrap()).collect();
    let (theirs, ours) = (movable[0].page / 4096, unmovable[0].page / 4096);
    assert_ne!(theirs, ours);
    unmovable.iter().step_by(2).for_each(|block| guest.free(*block));
    evict_all_but(&mut zone, theirs);
    let block = guest.get(3, Type::Unmovable).unwrap();
    assert!(block.evicted && block.page / 4096 == ours, "{block:?}");
    let page = guest.get(0, Type::Unmovable).unwrap();
    assert_eq!(page.page / 4096, ours);
}

/// Who has used a tree before it was free does not go on there beside its next owner.
#[test]
fn a_tree_that_has_changed_hands_is_left() {
    let state = State::new(16);
    let guest = Guest::boot(&state);
    let (mut zone, _) = Zone::adopt(state.host());
    // Some areas in, so that what is whole there is passed by.
    let blocks: Vec<_> = (0..3 * 512 + 8).map(|_| guest.get(0, Type::Unmovable).unwrap()).collect();
    let tree = blocks[0].page / 4096;
    blocks.iter().for_each(|block| guest.free(*block));
    evict_all_but(&mut zone, tree);
    let movable = guest.get(0, Type::Movable).unwrap();
    assert_eq!(movable.page / 4096, tree);
    for _ in 0..100 {
        let unmovable = guest.get(0, Type::Unmovable).unwrap();
        assert_ne!(unmovable.page / 4096, tree);
    }
}

/// A slab that grows and shrinks leaves pages behind each time, and between that programs fill all memory and go:
/// these pages are in the same trees each time.
#[test]
fn what_stays_gathers_in_the_same_trees() {
    let state = State::new(128);
    let guest = Guest::boot(&state);
    let mut left: Vec<Block> = Vec::new();
    for round in 0..8 {
        let slab: Vec<_> = (0..3 * 4096).map(|_| guest.get(0, Type::Unmovable).unwrap()).collect();
        for (number, block) in slab.into_iter().enumerate() {
            if number % 64 == 0 {
                left.push(block);
            } else {
                guest.free(block);
            }
        }
        take_all(&guest, 0, Type::Movable).into_iter().for_each(|block| guest.free(block));
        let areas: HashSet<_> = left.iter().map(|block| block.page / 512).collect();
        assert!(areas.len() <= 5 * 8, "round {round}: {} areas", areas.len());
    }
}

/// And programs that come then have their trees to themselves: pages that stay do not go on among theirs.
#[test]
fn a_few_pages_that_stay_attract_no_others_among_what_moves() {
    for (stay, is_movable) in [(0, true), (20, true), (1000, true), (1100, false), (3000, false)] {
        let state = State::new(16);
        let guest = Guest::boot(&state);
        let unmovable: Vec<_> = (0..4096).map(|_| guest.get(0, Type::Unmovable).unwrap()).collect();
        let tree = unmovable[0].page / 4096;
        unmovable.iter().skip(stay).for_each(|block| guest.free(*block));
        let movable = take_all(&guest, 0, Type::Movable);
        assert_eq!(movable.len(), 16 * 512 - stay);
        // Half of both trees is free again.
        movable.iter().step_by(2).for_each(|block| guest.free(*block));
        let page = guest.get(0, Type::Unmovable).unwrap();
        assert_eq!(page.page / 4096 != tree, is_movable, "{stay} pages stay: {page:?}");
    }
}

/// Where types have to mix, the host at least need not bring anything back.
#[test]
fn among_others_pages_too_what_is_evicted_is_taken_last() {
    let state = State::new(8);
    let guest = Guest::boot(&state);
    let (mut zone, _) = Zone::adopt(state.host());
    let mut movable = take_all(&guest, 0, Type::Movable);
    let free = |area: u64, movable: &mut Vec<Block>| {
        movable.retain(|block| {
            let goes = block.page / 512 == area;
            if goes {
                guest.free(*block);
            }
            !goes
        });
    };
    free(0, &mut movable);
    assert_eq!(evict(&mut zone, TreeIndex(0)).len(), 1);
    free(7, &mut movable);
    let unmovable = guest.get(0, Type::Unmovable).unwrap();
    assert!(!unmovable.evicted && unmovable.page / 512 == 7, "{unmovable:?}");
}

/// Small allocations fill areas that are in use before they break whole ones.
#[test]
fn areas_in_use_are_filled_first() {
    let state = State::new(8);
    let guest = Guest::boot(&state);
    let all = take_all(&guest, 0, Type::Movable);
    for block in &all {
        // Every other page of the even areas, and all of the odd ones.
        if (block.page / 512) % 2 == 1 || block.page % 2 == 1 {
            guest.free(*block);
        }
    }
    let again: Vec<_> = (0..1024).map(|_| guest.get(0, Type::Movable).unwrap()).collect();
    assert!(again.iter().all(|block| block.page / 512 % 2 == 0));
    assert_eq!(take_all(&guest, 9, Type::Huge).len(), 4);
}

/// What the host would have to bring back is taken last, and it is said.
#[test]
fn evicted_areas_are_taken_last() {
    for order in [0, 3, 8, 9, 10] {
        let state = State::new(24);
        let guest = Guest::boot(&state);
        let (mut zone, _) = Zone::adopt(state.host());
        for tree in [TreeIndex(0), TreeIndex(2)] {
            assert_eq!(zone.free_areas(tree).evicted, AreaSet::EMPTY);
            assert_eq!(evict(&mut zone, tree).len(), 8);
        }
        let blocks = take_all(&guest, order, of_order(order, 0));
        let (there, back) = blocks.split_at(4096 >> order);
        assert!(
            there.iter().all(|block| !block.evicted && block.page / 4096 == 1),
            "order {order}"
        );
        // Of an area that comes back the first page has it said, and the others are there with it.
        let said = back.iter().filter(|block| block.evicted).count();
        assert_eq!(said, if order == 10 { 8 } else { 16 }, "order {order}");
    }
}

/// They go on where the last one was, around in its tree and past what is in use or would have to be brought back,
/// before another tree is begun.
#[test]
fn huge_pages_follow_each_other_through_a_tree() {
    let state = State::new(24);
    let guest = Guest::boot(&state);
    let (mut zone, _) = Zone::adopt(state.host());
    let blocks: Vec<_> = (0..8).map(|_| guest.get(9, Type::Huge).unwrap()).collect();
    let area_of = |block: &Block| block.page / 512 % 8;
    assert_eq!(blocks.iter().map(area_of).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    let tree = blocks[0].page / 4096;
    for area in [1, 4, 6] {
        guest.free(blocks[area]);
    }
    evict(&mut zone, TreeIndex(tree.try_into().unwrap()));
    for area in [2, 5] {
        guest.free(blocks[area]);
    }
    let next: Vec<_> = (0..3).map(|_| guest.get(9, Type::Huge).unwrap()).collect();
    assert_eq!(next.iter().map(area_of).collect::<Vec<_>>()[..2], [2, 5]);
    assert!(next[..2].iter().all(|block| block.page / 4096 == tree && !block.evicted));
    assert!(next[2].page / 4096 != tree && !next[2].evicted);
    assert!(guest.has(9) && guest.has(10));
}

#[test]
fn a_huge_page_is_behind_the_last_one_whatever_is_free_before() {
    let state = State::new(8);
    let guest = Guest::boot(&state);
    let blocks: Vec<_> = (0..8).map(|_| guest.get(9, Type::Huge).unwrap()).collect();
    guest.free(blocks[3]);
    assert_eq!(guest.get(9, Type::Huge).unwrap().page, blocks[3].page);
    guest.free(blocks[1]);
    guest.free(blocks[5]);
    let next: Vec<_> = (0..2).map(|_| guest.get(9, Type::Huge).unwrap().page).collect();
    assert_eq!(next, [blocks[5].page, blocks[1].page]);
}

/// A tree that has pages enough and no run of them is not asked again and again, and not forgotten.
#[test]
fn a_run_is_found_among_trees_that_have_none() {
    let state = State::new(80);
    let guest = Guest::boot(&state);
    let all = take_all(&guest, 0, Type::Movable);
    for block in all.iter().filter(|block| block.page % 2 == 1) {
        guest.free(*block);
    }
    assert_eq!(guest.get(1, Type::Movable), None);
    assert!(!guest.has(1), "known by now");
    let even = all.iter().find(|block| block.page == 7 * 4096 + 100).unwrap();
    guest.free(*even);
    assert!(guest.has(1));
    let block = guest.get(1, Type::Movable).unwrap();
    assert_eq!(block.page, 7 * 4096 + 100);
    assert_eq!(guest.get(1, Type::Movable), None);
}

/// While single pages are freed all over, which makes trees forget what they lack.
#[test]
fn who_looks_for_a_block_is_not_misled_by_frees() {
    let state = State::new(80);
    let guest = Guest::boot(&state);
    for block in take_all(&guest, 0, Type::Movable).iter().filter(|block| block.page % 4 == 1) {
        assert!(!guest.look_for(1), "page {}", block.page);
        guest.free(*block);
        assert!(guest.look_for(0), "page {}", block.page);
        assert!(guest.has(1) || block.page % 4096 == 1, "page {}", block.page);
    }
}

#[test]
fn a_certain_page_is_had_if_it_is_free() {
    let state = State::new(9);
    let guest = Guest::boot(&state);
    let block = guest.get(3, Type::Movable).unwrap();
    assert_eq!(guest.get_page(block.page + 5), None);
    let page = guest.get_page(block.page + 8).unwrap();
    assert_eq!(guest.get_page(page.page), None);
    let (mut zone, _) = Zone::adopt(state.host());
    let hand = zone.hand();
    assert_eq!(
        hand.take(TreeIndex(0), hand.free_areas(TreeIndex(0)).of(AreaSet::EMPTY.with(7))).len(),
        1
    );
    assert_eq!(guest.get_page(7 * 512 + 3), None, "the host's");
    assert_eq!(guest.unused_pages(), 9 * 512 - 9);
    assert!(hand.give(TreeIndex(0), AreaSet::EMPTY.with(7)).is_empty());
    drop(hand);
    let last = guest.get_page(8 * 512 + 511).unwrap();
    for block in [block, page, last] {
        guest.free(block);
    }
    assert_eq!(state.problem(), None);
}

/// Whoever finds no page knows by the epoch whether the host may have had it.
#[test]
fn the_epoch_is_odd_while_the_host_has_anything_in_hand() {
    let state = State::new(8);
    let _guest = Guest::boot(&state);
    let epoch = || state.host().epoch();
    let (mut zone, _) = Zone::adopt(state.host());
    assert_eq!(epoch() % 2, 1, "until it has looked at everything");
    zone.settle(0);
    let before = epoch();
    assert_eq!(before % 2, 0);
    let hand = zone.hand();
    assert_eq!(epoch(), before + 1);
    drop(hand);
    assert_eq!(epoch(), before + 2);
}

/// The free blocks of a zone by their order, from single pages that are free or not.
fn blocks_by_page(guest: &Guest, areas: u32) -> [u64; 11] {
    let mut blocks = [0; 11];
    let (mut page, end) = (0, u64::from(areas) * 512);
    while page < end {
        let all_free = |order: u32| {
            page % (1 << order) == 0
                && page + (1 << order) <= end
                && (page..page + (1 << order)).all(|page| guest.is_free(page))
        };
        let order = (0..=10).rev().find(|&order| all_free(order));
        blocks[order.unwrap_or(0) as usize] += u64::from(order.is_some());
        page += 1 << order.unwrap_or(0);
    }
    blocks
}

#[test]
fn free_blocks_are_counted_by_their_order() {
    for seed in 0..30 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let state = State::new(1 + random.next_u32() % 9);
        let guest = Guest::boot(&state);
        assert_eq!(guest.blocks(), blocks_by_page(&guest, state.areas()));
        let mut blocks = Vec::new();
        while let Some(block) = guest.get(random.next_u32() % 8, Type::Movable) {
            blocks.push(block);
        }
        for _ in 0..20 {
            for _ in 0..blocks.len().div_ceil(8) {
                guest.free(blocks.swap_remove(random.next_u32() as usize % blocks.len()));
            }
            assert_eq!(guest.blocks(), blocks_by_page(&guest, state.areas()), "seed {seed}");
        }
    }
}

/// As compaction does it, beside a host: pages of emptied areas go to fuller ones, and the host has what is whole.
#[test]
fn an_area_is_emptied_into_fuller_ones() {
    let state = State::new(16);
    let guest = Guest::boot(&state);
    let all = take_all(&guest, 0, Type::Movable);
    let (kept, freed): (Vec<_>, Vec<_>) = all.into_iter().partition(|block| block.page % 2 == 0);
    freed.into_iter().for_each(|block| guest.free(block));
    let mut blocks = Vec::new();
    for block in kept {
        match guest.get_beside((block.page / 512) as u32, 0) {
            Some(to) => {
                guest.free(block);
                blocks.push(to);
            }
            None => blocks.push(block),
        }
    }
    assert_eq!(state.problem(), None);
    assert!(guest.blocks()[9] + 2 * guest.blocks()[10] >= 7, "{:?}", guest.blocks());
    blocks.into_iter().for_each(|block| guest.free(block));
    assert_eq!(state.problem(), None);
}
