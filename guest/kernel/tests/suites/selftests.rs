//! The kernel's selftests, in groups of one boot each. The debug kernel has PROVE_LOCKING, DEBUG_VM
//! and KASAN; both have panic_on_warn.

use squeezy_kernel_tests::{MIB, PLUGS, Suite, partitions};
use squeezy_vmm::{Kernel, Llfree, PartitionLayout, memory::VirtioMem};

/// What most groups run on.
fn usual() -> PartitionLayout {
    partitions(128, 4, 128)
}

/// A read of memory that is not plugged is an error, as it is where the host protects it.
const INACCESSIBLE: [&str; 2] = ["-global", "virtio-mem-pci.unplugged-inaccessible=on"];

/// The rules of partitions that have room to spare.
const RULES: [&str; 17] = [
    "partition",
    "assign",
    "join",
    "wait",
    "exec",
    "confine",
    "huge",
    "remote",
    "straggler",
    "percpu",
    "doom",
    "doom_refused",
    "doom_held",
    "doom_readers",
    "doom_supervised",
    "robust",
    "unbind",
];

// In each group the last program leaves something behind: a device without a driver, a partition
// that is lost.

#[test]
fn rules_on_the_release_kernel() {
    let programs: Vec<_> = ["resize"].into_iter().chain(RULES).collect();
    Suite::new("rules-release", Kernel::Release, usual(), &programs)
        .arguments(&INACCESSIBLE)
        .check();
}

/// Partitions that are full, or lack memory beside them.
const FULL: [&str; 12] = [
    PLUGS,
    "oom",
    "limit",
    "charged",
    "shortage",
    "files",
    "files_full",
    "files_held",
    "shared",
    "zero",
    "race",
    "poison",
];

#[test]
fn full_partitions_on_the_release_kernel() {
    Suite::new("full-release", Kernel::Release, usual(), &FULL).data().check();
}

/// What has the free pages of partitions must not matter.
const LLFREE: [&str; 1] = ["llfree=partitions"];

/// What a test says that needs a host that takes memory.
const NO_HOST: &str = "no host takes what is free";

#[test]
#[ignore = "the same while the host takes is run always: run by `make stress`"]
fn rules_with_llfree() {
    let programs: Vec<_> = ["resize", "llfree"].into_iter().chain(RULES).collect();
    Suite::new("rules-llfree", Kernel::Release, usual(), &programs)
        .then("nobody_takes")
        .may_skip(NO_HOST)
        .parameters(&LLFREE)
        .arguments(&INACCESSIBLE)
        .check();
}

#[test]
#[ignore = "the same while the host takes is run always: run by `make stress`"]
fn full_partitions_with_llfree() {
    Suite::new("full-llfree", Kernel::Release, usual(), &FULL).parameters(&LLFREE).data().check();
}

/// LLFree has the memory that the kernel boots with, too.
const LLFREE_ALL: [&str; 1] = ["llfree=all"];

#[test]
#[ignore = "other suites have most of it: run by `make stress`"]
fn rules_with_boot_memory_of_llfree() {
    let programs: Vec<_> = ["resize", "llfree"].into_iter().chain(RULES).collect();
    Suite::new("rules-llfree-all", Kernel::Release, usual(), &programs)
        .then("nobody_takes")
        .may_skip(NO_HOST)
        .parameters(&LLFREE_ALL)
        .arguments(&INACCESSIBLE)
        .check();
}

#[test]
#[ignore = "other suites have most of it: run by `make stress`"]
fn full_partitions_with_boot_memory_of_llfree() {
    Suite::new("full-llfree-all", Kernel::Release, usual(), &FULL)
        .parameters(&LLFREE_ALL)
        .data()
        .check();
}

/// Nor must it matter that the host takes what is free.
#[test]
fn rules_while_the_host_takes() {
    let programs: Vec<_> = ["resize", "llfree"].into_iter().chain(RULES).collect();
    Suite::new("rules-taken", Kernel::Release, usual(), &programs)
        .host_takes(Llfree::Partitions)
        .arguments(&INACCESSIBLE)
        .check();
}

