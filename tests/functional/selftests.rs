//! The kernel's selftests, in groups of one boot each. The debug kernel has PROVE_LOCKING, DEBUG_VM
//! and KASAN; both have panic_on_warn.

use squeezy_tests::{Suite, partitions};
use squeezy_vmm::{GuestMemory, Kernel};

/// What most groups run on.
fn usual() -> GuestMemory {
    partitions(128, 4, 128)
}

/// A read of memory that is not plugged is an error, as it is where the host protects it.
const INACCESSIBLE: [&str; 2] = ["-global", "virtio-mem-pci.unplugged-inaccessible=on"];

fn rules(name: &str, kernel: Kernel) -> Suite {
    // After the last one the device has no driver.
    let programs = ["resize", "partition", "assign", "confine", "straggler", "robust", "unbind"];
    Suite::new(name, kernel, usual(), &programs).arguments(&INACCESSIBLE)
}

fn full(name: &str, kernel: Kernel) -> Suite {
    // After the last one a partition is lost.
    Suite::new(name, kernel, usual(), &["oom", "shared", "zero", "race", "poison"]).image()
}

#[test]
fn rules_on_the_release_kernel() {
    rules("rules-release", Kernel::Release).check();
}

#[test]
fn rules_on_the_debug_kernel() {
    rules("rules-debug", Kernel::Debug).check();
}

#[test]
fn full_partitions_on_the_release_kernel() {
    full("full-release", Kernel::Release).check();
}

#[test]
fn full_partitions_on_the_debug_kernel() {
    full("full-debug", Kernel::Debug).check();
}

/// The allocator zeroes what it hands out; a resize must not.
#[test]
fn zeroing_on_allocation() {
    Suite::new("init-on-alloc", Kernel::Release, usual(), &["zero", "resize"]).parameters(&["init_on_alloc=1"]).check();
}

/// The allocator zeroes what it takes back, and trusts that what is free is zero.
#[test]
fn zeroing_on_free() {
    Suite::new("init-on-free", Kernel::Release, usual(), &["zero", "resize"]).parameters(&["init_on_free=1"]).check();
}
