//! The shim under Debian's containerd, or those in `containerds`, with processes of the host where a VM's would be.
//!
//! containerd executes a shim by its name, so that this test is one, too: under that name it is the shim.

mod processes;
mod runner;

use processes::Processes;
use squeezy_shim::program;
use std::{env, path::Path, process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    let name = env::args_os().next().unwrap_or_default();
    if Path::new(&name)
        .file_name()
        .is_some_and(|name| name == "containerd-shim-squeezy-v2" || name == "squeezy-pod")
    {
        return program::run(|_, _| Ok(Arc::new(Processes::default())));
    }
    let shim = env::current_exe().expect("this program has a path");
    runner::run("containerd", "containerd.sh", &shim)
}
