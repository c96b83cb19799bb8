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

/// Another kernel, without the firmware in between: the device has everything plugged that it had.
#[test]
#[ignore = "the debug kernel, which has kexec: run by `make stress`"]
fn kexec() {
    let programs = ["restart:partitions_after_kexec", "resize"];
    Suite::new("kexec", Kernel::Debug, partitions(128, 3, 128), &programs).kernel_inside().check();
}
