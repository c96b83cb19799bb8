//! The format of measurements: a line of JSON each, with the unit in the name of each figure.

use crate::error::{BenchError, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use squeezy_vmm::Kernel;
use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    ops::Deref,
    path::{Path, PathBuf},
    time::Duration,
};

/// The accelerator of plain processes, which have no guest.
pub(crate) const NATIVE: &str = "none";

/// The kernel and the VMM if there is no guest.
pub(crate) const NO_GUEST: &str = "none";

/// What every line contains, whatever was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The experiment's name.
    pub(crate) experiment: String,
    /// The method or policy that is compared.
    pub(crate) method: String,
    /// Number of the measurement of a method under the same conditions, from 0.
    pub(crate) trial: u32,
    /// `kvm` or `tcg`; `none` for plain processes.
    pub(crate) accelerator: String,
    /// `ram` or `memfd`; `none` for plain processes.
    pub(crate) memory_backend: String,
    /// The host's `shmem_enabled` where the backend is `memfd`: with `never`, the memory is in pages
    /// of 4 KiB. Lines from before 2026-11-28 do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shmem_enabled: Option<String>,
    /// The guest's kernel and its configuration; `none` without a guest.
    pub(crate) kernel: String,
    /// The VMM's version; `none` without a guest.
    pub(crate) vmm: String,
}

/// The guest that a line is about.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// Version and configuration of its kernel: `6.12.117 release`.
    pub(crate) kernel: String,
    /// The VMM's version.
    pub(crate) vmm: String,
}

impl Guest {
    /// A guest with this release and configuration of the kernel.
    pub(crate) fn new(release: &str, kernel: Kernel, vmm_version: &str) -> Self {
        Self { kernel: format!("{release} {kernel}"), vmm: vmm_version.to_owned() }
    }
}

/// A line: header and figures. Dereferences to its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured<F> {
    #[serde(flatten)]
    pub(crate) header: Header,
    #[serde(flatten)]
    pub(crate) figures: F,
}

impl<F> Deref for Measured<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.figures
    }
}

/// Figures that can be recorded.
pub(crate) trait Recorded: Serialize + DeserializeOwned {}

impl<F: Serialize + DeserializeOwned> Recorded for F {}

/// Figures about a function.
pub(crate) trait OfFunction {
    /// The function's name.
    fn function(&self) -> &str;
}

/// Writes lines to a file immediately, so that an interrupted run leaves what it has.
pub(crate) struct Writer(Option<(PathBuf, File)>);

impl Writer {
    /// Truncates the file and writes to it; without a path, discards lines.
    pub(crate) fn create(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            File::create(path)
                .map(|file| (path.to_owned(), file))
                .map_err(|e| BenchError::file(path, e))
        };
        path.map(open).transpose().map(Self)
    }

    /// Writes one line.
    pub(crate) fn write(&mut self, record: &impl Serialize) -> Result {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        let mut line =
            serde_json::to_vec(record).map_err(|e| BenchError::file(path.as_path(), e))?;
        line.push(b'\n');
        file.write_all(&line).map_err(|e| BenchError::file(path.as_path(), e))
    }
}

