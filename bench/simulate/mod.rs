//! A whole day of many functions, decided by the runtime's own code and with measured costs: what
//! these machines cannot hold. See README.md.

mod costs;
mod day;
mod world;

use crate::{
    coldstart,
    common::{
        Experiment,
        bound::{Bound, Limit, number},
        chart::{self, Chart, Panel, Series},
        error::{BenchError, Result},
        estimate::Estimate,
        lab::Lab,
        load::LoadOptions,
        options::Options,
        policies::Policies,
        record::{self, Header, Record},
        select::{methods, of_method},
        size,
        stand::nanoseconds,
        stats::{Spread, median},
        table::Table,
    },
};
use costs::Costs;
use day::Day;
use serde::{Deserialize, Serialize};
use squeezy_node::{FunctionImage, PolicyName, VmPlan};
use squeezy_runtime::{Budget, function::Function, series};
use squeezy_vmm::mechanism::MechanismName;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const POLICIES: [PolicyName; 6] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Overcommit,
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Harvest,
    PolicyName::Mechanism(MechanismName::Static),
    PolicyName::Microvm,
];

/// What coldstart has recorded.
const RECORDED: &str = include_str!("../coldstart/results.jsonl");

/// Functions whose turnover is told apart.
const POPULAR: usize = 10;

/// How long an empty VM is kept.
const VM_IDLE: Duration = Duration::from_secs(600);

/// How long an instance is idle before it is frozen, and how many calls of a function may wait: as in
/// a node that is not told otherwise.
const FREEZE_AFTER: Duration = Duration::from_secs(10);
const QUEUE: usize = 256;

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    policies: Policies,
    /// Most functions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    functions: Option<u32>,
    /// Most hours
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=24))]
    hours: Option<u32>,
    /// Most instances of one VM. It has room for as many as its functions have at once when there is
    /// plenty of memory, up to the next power of two
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=255))]
    concurrency: u16,
    /// How long an idle instance is kept, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = clap::value_parser!(u32).range(0..=86_400))]
    keep_alive: u32,
    /// Memory of the host; without it 70% of what squeezy takes at the peak when there is plenty
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// Lines of `bench coldstart` with the costs of each step; without them those of this version
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

