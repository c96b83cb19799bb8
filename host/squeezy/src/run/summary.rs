//! Summarizes a run: figures for the JSON file, and a table for the terminal.

use super::{
    record::{Direction, Outcome, PolicyRecord, Report},
    view::milliseconds,
};
use serde::Serialize;
use squeezy_node::{
    WaitedFor,
    series::{integral, percentile},
};
use squeezy_scaler::Moment;
use std::time::Duration;

/// Requests that waited for the same thing.
#[derive(Clone, Debug, Serialize)]
pub struct WaitSummary {
    /// What they waited for.
    pub waited_for: WaitedFor,
    /// Their number, at least one.
    pub requests: usize,
    /// Their median latency.
    pub latency_p50_seconds: f64,
    /// Their 99th percentile.
    pub latency_p99_seconds: f64,
}

impl WaitSummary {
    fn of(record: &PolicyRecord, waited_for: WaitedFor) -> Option<Self> {
        let right = record.requests.iter().filter(|r| r.outcome == Outcome::Right);
        let same = right.filter(|r| r.waited_for == Some(waited_for));
        let latencies: Vec<_> = same.map(|r| r.latency_seconds).collect();
        Some(Self {
            waited_for,
            requests: latencies.len(),
            latency_p50_seconds: percentile(&latencies, 50.0)?,
            latency_p99_seconds: percentile(&latencies, 99.0)?,
        })
    }
}

/// The summary of one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The policy.
    pub policy: String,
    /// Number of requests.
    pub requests: usize,
    /// Requests with a correct response.
    pub right: usize,
    /// Requests with a wrong response.
    pub wrong: usize,
    /// Requests without a response because the instance or the VM failed.
    pub failed: usize,
    /// Requests that were refused.
    pub rejected: usize,
    /// Requests with a correct response, by what they waited for.
    pub waits: Vec<WaitSummary>,
    /// Attempts to start an instance.
    pub starts: usize,
    /// Those that failed.
    pub failed_starts: usize,
    /// Attempts to plug.
    pub plugs: usize,
    /// Median time of the successful ones.
    pub plug_latency_p50_ns: Option<f64>,
    /// Attempts to reclaim.
    pub reclaims: usize,
    /// Those that were not complete in time.
    pub failed_reclaims: usize,
    /// Median time of the successful ones.
    pub reclaim_latency_p50_ns: Option<f64>,
    /// Maximum time of the successful ones.
    pub reclaim_latency_max_ns: Option<f64>,
    /// Peak memory of the guest.
    pub plugged_peak_bytes: u64,
    /// Memory of the guest at the end.
    pub plugged_end_bytes: u64,
    /// Peak memory resident on the host.
    pub resident_peak_bytes: u64,
    /// Memory resident on the host at the end.
    pub resident_end_bytes: u64,
    /// Memory of the guest, integrated over the run.
    pub plugged_gib_seconds: f64,
    /// Memory resident on the host, integrated over the run.
    pub resident_gib_seconds: f64,
}

impl Summary {
    /// Summarizes the record of a policy.
    pub fn of(record: &PolicyRecord) -> Self {
        let count = |wanted: fn(&Outcome) -> bool| {
            record.requests.iter().filter(|r| wanted(&r.outcome)).count()
        };
        let resizes = |direction| record.resizes.iter().filter(move |r| r.direction == direction);
        let times = |direction| {
            let done = resizes(direction).filter(|r| r.error.is_none());
            done.map(|r| r.latency_ns as f64).collect::<Vec<_>>()
        };
        let bytes = |value: fn(&super::record::Sample) -> u64| {
            let mut values = record.samples.iter().map(value);
            (values.clone().max().unwrap_or(0), values.next_back().unwrap_or(0))
        };
        let gib_seconds = |value: fn(&super::record::Sample) -> u64| {
            let points: Vec<_> = record
                .samples
                .iter()
                .map(|s| (Moment(Duration::from_secs_f64(s.at_seconds)), value(s) as f64))
                .collect();
            integral(&points) / f64::from(1 << 30)
        };
        let (plugged_peak_bytes, plugged_end_bytes) = bytes(|s| s.plugged_bytes);
        let (resident_peak_bytes, resident_end_bytes) = bytes(|s| s.resident_bytes);
        Self {
            policy: record.policy.clone(),
            requests: record.requests.len(),
            right: count(|o| *o == Outcome::Right),
            wrong: count(|o| matches!(o, Outcome::Wrong(_))),
            failed: count(|o| matches!(o, Outcome::Failed(_))),
            rejected: count(|o| matches!(o, Outcome::Rejected(_))),
            waits: WaitedFor::ALL.iter().filter_map(|&w| WaitSummary::of(record, w)).collect(),
            starts: record.starts.len(),
            failed_starts: record.starts.iter().filter(|s| s.error.is_some()).count(),
            plugs: resizes(Direction::Plug).count(),
            plug_latency_p50_ns: percentile(&times(Direction::Plug), 50.0),
            reclaims: resizes(Direction::Reclaim).count(),
            failed_reclaims: resizes(Direction::Reclaim).filter(|r| r.error.is_some()).count(),
            reclaim_latency_p50_ns: percentile(&times(Direction::Reclaim), 50.0),
            reclaim_latency_max_ns: percentile(&times(Direction::Reclaim), 100.0),
            plugged_peak_bytes,
            plugged_end_bytes,
            resident_peak_bytes,
            resident_end_bytes,
            plugged_gib_seconds: gib_seconds(|s| s.plugged_bytes),
            resident_gib_seconds: gib_seconds(|s| s.resident_bytes),
        }
    }
}

