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
    stress("stress-llfree", Kernel::Release, 60).parameters(&["llfree=partitions"]).check();
    stress("stress-taken", Kernel::Release, 60).host_takes(Llfree::All).check();
}

#[test]
#[ignore = "takes twenty minutes"]
fn races_with_llfree_on_the_debug_kernel() {
    stress("stress-llfree-debug", Kernel::Debug, 150).parameters(&["llfree=partitions"]).check();
    stress("stress-taken-debug", Kernel::Debug, 150).host_takes(Llfree::All).check();
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
    full("stress-full-llfree-debug").parameters(&["llfree=partitions"]).check();
    full("stress-full-taken-debug").host_takes(Llfree::All).check();
}

fn as_many_as_there_can_be(name: &str) -> Suite {
    let programs = [PLUGS, "assign:any_gives_every_free_partition_once"];
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
    as_many_as_there_can_be("255-llfree").parameters(&["llfree=partitions"]).check();
    as_many_as_there_can_be("255-taken").host_takes(Llfree::Partitions).check();
}
