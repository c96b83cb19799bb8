//! The daemon's own CPU time for a call of a warm instance, compared with the same calls from
//! inside the VM. See README.md.

mod daemon;
mod report;

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Session, Step, processor::spent_ns},
    record::nanoseconds,
    report::median,
};
use daemon::Daemon;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    fmt,
    time::{Duration, Instant},
};

const FUNCTION: &str = "html";

/// Items of the requested pages: none, and as many as in the function's own request.
const ITEMS: [u32; 2] = [0, 1000];

/// Calls through the daemon, from inside the VM, or none.
const DAEMON: &str = "daemon";
const INSIDE: &str = "inside";
const IDLE: &str = "idle";

/// How long to measure without calls.
const PAUSE: Duration = Duration::from_secs(2);

/// CPU time of the daemon itself for a call of a warm instance.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Consecutive calls before switching to the other method
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=200))]
    calls: u32,
}

/// Consecutive calls, or an interval without any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    function: String,
    /// Items of the requested page; `None` without calls.
    items_count: Option<u32>,
    calls_count: u32,
    /// Size of one response.
    answer_bytes: u64,
    /// Median latency, on the caller's clock.
    latency_ns: u64,
    /// Total duration.
    elapsed_ns: u64,
    /// CPU time of the daemon's process meanwhile.
    daemon_cpu_ns: u64,
    /// CPU time of the VMM's process meanwhile.
    vm_cpu_ns: u64,
}

/// A round of all measurements. The first one is a warm-up.
struct Round(u32);

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}", self.0)
    }
}

impl Step for Round {}

/// The results of some calls.
struct Called {
    latency_ns: u64,
    answer_bytes: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "overhead";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let trials = session.options.trials_or(10, 50);
        let daemon = Daemon::start(session, FUNCTION).await?;
        session.progress.say("the first call");
        daemon.call(&request(ITEMS[0])).await?;
        let guest = daemon.guest()?;
        let parts: Vec<_> = ITEMS
            .iter()
            .flat_map(|&items| [(DAEMON, Some(items)), (INSIDE, Some(items))])
            .chain([(IDLE, None)])
            .collect();
        let rounds: Vec<_> = (0..=trials).map(Round).collect();
        let mut last = None;
        session
            .each(&rounds, async |session, &Round(round)| {
                let start = Instant::now();
                if last.is_some_and(|last| round > 1 && !session.has_time(last)) {
                    return Ok(());
                }
                // Rotated, so that each part is at each position equally often.
                let mut parts = parts.clone();
                if round % 2 == 1 {
                    parts.reverse();
                }
                for (method, items) in parts {
                    let header = session.header(method, round.saturating_sub(1), Some(&guest));
                    let figures = self.part(&daemon, method, items).await?;
                    if round > 0 {
                        session.keep(header, figures)?;
                    }
                }
                last = Some(start.elapsed());
                Ok(())
            })
            .await
    }
}

impl Arguments {
    /// Makes calls by one method, or none, and measures the cost.
    async fn part(&self, daemon: &Daemon, method: &str, items: Option<u32>) -> Result<Figures> {
        let (process, vm) = (daemon.process(), daemon.vm_process()?);
        let start = Instant::now();
        let (daemon_before, vm_before) = (spent_ns(process)?, spent_ns(vm)?);
        let called = match items {
            Some(items) if method == INSIDE => self.inside(daemon, items).await?,
            Some(items) => self.through(daemon, items).await?,
            None => {
                tokio::time::sleep(PAUSE).await;
                Called { latency_ns: 0, answer_bytes: 0 }
            }
        };
        Ok(Figures {
            function: FUNCTION.to_owned(),
            items_count: items,
            calls_count: items.map_or(0, |_| self.calls),
            answer_bytes: called.answer_bytes,
            latency_ns: called.latency_ns,
            daemon_cpu_ns: spent_ns(process)?.saturating_sub(daemon_before),
            vm_cpu_ns: spent_ns(vm)?.saturating_sub(vm_before),
            elapsed_ns: nanoseconds(start.elapsed()),
        })
    }

    /// Calls through the daemon's API.
    async fn through(&self, daemon: &Daemon, items: u32) -> Result<Called> {
        let request = request(items);
        let mut latencies = Vec::new();
        let mut answer_bytes = 0;
        for _ in 0..self.calls {
            let answer = daemon.call(&request).await?;
            if answer.value["items"] != items {
                return Err(wrong(&answer.value));
            }
            latencies.push(answer.latency.as_nanos() as f64);
            answer_bytes = answer.bytes;
        }
        Ok(Called { latency_ns: median(latencies).unwrap_or(0.0) as u64, answer_bytes })
    }

    /// Calls by the client next to the instance's server.
    async fn inside(&self, daemon: &Daemon, items: u32) -> Result<Called> {
        let mut request = request(items);
        request["calls_inside"] = self.calls.into();
        let answer = daemon.call(&request).await?.value;
        let latencies: Option<Vec<f64>> = answer["latencies_ns"]
            .as_array()
            .and_then(|list| list.iter().map(Value::as_f64).collect());
        match (latencies, answer["answer_bytes"].as_u64()) {
            (Some(latencies), Some(answer_bytes)) if latencies.len() == self.calls as usize => {
                Ok(Called { latency_ns: median(latencies).unwrap_or(0.0) as u64, answer_bytes })
            }
            _ => Err(wrong(&answer)),
        }
    }
}

/// The arguments of a call.
fn request(items: u32) -> Value {
    json!({ "username": "squeezy", "items": items })
}

fn wrong(answer: &Value) -> BenchError {
    BenchError::function(format!("a wrong answer: {:.200}", answer.to_string()))
}
