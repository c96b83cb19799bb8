//! The daemon's public state; written by `serve::web::state`.

use super::{ClientError, Connection};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The state of the daemon.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct State {
    pub now_ms: u64,
    pub version: String,
    /// The policy by which instances get memory and give it back.
    pub policy: String,
    pub memory_limit_bytes: u64,
    pub memory_committed_bytes: u64,
    #[serde(default)]
    pub activations: Store,
    pub functions: Vec<Function>,
    /// Latest first.
    pub reclaims: Vec<Reclaim>,
    /// Latest last.
    pub samples: Vec<Sample>,
}

/// How the database of activations is doing.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Store {
    pub unwritten: u64,
    pub lost: u64,
    /// Why it cannot be written, if it cannot.
    pub problem: Option<String>,
}

/// A function, its instances and its VM.
#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    pub name: String,
    pub vm: Option<String>,
    pub point: Point,
    /// Memory that an instance is promised while it runs, in bytes.
    pub instance_bytes: u64,
    /// Memory that is currently promised to all its instances, in bytes.
    pub promised_bytes: u64,
    /// Number of calls by kind of start.
    pub starts: BTreeMap<String, u64>,
    pub reclaimed_bytes: u64,
    pub taken_bytes: u64,
    pub condemned_bytes: u64,
    /// How long the host took for both, in milliseconds.
    pub taking_ms: f64,
    pub failed: u64,
    /// Why calls are refused, if they are.
    pub problem: Option<Problem>,
    /// Recent durations, by what was measured.
    pub times_ms: BTreeMap<String, Times>,
}

/// The state of a function at one moment; serialized as a list, in this order.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Point {
    pub starting: usize,
    pub idle: usize,
    pub frozen: usize,
    pub busy: usize,
    /// Condemned, stopping, or being reclaimed.
    pub ending: usize,
    /// Instances whose memory the guest has not given back.
    pub stranded: usize,
    pub queued: usize,
    pub asked_bytes: Option<u64>,
    pub plugged_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
}

/// Why calls of a function are refused. The details are only for clients with the key.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    pub at_ms: u64,
    pub what: String,
    pub why: Option<String>,
}

/// Percentiles, in milliseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Times {
    pub p50: f64,
    pub p99: f64,
}

/// A reclaim, successful or not.
#[derive(Clone, Debug, Deserialize)]
pub struct Reclaim {
    pub at_ms: u64,
    pub function: String,
    pub instance: u64,
    pub size_bytes: u64,
    pub unplug_ms: Option<f64>,
    pub resident_drop_bytes: Option<i64>,
    pub error: Option<String>,
}

/// The state of all functions at one moment.
#[derive(Clone, Debug, Deserialize)]
pub struct Sample {
    pub at_ms: u64,
    pub functions: BTreeMap<String, Point>,
}

impl State {
    /// Requests the state as JSON text, with samples later than `since_ms`.
    pub fn text(connection: &Connection, since_ms: u64) -> Result<String, ClientError> {
        connection.get(&format!("/ui/state.json?since_ms={since_ms}"))
    }

    /// Requests the state, with samples later than `since_ms`.
    pub fn ask(connection: &Connection, since_ms: u64) -> Result<Self, ClientError> {
        let text = Self::text(connection, since_ms)?;
        serde_json::from_str(&text).map_err(|error| {
            connection.unreachable(&format!("its response does not match this version ({error})"))
        })
    }

    /// Resident host memory of all VMs, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.functions.iter().filter_map(|function| function.point.resident_bytes).sum()
    }
}

impl Function {
    fn time(&self, name: &str, of: fn(&Times) -> f64) -> String {
        self.times_ms.get(name).map_or("-".to_owned(), |times| format!("{:.1}", of(times)))
    }
}

impl State {
    /// A line for each function whose calls are refused.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        self.functions.iter().filter_map(|Function { name, problem, .. }| {
            let Problem { at_ms, what, why } = problem.as_ref()?;
            let ago = self.now_ms.saturating_sub(*at_ms) / 1000;
            let why = why.as_deref().unwrap_or("the key is needed to see why");
            Some(format!("{name}, {ago} s ago: {what}: {why}"))
        })
    }
}

impl State {
    /// A line if activations cannot be written.
    pub fn store(&self) -> Option<String> {
        let Store { unwritten, lost, problem } = &self.activations;
        let problem = problem.as_ref()?;
        Some(format!(
            "activations are kept in memory only: {problem}; {unwritten} wait to be written, the results of {lost} are lost"
        ))
    }

    /// A line for each function with memory of ended instances that the guest has not given back.
    pub fn held(&self) -> impl Iterator<Item = String> {
        let held = self.functions.iter().filter(|function| function.point.stranded > 0);
        held.map(|Function { name, point: Point { stranded, .. }, instance_bytes, .. }| {
            let bytes = instance_bytes.saturating_mul(*stranded as u64) >> 20;
            format!(
                "{name}: {bytes} MiB of {stranded} ended instances are held in the guest; the latest reclaims say why"
            )
        })
    }
}

