//! The applications of a cluster, and how many instances each needs in each minute.

use crate::{
    error::Result,
    rigs::azure_trace::{self, AzureTrace, at_percent},
};
use squeezy_load::Random;
use std::{f64::consts::TAU, path::Path};

const MIB: f64 = (1 << 20) as f64;
/// The smallest partition that the shim makes.
const LEAST_PARTITION_BYTES: u64 = 128 << 20;
const MINUTES_OF_A_DAY: u32 = 24 * 60;

/// Calls of an application in a day, by the fraction of applications that have at most as many. Published: 45% at most
/// one an hour, 81% at most one a minute, eight orders of magnitude between the ends, and 37,000 as the mean of all
/// (Shahrad et al., ATC'20); the points above 81% are assumed so that they have that mean.
const POPULARITY: [(f64, f64); 7] =
    [(0.0, 1.0), (0.45, 24.0), (0.81, 1440.0), (0.95, 1e4), (0.99, 1e5), (0.999, 3e6), (1.0, 1e8)];
/// Mean and standard deviation of the logarithm of the mean execution time in seconds, as published.
const DURATION: (f64, f64) = (-0.38, 2.36);
/// The longest execution: what the platform allows by default.
const LONGEST_SECONDS: f64 = 600.0;
/// Memory of an application in MiB, as published: a Burr distribution with these exponents and scale.
const MEMORY: (f64, f64, f64) = (11.652, 0.221, 107.083);
/// The most that an application has had relative to what it usually has: the ratio of the published medians (assumed to
/// be the same for all).
const PEAK: f64 = 170.0 / 139.0;
/// The most instances of an application: what the platform allows.
const MOST_INSTANCES: u32 = 200;
/// How much the rate of calls is above and below its mean over a day (assumed).
const DAILY: f64 = 0.3;
/// In how many of all minutes in which calls are expected to be as many or fewer as there are instances.
const ENOUGH: f64 = 0.99;

/// An application, whose instances are pods.
pub(super) struct Application {
    /// The namespace that it is in.
    namespace: u32,
    /// The most that a pod of it has had.
    most_bytes: u64,
    /// What a pod of it is promised: its limit.
    pub(super) memory_bytes: u64,
    /// What a pod of it holds.
    pub(super) held_bytes: u64,
    /// Minutes in which it is called, and how many pods that takes.
    needed: Vec<(u32, u32)>,
}

/// All applications.
pub(super) struct Population {
    pub(super) applications: Vec<Application>,
    pub(super) minutes: u32,
    pub(super) source: String,
}

/// How many pods of an application come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) application: u32,
    pub(super) pods: i32,
}

impl Population {
    /// Applications with published distributions, or, with a trace, its functions drawn again and again, each at
    /// another time of the day. At first, all are in the same namespace, and limits are what pods have had at most.
    pub(super) fn draw(trace: Option<&Path>, count: u32, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        Ok(match trace {
            Some(path) => Self::of_trace(&AzureTrace::read(path)?, count, seed, &mut random),
            None => Self {
                applications: (0..count).map(|_| published(&mut random)).collect(),
                minutes: MINUTES_OF_A_DAY,
                source: format!(
                    "{count} applications with the distributions published for Azure Functions, drawn with seed {seed}"
                ),
            },
        })
    }

    fn of_trace(trace: &AzureTrace, count: u32, seed: u64, random: &mut Random) -> Self {
        let functions = &trace.invocations.functions;
        let minutes = u32::try_from(trace.invocations.minutes).unwrap_or(u32::MAX);
        let applications = (0..count).filter_map(|_| {
            let function = functions.get(random.below(functions.len()))?;
            let durations = trace.durations_ms(function);
            let mean_ms =
                (0..100).map(|p| at_percent(&durations, f64::from(p) + 0.5)).sum::<f64>() / 100.0;
            let later = random.below(minutes as usize) as u32;
            let need = |&(minute, calls): &(u32, u64)| {
                ((minute + later) % minutes, pods(calls as f64, mean_ms / 1000.0))
            };
            let mut needed: Vec<_> = function.counts.iter().map(need).collect();
            needed.sort_unstable();
            let most_bytes = trace.most_bytes(function);
            let held_bytes = trace.held_bytes(function);
            Some(Application {
                namespace: 0,
                most_bytes,
                memory_bytes: most_bytes,
                held_bytes,
                needed,
            })
        });
        let applications: Vec<_> = applications.collect();
        let source = format!(
            "Azure Functions Trace 2019, {count} applications drawn from its {} functions with seed {seed}, each \
             at another time of {minutes} minutes",
            functions.len()
        );
        Self { applications, minutes, source }
    }

