//! Sizes and counts of partitions.

use squeezy_kernel_tests::{PLUGS, Suite, partitions};
use squeezy_vmm::Kernel;

const RULES: [&str; 5] = [
    "partition",
    "assign:any_gives_every_free_partition_once",
    "huge:huge_pages",
    "oom:kills_inside_only",
    "zero:memory_is_zero_after_a_plug",
];

#[test]
fn sizes_that_are_whole_memory_blocks() {
    Suite::new("768m", Kernel::Release, partitions(768, 2, 256), &RULES).check();
}

#[test]
fn large_partitions() {
    Suite::new("1536m", Kernel::Release, partitions(1536, 2, 128), &RULES).check();
}

#[test]
fn sizes_less_than_a_memory_block() {
    Suite::new("100m", Kernel::Release, partitions(100, 3, 36), &RULES).check();
}

#[test]
fn sizes_a_little_more_than_a_memory_block() {
    Suite::new("132m", Kernel::Release, partitions(132, 3, 128), &RULES).check();
}

#[test]
fn no_shared_partition() {
    Suite::new("no-shared", Kernel::Release, partitions(128, 2, 0), &RULES).check();
}

#[test]
fn one_partition() {
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
    Suite::new("one", Kernel::Release, partitions(256, 1, 128), &programs).check();
}

#[test]
fn a_hundred_and_twenty_eight_partitions() {
    let programs = [
        PLUGS,
        "assign:any_gives_every_free_partition_once",
        "wait:a_release_wakes_who_waits",
        "partition:counters_of_memory_add_up",
        "partition:assigned_partitions_stay_and_free_ones_go",
        "robust:page_frames_can_be_walked_in_every_state",
    ];
    Suite::new("128", Kernel::Release, partitions(128, 128, 128), &programs).check();
}

#[test]
fn memory_for_every_memory_map() {
    let programs = [
        "populate:partitions_are_absent_until_they_are_plugged",
        "populate:full_ordinary_memory_keeps_no_partition_from_being_plugged",
        "partition",
    ];
    Suite::new("memmap", Kernel::Release, partitions(768, 4, 128), &programs).check();
}

/// Huge pages take base memory at boot. x86 warns by itself when there is no memory for a memory map;
/// everything else has to go on.
#[test]
fn no_memory_for_most_memory_maps() {
    let programs = ["populate:without_memory_for_the_memory_map_a_plug_is_undone_and_tried_again"];
    Suite::new("owed", Kernel::Release, partitions(768, 12, 128), &programs)
        .parameters(&["hugepages=230"])
        .tolerate("arch/x86/mm/init_64.c")
        .check();
}
