//! `containerd-shim-squeezy-v2`, which containerd executes.

use squeezy_shim::{
    machine::{LAYERS, Machine},
    program,
};
use std::{path::Path, process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    program::run(|assignment, cgroup| {
        Ok(Arc::new(Machine::new(assignment, cgroup, Path::new(LAYERS))))
    })
}
