//! A whole day of many functions, decided by the node's scaler and with measured costs: a load that
//! is too large for this machine. See README.md.

mod costs;
mod simulation;
mod workload;

use super::coldstart;
use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Report, Session},
    record::{self, Header, Measured, NO_GUEST, nanoseconds},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{self, Chart, Panel, Series},
        methods, of_method,
    },
    rigs::{
        load::LoadOptions,
        node_rig::{Policies, memory_backends, method},
    },
    size::{self, gib},
};
use costs::Costs;
use serde::{Deserialize, Serialize};
use squeezy_node::{FunctionImage, PolicyName, VmPlan, function::Function, series};
use squeezy_scaler::Budget;
use squeezy_vmm::{MemoryBackend, mechanism::MechanismName};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};
use workload::Workload;

const POLICIES: [PolicyName; 6] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Overcommit,
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Harvest,
    PolicyName::Mechanism(MechanismName::Static),
    PolicyName::Microvm,
];

/// Number of functions whose turnover is reported individually.
const POPULAR: usize = 10;

/// How long an empty VM is kept.
const VM_IDLE: Duration = Duration::from_secs(600);

/// How long an instance is idle before it is frozen, and how many calls of a function may wait: the
/// daemon's defaults.
const FREEZE_AFTER: Duration = Duration::from_secs(10);
const QUEUE: usize = 256;

/// A simulated day of many functions, with the daemon's own decisions and measured costs.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    policies: Policies,
    /// Maximum number of functions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    functions: Option<u32>,
    /// Maximum number of hours
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=24))]
    hours: Option<u32>,
    /// Maximum number of instances in one VM. It has room for as many as its functions have at once
    /// with plenty of memory, rounded up to a power of two
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=255))]
    concurrency: u16,
    /// How long an idle instance is kept, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = clap::value_parser!(u32).range(0..=86_400))]
    keep_alive: u32,
    /// Memory of the host; the default is 70% of the peak of squeezy with plenty of memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// Lines of `bench coldstart` with the costs of each step; the default is those of the checkout
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

