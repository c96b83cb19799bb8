//! Loads for several functions, from a trace or synthetic and labelled so.

use crate::error::{BenchError, Result};
use squeezy_load::{Candidate, Load, Random, Synthetic, azure2019, azure2021};
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

/// A call in a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    /// Time since the load began.
    pub(crate) at: Duration,
    /// Index of the function in the rig.
    pub(crate) member: usize,
}

/// The source of a load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadOptions {
    /// Replay the burstiest functions of a trace in the Azure 2019 (invocations) or 2021 format;
    /// the default is synthetic bursts
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Seed of random choices: arrivals within a minute of a trace, and synthetic loads
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// How many times as fast as recorded to replay a trace, so that a keep-alive of minutes shows
    /// within seconds
    #[arg(long, value_name = "FACTOR", default_value = "1", requires = "trace",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) speed: u32,
    /// How long to send calls, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(10..=86_400))]
    pub(crate) duration: Option<u32>,
}

/// The maximum number of calls in the busiest minute of a trace's function that is replayed here:
/// what two processors can answer without hardware virtualization, unless all calls come at once.
const BUSIEST_MINUTE: u64 = 60;

/// A load for several functions, and its description.
pub(crate) struct FunctionsLoad {
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) source: String,
}

impl LoadOptions {
    /// How long calls are sent: as requested, otherwise `default_seconds`.
    pub(crate) fn length(&self, default_seconds: u32) -> Duration {
        Duration::from_secs(self.duration.unwrap_or(default_seconds).into())
    }

    /// A load for `members` functions, none of which is called more than `most` times at once
    /// (synthetic) or per minute (trace).
    pub(crate) fn load(
        &self,
        members: usize,
        length: Duration,
        most: u32,
    ) -> Result<FunctionsLoad> {
        let loads = match &self.trace {
            Some(path) => self.read_trace(path, members, length)?,
            None => (0..members)
                .map(|member| alternating(member, members, length, most).load(self.seed))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| BenchError::Arguments(error.to_string()))?,
        };
        let source = loads.first().map_or(String::new(), |load| load.source.clone());
        let mut arrivals: Vec<_> = (0..)
            .zip(&loads)
            .flat_map(|(member, load)| load.arrivals.iter().map(move |&at| Arrival { at, member }))
            .collect();
        arrivals.sort_unstable();
        let source = match loads.len() {
            1 => source,
            count => format!("{source}; {count} functions, each with a load of its own"),
        };
        Ok(FunctionsLoad { arrivals, source })
    }

    /// Functions drawn from the trace with the seed, in the same window: the one in which they are
    /// called most, all together. Replayed `speed` times as fast as recorded.
    pub(crate) fn together(
        &self,
        path: &Path,
        members: usize,
        length: Duration,
        speed: u32,
    ) -> Result<FunctionsLoad> {
        let mut loads = self.read_loads(path)?;
        if loads.len() < members {
            let (most, there) = (BUSIEST_MINUTE, loads.len());
            return Err(BenchError::file(
                path,
                format!(
                    "it has {there} functions that are called at most {most} times in each minute, not {members}"
                ),
            ));
        }
        Random::new(self.seed).shuffle(&mut loads);
        loads.truncate(members);
        let mut arrivals: Vec<_> = loads.iter().flat_map(|load| &load.arrivals).copied().collect();
        arrivals.sort_unstable();
        let source = loads.first().map_or("", |load| load.source.split(',').next().unwrap_or(""));
        let source = format!(
            "{source}; {members} functions drawn with seed {}, replayed {speed} times as fast",
            self.seed
        );
        let recorded = length * speed;
        let from = Load { source: String::new(), arrivals }.busiest_window(recorded);
        let windows = loads.iter().map(|load| load.window(from, recorded, f64::from(speed)));
        let mut arrivals: Vec<_> = (0..)
            .zip(windows)
            .flat_map(|(member, load)| {
                load.arrivals.into_iter().map(move |at| Arrival { at, member })
            })
            .collect();
        arrivals.sort_unstable();
        Ok(FunctionsLoad { arrivals, source })
    }

    /// Every function of a trace that is not called too often, burstiest first.
    fn read_loads(&self, path: &Path) -> Result<Vec<Load>> {
        let fail = |reason: String| BenchError::file(path, reason);
        let file = File::open(path).map_err(|e| fail(e.to_string()))?;
        let mut reader = BufReader::new(file);
        let start = reader.fill_buf().map_err(|e| fail(e.to_string()))?;
        Ok(if start.starts_with(b"app,func,") {
            let trace = azure2021::Invocations::parse(reader).map_err(|e| fail(e.to_string()))?;
            burstiest(trace.candidates()).filter_map(|hash| trace.load(&hash)).collect()
        } else {
            let trace = azure2019::Invocations::parse(reader).map_err(|e| fail(e.to_string()))?;
            let load = |hash: String| trace.load(&hash, self.seed);
            burstiest(trace.candidates()).filter_map(load).collect()
        })
    }

    fn read_trace(&self, path: &Path, members: usize, length: Duration) -> Result<Vec<Load>> {
        let fail = |reason: String| BenchError::file(path, reason);
        let loads = self.read_loads(path)?;
        let recorded = length * self.speed;
        let speed = f64::from(self.speed);
        let windows: Vec<_> = loads
            .into_iter()
            .map(|load| load.window(load.busiest_window(recorded), recorded, speed))
            .filter(|load| !load.arrivals.is_empty())
            .take(members)
            .collect();
        if windows.len() == members {
            Ok(windows)
        } else {
            Err(fail(format!(
                "it has {} functions that are called at most {BUSIEST_MINUTE} times in each \
                 minute, not {members}",
                windows.len()
            )))
        }
    }
}

