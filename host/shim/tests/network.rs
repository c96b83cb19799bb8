//! The network of pods under Debian's containerd, with a VM.

mod runner;

use std::{path::Path, process::ExitCode};

fn main() -> ExitCode {
    let shim = Path::new(env!("CARGO_BIN_EXE_containerd-shim-squeezy-v2"));
    runner::run("pods_have_the_network_that_was_made_for_them", "containerd-network.sh", shim)
}
