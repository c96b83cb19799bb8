//! Sizes and counts of partitions.

use squeezy_kernel_tests::{PLUGS, Suite, partitions};
use squeezy_vmm::{Kernel, Llfree, PartitionLayout};

const RULES: [&str; 5] = [
    "partition",
    "assign:any_gives_every_free_partition_once",
    "huge:huge_pages",
    "oom:kills_inside_only",
    "zero:memory_is_zero_after_a_plug",
];

/// Names of VMs, and what they have.
fn layouts() -> [(&'static str, PartitionLayout); 5] {
    [
        ("768m", partitions(768, 2, 256)),
        ("1536m", partitions(1536, 2, 128)),
        ("100m", partitions(100, 3, 36)),
        ("132m", partitions(132, 3, 128)),
        ("no-shared", partitions(128, 2, 0)),
    ]
}

fn suite(name: &str) -> Suite {
    suite_on(name, Kernel::Release)
}

fn suite_on(name: &str, kernel: Kernel) -> Suite {
    let (name, layout) = layouts().into_iter().find(|layout| layout.0 == name).expect("a layout");
    Suite::new(name, kernel, layout, &RULES)
        .may_skip("partitions have no middle")
        .may_skip("no shared partition")
}

#[test]
#[ignore = "takes a minute, and other sizes are run always: run by `make stress`"]
fn sizes_that_are_whole_memory_blocks() {
    suite("768m").check();
}

#[test]
#[ignore = "takes a minute, and other sizes are run always: run by `make stress`"]
fn large_partitions() {
    suite("1536m").check();
}

#[test]
fn sizes_less_than_a_memory_block() {
    suite("100m").check();
}

#[test]
fn sizes_a_little_more_than_a_memory_block() {
    suite("132m").check();
}

#[test]
fn no_shared_partition() {
    suite("no-shared").check();
}

/// With trees that have two areas only, and a last area that is not there as a whole.
#[test]
fn sizes_a_little_more_than_a_memory_block_while_the_host_takes() {
    suite("132m").host_takes(Llfree::Partitions).check();
}

#[test]
#[ignore = "one of them is run always: run by `make stress`"]
fn all_sizes_with_llfree() {
    for (name, _) in layouts() {
        suite(name).parameters(&["llfree=partitions"]).check();
        suite(name).host_takes(Llfree::All).check();
    }
}

#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn sizes_on_the_debug_kernel() {
    for name in ["100m", "132m", "no-shared"] {
        suite_on(name, Kernel::Debug).parameters(&["llfree=partitions"]).check();
        suite_on(name, Kernel::Debug).host_takes(Llfree::All).check();
    }
}

fn one(name: &str, kernel: Kernel) -> Suite {
    let programs = [
        PLUGS,
        "assign",
        "wait",
        "exec",
        "zero",
        "straggler",
        "percpu",
        "remote:an_open_proc_pid_mem_holds_nothing",
        "remote:readers_of_a_dying_process",
    ];
    Suite::new(name, kernel, partitions(256, 1, 128), &programs)
        .may_skip("two partitions have to be free")
        .may_skip("there is no other partition")
}

#[test]
fn one_partition() {
    one("one", Kernel::Release).check();
}

#[test]
#[ignore = "the same with free lists is run always: run by `make stress`"]
fn one_partition_with_llfree() {
    Suite::check_with_llfree(|name| one(name, Kernel::Release), "one", Llfree::Partitions);
}

/// What follows here is for the release kernel: KASAN takes an eighth of all that is plugged from base memory, for which
/// nothing is reserved and for which it kills. That is 2 GiB for so many partitions, and not what is tried where there is
/// no memory for memory maps.
#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn one_partition_with_llfree_on_the_debug_kernel() {
    Suite::check_with_llfree(|name| one(name, Kernel::Debug), "one-debug", Llfree::Partitions);
}

fn a_hundred_and_twenty_eight(name: &str) -> Suite {
    let programs = [
        PLUGS,
        "assign:any_gives_every_free_partition_once",
        "wait:a_release_wakes_who_waits",
        "partition:counters_of_memory_add_up",
        "partition:assigned_partitions_stay_and_free_ones_go",
        "robust:page_frames_can_be_walked_in_every_state",
    ];
    Suite::new(name, Kernel::Release, partitions(128, 128, 128), &programs)
}

#[test]
fn a_hundred_and_twenty_eight_partitions() {
    a_hundred_and_twenty_eight("128").check();
}

#[test]
#[ignore = "the same with free lists is run always: run by `make stress`"]
fn a_hundred_and_twenty_eight_partitions_with_llfree() {
    Suite::check_with_llfree(a_hundred_and_twenty_eight, "128", Llfree::Partitions);
}

/// More than the page allocator has a block for: the state of LLFree comes from memblock.
#[test]
#[ignore = "plugs 127 GiB of address space: run by `make stress`"]
fn more_than_120_gib_of_partitions_with_llfree() {
    let programs = ["llfree:the_state_is_announced", "llfree:every_partition_is_a_zone"];
    Suite::new("127g", Kernel::Release, partitions(1024, 127, 128), &programs)
        .parameters(&["llfree=partitions"])
        .check();
}

fn memory_maps(name: &str) -> Suite {
    let programs = [
        "populate:partitions_are_absent_until_they_are_plugged",
        "populate:full_ordinary_memory_keeps_no_partition_from_being_plugged",
        "partition",
    ];
    Suite::new(name, Kernel::Release, partitions(768, 4, 128), &programs)
}

#[test]
fn memory_for_every_memory_map() {
    memory_maps("memmap").check();
}

#[test]
#[ignore = "the same with free lists is run always: run by `make stress`"]
fn memory_for_every_memory_map_with_llfree() {
    Suite::check_with_llfree(memory_maps, "memmap", Llfree::Partitions);
}

/// Huge pages take base memory at boot. x86 warns by itself when there is no memory for a memory map;
/// everything else has to go on, and the partitions that are plugged at last are as good as any.
fn owed(name: &str) -> Suite {
    let programs = [
        "populate:without_memory_for_the_memory_map_a_plug_is_undone_and_tried_again",
        "partition",
    ];
    Suite::new(name, Kernel::Release, partitions(768, 12, 128), &programs)
        .parameters(&["hugepages=230"])
        .tolerate("arch/x86/mm/init_64.c")
}

#[test]
fn no_memory_for_most_memory_maps() {
    owed("owed").check();
}

#[test]
#[ignore = "the same with free lists is run always: run by `make stress`"]
fn no_memory_for_most_memory_maps_with_llfree() {
    owed("owed-llfree").parameters(&["llfree=partitions"]).check();
}

/// A partition that is not plugged is nothing to take, and one whose plug is undone is not either.
#[test]
#[ignore = "the same with free lists is run always: run by `make stress`"]
fn no_memory_for_most_memory_maps_while_the_host_takes() {
    owed("owed-taken").host_takes(Llfree::Partitions).check();
}
