//! Runs a script as the only test of a program.

#[path = "../single/mod.rs"]
mod single;
#[path = "../../../../scripts/skip.rs"]
mod skip;

use std::{
    path::Path,
    process::{Command, ExitCode},
};

/// Runs `tests/SCRIPT SHIM`, if the arguments do not ask for something else than `name`.
pub fn run(name: &str, script: &str, shim: &Path) -> ExitCode {
    single::run(name, || {
        if !rustix::process::geteuid().is_root() {
            skip::skip("containerd needs root");
            return ExitCode::SUCCESS;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
        let status = Command::new(script).arg(shim).status();
        if status.expect("the script can be executed").success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    })
}