/// One day under one policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) load: String,
    pub(crate) functions_count: u64,
    /// 0 where there is no limit.
    pub(crate) budget_bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) gib_seconds: f64,
    /// Of these, what VMs take that have no instance.
    pub(crate) base_gib_seconds: f64,
    pub(crate) calls_count: u64,
    pub(crate) rejected_count: u64,
    /// Instances started, and of all that ended those that made room for others.
    pub(crate) cold_count: u64,
    pub(crate) evicted_count: u64,
    pub(crate) booted_vms_count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    /// Of these, the wait for an instance.
    pub(crate) wait_p99_ns: u64,
    pub(crate) wait_p999_ns: u64,
    /// Instances of the most called functions that are started and ended in an hour, each of them.
    pub(crate) turnover_per_hour: Vec<f64>,
    /// What the scaler took for one event on this machine.
    pub(crate) decision_ns: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "simulate";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let (functions, hours) = if self.options.quick { (500, 2) } else { (2000, 24) };
        let functions = self.functions.unwrap_or(functions) as usize;
        let day = Day::read(&self.load, functions, self.hours.unwrap_or(hours))?;
        lab.progress.note(&format!("{}: {} calls", day.source, day.arrivals.len()));
        let recorded = match &self.costs {
            Some(path) => record::read(path, coldstart::Arguments::NAME)?,
            None => record::parse(RECORDED.as_bytes(), Path::new("coldstart"), "coldstart")?,
        };
        let policies = self.policies.or(&POLICIES);
        lab.progress.plan((policies.len() + 2) as f64);
        let ours = PolicyName::Mechanism(MechanismName::Squeezy);
        let mut rooms = vec![self.concurrency; day.apps().len()];
        let (_, peaks) = self.day(lab, &day, &recorded, ours, None, &rooms).await?;
        lab.progress.advance(1.0);
        for (room, peak) in rooms.iter_mut().zip(peaks) {
            *room = peak.max(1).next_power_of_two().min(self.concurrency);
        }
        let (abundant, _) = self.day(lab, &day, &recorded, ours, None, &rooms).await?;
        let budget_bytes = self.memory.unwrap_or((abundant.peak_bytes as f64 * 0.7) as u64);
        for policy in policies {
            lab.progress.advance(1.0);
            match self.day(lab, &day, &recorded, policy, Some(budget_bytes), &rooms).await {
                Ok((line, _)) => lab.keep(line)?,
                // A VM that is larger than the host, say.
                Err(error) => lab.progress.note(&format!("{policy}: {error}")),
            }
        }
        lab.keep(Line {
            header: Header { method: "squeezy, abundant".to_owned(), ..abundant.header.clone() },
            ..abundant
        })
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "method",
            "memory GiB",
            "peak GiB",
            "GiB hours",
            "of it bases",
            "calls",
            "rejected",
            "cold",
            "evicted",
            "VMs booted",
            "p99 ms",
            "wait p99 ms",
            "wait p99.9 ms",
            "decision us",
        ]);
        for method in methods(records) {
            let lines = || of_method(records, &method);
            let of = |value: fn(&Line) -> f64| number(median(lines().map(value)).unwrap_or(0.0));
            table.row([
                method.clone(),
                of(|line| gib(line.budget_bytes)),
                of(|line| gib(line.peak_bytes)),
                of(|line| line.gib_seconds / 3600.0),
                of(|line| line.base_gib_seconds / 3600.0),
                of(|line| line.calls_count as f64),
                of(|line| line.rejected_count as f64),
                of(|line| line.cold_count as f64),
                of(|line| line.evicted_count as f64),
                of(|line| line.booted_vms_count as f64),
                of(|line| line.p99_ns as f64 / 1e6),
                of(|line| line.wait_p99_ns as f64 / 1e6),
                of(|line| line.wait_p999_ns as f64 / 1e6),
                of(|line| line.decision_ns as f64 / 1e3),
            ]);
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        let of = |method| of_method(records, method).map(|line| line.gib_seconds);
        let against = |ours, other| {
            Some(Bound {
                what: format!("simulated GiB-seconds of {ours} against {other}"),
                measured: Estimate::ratio(of(ours), of(other))?,
                limit: Limit::AtMost(0.5),
                unit: "x",
            })
        };
        ["squeezy", "overcommit"]
            .into_iter()
            .flat_map(|ours| ["virtio-mem", "harvest"].map(|other| against(ours, other)))
            .flatten()
            .collect()
    }

    fn plot(records: &[Line]) -> Result<String> {
        let methods = methods(records);
        let panel = |title: &str, y: &str, logarithmic, value: fn(&Line) -> f64| Panel {
            title: title.to_owned(),
            x: "method".to_owned(),
            y: y.to_owned(),
            categories: methods.clone(),
            series: vec![Series {
                name: title.to_owned(),
                colour: chart::BLUE,
                variant: false,
                points: methods
                    .iter()
                    .map(|method| Spread::of(of_method(records, method).map(value)))
                    .collect(),
            }],
            joined: false,
            logarithmic,
        };
        Chart {
            title: "A day of many functions, simulated with measured costs".to_owned(),
            subtitle: records.first().map_or(String::new(), |line| line.load.clone()),
            panels: vec![
                panel("Memory over time", "GiB x hours", false, |line| line.gib_seconds / 3600.0),
                panel("Wait of one call in a hundred", "seconds", true, |l| {
                    l.wait_p99_ns as f64 / 1e9
                }),
            ],
            foot: records.first().map_or(String::new(), |line| {
                format!(
                    "Costs of each step as measured with {} ({}).",
                    line.header.accelerator, line.header.qemu
                )
            }),
        }
        .svg()
    }
}

