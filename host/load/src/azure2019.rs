//! The Azure Functions Trace 2019: how often each function was invoked in each minute of a day.
//!
//! Three files: invocations (one column per minute), durations (percentiles in milliseconds) and memory
//! (percentiles in megabytes). The data does not say when within its minute an invocation came; that is drawn
//! at random here.

use super::{
    Candidate, Load, MAX_ARRIVALS, Random, TraceError,
    table::{Row, Table},
};
use std::{collections::HashMap, io::BufRead, time::Duration};

/// Maximum number of functions in a file; the largest published one has 47 thousand.
const MAX_FUNCTIONS: usize = 200_000;

/// Maximum invocations of one function in one minute.
const MAX_PER_MINUTE: u64 = 10_000_000;

/// Maximum duration, in milliseconds: a day.
const MAX_DURATION_MS: f64 = 86_400_000.0;

/// Maximum memory, in megabytes: a tebibyte.
const MAX_MEMORY_MB: f64 = 1_048_576.0;

/// The invocations file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocations {
    /// The number within the day of the first minute, which is the name of its column.
    pub first_minute: u64,
    /// The number of minutes.
    pub minutes: usize,
    /// The functions, in file order.
    pub functions: Vec<FunctionInvocations>,
}

/// One line of the invocations file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInvocations {
    /// The function's hash.
    pub function: String,
    /// The hash of the application it belongs to.
    pub app: String,
    /// What invokes it.
    pub trigger: String,
    /// The minutes in which it was invoked, counted from the first one, with the number of invocations.
    pub counts: Vec<(u32, u64)>,
}

impl Invocations {
    /// Reads the file.
    pub fn parse(reader: impl BufRead) -> Result<Self, TraceError> {
        let mut table = Table::open(reader)?;
        let function = table.column("HashFunction")?;
        let app = table.column("HashApp")?;
        let trigger = table.column("Trigger")?;
        let (first_column, first_minute) = minutes(&table)?;
        let minutes = table.columns().len() - first_column;
        let mut functions = Vec::new();
        while let Some(row) = table.next_row()? {
            if functions.len() == MAX_FUNCTIONS {
                return Err(row.line_error(format!("more than {MAX_FUNCTIONS} functions")));
            }
            functions.push(FunctionInvocations {
                function: row.name(function)?.to_owned(),
                app: row.name(app)?.to_owned(),
                trigger: row.name(trigger)?.to_owned(),
                counts: counts(&row, first_column, minutes)?,
            });
        }
        Ok(Self { first_minute, minutes, functions })
    }

    /// All functions with their burstiness.
    pub fn candidates(&self) -> Vec<Candidate<'_>> {
        self.functions
            .iter()
            .map(|f| {
                let counts: Vec<_> = f.counts.iter().map(|&(_, count)| count).collect();
                Candidate::new(&f.function, &counts, self.minutes)
            })
            .collect()
    }

    /// The arrivals of one function, drawn uniformly within each minute; `None` if it is not in the file.
    pub fn load(&self, function: &str, seed: u64) -> Option<Load> {
        let mut random = Random::new(seed);
        let minute = Duration::from_secs(60);
        let mut arrivals = Vec::new();
        // A function with several triggers has one line for each.
        let lines: Vec<_> = self.functions.iter().filter(|f| f.function == function).collect();
        lines.first()?;
        for (at, count) in lines.iter().flat_map(|f| &f.counts) {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            let room = MAX_ARRIVALS - arrivals.len();
            arrivals.extend((0..count.min(room)).map(|_| minute * *at + random.time(minute)));
        }
        arrivals.sort_unstable();
        let source = format!(
            "Azure Functions Trace 2019, function {function:.16}, times within a minute drawn with \
             seed {seed}"
        );
        Some(Load { source, arrivals })
    }
}

fn minutes<R: BufRead>(table: &Table<R>) -> Result<(usize, u64), TraceError> {
    let numbers: Vec<Option<u64>> = table.columns().iter().map(|c| c.parse().ok()).collect();
    let first = numbers
        .iter()
        .position(Option::is_some)
        .ok_or_else(|| table.error("the header has no column for a minute, such as \"1\""))?;
    let start = numbers[first].unwrap_or(0);
    for (expected, (number, name)) in
        (start..).zip(numbers[first..].iter().zip(&table.columns()[first..]))
    {
        if *number != Some(expected) {
            return Err(table.error(format!("column {name:.40?} where minute {expected} belongs")));
        }
    }
    Ok((first, start))
}

fn counts(row: &Row<'_>, first: usize, minutes: usize) -> Result<Vec<(u32, u64)>, TraceError> {
    let mut counts = Vec::new();
    for minute in 0..minutes {
        let count = row.count(first + minute, MAX_PER_MINUTE)?;
        if count > 0 {
            counts.push((minute as u32, count));
        }
    }
    Ok(counts)
}

/// Percentiles of one function's durations or of one application's memory, with the percentage from the end
/// of the column's name.
pub type Percentiles = Vec<(f64, f64)>;

/// Reads the durations file: milliseconds per function.
pub fn durations_ms(reader: impl BufRead) -> Result<HashMap<String, Percentiles>, TraceError> {
    percentiles(reader, "HashFunction", "percentile_Average_", MAX_DURATION_MS)
}

/// Reads the memory file: megabytes per application.
pub fn memory_mb(reader: impl BufRead) -> Result<HashMap<String, Percentiles>, TraceError> {
    percentiles(reader, "HashApp", "AverageAllocatedMb_pct", MAX_MEMORY_MB)
}

fn percentiles(
    reader: impl BufRead,
    key: &str,
    prefix: &str,
    max: f64,
) -> Result<HashMap<String, Percentiles>, TraceError> {
    let mut table = Table::open(reader)?;
    let key = table.column(key)?;
    let columns: Vec<(usize, f64)> = table
        .columns()
        .iter()
        .enumerate()
        .filter_map(|(index, name)| Some((index, name.strip_prefix(prefix)?.parse().ok()?)))
        .collect();
    if columns.is_empty() {
        return Err(table.error(format!("the header has no column \"{prefix}50\" or the like")));
    }
    let mut all = HashMap::new();
    while let Some(row) = table.next_row()? {
        let values: Result<Percentiles, _> = columns
            .iter()
            .map(|&(index, percent)| Ok((percent, row.number(index, 0.0, max)?)))
            .collect();
        all.insert(row.name(key)?.to_owned(), values?);
        if all.len() > MAX_FUNCTIONS {
            return Err(row.line_error(format!("more than {MAX_FUNCTIONS} entries")));
        }
    }
    Ok(all)
}
