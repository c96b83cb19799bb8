//! What the daemon itself takes for a call of an instance that is there, against the same calls from
//! inside the VM. See README.md.

mod daemon;
mod report;

use crate::common::{
    Experiment,
    bound::Bound,
    error::{BenchError, Result},
    lab::{Lab, Step},
    options::Options,
    processor::spent_ns,
    record::{Header, Record},
    stand::{describe, nanoseconds},
    stats::median,
    table::Table,
};
use daemon::Daemon;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use squeezy_vmm::Kernel;
use std::{
    fmt,
    time::{Duration, Instant},
};

const FUNCTION: &str = "html";

/// Items of the pages that are asked for: none, and as many as the function's own request has.
const ITEMS: [u32; 2] = [0, 1000];

/// Through the daemon, from inside the VM, and not at all.
const DAEMON: &str = "daemon";
const INSIDE: &str = "inside";
const IDLE: &str = "idle";

/// How long nothing is asked.
const PAUSE: Duration = Duration::from_secs(2);

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Calls one after the other before the other way is measured
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=200))]
    calls: u32,
}

/// Some calls one after the other, or a time without one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) function: String,
    /// What was asked for; nothing where there were no calls.
    pub(crate) items_count: Option<u32>,
    pub(crate) calls_count: u32,
    /// Of one answer.
    pub(crate) answer_bytes: u64,
    /// Of half of the calls at most, by the clock of whoever called.
    pub(crate) latency_ns: u64,
    /// All of it.
    pub(crate) elapsed_ns: u64,
    /// CPU time of the daemon's process meanwhile.
    pub(crate) daemon_cpu_ns: u64,
    /// CPU time of the VMM's process meanwhile.
    pub(crate) vm_cpu_ns: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }

    fn function(&self) -> &str {
        &self.function
    }
}

/// Everything once. The first round only warms up.
struct Round(u32);

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}", self.0)
    }
}

impl Step for Round {}

/// What came of some calls.
struct Called {
    latency_ns: u64,
    answer_bytes: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "overhead";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let trials = self.options.trials_or(10, 50);
        let daemon = Daemon::start(lab, &self.options, FUNCTION).await?;
        lab.progress.say("the first call");
        daemon.call(&request(ITEMS[0])).await?;
        let (kernel, qemu) = daemon.guest()?;
        let kernel = describe(&kernel, Kernel::Release);
        let parts: Vec<_> = ITEMS
            .iter()
            .flat_map(|&items| [(DAEMON, Some(items)), (INSIDE, Some(items))])
            .chain([(IDLE, None)])
            .collect();
        let rounds: Vec<_> = (0..=trials).map(Round).collect();
        let mut last = None;
        lab.each(&rounds, async |lab, &Round(round)| {
            let start = Instant::now();
            if last.is_some_and(|last| round > 1 && !lab.has_time(last)) {
                return Ok(());
            }
            // Each is as often the first as the last.
            let mut parts = parts.clone();
            if round % 2 == 1 {
                parts.reverse();
            }
            for (method, items) in parts {
                let header = lab.header(method, round.saturating_sub(1), Some((&kernel, &qemu)));
                let line = self.part(&daemon, header, items).await?;
                if round > 0 {
                    lab.keep(line)?;
                }
            }
            last = Some(start.elapsed());
            Ok(())
        })
        .await
    }

    fn table(records: &[Line]) -> Table {
        report::table(records)
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        report::bounds(records)
    }

    fn plot(records: &[Line]) -> Result<String> {
        report::plot(records)
    }
}

impl Arguments {
    /// Calls the function one way, or not at all, and looks at what that takes.
    async fn part(&self, daemon: &Daemon, header: Header, items: Option<u32>) -> Result<Line> {
        let (process, vm) = (daemon.process(), daemon.vm_process()?);
        let start = Instant::now();
        let (daemon_before, vm_before) = (spent_ns(process)?, spent_ns(vm)?);
        let called = match items {
            Some(items) if header.method == INSIDE => self.inside(daemon, items).await?,
            Some(items) => self.through(daemon, items).await?,
            None => {
                tokio::time::sleep(PAUSE).await;
                Called { latency_ns: 0, answer_bytes: 0 }
            }
        };
        Ok(Line {
            header,
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

    /// Through the daemon's API.
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

    /// By the client beside the instance's server.
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