/// A row of the table: its name, and its value.
type Row = (&'static str, fn(&Summary) -> String);

const ROWS: [Row; 11] = [
    ("requests correct / all", |s| format!("{} / {}", s.right, s.requests)),
    ("  wrong, failed, rejected", |s| format!("{}, {}, {}", s.wrong, s.failed, s.rejected)),
    ("instances started", |s| match s.failed_starts {
        0 => s.starts.to_string(),
        failed => format!("{} ({failed} failed)", s.starts),
    }),
    ("plug, median", |s| time(s.plug_latency_p50_ns)),
    ("reclaims", |s| match s.failed_reclaims {
        0 => s.reclaims.to_string(),
        failed => format!("{} ({failed} failed)", s.reclaims),
    }),
    ("reclaim, median", |s| time(s.reclaim_latency_p50_ns)),
    ("reclaim, longest", |s| time(s.reclaim_latency_max_ns)),
    ("plugged at peak, at the end", |s| both(s.plugged_peak_bytes, s.plugged_end_bytes)),
    ("resident at peak, at the end", |s| both(s.resident_peak_bytes, s.resident_end_bytes)),
    ("plugged GiB x seconds", |s| format!("{:.1}", s.plugged_gib_seconds)),
    ("resident GiB x seconds", |s| format!("{:.1}", s.resident_gib_seconds)),
];

/// A table with a column per policy.
pub fn table(report: &Report) -> String {
    let summaries: Vec<_> = report.policies.iter().map(Summary::of).collect();
    let mut text = format!("{:30}", "");
    summaries.iter().for_each(|summary| text += &format!("{:>20}", summary.policy));
    text.push('\n');
    let mut row = |name: &str, value: &dyn Fn(&Summary) -> String| {
        text += &format!("{name:30}");
        summaries.iter().for_each(|summary| text += &format!("{:>20}", value(summary)));
        text.push('\n');
    };
    for (index, (name, value)) in ROWS.iter().enumerate() {
        // The outcomes of requests are followed by their latencies.
        if index == 2 {
            row("latency p50, p99 (requests)", &|_| String::new());
            for waited_for in WaitedFor::ALL {
                if summaries.iter().any(|s| s.waits.iter().any(|w| w.waited_for == waited_for)) {
                    row(waited(waited_for), &|summary| latency(summary, waited_for));
                }
            }
        }
        row(name, value);
    }
    for policy in &report.policies {
        if let Some(reason) = &policy.ended_early {
            text += &format!("{} ended early: {reason}\n", policy.policy);
        }
    }
    text += &format!("load: {}\n", report.load);
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    text
}

fn waited(waited_for: WaitedFor) -> &'static str {
    match waited_for {
        WaitedFor::Nothing => "  an instance was idle",
        WaitedFor::Thaw => "  after a thaw",
        WaitedFor::Busy => "  all instances were busy",
        WaitedFor::Start => "  after a start",
        WaitedFor::Boot => "  after a boot",
    }
}

fn latency(summary: &Summary, waited_for: WaitedFor) -> String {
    let found = summary.waits.iter().find(|waits| waits.waited_for == waited_for);
    found.map_or_else(
        || "-".to_owned(),
        |waits| {
            let (p50, p99) = (waits.latency_p50_seconds, waits.latency_p99_seconds);
            format!("{p50:.2}, {p99:.2} s ({})", waits.requests)
        },
    )
}

fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| milliseconds(ns as u64))
}

fn both(peak: u64, end: u64) -> String {
    format!("{}, {} MiB", peak >> 20, end >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::record::tests::example;

    #[test]
    fn figures_are_those_of_the_record() {
        let summary = Summary::of(&example().policies[0]);
        assert_eq!((summary.requests, summary.right, summary.rejected), (10, 9, 1));
        assert_eq!(summary.reclaim_latency_p50_ns, Some(4e6));
        // Every third request found an idle instance, and the last one was refused.
        let found: Vec<_> = summary.waits.iter().map(|w| (w.waited_for, w.requests)).collect();
        assert_eq!(found, [(WaitedFor::Nothing, 3), (WaitedFor::Start, 6)]);
        assert_eq!(summary.waits[0].latency_p50_seconds, 0.2);
        let median = summary.waits[1].latency_p50_seconds;
        assert!((median - 1.7).abs() < 1e-9, "{median}, not the mean of the middle two");
        assert_eq!(summary.plugged_peak_bytes, (256 + 7 * 128) << 20);
    }

    #[test]
    fn the_table_has_a_column_for_each_policy() {
        let text = table(&example());
        let head = text.lines().next().unwrap();
        assert_eq!(
            head.split_whitespace().collect::<Vec<_>>(),
            ["squeezy", "virtio-mem", "static"]
        );
        assert!(text.contains("9 / 10"));
        assert!(text.contains("4.0 ms"));
        assert!(text.contains("1.70, 2.20 s (6)"), "{text}");
    }
}