    /// Puts so many applications into each namespace.
    pub(super) fn divide(&mut self, of_namespace: u32) {
        for (application, index) in self.applications.iter_mut().zip(0..) {
            application.namespace = index / of_namespace.max(1);
        }
    }

    /// Makes limits multiples of so many bytes, upwards.
    pub(super) fn limit(&mut self, step: u64) {
        for application in &mut self.applications {
            application.memory_bytes = azure_trace::size(application.most_bytes, step);
        }
    }

    /// The pods that come and go in each minute, if one is kept for so many minutes after it was last needed.
    pub(super) fn changes(&self, keep_minutes: u32) -> Vec<Vec<Change>> {
        let mut changes = vec![Vec::new(); self.minutes as usize];
        for (application, index) in self.applications.iter().zip(0..) {
            let mut there = 0;
            for (minute, pods) in application.kept(self.minutes, keep_minutes) {
                changes[minute as usize]
                    .push(Change { application: index, pods: pods as i32 - there });
                there = pods as i32;
            }
        }
        changes
    }
}

impl Application {
    /// One that is never called.
    #[cfg(test)]
    pub(super) fn of_size(namespace: u32, memory_bytes: u64) -> Self {
        Self {
            namespace,
            most_bytes: memory_bytes,
            memory_bytes,
            held_bytes: 0,
            needed: Vec::new(),
        }
    }

    /// The size of its pods' partitions: a power of two, so that different limits can share a VM.
    pub(super) fn partition_bytes(&self) -> u64 {
        self.memory_bytes.next_power_of_two().max(LEAST_PARTITION_BYTES)
    }

    /// What pods of one VM have in common.
    pub(super) fn group(&self) -> (u32, u64) {
        (self.namespace, self.partition_bytes())
    }

    /// From which minutes on there are how many pods: at each time as many as were needed at once in the last minutes.
    fn kept(&self, minutes: u32, keep_minutes: u32) -> Vec<(u32, u32)> {
        let mut kept = Vec::new();
        // Needs that may still be the highest of their window, falling.
        let mut window = std::collections::VecDeque::new();
        let mut needed = self.needed.iter().peekable();
        let mut there = 0;
        let mut minute = 0;
        while minute < minutes {
            while window.front().is_some_and(|&(at, _)| at + keep_minutes < minute) {
                window.pop_front();
            }
            if let Some(&(at, pods)) = needed.next_if(|(at, _)| *at == minute) {
                while window.back().is_some_and(|&(_, fewer)| fewer <= pods) {
                    window.pop_back();
                }
                window.push_back((at, pods));
            }
            let most = window.front().map_or(0, |&(_, pods)| pods);
            if most != there {
                kept.push((minute, most));
                there = most;
            }
            // Nothing changes before the next call, or before the highest need has left the window.
            let called = needed.peek().map_or(minutes, |(at, _)| *at);
            let left = window.front().map_or(minutes, |&(at, _)| at + keep_minutes + 1);
            minute = called.min(left).max(minute + 1);
        }
        kept
    }
}

/// An application as published.
fn published(random: &mut Random) -> Application {
    let calls = quantile(&POPULARITY, random.unit());
    let seconds = (DURATION.0 + DURATION.1 * normal(random)).exp().min(LONGEST_SECONDS);
    let (c, k, scale) = MEMORY;
    let usual = MIB * scale * ((1.0 - random.unit()).powf(-1.0 / k) - 1.0).powf(1.0 / c);
    let peak_at = random.unit();
    let mut needed = Vec::new();
    for minute in 0..MINUTES_OF_A_DAY {
        let of_day = f64::from(minute) / f64::from(MINUTES_OF_A_DAY);
        let daily = 1.0 + DAILY * (TAU * (of_day - peak_at)).cos();
        let calls = calls / f64::from(MINUTES_OF_A_DAY) * daily;
        if random.unit() >= (-calls).exp() {
            needed.push((minute, pods(calls, seconds)));
        }
    }
    let most_bytes = ((usual * PEAK) as u64).min(azure_trace::MOST_BYTES);
    let held_bytes = (usual as u64).min(most_bytes);
    Application { namespace: 0, most_bytes, memory_bytes: most_bytes, held_bytes, needed }
}

