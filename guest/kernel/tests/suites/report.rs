//! Free blocks of a partition go back to the host, while an instance lives in it.

use squeezy_kernel_tests::{PLUGS, Suite, partitions};
use squeezy_vmm::{Kernel, PartitionLayout};

/// Everything but what leaves the VM unusable, or needs another one.
const PROGRAMS: [&str; 10] = [
    PLUGS,
    "report:errors",
    "report:free_pages_go_back",
    "report:free_huge_pages_go_back",
    "report:what_is_known_to_be_free_is_not_reported_again",
    "report:small_blocks_go_back_down_to_the_order_that_is_asked_for",
    "report:linux_reports_nothing_by_itself",
    "report_race:an_allocation_waits_for_the_blocks_that_are_being_reported",
    "report_race:reports_race_with_exits_and_resizes",
    "report_device:the_device_may_go_and_come",
];
/// Ends with the device no longer answering.
const SILENT: &str = "report_device:a_host_that_does_not_answer_holds_up_one_partition";

fn memory() -> PartitionLayout {
    partitions(128, 4, 128)
}

fn suite(name: &str, kernel: Kernel) -> Suite {
    let programs: Vec<_> = PROGRAMS.into_iter().chain([SILENT]).collect();
    Suite::new(name, kernel, memory(), &programs).reporting()
}

#[test]
fn on_the_release_kernel() {
    suite("report-release", Kernel::Release).check();
}

#[test]
#[ignore = "the debug kernel: run by `make stress`"]
fn on_the_debug_kernel() {
    suite("report-debug", Kernel::Debug).check();
}

/// The allocator trusts that what is free is zero, which the device is told.
#[test]
fn zeroing_on_free() {
    suite("report-init-on-free", Kernel::Release).parameters(&["init_on_free=1"]).check();
}

/// Prints what reports of 64 and 512 MiB took.
#[test]
#[ignore = "fills half a GiB again and again: run by `make stress`"]
fn of_large_partitions() {
    let programs = [PROGRAMS[0], "report:what_a_report_takes"];
    Suite::new("report-large", Kernel::Release, partitions(768, 2, 128), &programs)
        .reporting()
        .check();
}

/// The device is there, but what LLFree has free is on no list.
#[test]
fn of_memory_that_llfree_has() {
    let programs = [
        PROGRAMS[0],
        "llfree:partitions_do_not_have_to_be_reported",
        "report:linux_reports_nothing_by_itself",
    ];
    Suite::new("report-llfree", Kernel::Release, memory(), &programs)
        .parameters(&["llfree=partitions"])
        .reporting()
        .check();
}

#[test]
fn without_a_device() {
    let programs = [PROGRAMS[0], "report:errors"];
    Suite::new("report-without", Kernel::Release, memory(), &programs).check();
}

#[test]
fn beside_reporting_in_the_background() {
    let programs = [
        PROGRAMS[0],
        "report:linux_reports_all_but_partitions_by_itself",
        "report:free_pages_go_back",
        "report_race:reports_race_with_exits_and_resizes",
    ];
    Suite::new("report-background", Kernel::Release, memory(), &programs)
        .reporting()
        .parameters(&["squeezy.background_reporting=1"])
        .check();
}
