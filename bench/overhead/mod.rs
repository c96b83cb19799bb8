//! What the daemon itself takes for a call of an instance that is there, against the same calls from
//! inside the VM. See README.md.

mod daemon;
mod processor;

use crate::common::{
    Experiment,
    bound::{Bound, Limit, number},
    chart::{Chart, Panel, Series},
    error::{BenchError, Result},
    lab::{Lab, Step},
    options::Options,
    record::{Header, Record, describe_run},
    select::{of_method, sorted},
    stand::{describe, nanoseconds},
    stats::{Spread, median},
    table::Table,
};
use daemon::Daemon;
use processor::spent_ns;
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

impl Line {
    /// CPU time for each call, or for each second without one, in milliseconds.
    fn each(&self, cpu_ns: u64) -> f64 {
        let whole = match self.calls_count {
            0 => self.elapsed_ns as f64 / 1e9,
            calls => calls.into(),
        };
        cpu_ns as f64 / 1e6 / whole
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
        let mut table = Table::new(&[
            "called",
            "items",
            "answer KiB",
            "n",
            "each",
            "latency ms",
            "quartiles ms",
            "daemon CPU ms",
            "quartiles ms",
            "VM CPU ms",
            "quartiles ms",
        ]);
        let key = |line: &Line| {
            (line.items_count.is_none(), line.items_count, line.header.method.clone())
        };
        for (idle, items, method) in sorted(records, key) {
            let lines = || select(records, &method, items);
            let cells = |value: fn(&Line) -> f64| {
                let show =
                    |s: Spread| [number(s.median), format!("{}-{}", number(s.low), number(s.high))];
                Spread::of(lines().map(value)).map(show).unwrap_or_default()
            };
            let bytes = lines().map(|line| line.answer_bytes).max().unwrap_or(0);
            let unless_idle = |cell: String| if idle { "-".to_owned() } else { cell };
            let head = [
                method.clone(),
                items.map_or("-".to_owned(), |items| items.to_string()),
                unless_idle(number(bytes as f64 / 1024.0)),
                lines().count().to_string(),
                if idle { "second" } else { "call" }.to_owned(),
            ];
            let latency = cells(latency).map(unless_idle);
            let [daemon, vm] = [cells(daemon_cpu), cells(vm_cpu)];
            table.row(head.into_iter().chain(latency).chain(daemon).chain(vm));
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        let most = sorted(records, |line| line.items_count).pop();
        let spread = Spread::of(select(records, DAEMON, most.flatten()).map(daemon_cpu));
        let bound = |spread: Spread| Bound {
            what: "the daemon's own CPU time for a warm call".to_owned(),
            measured: spread.median,
            doubt: spread.doubt(),
            limit: Limit::AtMost(1.0),
            unit: " ms",
        };
        spread.map(bound).into_iter().collect()
    }

    fn plot(records: &[Line]) -> Result<String> {
        let items: Vec<_> =
            sorted(records, |line| line.items_count).into_iter().flatten().collect();
        let panel = |title: &str, methods: &[&str], value: fn(&Line) -> f64| Panel {
            title: title.to_owned(),
            x: "items of the page".to_owned(),
            y: "milliseconds a call".to_owned(),
            categories: items.iter().map(u32::to_string).collect(),
            series: Series::of_methods(
                &methods.iter().map(|&method| method.to_owned()).collect::<Vec<_>>(),
                |method| {
                    let point = |&n| Spread::of(select(records, method, Some(n)).map(value));
                    items.iter().map(point).collect()
                },
            ),
            joined: false,
            logarithmic: false,
        };
        Chart {
            title: "Calls of a warm instance, through the daemon and from inside the VM".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("CPU time of the daemon", &[DAEMON], daemon_cpu),
                panel("CPU time of the VM", &[DAEMON, INSIDE], vm_cpu),
                panel("Latency", &[DAEMON, INSIDE], latency),
            ],
            foot: "CPU times are the host's. Inside, the client's own work is the VM's too."
                .to_owned(),
        }
        .svg()
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
    let reason = format!("a wrong answer: {:.200}", answer.to_string());
    BenchError::Workload { program: "the function", reason }
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    items: Option<u32>,
) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.items_count == items)
}

fn latency(line: &Line) -> f64 {
    line.latency_ns as f64 / 1e6
}

fn daemon_cpu(line: &Line) -> f64 {
    line.each(line.daemon_cpu_ns)
}

fn vm_cpu(line: &Line) -> f64 {
    line.each(line.vm_cpu_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::{complaint, tests::header};

    fn line(method: &str, items_count: Option<u32>, daemon_cpu_ns: u64) -> Line {
        Line {
            header: header("overhead", method, 0),
            function: FUNCTION.to_owned(),
            items_count,
            calls_count: items_count.map_or(0, |_| 10),
            answer_bytes: 96_000,
            latency_ns: 80_000_000,
            elapsed_ns: 2_000_000_000,
            daemon_cpu_ns,
            vm_cpu_ns: 70_000_000,
        }
    }

    #[test]
    fn a_call_is_counted_and_a_second_without_one() {
        let records = [
            line(DAEMON, Some(0), 20_000_000),
            line(DAEMON, Some(1000), 9_000_000),
            line(INSIDE, Some(1000), 1_000_000),
            line(IDLE, None, 3_000_000),
        ];
        assert_eq!(complaint(&records[0], &["daemon_cpu_ns", "vm_cpu_ns", "items_count"]), None);
        assert_eq!((daemon_cpu(&records[1]), daemon_cpu(&records[3])), (0.9, 1.5));
        // The bound is about the function's own request.
        let bounds = Arguments::bounds(&records);
        assert!(bounds.len() == 1 && bounds[0].met() && bounds[0].measured == 0.9, "{bounds:?}");
        let table = Arguments::table(&records).to_string();
        assert!(table.contains("second") && table.contains("1.50"), "{table}");
        assert!(Arguments::plot(&records).unwrap().contains("Latency"));
        assert!(Arguments::bounds(&records[3..]).is_empty());
    }
}
