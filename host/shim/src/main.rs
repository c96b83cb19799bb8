//! `containerd-shim-squeezy-v2`, which containerd executes.

use squeezy_shim::program;
use std::process::ExitCode;

fn main() -> ExitCode {
    program::run(None)
}