#[test]
#[ignore = "other suites have most of it: run by `make stress`"]
fn rules_while_the_host_takes_all() {
    let programs: Vec<_> = ["resize", "llfree"].into_iter().chain(RULES).collect();
    Suite::new("rules-taken-all", Kernel::Release, usual(), &programs)
        .host_takes(Llfree::All)
        .arguments(&INACCESSIBLE)
        .check();
}

#[test]
#[ignore = "the same while the host takes boot memory, too, is run always: run by `make stress`"]
fn full_partitions_while_the_host_takes() {
    Suite::new("full-taken-partitions", Kernel::Release, usual(), &FULL)
        .host_takes(Llfree::Partitions)
        .data()
        .check();
}

#[test]
fn full_partitions_while_the_host_takes_all() {
    Suite::new("full-taken", Kernel::Release, usual(), &FULL)
        .host_takes(Llfree::All)
        .data()
        .check();
}

fn dead_host(name: &str, kernel: Kernel) -> Suite {
    Suite::new(name, kernel, usual(), &[PLUGS, "given_back", "dead_host"])
        .host_may_take(Llfree::All)
        .parameters(&["trace_event=llfree:llfree_zone"])
        .data()
}

#[test]
fn a_guest_goes_on_without_its_host() {
    dead_host("dead-host", Kernel::Release).check();
}

#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn a_guest_goes_on_without_its_host_on_the_debug_kernel() {
    // KASAN has a good part of it for itself.
    dead_host("dead-host-debug", Kernel::Debug).base(1024 * MIB).check();
}

/// Memory of another device.
const MORE_MEMORY: [&str; 6] = [
    "-m",
    "maxmem=8G",
    "-object",
    "memory-backend-ram,id=more,size=128M",
    "-device",
    "virtio-mem-pci,memdev=more,requested-size=128M",
];

fn shared_zone(name: &str, kernel: Kernel) -> Suite {
    Suite::new(name, kernel, usual(), &[PLUGS, "shared_zone", "unbind"])
        // What is plugged stays the guest's and the host's without a driver.
        .then("shared_zone:cache_that_is_dropped_is_the_hosts")
        .host_takes(Llfree::All)
        .arguments(&MORE_MEMORY)
        .data()
}

#[test]
fn the_shared_partition_while_the_host_takes() {
    shared_zone("shared-taken", Kernel::Release).check();
}

#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn the_shared_partition_while_the_host_takes_on_the_debug_kernel() {
    shared_zone("shared-taken-debug", Kernel::Debug).base(1024 * MIB).check();
}

/// A VM without partitions, with so much memory.
fn boot_memory(name: &str, kernel: Kernel, bytes: u64) -> Suite {
    let memory = VirtioMem { region_bytes: 512 * MIB, initial_bytes: 0 };
    Suite::new(name, kernel, memory, &["boot_memory", "collapse"]).base(bytes).data()
}

fn boot_zones(name: &str, kernel: Kernel) -> Suite {
    let memory = VirtioMem { region_bytes: 512 * MIB, initial_bytes: 0 };
    Suite::new(name, kernel, memory, &["boot_zone"]).base(768 * MIB)
}

#[test]
fn boot_memory_of_llfree() {
    boot_memory("boot-llfree", Kernel::Release, 512 * MIB)
        .then("boot_zone")
        .then("nobody_takes")
        .parameters(&LLFREE_ALL)
        .check();
}

#[test]
fn zones_of_boot_memory_while_the_host_takes() {
    boot_zones("zones-taken", Kernel::Release).host_takes(Llfree::All).check();
}

#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn zones_of_boot_memory_while_the_host_takes_on_the_debug_kernel() {
    boot_zones("zones-taken-debug", Kernel::Debug).host_takes(Llfree::All).check();
}

#[test]
fn boot_memory_of_llfree_while_the_host_takes() {
    boot_memory("boot-taken", Kernel::Release, 512 * MIB).host_takes(Llfree::All).check();
}

#[test]
#[ignore = "takes five minutes: run by `make stress`"]
fn boot_memory_of_llfree_while_the_host_takes_on_the_debug_kernel() {
    boot_memory("boot-taken-debug", Kernel::Debug, 768 * MIB).host_takes(Llfree::All).check();
}

