//! The shim under Debian's containerd, with processes of the host where a VM's would be.
//!
//! containerd executes a shim by its name, so that this test is one, too: under that name it is the shim.

mod processes;
#[path = "../../../scripts/skip.rs"]
mod skip;

use processes::Processes;
use squeezy_shim::program;
use std::{
    env,
    path::Path,
    process::{Command, ExitCode},
    sync::Arc,
};

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    if Path::new(&name)
        .file_name()
        .is_some_and(|name| name == "containerd-shim-squeezy-v2" || name == "squeezy-pod")
    {
        return program::run(Some(|_| Ok(Arc::new(Processes::default()))));
    }
    // As a test's program is asked, by cargo and by people.
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("containerd: test");
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if !filters.is_empty() && !filters.iter().any(|filter| "containerd".contains(filter.as_str())) {
        return ExitCode::SUCCESS;
    }
    if !rustix::process::geteuid().is_root() {
        skip::skip("containerd needs root");
        return ExitCode::SUCCESS;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containerd.sh");
    let status =
        Command::new(script).arg(env::current_exe().expect("this program has a path")).status();
    if status.expect("the script can be executed").success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
