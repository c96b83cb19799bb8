//! What functions are asked to do over time: recorded in a trace, or made up and labelled so.

pub mod azure2019;
pub mod azure2021;
mod random;
mod synthetic;
mod table;

pub use random::Random;
pub use synthetic::{Synthetic, SyntheticError};
pub use table::TraceError;

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// Most arrivals one load may hold.
pub const MAX_ARRIVALS: usize = 10_000_000;

/// One function's arrivals, each as the time since the load began, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Where it comes from and what of it was drawn, one line for people.
    pub source: String,
    /// When requests come.
    pub arrivals: Vec<Duration>,
}

impl Load {
    /// The part of the load in `[from, from + length)`, played `speed` times as fast.
    ///
    /// # Panics
    /// If `speed` is not a positive number.
    pub fn window(&self, from: Duration, length: Duration, speed: f64) -> Self {
        assert!(speed > 0.0 && speed.is_finite(), "a speed of {speed}");
        let to = from.saturating_add(length);
        let arrivals = self.arrivals.iter().filter(|&&at| at >= from && at < to);
        Self {
            source: self.source.clone(),
            arrivals: arrivals.map(|&at| (at - from).div_f64(speed)).collect(),
        }
    }

    /// The start of the window of this length that holds the most arrivals, in whole minutes.
    pub fn busiest_window(&self, length: Duration) -> Duration {
        let minute = |at: Duration| Duration::from_secs(at.as_secs() / 60 * 60);
        let mut best = (0, Reverse(Duration::ZERO));
        let mut candidates: Vec<_> = self.arrivals.iter().map(|&at| minute(at)).collect();
        candidates.dedup();
        for from in candidates {
            let to = from.saturating_add(length);
            let begin = self.arrivals.partition_point(|&at| at < from);
            let end = self.arrivals.partition_point(|&at| at < to);
            best = best.max((end - begin, Reverse(from)));
        }
        best.1.0
    }
}

/// Why there is no such function in a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The trace holds no invocation.
    #[error("the trace holds no invocation")]
    Empty,
    /// No function's hash begins so.
    #[error("no function of the trace begins with {prefix:?}; the most invoked ones are {most}")]
    Unknown {
        /// What was asked for.
        prefix: String,
        /// A few that are there.
        most: String,
    },
    /// More than one function's hash begins so.
    #[error("{count} functions of the trace begin with {prefix:?}; give more of the hash")]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// How many.
        count: usize,
    },
}

/// A function of a trace, and how bursty it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// Its hash.
    pub hash: &'a str,
    /// Invocations in all.
    pub invocations: u64,
    /// Invocations in its busiest minute.
    pub peak_per_minute: u64,
    /// Variance over mean of the invocations in a minute: 1 when they come independently of each
    /// other, more when they come in bursts.
    pub dispersion: f64,
}

impl<'a> Candidate<'a> {
    /// Sums up a function that has `counts` in these of `minutes`.
    fn new(hash: &'a str, counts: &[u64], minutes: usize) -> Self {
        let minutes = minutes.max(1) as f64;
        let invocations: u64 = counts.iter().sum();
        let mean = invocations as f64 / minutes;
        let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
        Self {
            hash,
            invocations,
            peak_per_minute: counts.iter().copied().max().unwrap_or(0),
            dispersion: if invocations == 0 {
                0.0
            } else {
                (squares / minutes - mean * mean) / mean
            },
        }
    }
}

/// The function whose hash begins with `prefix`; without one, the burstiest of those that are
/// invoked at most `peak_limit` times in any minute (of all, if there is none).
pub fn choose<'a>(
    candidates: &[Candidate<'a>],
    prefix: Option<&str>,
    peak_limit: u64,
) -> Result<&'a str, ChoiceError> {
    let Some(prefix) = prefix else {
        let fits = |c: &&Candidate<'_>| c.invocations > 0 && c.peak_per_minute <= peak_limit;
        let bursty =
            candidates.iter().filter(fits).max_by(|a, b| a.dispersion.total_cmp(&b.dispersion));
        let any =
            || candidates.iter().filter(|c| c.invocations > 0).min_by_key(|c| c.peak_per_minute);
        return bursty.or_else(any).map(|c| c.hash).ok_or(ChoiceError::Empty);
    };
    let mut hashes: Vec<_> =
        candidates.iter().map(|c| c.hash).filter(|hash| hash.starts_with(prefix)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    match hashes[..] {
        [hash] => Ok(hash),
        [] => {
            let mut most: Vec<_> = candidates.iter().collect();
            most.sort_by_key(|c| Reverse(c.invocations));
            let most: Vec<_> = most
                .iter()
                .take(3)
                .map(|c| format!("{:.16} ({} invocations)", c.hash, c.invocations))
                .collect();
            Err(ChoiceError::Unknown { prefix: prefix.to_owned(), most: most.join(", ") })
        }
        _ => Err(ChoiceError::Ambiguous { prefix: prefix.to_owned(), count: hashes.len() }),
    }
}

/// How often something happens in each minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PerMinute(BTreeMap<u64, u64>);

impl PerMinute {
    fn of(arrivals: &[Duration]) -> Self {
        let mut counts = BTreeMap::new();
        for at in arrivals {
            *counts.entry(at.as_secs() / 60).or_default() += 1;
        }
        Self(counts)
    }

    fn counts(&self) -> Vec<u64> {
        self.0.values().copied().collect()
    }
}

#[cfg(test)]
mod tests;
