//! Runs a script as the only test of a program, which is asked as a test's program is, by cargo and by people.

#[path = "../../../../scripts/skip.rs"]
mod skip;

use std::{
    env,
    path::Path,
    process::{Command, ExitCode},
};

/// Runs `tests/SCRIPT SHIM`, if the arguments do not ask for something else than `name`.
pub fn run(name: &str, script: &str, shim: &Path) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{name}: test");
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
        return ExitCode::SUCCESS;
    }
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
}