/// How many instances are enough for so many independent calls in a minute, of which there is at least one.
fn pods(calls: f64, seconds: f64) -> u32 {
    let at_once = calls * seconds / 60.0;
    if at_once >= f64::from(MOST_INSTANCES) {
        return MOST_INSTANCES;
    }
    let mut exactly = (-at_once).exp();
    let mut at_most = exactly;
    let mut pods = 0;
    while at_most < ENOUGH {
        pods += 1;
        exactly *= at_once / f64::from(pods);
        at_most += exactly;
    }
    pods.clamp(1, MOST_INSTANCES)
}

/// A distribution's value, interpolated between the logarithms of its quantiles.
fn quantile(quantiles: &[(f64, f64)], unit: f64) -> f64 {
    let above = quantiles.partition_point(|&(fraction, _)| fraction <= unit);
    let above = above.clamp(1, quantiles.len() - 1);
    let ((f0, v0), (f1, v1)) = (quantiles[above - 1], quantiles[above]);
    (v0.ln() + (v1.ln() - v0.ln()) * (unit - f0) / (f1 - f0)).exp()
}

/// Normally distributed with mean 0 and standard deviation 1 (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (TAU * random.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(needed: &[(u32, u32)]) -> Application {
        Application { needed: needed.to_vec(), ..Application::of_size(0, 0) }
    }

    #[test]
    fn pods_are_kept_for_some_minutes_after_they_were_needed() {
        let called = application(&[(2, 3), (3, 1), (20, 2)]);
        assert_eq!(called.kept(30, 4), [(2, 3), (7, 1), (8, 0), (20, 2), (25, 0)]);
        assert_eq!(called.kept(23, 0), [(2, 3), (3, 1), (4, 0), (20, 2), (21, 0)]);
        assert_eq!(called.kept(22, 60), [(2, 3)]);
    }

    #[test]
    fn a_peak_of_the_window_is_never_forgotten_too_early() {
        let mut random = Random::new(1);
        let mut needed = Vec::new();
        for minute in 0..200 {
            if random.below(3) == 0 {
                needed.push((minute, 1 + random.below(5) as u32));
            }
        }
        let mut kept = application(&needed).kept(200, 7).into_iter().peekable();
        let mut there = 0;
        for minute in 0..200_u32 {
            if let Some((_, pods)) = kept.next_if(|&(at, _)| at == minute) {
                there = pods;
            }
            let window = minute.saturating_sub(7)..=minute;
            let most = needed.iter().filter(|(at, _)| window.contains(at)).map(|need| need.1).max();
            assert_eq!(there, most.unwrap_or(0), "minute {minute}");
        }
    }

    #[test]
    fn enough_pods_are_there_for_what_comes_at_once() {
        assert_eq!((pods(1.0, 0.1), pods(60.0, 1.0)), (1, 4));
        assert!((120..130).contains(&pods(6000.0, 1.0)));
        assert_eq!(pods(1e6, 60.0), MOST_INSTANCES);
    }

    #[test]
    fn the_published_distributions_are_drawn() {
        let mut random = Random::new(1);
        let mut calls: Vec<_> = (0..10_000).map(|_| quantile(&POPULARITY, random.unit())).collect();
        calls.sort_by(f64::total_cmp);
        assert!((20.0..30.0).contains(&calls[4500]) && (1200.0..1700.0).contains(&calls[8100]));
        let drawn: Vec<_> = (0..2000).map(|_| published(&mut random)).collect();
        let below = |mib: u64| drawn.iter().filter(|a| a.held_bytes <= mib << 20).count() / 20;
        assert!((45..55).contains(&below(139)), "{}", below(139));
        assert!((90..99).contains(&below(400)), "{}", below(400));
    }

    #[test]
    fn how_much_more_than_limits_partitions_are_depends_on_the_step_of_limits() {
        let mut random = Random::new(1);
        let mut population = Population {
            applications: (0..2000).map(|_| published(&mut random)).collect(),
            minutes: MINUTES_OF_A_DAY,
            source: String::new(),
        };
        for (step_mib, more_percent) in [(128, 5..14), (32, 30..44), (1, 40..54)] {
            population.limit(step_mib << 20);
            let sum = |bytes: fn(&Application) -> u64| {
                population.applications.iter().map(bytes).sum::<u64>()
            };
            let limits = sum(|application| application.memory_bytes);
            let more = 100 * sum(Application::partition_bytes) / limits - 100;
            assert!(more_percent.contains(&more), "{step_mib} MiB: {more}% more");
        }
    }
}