/// The columns of the table of functions.
pub const COLUMNS: [super::table::Column<Function>; 20] = [
    ("FUNCTION", |f| f.name.clone()),
    ("VM", |f| f.vm.clone().unwrap_or("-".to_owned())),
    ("BUSY", |f| f.point.busy.to_string()),
    ("IDLE", |f| f.point.idle.to_string()),
    ("FROZEN", |f| f.point.frozen.to_string()),
    ("STARTING", |f| f.point.starting.to_string()),
    ("ENDING", |f| (f.point.ending + f.point.stranded).to_string()),
    ("WAITING", |f| f.point.queued.to_string()),
    ("INSTANCE MIB", |f| mib(Some(f.instance_bytes))),
    ("PROMISED MIB", |f| mib(Some(f.promised_bytes))),
    ("PLUGGED MIB", |f| mib(f.point.plugged_bytes)),
    ("RESIDENT MIB", |f| mib(f.point.resident_bytes)),
    ("BACK MIB", |f| mib(Some(f.reclaimed_bytes))),
    ("TAKEN MIB", |f| mib(Some(f.taken_bytes))),
    ("CONDEMNED MIB", |f| mib(Some(f.condemned_bytes))),
    ("TAKING MS", |f| format!("{:.1}", f.taking_ms)),
    ("COLD", |f| cold_starts(f).to_string()),
    ("FAILED", |f| f.failed.to_string()),
    ("P50 MS", |f| f.time("total", |times| times.p50)),
    ("P99 MS", |f| f.time("total", |times| times.p99)),
];

/// Calls for which an instance was started, whether or not the function had had one before.
fn cold_starts(function: &Function) -> u64 {
    ["cold", "recreated"].iter().filter_map(|start| function.starts.get(*start)).sum()
}

/// Memory as a table shows it.
pub fn mib(bytes: Option<u64>) -> String {
    bytes.map_or("-".to_owned(), |bytes| (bytes >> 20).to_string())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A daemon with one function, for tests.
    pub fn example() -> State {
        serde_json::from_str(
            r#"{
                "now_ms": 9000, "version": "0.1.0", "policy": "squeezy", "more": [],
                "memory_limit_bytes": 4294967296, "memory_committed_bytes": 1073741824,
                "functions": [{
                    "name": "html", "vm": "up", "point": [0, 1, 1, 2, 0, 0, 3, 5242880, 4194304, 3145728],
                    "instance_bytes": 805306368, "promised_bytes": 2684354560,
                    "starts": { "cold": 1, "recreated": 3, "warm": 5 }, "reclaimed_bytes": 1048576,
                    "taken_bytes": 7340032, "condemned_bytes": 2097152, "taking_ms": 12.34,
                    "failed": 1,
                    "problem": { "at_ms": 7000, "what": "no VM", "why": null },
                    "times_ms": { "total": { "count": 9, "p50": 1.5, "p90": 2.0, "p99": 3.25 } }
                }],
                "reclaims": [{
                    "at_ms": 8000, "function": "html", "instance": 7, "size_bytes": 805306368,
                    "stop_ms": 1.0, "unplug_ms": 2.5, "resident_drop_bytes": 52428800, "error": null
                }],
                "samples": [
                    { "at_ms": 1000, "functions": {} },
                    { "at_ms": 9000, "functions": { "html": [0, 1, 1, 2, 0, 0, 3, 5, 4194304, 3145728] } }
                ]
            }"#,
        )
        .unwrap()
    }

    #[test]
    fn a_function_is_a_row() {
        let state = example();
        let lines = super::super::table::lines(&state.functions, &COLUMNS);
        let cells: Vec<_> = lines[1].split_whitespace().collect();
        let right = [
            "html", "up", "2", "1", "1", "0", "0", "3", "768", "2560", "4", "3", "1", "7", "2",
            "12.3", "4", "1", "1.5", "3.2",
        ];
        assert_eq!(cells, right);
        assert_eq!(state.resident_bytes(), 3 << 20);
        assert_eq!((state.held().count(), state.store()), (0, None));
        let mut state = state;
        state.activations =
            Store { unwritten: 7, lost: 2, problem: Some("x.db: the disk is full".to_owned()) };
        let store = state.store().unwrap();
        assert!(store.contains("x.db: the disk is full; 7 wait"), "{store}");
        state.functions[0].point.stranded = 2;
        state.functions[0].instance_bytes = 768 << 20;
        let held: Vec<_> = state.held().collect();
        assert!(held[0].starts_with("html: 1536 MiB of 2 ended instances are held"), "{held:?}");
        let problems: Vec<_> = state.problems().collect();
        assert_eq!(problems, ["html, 2 s ago: no VM: the key is needed to see why"]);
    }
}
