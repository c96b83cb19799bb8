//! Resizing by stock virtio-mem: that the suite passes there shows that it asks for the right
//! thing, and that a kernel with the option built in and unused behaves as stock.

use squeezy_kernel_tests::{MIB, Suite};
use squeezy_vmm::{Kernel, memory::VirtioMem};

fn stock(name: &str, kernel: Kernel) {
    let memory = VirtioMem { region_bytes: 512 * MIB, initial_bytes: 0 };
    Suite::new(name, kernel, memory, &["resize", "assign:without_partitions_is_enodev"]).check();
}

#[test]
#[ignore = "a kernel of its own, built with CONFIG_SQUEEZY off: run by `make stress`"]
fn on_a_kernel_without_the_option() {
    stock("stock-off", Kernel::Off);
}

#[test]
fn on_our_kernel_without_parameters() {
    stock("stock-release", Kernel::Release);
}
