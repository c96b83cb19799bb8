//! Long races. Not part of `make test`: `make stress` runs them.

use squeezy_kernel_tests::{PLUGS, Suite, partitions};
use squeezy_vmm::{Kernel, Llfree};

fn stress(name: &str, kernel: Kernel, seconds: u32) -> Suite {
    let duration = format!("SELFTEST_SECONDS={seconds}");
    let suite = Suite::new(name, kernel, partitions(128, 6, 128), &[PLUGS, "race"]);
    suite.parameters(&[&duration])
}

#[test]
#[ignore = "takes four minutes"]
fn races_on_the_release_kernel() {
    stress("stress-release", Kernel::Release, 60).check();
}

#[test]
#[ignore = "takes ten minutes"]
fn races_on_the_debug_kernel() {
    stress("stress-debug", Kernel::Debug, 150).check();
}

#[test]
#[ignore = "takes eight minutes"]
fn races_with_llfree() {
    Suite::check_with_llfree(|name| stress(name, Kernel::Release, 60), "stress", Llfree::All);
}

#[test]
#[ignore = "takes twenty minutes"]
fn races_with_llfree_on_the_debug_kernel() {
    Suite::check_with_llfree(|name| stress(name, Kernel::Debug, 150), "stress-debug", Llfree::All);
}

fn full(name: &str) -> Suite {
    let programs = [PLUGS, "oom", "zero", "resize"];
    Suite::new(name, Kernel::Debug, partitions(128, 4, 128), &programs)
}

#[test]
#[ignore = "takes ten minutes"]
fn full_partitions_on_the_debug_kernel() {
    full("stress-full-debug").check();
}

#[test]
#[ignore = "takes twenty minutes"]
fn full_partitions_with_llfree_on_the_debug_kernel() {
    Suite::check_with_llfree(full, "stress-full-debug", Llfree::All);
}

fn as_many_as_there_can_be(name: &str) -> Suite {
    let programs = [
        PLUGS,
        "assign:any_gives_every_free_partition_once",
        "partition:counters_of_memory_add_up",
        "partition:assigned_partitions_stay_and_free_ones_go",
    ];
    Suite::new(name, Kernel::Release, partitions(128, 255, 128), &programs)
}

#[test]
#[ignore = "plugs 32 GiB of address space, and takes a minute"]
fn as_many_partitions_as_there_can_be() {
    as_many_as_there_can_be("255").check();
}

#[test]
#[ignore = "plugs 32 GiB of address space, and takes minutes"]
fn as_many_partitions_as_there_can_be_with_llfree() {
    Suite::check_with_llfree(as_many_as_there_can_be, "255", Llfree::Partitions);
}
