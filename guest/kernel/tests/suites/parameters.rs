//! Boot parameters that make no sense: one line, and a guest without partitions.

use squeezy_kernel_tests::{MIB, Suite, Verdict};
use squeezy_vmm::{Kernel, memory::VirtioMem};

/// Boots with these parameters on a device with room for three partitions of 128 MiB.
fn refused(name: &str, parameters: &[&str]) {
    refused_by(Kernel::Release, name, parameters);
}

fn refused_by(kernel: Kernel, name: &str, parameters: &[&str]) {
    let memory = VirtioMem { region_bytes: 512 * MIB, initial_bytes: 0 };
    let programs =
        ["assign:without_partitions_is_enodev", "resize:grows_and_shrinks_to_every_size"];
    let report = Suite::new(name, kernel, memory, &programs).parameters(parameters).run();
    report.assert_passed();
    let without = report
        .outcomes
        .iter()
        .find(|outcome| outcome.program.starts_with("assign"))
        .map(|o| &o.verdict);
    assert_eq!(without, Some(&Verdict::Passed), "{parameters:?}: the guest has partitions");
    let lines: Vec<_> = report.console.iter().filter(|line| line.contains("] squeezy:")).collect();
    assert_eq!(lines.len(), 1, "{parameters:?}: one line of the kernel, not {lines:#?}");
}

const SIZE: &str = "squeezy.partition_size=128M";
const SHARED: &str = "squeezy.shared_size=128M";

#[test]
fn no_size() {
    refused("no-size", &["squeezy.partitions=3", SHARED]);
}

#[test]
fn a_size_of_nothing() {
    refused("size-0", &["squeezy.partition_size=0", "squeezy.partitions=3", SHARED]);
}

#[test]
fn no_count() {
    refused("no-count", &[SIZE, SHARED]);
}

#[test]
fn a_count_of_nothing() {
    refused("count-0", &[SIZE, "squeezy.partitions=0", SHARED]);
}

#[test]
fn more_than_the_page_flags_can_tell_apart() {
    refused("count-256", &[SIZE, "squeezy.partitions=256", SHARED]);
}

#[test]
fn more_than_the_region_holds() {
    refused("too-large", &[SIZE, "squeezy.partitions=4", SHARED]);
}

#[test]
fn a_shared_partition_larger_than_the_region() {
    refused("shared-too-large", &[SIZE, "squeezy.partitions=1", "squeezy.shared_size=64G"]);
}

#[test]
fn sizes_whose_sum_does_not_fit_into_64_bits() {
    refused("overflow", &["squeezy.partition_size=8388608T", "squeezy.partitions=255", SHARED]);
}

#[test]
fn words_instead_of_numbers() {
    refused(
        "words",
        &["squeezy.partition_size=much", "squeezy.partitions=many", "squeezy.shared_size=some"],
    );
}

#[test]
fn neither_yes_nor_no() {
    let parameters = [SIZE, "squeezy.partitions=3", SHARED, "squeezy.background_reporting=maybe"];
    refused("neither", &parameters);
}

/// A word that LLFree does not know: a line, and a guest as if nothing had been said.
#[test]
fn llfree_of_something_else() {
    let memory = VirtioMem { region_bytes: 512 * MIB, initial_bytes: 0 };
    let programs = ["boot_memory:free_blocks_add_up_to_what_is_free", "no_llfree"];
    let report = Suite::new("llfree-of", Kernel::Release, memory, &programs)
        .parameters(&["llfree=some"])
        .run();
    report.assert_passed();
    let lines: Vec<_> = report.console.iter().filter(|line| line.contains("] llfree:")).collect();
    assert!(matches!(lines[..], [line] if line.contains("is not understood")), "{lines:#?}");
}

/// What the host gave back and gives again is zero, which page poisoning takes for corruption.
#[test]
#[ignore = "the debug kernel, which has page poisoning: run by `make stress`"]
fn with_page_poisoning() {
    let parameters = [SIZE, "squeezy.partitions=3", SHARED, "page_poison=1"];
    refused_by(Kernel::Debug, "poisoning", &parameters);
    let with_llfree: Vec<_> = parameters.into_iter().chain(["llfree=partitions"]).collect();
    refused_by(Kernel::Debug, "poisoning-llfree", &with_llfree);
}

/// Boot memory, likewise: Linux keeps all pages, and says so in one line.
#[test]
#[ignore = "the debug kernel, which has page poisoning: run by `make stress`"]
fn boot_memory_with_page_poisoning() {
    let memory = VirtioMem { region_bytes: 512 * MIB, initial_bytes: 0 };
    let report = Suite::new(
        "poisoning-boot",
        Kernel::Debug,
        memory,
        &["boot_memory:free_blocks_add_up_to_what_is_free"],
    )
    .parameters(&["llfree=all", "page_poison=1"])
    .run();
    report.assert_passed();
    let lines: Vec<_> = report.console.iter().filter(|line| line.contains("] llfree:")).collect();
    assert!(matches!(lines[..], [line] if line.contains("page_poison=1 is on")), "{lines:#?}");
}
