//! The Azure Functions Invocation Trace 2021: one line per invocation, with its end and duration.

use super::{Candidate, Load, MAX_ARRIVALS, PerMinute, TraceError, table::Table};
use std::{collections::BTreeMap, io::BufRead, time::Duration};

/// Maximum end time and duration, in seconds: a year.
const MAX_SECONDS: f64 = 366.0 * 86_400.0;

/// The file.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocations {
    /// The invocations of each function, in order of their start.
    pub functions: BTreeMap<String, Vec<Invocation>>,
    /// From the start of the first invocation to the start of the last one.
    pub length: Duration,
}

/// One invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Invocation {
    /// When it started, since the start of the first invocation in the trace.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

impl Invocations {
    /// Reads the file. Functions are identified by their own hash, without that of their application.
    pub fn parse(reader: impl BufRead) -> Result<Self, TraceError> {
        let mut table = Table::open(reader)?;
        let function = table.column("func")?;
        let end = table.column("end_timestamp")?;
        let duration = table.column("duration")?;
        table.column("app")?;
        let mut lines = Vec::new();
        while let Some(row) = table.next_row()? {
            if lines.len() == MAX_ARRIVALS {
                return Err(row.line_error(format!("more than {MAX_ARRIVALS} invocations")));
            }
            let seconds = row.number(duration, 0.0, MAX_SECONDS)?;
            // Ends are in seconds since the start of the trace. An invocation that was running then started
            // before it.
            let start = row.number(end, 0.0, MAX_SECONDS)? - seconds;
            lines.push((row.name(function)?.to_owned(), start, seconds));
        }
        let first = lines.iter().map(|line| line.1).fold(f64::INFINITY, f64::min);
        let mut functions = BTreeMap::<String, Vec<_>>::new();
        let mut length = Duration::ZERO;
        for (function, start, seconds) in lines {
            let start = Duration::from_secs_f64(start - first);
            length = length.max(start);
            let duration = Duration::from_secs_f64(seconds);
            functions.entry(function).or_default().push(Invocation { start, duration });
        }
        for invocations in functions.values_mut() {
            invocations.sort_unstable();
        }
        Ok(Self { functions, length })
    }

    /// All functions with their burstiness.
    pub fn candidates(&self) -> Vec<Candidate<'_>> {
        let minutes = self.length.as_secs() as usize / 60 + 1;
        self.functions
            .iter()
            .map(|(hash, invocations)| {
                let starts: Vec<_> = invocations.iter().map(|i| i.start).collect();
                Candidate::new(hash, &PerMinute::of(&starts).counts(), minutes)
            })
            .collect()
    }

    /// The arrivals of one function; `None` if it is not in the trace.
    pub fn load(&self, function: &str) -> Option<Load> {
        let arrivals = self.functions.get(function)?.iter().map(|i| i.start).collect();
        let source = format!("Azure Functions Invocation Trace 2021, function {function:.16}");
        Some(Load { source, arrivals })
    }
}