/// Of memory with a hole below 4 GiB, and a zone above it.
const TWO_ZONES_BYTES: u64 = 3584 * MIB;

fn two_zones(name: &str) -> Suite {
    boot_memory(name, Kernel::Release, TWO_ZONES_BYTES)
        .then("boot_zone")
        .may_skip("there is too much memory to do this in")
}

#[test]
#[ignore = "takes minutes, and one zone is run always: run by `make stress`"]
fn boot_memory_of_llfree_in_two_zones() {
    two_zones("boot-llfree-zones").parameters(&LLFREE_ALL).then("nobody_takes").check();
}

#[test]
#[ignore = "takes minutes, and one zone is run always: run by `make stress`"]
fn boot_memory_of_llfree_in_two_zones_while_the_host_takes() {
    two_zones("boot-taken-zones").host_takes(Llfree::All).check();
}

/// All that the release kernel is tested with would take the debug kernel too long with so much memory. Its own unit
/// tests have waited for a host, and found its traces.
#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn two_zones_of_boot_memory_of_llfree_on_the_debug_kernel() {
    boot_zones("zones-two-debug", Kernel::Debug)
        .base(TWO_ZONES_BYTES)
        .parameters(&LLFREE_ALL)
        .then("boot_memory:llfree_counts_as_the_rest_of_the_kernel_does")
        .then("boot_memory:half_of_it_is_to_be_had_in_huge_pages")
        .check();
}

/// With memory that Linux has made movable before there are partitions.
fn movable(name: &str, kernel: Kernel) -> Suite {
    Suite::new(name, kernel, usual(), &[PLUGS, "movable", "llfree"])
        .base(768 * MIB)
        .host_takes(Llfree::All)
        .parameters(&["kernelcore=512M"])
}

#[test]
#[ignore = "no VM of ours has this parameter: run by `make stress`"]
fn movable_boot_memory_while_the_host_takes() {
    movable("movable-taken", Kernel::Release).check();
}

#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn movable_boot_memory_while_the_host_takes_on_the_debug_kernel() {
    movable("movable-taken-debug", Kernel::Debug).check();
}

/// That the tests expect of LLFree what Linux does without it.
#[test]
#[ignore = "tests the tests: run by `make stress`"]
fn boot_memory_of_the_free_lists() {
    boot_memory("boot-lists", Kernel::Release, 512 * MIB)
        .may_skip("the free lists have the memory")
        .check();
}

#[test]
#[ignore = "takes five minutes: run by `make stress`"]
fn boot_memory_of_llfree_on_the_debug_kernel() {
    boot_memory("boot-llfree-debug", Kernel::Debug, 768 * MIB).parameters(&LLFREE_ALL).check();
}

/// The suites of KUnit run while the debug kernel boots, and say on its console how they ended.
#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn unit_tests_in_the_debug_kernel() {
    let report = Suite::new("kunit", Kernel::Debug, usual(), &[PLUGS]).run();
    report.assert_passed();
    for suite in [
        "squeezy_layout",
        "squeezy_core",
        "squeezy_batch",
        "squeezy_oom",
        "llfree_state",
        "llfree_allocator",
        "llfree_compact",
        "llfree_host",
    ] {
        let ended = report
            .console
            .iter()
            .find(|line| line.contains("ok ") && line.split_whitespace().last() == Some(suite));
        let ended = ended.unwrap_or_else(|| panic!("the suite `{suite}` has not run"));
        // What KUnit says of a failure begins with the name of its case.
        let said: Vec<_> = report.console.iter().filter(|line| line.contains("]     ")).collect();
        assert!(!ended.contains("not ok"), "{ended}: {said:#?}");
    }
    let cases = report.console.iter().filter(|line| line.contains("     ok ")).count();
    assert!(cases >= 46, "{cases} cases have passed");
}

/// The debug kernel is several times slower.
#[test]
#[ignore = "takes five minutes: run by `make stress`"]
fn rules_on_the_debug_kernel() {
    let programs: Vec<_> = [PLUGS].into_iter().chain(RULES).collect();
    Suite::new("rules-debug", Kernel::Debug, usual(), &programs).arguments(&INACCESSIBLE).check();
}

