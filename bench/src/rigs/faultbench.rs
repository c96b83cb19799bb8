//! `faultbench`, which measures page faults, new processes and system calls that allocate kernel memory.

use super::program_vm::{Place, ProgramVm};
use crate::error::Result;
use serde::Deserialize;
use std::time::Duration;

/// Memory that it faults in repeatedly; it must fit in the partition along with the process.
const FAULT_BYTES: u64 = 64 << 20;

/// What it prints for a test.
#[derive(Deserialize)]
pub(crate) struct Printed {
    /// The test's name.
    pub(crate) test: String,
    /// Number of operations.
    pub(crate) operations: u64,
    /// Their total duration on the guest's clock.
    pub(crate) elapsed_ns: u64,
}

/// Runs these tests once in one process, all if none is named, each for at least so many
/// milliseconds of the guest's clock. `index` tells processes apart that run at the same time.
pub(crate) async fn faultbench(
    vm: &ProgramVm,
    index: u16,
    place: Place,
    tests: &[&str],
    duration_ms: u32,
) -> Result<Vec<Printed>> {
    let (size, duration) = (FAULT_BYTES.to_string(), duration_ms.to_string());
    let mut command =
        vec!["/bin/faultbench", "--trials", "1", "--size", &size, "--duration", &duration];
    command.extend(tests);
    let limit = Duration::from_secs(120) + Duration::from_millis(u64::from(duration_ms) * 60);
    vm.run(index, place, &command, limit).await
}