impl Arguments {
    /// Plays the day in VMs with room for so many instances, by application; also the most that each
    /// had at once.
    async fn day(
        &self,
        lab: &Lab<Line>,
        day: &Day,
        recorded: &[coldstart::Line],
        policy: PolicyName,
        budget_bytes: Option<u64>,
        rooms: &[u16],
    ) -> Result<(Line, Vec<u16>)> {
        lab.progress.say(&format!("{policy}"));
        let costs = Costs::of(recorded, policy)?;
        let limit = budget_bytes.unwrap_or(u64::MAX);
        let rules = world::Rules {
            budget: Budget::new(limit).with_reserve(policy.reserve_bytes(limit)),
            squeezing: policy.squeezing(limit),
            freeze_after: FREEZE_AFTER,
            keep_alive: Duration::from_secs(self.keep_alive.into()),
            queue: QUEUE,
            vm_idle: VM_IDLE,
        };
        let start = Instant::now();
        let vm = |app, bytes| vm_policy(lab, policy, bytes, rooms[app]);
        let mut outcome = world::play(day, &rules, &costs, self.load.seed, vm).await?;
        let took = start.elapsed();
        let of = |values: &[f64], percent| {
            let seconds = series::percentile(values, percent).unwrap_or(0.0);
            nanoseconds(Duration::from_secs_f64(seconds))
        };
        // Those of the machine that the costs were measured on, not of this one.
        let header = recorded.iter().map(Record::header).find(|header| header.qemu != "none");
        let header = header.cloned().ok_or_else(|| {
            BenchError::Arguments("the costs do not say what they were measured with".to_owned())
        })?;
        let hours = day.length.as_secs_f64() / 3600.0;
        let mut calls = vec![0_u64; day.members.len()];
        day.arrivals.iter().for_each(|&(_, member)| calls[member as usize] += 1);
        let mut popular: Vec<u32> = (0..).take(calls.len()).collect();
        popular.sort_by_key(|&member| std::cmp::Reverse(calls[member as usize]));
        let turnover = |member| outcome.turnover.get(member).copied().unwrap_or(0) as f64 / hours;
        let peak_instances = std::mem::take(&mut outcome.peak_instances);
        let line = Line {
            header: Header {
                experiment: Self::NAME.to_owned(),
                method: policy.to_string(),
                trial: 0,
                ..header
            },
            load: day.source.clone(),
            functions_count: day.members.len() as u64,
            budget_bytes: budget_bytes.unwrap_or(0),
            peak_bytes: outcome.peak_bytes,
            gib_seconds: outcome.byte_seconds / f64::from(1 << 30),
            base_gib_seconds: outcome.base_byte_seconds / f64::from(1 << 30),
            calls_count: day.arrivals.len() as u64,
            rejected_count: outcome.rejected,
            cold_count: outcome.started,
            evicted_count: outcome.evicted,
            booted_vms_count: outcome.booted,
            p50_ns: of(&outcome.latencies, 50.0),
            p99_ns: of(&outcome.latencies, 99.0),
            wait_p99_ns: of(&outcome.waits, 99.0),
            wait_p999_ns: of(&outcome.waits, 99.9),
            turnover_per_hour: popular.iter().take(POPULAR).map(turnover).collect(),
            decision_ns: nanoseconds(took / outcome.events.max(1) as u32),
        };
        Ok((line, peak_instances))
    }
}

/// What a real VM with room for so many instances of this size would take.
fn vm_policy(
    lab: &Lab<Line>,
    policy: PolicyName,
    instance_bytes: u64,
    instances: u16,
) -> Result<squeezy_runtime::VmPolicy> {
    let definition = include_str!("../../functions/html/function.toml");
    let mut function =
        Function::parse(definition).map_err(|error| BenchError::Arguments(error.to_string()))?;
    function.memory_bytes = instance_bytes;
    function.concurrency = instances;
    let image = FunctionImage { function, image: PathBuf::new() };
    let plan = VmPlan::new("simulated", &[image], &lab.files, policy, 128 << 20);
    Ok(plan.vm_policy(None)?)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
