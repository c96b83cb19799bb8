//! Long races. Not part of `make test`: `make stress` runs them.

use squeezy_kernel_tests::{PLUGS, Suite, partitions};
use squeezy_vmm::Kernel;

fn stress(name: &str, kernel: Kernel, seconds: u32) {
    let duration = format!("SELFTEST_SECONDS={seconds}");
    let suite = Suite::new(name, kernel, partitions(128, 6, 128), &[PLUGS, "race"]);
    suite.parameters(&[&duration]).check();
}

#[test]
#[ignore = "takes four minutes"]
fn races_on_the_release_kernel() {
    stress("stress-release", Kernel::Release, 60);
}

#[test]
#[ignore = "takes ten minutes"]
fn races_on_the_debug_kernel() {
    stress("stress-debug", Kernel::Debug, 150);
}

#[test]
#[ignore = "takes ten minutes"]
fn full_partitions_on_the_debug_kernel() {
    let programs = [PLUGS, "oom", "zero", "resize"];
    Suite::new("stress-full-debug", Kernel::Debug, partitions(128, 4, 128), &programs).check();
}

#[test]
#[ignore = "plugs 32 GiB of address space, and takes a minute"]
fn as_many_partitions_as_there_can_be() {
    let programs = [PLUGS, "assign:any_gives_every_free_partition_once"];
    Suite::new("255", Kernel::Release, partitions(128, 255, 128), &programs).check();
}
