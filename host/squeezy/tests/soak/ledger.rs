//! What came of every call, and whether a fault explains it.

use crate::{calls::What, faults::Fault};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// With what it should bring.
    Right,
    /// The function raised an exception.
    Raised,
    /// Its instance ended by itself.
    Ended,
    /// Its instance took more than its memory.
    ExceededMemory,
    /// Its instance took longer than it may.
    Late,
    /// The guest's agent did not answer.
    AgentLost,
    /// The VM under it ended.
    VmEnded,
    /// The VM for it could not be booted, or ended before an instance had it.
    VmFailed,
    /// The instance for it could not be started.
    StartFailed,
    /// Too many wait.
    Busy,
    /// The daemon ends.
    Ending,
    /// The action was not written down.
    NotWritten,
    /// Nobody listened.
    Refused,
    /// The connection ended before the answer.
    Broken,
    /// It was accepted by a daemon that has been restarted since.
    Forgotten,
    /// Anything else: never right.
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
            Self::Busy => "too many wait",
            Self::Ending => "daemon ends",
            Self::NotWritten => "not written",
            Self::Refused => "refused",
            Self::Broken => "broken off",
            Self::Forgotten => "forgotten",
            Self::Wrong => "WRONG",
        })
    }
}

/// How a call ended, and what was said.
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

/// A window that is open, by its place.
#[derive(Clone, Copy)]
pub struct Open(usize);

#[derive(Default)]
struct Entries {
    counts: BTreeMap<(What, Kind), usize>,
    windows: Vec<Window>,
    problems: Vec<String>,
}

/// All of it.
pub struct Ledger {
    begin: Instant,
    entries: Mutex<Entries>,
}

impl Ledger {
    pub fn new() -> Self {
        Self { begin: Instant::now(), entries: Mutex::default() }
    }

    /// A line of progress.
    pub fn say(&self, line: &str) {
        println!("[{:7.1} s] {line}", self.begin.elapsed().as_secs_f64());
    }

    /// From now on there is this fault.
    pub fn open(&self, fault: Fault) -> Open {
        let mut entries = self.lock();
        entries.windows.push(Window { fault, end: None });
        Open(entries.windows.len() - 1)
    }

    /// The fault is over: calls that are made from now on must be right.
    pub fn close(&self, Open(index): Open) {
        self.lock().windows[index].end = Some(Instant::now());
    }

    /// Takes note of a call that was sent then.
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

    /// How many calls of this kind ended so.
    pub fn count(&self, what: What, kind: Kind) -> usize {
        self.lock().counts.get(&(what, kind)).copied().unwrap_or_default()
    }

    /// How many calls there have been, by how they ended.
    pub fn so_far(&self) -> String {
        let mut sums: BTreeMap<Kind, usize> = BTreeMap::new();
        for ((_, kind), count) in &self.lock().counts {
            *sums.entry(*kind).or_default() += count;
        }
        list(sums)
    }

    /// Of each kind of call how many there have been, and how they ended.
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

    /// What no fault explains.
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
