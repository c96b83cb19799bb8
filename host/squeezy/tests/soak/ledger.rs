//! Records the outcome of every call, and whether a fault explains it.

use crate::{calls::What, faults::Fault};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The expected result.
    Right,
    /// The function raised an exception.
    Raised,
    /// Its instance ended on its own.
    Ended,
    /// Its instance exceeded its memory.
    ExceededMemory,
    /// Its instance exceeded its time limit.
    Late,
    /// The guest's agent did not answer.
    AgentLost,
    /// The VM that it ran in ended.
    VmEnded,
    /// Its VM could not be booted, or ended before an instance took the call.
    VmFailed,
    /// Its instance could not be started.
    StartFailed,
    /// Too many calls were waiting.
    Busy,
    /// The daemon was shutting down.
    Ending,
    /// The action was not stored.
    NotWritten,
    /// The connection was refused.
    Refused,
    /// The connection was closed before the response was complete.
    Broken,
    /// The daemon was restarted while it ran.
    EndedWithDaemon,
    /// Anything else; never excused.
    Wrong,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Right => "right",
            Self::Raised => "raised",
            Self::Ended => "instance ended",
            Self::ExceededMemory => "memory exceeded",
            Self::Late => "took too long",
            Self::AgentLost => "agent lost",
            Self::VmEnded => "VM ended",
            Self::VmFailed => "no VM",
            Self::StartFailed => "no instance",
            Self::Busy => "too many waiting",
            Self::Ending => "daemon ends",
            Self::NotWritten => "not written",
            Self::Refused => "refused",
            Self::Broken => "broken off",
            Self::EndedWithDaemon => "ended with daemon",
            Self::Wrong => "WRONG",
        })
    }
}

/// The outcome of a call, with its details.
pub struct Outcome {
    pub kind: Kind,
    pub said: String,
}

impl Outcome {
    pub fn right() -> Self {
        Self::new(Kind::Right, "")
    }

    pub fn new(kind: Kind, said: impl Into<String>) -> Self {
        Self { kind, said: said.into() }
    }
}

/// When a fault was active.
struct Window {
    fault: Fault,
    end: Option<Instant>,
}

/// An open window, by its index.
#[derive(Clone, Copy)]
pub struct Open(usize);

#[derive(Default)]
struct Entries {
    counts: BTreeMap<(What, Kind), usize>,
    windows: Vec<Window>,
    problems: Vec<String>,
}

/// All outcomes and faults.
pub struct Ledger {
    begin: Instant,
    entries: Mutex<Entries>,
}

impl Ledger {
    pub fn new() -> Self {
        Self { begin: Instant::now(), entries: Mutex::default() }
    }

    /// Prints a line of progress.
    pub fn say(&self, line: &str) {
        println!("[{:7.1} s] {line}", self.begin.elapsed().as_secs_f64());
    }

    /// A fault begins.
    pub fn open(&self, fault: Fault) -> Open {
        let mut entries = self.lock();
        entries.windows.push(Window { fault, end: None });
        Open(entries.windows.len() - 1)
    }

    /// A fault is over: calls made from now on must succeed.
    pub fn close(&self, Open(index): Open) {
        self.lock().windows[index].end = Some(Instant::now());
    }

    /// Records the outcome of a call sent at `sent`.
    pub fn enter(&self, what: What, sent: Instant, outcome: Outcome) -> Kind {
        let Outcome { kind, said } = outcome;
        let mut entries = self.lock();
        *entries.counts.entry((what, kind)).or_default() += 1;
        let explains = |window: &Window| {
            window.end.is_none_or(|end| end >= sent) && window.fault.explains(kind)
        };
        if kind != what.expects() && !entries.windows.iter().any(explains) {
            let since = (sent - self.begin).as_secs_f64();
            let problem = format!("{what}, sent at {since:.1} s: {kind}: {said}");
            self.say(&format!("NOT EXPLAINED: {problem}"));
            entries.problems.push(problem);
        }
        kind
    }

    /// How many calls of this kind had this outcome.
    pub fn count(&self, what: What, kind: Kind) -> usize {
        self.lock().counts.get(&(what, kind)).copied().unwrap_or_default()
    }

    /// The number of calls so far, by outcome.
    pub fn so_far(&self) -> String {
        let mut sums: BTreeMap<Kind, usize> = BTreeMap::new();
        for ((_, kind), count) in &self.lock().counts {
            *sums.entry(*kind).or_default() += count;
        }
        list(sums)
    }

    /// The number of calls of each kind, by outcome.
    pub fn table(&self) -> String {
        let mut rows: BTreeMap<What, Vec<(Kind, usize)>> = BTreeMap::new();
        for ((what, kind), count) in &self.lock().counts {
            rows.entry(*what).or_default().push((*kind, *count));
        }
        let row = |(what, ends): (What, Vec<(Kind, usize)>)| {
            let all: usize = ends.iter().map(|(_, count)| count).sum();
            format!("{:<34} {all:>6}  {}\n", what.to_string(), list(ends))
        };
        rows.into_iter().map(row).collect()
    }

    /// Outcomes that no fault explains.
    pub fn problems(&self) -> Vec<String> {
        self.lock().problems.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn list(counts: impl IntoIterator<Item = (Kind, usize)>) -> String {
    let texts: Vec<_> = counts.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    texts.join(", ")
}
