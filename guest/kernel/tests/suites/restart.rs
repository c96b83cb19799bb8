//! A guest that restarts while partitions are plugged and in use.

use squeezy_kernel_tests::{Suite, partitions};
use squeezy_vmm::Kernel;

/// The firmware runs again; the device has been reset and has nothing plugged.
#[test]
fn reboot() {
    let suite = Suite::new(
        "reboot",
        Kernel::Release,
        partitions(128, 3, 128),
        &["restart:partitions_after_a_reboot", "resize"],
    );
    suite.arguments(&["-action", "reboot=reset"]).check();
}

/// LLFree's state begins anew; the host, which may not take anything of such a VM, has not seen it.
#[test]
#[ignore = "the same with free lists is run always: run by `make stress`"]
fn reboot_with_llfree() {
    let suite = Suite::new(
        "reboot-llfree",
        Kernel::Release,
        partitions(128, 3, 128),
        &["restart:partitions_after_a_reboot", "resize", "llfree"],
    );
    suite
        .arguments(&["-action", "reboot=reset"])
        .parameters(&["llfree=all"])
        .may_skip("no host takes what is free")
        .check();
}

/// Another kernel, without the firmware in between: the device has everything plugged that it had.
#[test]
#[ignore = "the debug kernel, which has kexec: run by `make stress`"]
fn kexec() {
    let programs = ["restart:partitions_after_kexec", "resize"];
    Suite::new("kexec", Kernel::Debug, partitions(128, 3, 128), &programs).kernel_inside().check();
}

/// The host would go on working on the memory of the next kernel.
#[test]
#[ignore = "the debug kernel, which has kexec: run by `make stress`"]
fn kexec_is_refused_with_llfree() {
    let programs = ["restart:kexec_is_refused"];
    Suite::new("kexec-llfree", Kernel::Debug, partitions(128, 3, 128), &programs)
        .parameters(&["llfree=partitions"])
        .kernel_inside()
        .check();
}