/// A day under one policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    load: String,
    functions_count: u64,
    /// 0 if unlimited.
    budget_bytes: u64,
    peak_bytes: u64,
    gib_seconds: f64,
    /// The part taken by VMs themselves, without instances.
    base_gib_seconds: f64,
    calls_count: u64,
    rejected_count: u64,
    /// Instances started, and instances ended to make room for others.
    cold_count: u64,
    evicted_count: u64,
    /// Those of the latter whose memory was taken while their VM was paused, if they were counted.
    condemned_count: Option<u64>,
    /// VMs booted, and VMs ended to make room for others, if they were counted.
    booted_vms_count: u64,
    evicted_vms_count: Option<u64>,
    p50_ns: u64,
    p99_ns: u64,
    /// The part spent waiting for an instance.
    wait_p99_ns: u64,
    wait_p999_ns: u64,
    /// Starts and ends per hour of instances of each of the most popular functions.
    turnover_per_hour: Vec<f64>,
    /// Time that the scaler took per event on this machine.
    decision_ns: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "simulate";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let (functions, hours) = if session.options.quick { (500, 2) } else { (2000, 24) };
        let functions = self.functions.unwrap_or(functions) as usize;
        let workload = Workload::read(&self.load, functions, self.hours.unwrap_or(hours))?;
        session.progress.note(&format!("{}: {} calls", workload.source, workload.arrivals.len()));
        let recorded = record::recorded_path(session.files.path(), coldstart::Arguments::NAME);
        if self.costs.is_none() && !recorded.exists() {
            return Err(BenchError::file(
                recorded,
                "it does not contain costs: give a file with --costs",
            ));
        }
        let costs = self.costs.as_ref().unwrap_or(&recorded);
        let recorded = record::read(costs, coldstart::Arguments::NAME)?;
        let policies = self.policies.or(&POLICIES);
        let ways = |policy| memory_backends(policy).iter().map(move |&backend| (policy, backend));
        let ways: Vec<_> = policies.into_iter().flat_map(ways).collect();
        session.progress.plan((ways.len() + 2) as f64);
        let ours = (PolicyName::Mechanism(MechanismName::Squeezy), MemoryBackend::Ram);
        let mut rooms = vec![self.concurrency; workload.apps().len()];
        let (_, peaks) = self.play(session, &workload, &recorded, ours, None, &rooms).await?;
        session.progress.advance(1.0);
        for (room, peak) in rooms.iter_mut().zip(peaks) {
            *room = peak.max(1).next_power_of_two().min(self.concurrency);
        }
        let (abundant, _) = self.play(session, &workload, &recorded, ours, None, &rooms).await?;
        let budget_bytes = self.memory.unwrap_or((abundant.peak_bytes as f64 * 0.7) as u64);
        for way in ways {
            session.progress.advance(1.0);
            match self.play(session, &workload, &recorded, way, Some(budget_bytes), &rooms).await {
                Ok((line, _)) => session.keep(line.header, line.figures)?,
                // For example, a VM that is larger than the host.
                Err(error) => session.progress.note(&format!("{}: {error}", method(way))),
            }
        }
        let header = Header { method: "squeezy, abundant".to_owned(), ..abundant.header };
        session.keep(header, abundant.figures)
    }
}

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let ms = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64 / 1e6)
        };
        let count = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64)
        };
        let counted = |head, value: fn(&Line) -> Option<u64>| {
            Column::median(head, move |line: &Line| value(line).unwrap_or_default() as f64)
                .only_if(move |line| value(line).is_some())
        };
        Table::of(
            records,
            by_method(records),
            &[
                Column::common("method", |line| line.header.method.clone()),
                Column::median("memory GiB", |line| gib(line.budget_bytes)),
                Column::median("peak GiB", |line| gib(line.peak_bytes)),
                Column::median("GiB hours", |line| line.gib_seconds / 3600.0),
                Column::median("of it bases", |line| line.base_gib_seconds / 3600.0),
                count("calls", |line| line.calls_count),
                count("rejected", |line| line.rejected_count),
                count("cold", |line| line.cold_count),
                count("evicted", |line| line.evicted_count),
                counted("condemned", |line| line.condemned_count),
                counted("VMs evicted", |line| line.evicted_vms_count),
                count("VMs booted", |line| line.booted_vms_count),
                ms("p99 ms", |line| line.p99_ns),
                ms("wait p99 ms", |line| line.wait_p99_ns),
                ms("wait p99.9 ms", |line| line.wait_p999_ns),
                Column::median("decision us", |line| line.decision_ns as f64 / 1e3),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let of = |method| of_method(records, method).map(|line| line.gib_seconds);
        for ours in ["squeezy", "overcommit"] {
            for other in ["virtio-mem", "harvest"] {
                assessments.add(
                    "gib-seconds",
                    format!("simulated GiB-seconds of {ours} relative to {other}"),
                    Estimate::ratio(of(ours), of(other)),
                );
            }
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let series = |name: &str, colour, value: fn(&Line) -> Option<f64>| Series {
            name: name.to_owned(),
            colour,
            variant: false,
            points: methods
                .iter()
                .map(|method| Spread::of(of_method(records, method).filter_map(value)))
                .collect(),
        };
        let panel = |title: &str, y: &str, logarithmic, series| Panel {
            title: title.to_owned(),
            x: "method".to_owned(),
            y: y.to_owned(),
            categories: methods.clone(),
            series,
            joined: false,
            logarithmic,
        };
        let alone = |title: &str, y: &str, logarithmic, value| {
            panel(title, y, logarithmic, vec![series(title, chart::BLUE, value)])
        };
        Chart {
            title: "A day of many functions, simulated with measured costs".to_owned(),
            subtitle: records.first().map_or(String::new(), |line| line.load.clone()),
            panels: vec![
                alone("Memory over time", "GiB x hours", false, |line| {
                    Some(line.gib_seconds / 3600.0)
                }),
                alone("Wait for an instance, 99th percentile", "seconds", true, |l| {
                    Some(l.wait_p99_ns as f64 / 1e9)
                }),
                panel(
                    "Ended to make room",
                    "number",
                    false,
                    vec![
                        series("instances", chart::BLUE, |l| Some(l.evicted_count as f64)),
                        // Most methods never do.
                        series("of them condemned", chart::GREEN, |l| {
                            l.condemned_count.filter(|&count| count > 0).map(|count| count as f64)
                        }),
                        series("VMs", chart::VERMILION, |l| Some(l.evicted_vms_count? as f64)),
                    ],
                ),
            ],
            foot: records.first().map_or(String::new(), |line| {
                format!(
                    "Costs of each step as measured with {} ({}).",
                    line.header.accelerator, line.header.vmm
                )
            }),
        }
    }
}

impl Arguments {
    /// Plays the workload in VMs with this much room per application; returns also the peak of
    /// instances of each.
    async fn play(
        &self,
        session: &Session<Figures>,
        workload: &Workload,
        recorded: &[coldstart::Line],
        way: (PolicyName, MemoryBackend),
        budget_bytes: Option<u64>,
        rooms: &[u16],
    ) -> Result<(Line, Vec<u16>)> {
        session.progress.say(&method(way));
        let (policy, memory_backend) = way;
        let costs = Costs::of(recorded, policy)?;
        let limit = budget_bytes.unwrap_or(u64::MAX);
        let rules = simulation::Rules {
            budget: Budget::new(limit).with_reserve(policy.reserve_bytes(limit)),
            squeezing: policy.squeezing(limit),
            freeze_after: FREEZE_AFTER,
            keep_alive: Duration::from_secs(self.keep_alive.into()),
            queue: QUEUE,
            vm_idle: VM_IDLE,
            memory_backend,
        };
        let start = Instant::now();
        let vm = |app, bytes| vm_policy(session, way, bytes, rooms[app]);
        let mut outcome = simulation::play(workload, &rules, &costs, self.load.seed, vm).await?;
        let took = start.elapsed();
        let of = |values: &[f64], percent| {
            let seconds = series::percentile(values, percent).unwrap_or(0.0);
            nanoseconds(Duration::from_secs_f64(seconds))
        };
        // The machine that the costs were measured on, not this one.
        let header = recorded.iter().map(|line| &line.header).find(|header| header.vmm != NO_GUEST);
        let header = header.cloned().ok_or_else(|| {
            BenchError::Arguments("the costs do not say what they were measured with".to_owned())
        })?;
        let hours = workload.length.as_secs_f64() / 3600.0;
        let mut calls = vec![0_u64; workload.members.len()];
        workload.arrivals.iter().for_each(|&(_, member)| calls[member as usize] += 1);
        let mut popular: Vec<u32> = (0..).take(calls.len()).collect();
        popular.sort_by_key(|&member| std::cmp::Reverse(calls[member as usize]));
        let turnover = |member| outcome.turnover.get(member).copied().unwrap_or(0) as f64 / hours;
        let peak_instances = std::mem::take(&mut outcome.peak_instances);
        let line = Measured {
            header: Header {
                experiment: Self::NAME.to_owned(),
                method: method(way),
                trial: 0,
                ..header
            },
            figures: Figures {
                load: workload.source.clone(),
                functions_count: workload.members.len() as u64,
                budget_bytes: budget_bytes.unwrap_or(0),
                peak_bytes: outcome.peak_bytes,
                gib_seconds: outcome.byte_seconds / f64::from(1 << 30),
                base_gib_seconds: outcome.base_byte_seconds / f64::from(1 << 30),
                calls_count: workload.arrivals.len() as u64,
                rejected_count: outcome.rejected,
                cold_count: outcome.started,
                evicted_count: outcome.evicted,
                condemned_count: Some(outcome.condemned),
                booted_vms_count: outcome.booted,
                evicted_vms_count: Some(outcome.evicted_vms),
                p50_ns: of(&outcome.latencies, 50.0),
                p99_ns: of(&outcome.latencies, 99.0),
                wait_p99_ns: of(&outcome.waits, 99.0),
                wait_p999_ns: of(&outcome.waits, 99.9),
                turnover_per_hour: popular.iter().take(POPULAR).map(turnover).collect(),
                decision_ns: nanoseconds(took / outcome.events.max(1) as u32),
            },
        };
        Ok((line, peak_instances))
    }
}

/// The policy of a real VM with room for this many instances of this size.
fn vm_policy(
    session: &Session<Figures>,
    (policy, memory_backend): (PolicyName, MemoryBackend),
    instance_bytes: u64,
    instances: u16,
) -> Result<squeezy_scaler::VmPolicy> {
    let definition = include_str!("../../../../functions/html/function.toml");
    let mut function =
        Function::parse(definition).map_err(|error| BenchError::Arguments(error.to_string()))?;
    function.memory_bytes = instance_bytes;
    function.concurrency = instances;
    let image = FunctionImage { function, image: PathBuf::new(), code: None };
    let mut plan = VmPlan::new("simulated", &[image], &session.files, policy, 128 << 20);
    plan.memory_backend = memory_backend.into();
    Ok(plan.vm_policy(None)?)
}
