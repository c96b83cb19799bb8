//! The three files of the Azure Functions Trace 2019 together.

use crate::error::{BenchError, Result};
use squeezy_load::{
    TraceError,
    azure2019::{FunctionInvocations, Invocations, Percentiles, durations_ms, memory_mb},
};
use std::{collections::HashMap, fs::File, io::BufReader, path::Path};

const MIB: u64 = 1 << 20;
/// The memory of instances is a multiple of this, as in the platform's bills.
const SIZE_STEP: u64 = 128 * MIB;
/// The maximum memory of an instance.
pub(crate) const MOST_BYTES: u64 = 3072 * MIB;
/// Memory of an application if the trace does not say: the published median.
const USUAL_MIB: f64 = 170.0;
/// Execution time if the trace does not say.
const USUAL_MS: f64 = 100.0;

/// A trace that has been read.
pub(crate) struct AzureTrace {
    pub(crate) invocations: Invocations,
    durations_ms: HashMap<String, Percentiles>,
    memory_mib: HashMap<String, Percentiles>,
}

impl AzureTrace {
    /// Reads a file of invocations, and `durations.csv` and `memory.csv` next to it.
    pub(crate) fn read(invocations: &Path) -> Result<Self> {
        Ok(Self {
            invocations: parse(invocations, Invocations::parse)?,
            durations_ms: parse(&invocations.with_file_name("durations.csv"), durations_ms)?,
            memory_mib: parse(&invocations.with_file_name("memory.csv"), memory_mb)?,
        })
    }

    /// The execution times of a function in milliseconds, by percentile.
    pub(crate) fn durations_ms(&self, of: &FunctionInvocations) -> Percentiles {
        self.durations_ms.get(&of.function).cloned().unwrap_or_else(|| vec![(50.0, USUAL_MS)])
    }

    /// The most memory that a function's application has had.
    pub(crate) fn most_bytes(&self, of: &FunctionInvocations) -> u64 {
        let most = self.memory_mib.get(&of.app).and_then(|percentiles| percentiles.last());
        (most.map_or(USUAL_MIB, |&(_, mib)| mib) * MIB as f64) as u64
    }

    /// The memory that an instance of a function is promised: the most that its application has had.
    pub(crate) fn memory_bytes(&self, of: &FunctionInvocations) -> u64 {
        size(self.most_bytes(of), SIZE_STEP)
    }

    /// The memory that it holds: the median of its application.
    pub(crate) fn held_bytes(&self, of: &FunctionInvocations) -> u64 {
        let usual = self.memory_mib.get(&of.app).map(|percentiles| at_percent(percentiles, 50.0));
        (usual.unwrap_or(USUAL_MIB) * MIB as f64) as u64
    }
}

/// The size of an instance that needs so much memory, if sizes are multiples of `step`, in bytes: 1 to [`MOST_BYTES`].
pub(crate) fn size(bytes: u64, step: u64) -> u64 {
    bytes.next_multiple_of(step).clamp(step, MOST_BYTES)
}

/// A distribution's value at a percentage, interpolated linearly between its percentiles.
pub(crate) fn at_percent(percentiles: &Percentiles, percent: f64) -> f64 {
    let last = percentiles.last().map_or(100.0, |&(_, value)| value);
    match percentiles.iter().position(|&(p, _)| p >= percent) {
        None => last,
        Some(0) => percentiles[0].1,
        Some(index) => {
            let ((p0, v0), (p1, v1)) = (percentiles[index - 1], percentiles[index]);
            v0 + (v1 - v0) * (percent - p0) / (p1 - p0).max(f64::EPSILON)
        }
    }
}

fn parse<T>(
    path: &Path,
    parse: impl FnOnce(BufReader<File>) -> std::result::Result<T, TraceError>,
) -> Result<T> {
    let file = File::open(path).map_err(|error| BenchError::file(path, error))?;
    parse(BufReader::new(file)).map_err(|error| BenchError::file(path, error))
}
