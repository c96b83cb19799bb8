//! The shim itself under Debian's containerd, with a VM.

mod runner;

use std::{path::Path, process::ExitCode};

fn main() -> ExitCode {
    let shim = Path::new(env!("CARGO_BIN_EXE_containerd-shim-squeezy-v2"));
    runner::run("containers_run_in_a_vm", "containerd-vm.sh", shim)
}