#[test]
#[ignore = "takes five minutes: run by `make stress`"]
fn rules_with_llfree_on_the_debug_kernel() {
    let programs: Vec<_> = [PLUGS, "llfree"].into_iter().chain(RULES).collect();
    Suite::new("rules-llfree-debug", Kernel::Debug, usual(), &programs)
        .parameters(&LLFREE)
        .may_skip(NO_HOST)
        .arguments(&INACCESSIBLE)
        .check();
}

#[test]
#[ignore = "takes five minutes: run by `make stress`"]
fn rules_while_the_host_takes_on_the_debug_kernel() {
    let programs: Vec<_> = ["resize", "llfree"].into_iter().chain(RULES).collect();
    Suite::new("rules-taken-debug", Kernel::Debug, usual(), &programs)
        .host_takes(Llfree::Partitions)
        .arguments(&INACCESSIBLE)
        .check();
}

/// As many as it can be waited for.
const FULL_DEBUG: [&str; 14] = [
    PLUGS,
    "shared",
    "files",
    "files_full",
    "files_held",
    "limit",
    "charged",
    "shortage",
    "oom:kills_inside_only",
    "oom:partly_mapped_huge_pages_are_split_before_a_kill",
    "oom:a_storm_of_copies_is_killed_inside",
    "race:all_together",
    "unpoison",
    "poison",
];

#[test]
#[ignore = "takes ten minutes: run by `make stress`"]
fn full_partitions_on_the_debug_kernel() {
    Suite::new("full-debug", Kernel::Debug, usual(), &FULL_DEBUG).data().check();
}

#[test]
#[ignore = "takes ten minutes: run by `make stress`"]
fn full_partitions_with_llfree_on_the_debug_kernel() {
    Suite::new("full-llfree-debug", Kernel::Debug, usual(), &FULL_DEBUG)
        .parameters(&LLFREE)
        .data()
        .check();
}

#[test]
#[ignore = "takes ten minutes: run by `make stress`"]
fn full_partitions_while_the_host_takes_on_the_debug_kernel() {
    Suite::new("full-taken-debug", Kernel::Debug, usual(), &FULL_DEBUG)
        .host_takes(Llfree::All)
        .data()
        .check();
}

/// The allocator zeroes what it hands out; a resize must not.
fn zeroing(name: &str, kernel: Kernel, parameter: &str) -> Suite {
    Suite::new(name, kernel, usual(), &[PLUGS, "zero", "resize"]).parameters(&[parameter])
}

#[test]
fn zeroing_on_allocation() {
    zeroing("init-on-alloc", Kernel::Release, "init_on_alloc=1").check();
}

/// The allocator zeroes what it takes back, and trusts that what is free is zero.
#[test]
fn zeroing_on_free() {
    zeroing("init-on-free", Kernel::Release, "init_on_free=1").check();
}

/// What the host gives back is zero, too.
fn zeroing_by_llfree(kernel: Kernel) {
    for parameter in ["init_on_alloc=1", "init_on_free=1"] {
        Suite::check_with_llfree(|name| zeroing(name, kernel, parameter), "init", Llfree::All);
    }
}

#[test]
#[ignore = "the same with free lists is run always: run by `make stress`"]
fn zeroing_with_llfree() {
    zeroing_by_llfree(Kernel::Release);
}

#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn zeroing_with_llfree_on_the_debug_kernel() {
    zeroing_by_llfree(Kernel::Debug);
}

/// Of faults in several instances at once; more processors than the machine has show who waits for
/// whom, not how fast they are.
#[test]
#[ignore = "a measurement: run by `make stress`"]
fn contention_of_many_processors() {
    Suite::new("contention", Kernel::Release, usual(), &[PLUGS, "contention"])
        .processors(8)
        .check();
}

#[test]
#[ignore = "a measurement: run by `make stress`"]
fn contention_of_many_processors_with_llfree() {
    Suite::new("contention-llfree", Kernel::Release, usual(), &[PLUGS, "contention"])
        .parameters(&LLFREE)
        .processors(8)
        .check();
}