/// Reads the lines of an earlier run.
pub(crate) fn read<F: Recorded>(path: &Path, experiment: &str) -> Result<Vec<Measured<F>>> {
    /// A longer file is not one of ours.
    const MOST_LINES: usize = 100_000;
    let file = File::open(path).map_err(|e| BenchError::file(path, e))?;
    let mut records = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let fail = |reason: String| BenchError::file(path, format!("line {}: {reason}", index + 1));
        let line = line.map_err(|e| fail(e.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let record: Measured<F> = serde_json::from_str(&line).map_err(|e| fail(e.to_string()))?;
        if record.header.experiment != experiment {
            return Err(fail(format!(
                "it belongs to the experiment `{}`",
                record.header.experiment
            )));
        }
        records.push(record);
        if records.len() > MOST_LINES {
            return Err(fail("the file is too long for results".to_owned()));
        }
    }
    if records.is_empty() {
        Err(BenchError::file(path, "it contains no results"))
    } else {
        Ok(records)
    }
}

/// Where the lines of an experiment are recorded in the checkout whose `build` directory this is.
pub(crate) fn recorded_path(build: &Path, experiment: &str) -> PathBuf {
    build.with_file_name("bench/results").join(experiment).join("results.jsonl")
}

/// What the lines were measured with, for the subtitle of a plot.
pub(crate) fn describe_run<F>(records: &[Measured<F>]) -> String {
    let headers =
        || records.iter().map(|record| &record.header).filter(|header| header.vmm != NO_GUEST);
    let all = |value: fn(&Header) -> String| {
        let mut values: Vec<String> = headers().map(value).collect();
        values.sort_unstable();
        values.dedup();
        values.join(" and ")
    };
    let backend = |header: &Header| match &header.shmem_enabled {
        Some(setting) => format!("{} (shmem_enabled={setting})", header.memory_backend),
        None => header.memory_backend.clone(),
    };
    let guest = headers().next().map_or(String::new(), |header| {
        format!(
            "QEMU {}, Linux {}, ",
            header.vmm.trim_start_matches("QEMU "),
            all(|header| header.kernel.clone())
        )
    });
    records.first().map(|record| &record.header).map_or(String::new(), |header| {
        if header.accelerator == NATIVE {
            return "plain processes; medians with quartiles".to_owned();
        }
        format!(
            "{}, {guest}memory backend {}; medians with quartiles",
            header.accelerator,
            all(backend)
        )
    })
}

/// What is wrong with a line, for the tests of each experiment: a required field is missing, or a
/// figure's name has no unit.
#[cfg(test)]
pub(crate) fn complaint(record: &impl Serialize, required: &[&str]) -> Option<String> {
    const HEADER: [&str; 7] =
        ["experiment", "method", "trial", "accelerator", "memory_backend", "kernel", "vmm"];
    /// Suffixes of figures' names, and numbers that are settings or counts and need none.
    const UNITS: [&str; 8] =
        ["_ns", "_bytes", "_pages", "_requests", "_percent", "_per_second", "_count", "_seconds"];
    const PLAIN: [&str; 6] =
        ["trial", "init_on_alloc", "instances", "plugs", "p99_over_abundant", "scale_factor"];
    let value = serde_json::to_value(record).unwrap();
    let object = value.as_object().unwrap();
    for name in HEADER.iter().chain(required) {
        if !object.contains_key(*name) {
            return Some(format!("`{name}` is missing"));
        }
    }
    object.iter().find_map(|(name, value)| {
        let named = PLAIN.contains(&name.as_str()) || UNITS.iter().any(|unit| name.ends_with(unit));
        (value.is_number() && !named).then(|| format!("`{name}` does not say its unit"))
    })
}

/// A duration in the unit of figures.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The lines of an experiment that are recorded in the checkout.
    pub(crate) fn recorded<F: Recorded>(experiment: &str) -> Vec<Measured<F>> {
        let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../build");
        read(&recorded_path(Path::new(build), experiment), experiment).unwrap()
    }

    /// A header for tests.
    pub(crate) fn header(experiment: &str, method: &str, trial: u32) -> Header {
        Header {
            experiment: experiment.to_owned(),
            method: method.to_owned(),
            trial,
            accelerator: "tcg".to_owned(),
            memory_backend: "ram".to_owned(),
            shmem_enabled: None,
            kernel: "6.12.0 release".to_owned(),
            vmm: "QEMU 7.2.0".to_owned(),
        }
    }

    /// Repeats lines as often as a verdict needs to be certain.
    pub(crate) fn repeated<R: Clone>(records: &[R]) -> Vec<R> {
        std::iter::repeat_n(records, 5).flatten().cloned().collect()
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Example {
        latency_ns: u64,
    }

    #[derive(Serialize)]
    struct Careless {
        latency: u64,
    }

    fn example(latency_ns: u64) -> Measured<Example> {
        Measured { header: header("reclaim", "floor", 3), figures: Example { latency_ns } }
    }

    #[test]
    fn lines_are_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let mut writer = Writer::create(Some(&path)).unwrap();
        for latency_ns in [7, 8] {
            writer.write(&example(latency_ns)).unwrap();
        }
        assert_eq!(read::<Example>(&path, "reclaim").unwrap(), [example(7), example(8)]);
        assert!(read::<Example>(&path, "plug").unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        for content in ["", "{", "{\"experiment\":\"reclaim\"}", "null\n"] {
            std::fs::write(&path, content).unwrap();
            let error = read::<Example>(&path, "reclaim").unwrap_err().to_string();
            assert!(error.contains("results.jsonl") && !error.contains('\n'), "{error}");
        }
        assert!(read::<Example>(&directory.path().join("none"), "reclaim").is_err());
        assert!(Writer::create(Some(directory.path())).is_err());
    }

    #[test]
    fn a_figure_without_a_unit_is_found() {
        let good = example(7);
        assert_eq!(complaint(&good, &["latency_ns"]), None);
        assert!(complaint(&good, &["guest_ns"]).unwrap().contains("guest_ns"));
        let bad =
            Measured { header: header("reclaim", "floor", 0), figures: Careless { latency: 7 } };
        assert!(complaint(&bad, &[]).unwrap().contains("latency"));
    }
}