/// The functions of a trace that are not called too often, burstiest first.
fn burstiest(mut candidates: Vec<Candidate<'_>>) -> impl Iterator<Item = String> {
    candidates.retain(|c| c.invocations > 0 && c.peak_per_minute <= BUSIEST_MINUTE);
    candidates.sort_by(|a, b| b.dispersion.total_cmp(&a.dispersion));
    candidates.into_iter().map(|candidate| candidate.hash.to_owned())
}

/// Two bursts in which the functions alternate, so that one needs the memory that another had.
fn alternating(member: usize, members: usize, length: Duration, most: u32) -> Synthetic {
    let turn = length.mul_f64(0.45 / members as f64);
    let offset = turn.mul_f64(member as f64);
    Synthetic {
        length,
        bursts: vec![(length.mul_f64(0.02) + offset, most), (length.mul_f64(0.50) + offset, most)],
        burst_length: Duration::from_millis(200),
        trickle_gap: length / 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(trace: Option<&str>) -> LoadOptions {
        LoadOptions { trace: trace.map(PathBuf::from), seed: 1, speed: 1, duration: None }
    }

    #[test]
    fn functions_take_turns() {
        let length = Duration::from_secs(60);
        let load = options(None).load(2, length, 4).unwrap();
        let burst = |member, from, to| {
            let within = |a: &&Arrival| (from..to).contains(&a.at.as_secs()) && a.member == member;
            load.arrivals.iter().filter(within).count()
        };
        assert!(burst(0, 0, 3) >= 4 && burst(1, 14, 17) >= 4 && burst(0, 30, 33) >= 4);
        assert!(load.source.contains("synthetic") && load.source.contains("2 functions"));
    }

    #[test]
    fn functions_that_are_played_together_are_seen_in_the_same_window() {
        let mut text = "app,func,end_timestamp,duration\n".to_owned();
        for minute in 0..10 {
            text += &format!("a,one,{},0\n", minute * 60);
        }
        for second in 0..5 {
            text += &format!("a,two,{},0\n", 300 + second);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let load = options(None).together(file.path(), 2, Duration::from_secs(60), 2).unwrap();
        let of = |member| load.arrivals.iter().filter(|a| a.member == member).count();
        // Two minutes of the trace, replayed in one.
        assert_eq!(of(0).min(of(1)), 2);
        assert_eq!(of(0).max(of(1)), 5);
        assert!(load.arrivals.iter().all(|arrival| arrival.at < Duration::from_secs(60)));
        assert!(load.source.contains("2021") && load.source.contains("2 times"));
        let error = options(None).together(file.path(), 3, Duration::from_secs(60), 2).err();
        assert!(error.unwrap().to_string().contains("has 2 functions"));
    }

    #[test]
    fn what_is_no_trace_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "HashOwner,HashApp\n").unwrap();
        let path = file.path().display().to_string();
        let load = options(Some(&path)).load(1, Duration::from_secs(60), 4);
        let error = load.err().unwrap().to_string();
        assert!(error.contains(&path) && !error.contains('\n'), "{error}");
    }
}
