//! Request arrivals over time: from a recorded trace, or synthetic and labelled as such.

pub mod azure2019;
pub mod azure2021;
mod random;
mod synthetic;
mod table;

pub use random::Random;
pub use synthetic::{Synthetic, SyntheticError};
pub use table::TraceError;

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// Maximum number of arrivals in one load.
pub const MAX_ARRIVALS: usize = 10_000_000;

/// One function's arrivals, in order, as times since the start of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Where it comes from and which parts were drawn at random, in one line for people.
    pub source: String,
    /// When requests arrive.
    pub arrivals: Vec<Duration>,
}

impl Load {
    /// The part of the load in `[from, from + length)`, sped up by `speed`.
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

    /// The start of the window of this length with the most arrivals, in whole minutes.
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

/// Why no function of a trace could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The trace has no invocations.
    #[error("the trace has no invocations")]
    Empty,
    /// No function's hash begins with the prefix.
    #[error("no function of the trace begins with {prefix:?}; the most invoked ones are {most}")]
    Unknown {
        /// The prefix that was given.
        prefix: String,
        /// Some functions of the trace.
        most: String,
    },
    /// More than one function's hash begins with the prefix.
    #[error("{count} functions of the trace begin with {prefix:?}; give more of the hash")]
    Ambiguous {
        /// The prefix that was given.
        prefix: String,
        /// How many do.
        count: usize,
    },
}

/// A function of a trace, and how bursty it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// Its hash.
    pub hash: &'a str,
    /// Total invocations.
    pub invocations: u64,
    /// Invocations in its busiest minute.
    pub peak_per_minute: u64,
    /// Variance of the invocations per minute over their mean (index of dispersion): 1 for independent
    /// arrivals, more for bursts.
    pub dispersion: f64,
}

impl<'a> Candidate<'a> {
    /// Summarizes a function with these `counts` in some of `minutes` minutes, and none in the others.
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

/// The function whose hash begins with `prefix`; without a prefix, the burstiest one that is never invoked
/// more than `peak_limit` times a minute, or if there is none, the one with the lowest peak.
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

/// Events per minute.
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
