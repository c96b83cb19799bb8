//! Latency and memory of functions on a host with too little memory for all of their instances
//! (Figure 10 of the Squeezy paper). See README.md.

mod report;

use crate::common::{
    Experiment,
    bound::Bound,
    cases::{Case, cases},
    error::{BenchError, Result},
    fleet::{FleetPlan, Replayed, Sample, replay},
    functions::Functions,
    lab::{Lab, Step},
    load::{FleetLoad, LoadOptions},
    options::Options,
    policies::Policies,
    record::{Header, Record},
    stand::nanoseconds,
    stats::median,
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_node::{FunctionImage, PolicyName};
use squeezy_runtime::{Moment, series};
use squeezy_vmm::mechanism::MechanismName;
use std::{fmt, time::Duration};

/// What is compared, unless told otherwise.
const POLICIES: [PolicyName; 5] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Overcommit,
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Harvest,
    PolicyName::Mechanism(MechanismName::Static),
];

/// With as much memory as anybody asks for.
const ABUNDANT: &str = "abundant";
/// With [`SHARE`] of what was taken then.
const RESTRICTED: &str = "restricted";
const SHARE: f64 = 0.7;

/// How long an idle instance is kept, of the load's length.
const KEEP_ALIVE: f64 = 0.4;

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    functions: Functions,
    #[command(flatten)]
    policies: Policies,
}

/// One function under one policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    /// `abundant` or `restricted`.
    pub(crate) memory: String,
    pub(crate) function: String,
    /// What the load is.
    pub(crate) load: String,
    /// All memory that VMs and instances may have together; 0 where there is no limit.
    pub(crate) budget_bytes: u64,
    /// The most that was promised to them at a time, of all functions.
    pub(crate) peak_bytes: u64,
    pub(crate) calls_count: u64,
    /// Of these, those without a right answer.
    pub(crate) failed_count: u64,
    /// Of these, those for which an instance was started.
    pub(crate) cold_count: u64,
    /// Reclaims of its instances, and how long half of them took at most.
    pub(crate) reclaims_count: u64,
    pub(crate) reclaim_ns: u64,
    /// Of these, those after which the guest had not given everything back.
    pub(crate) failed_reclaims_count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    /// `p99_ns` over that of the same function in the run with abundant memory.
    pub(crate) p99_over_abundant: f64,
    /// Memory that was promised to VMs and instances, so that nobody else could have it, over time, of
    /// all functions together.
    pub(crate) gib_seconds: f64,
    /// The same of memory that the guests had: of what is frozen or paused and costs what it holds, more
    /// than it was promised.
    pub(crate) plugged_gib_seconds: f64,
    /// The same of memory that was resident on the host.
    pub(crate) resident_gib_seconds: f64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }

    fn function(&self) -> &str {
        &self.function
    }
}

/// One run of the load.
struct Run<'a> {
    case: Case<'a>,
    /// [`ABUNDANT`] or [`RESTRICTED`].
    memory: &'static str,
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} memory", self.case, self.memory)
    }
}

impl Step for Run<'_> {}

impl Experiment for Arguments {
    const NAME: &'static str = "pressure";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let default: &[&str] =
            if self.options.quick { &["html", "html"] } else { &["html", "bfs", "cnn", "bert"] };
        let functions = self.functions.find(lab, default, self.options.quick)?;
        let scaled = scaled_down(&functions);
        let policies = self.policies.or(&POLICIES);
        let trials = self.options.trials_or(1, 5);
        let burst = functions.iter().map(|image| u32::from(image.function.concurrency)).max();
        let load = self.load.load(functions.len(), self.length(), burst.unwrap_or(1))?;
        let mut runs = Vec::new();
        for of_trial in cases(trials, [functions.as_slice()], &policies).chunks(policies.len()) {
            runs.push(Run { case: of_trial[0], memory: ABUNDANT });
            runs.extend(of_trial.iter().map(|&case| {
                let functions = if is_fixed(case.policy) { &scaled } else { &functions };
                Run { case: Case { functions, ..case }, memory: RESTRICTED }
            }));
        }
        let mut abundant = Vec::new();
        lab.each(&runs, async |lab, run| {
            if run.memory == ABUNDANT {
                abundant.clear();
            }
            let lines = self.run(lab, run, &load, &abundant).await;
            if run.memory == ABUNDANT {
                // Without it the others have nothing to be compared with.
                abundant = lines.map_err(|error| BenchError::Arguments(error.to_string()))?;
                return Ok(());
            }
            lines.map(drop)
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

/// Whether a policy's VMs have all their memory from their boot on, so that none of it can be taken:
/// then there is less of it.
fn is_fixed(policy: PolicyName) -> bool {
    policy == PolicyName::Mechanism(MechanismName::Static)
}

/// With as much less room in their VMs as there is less memory.
fn scaled_down(functions: &[FunctionImage]) -> Vec<FunctionImage> {
    let mut scaled = functions.to_vec();
    for image in &mut scaled {
        let concurrency = &mut image.function.concurrency;
        *concurrency = ((f64::from(*concurrency) * SHARE) as u16).max(1);
    }
    scaled
}

impl Arguments {
    /// Replays the load once; a line for each function.
    async fn run(
        &self,
        lab: &mut Lab<Line>,
        run: &Run<'_>,
        load: &FleetLoad,
        abundant: &[Line],
    ) -> Result<Vec<Line>> {
        let Run { case, memory } = run;
        let limited = *memory == RESTRICTED && !is_fixed(case.policy);
        let budget_bytes = limited.then(|| {
            let peak = abundant.iter().map(|line| line.peak_bytes).max().unwrap_or(0);
            (peak as f64 * SHARE) as u64
        });
        let keep_alive = self.length().mul_f64(KEEP_ALIVE);
        let plan = FleetPlan::new(case.policy, budget_bytes.unwrap_or(u64::MAX), keep_alive);
        let replayed = replay(lab, case, &plan, &load.arrivals).await?;
        let header = lab.fleet_header(case, replayed.details.as_ref());
        let lines: Vec<Line> = (0..case.functions.len())
            .map(|member| {
                let mut line = line(&header, run, member, &load.source, &replayed);
                line.budget_bytes = budget_bytes.unwrap_or(0);
                let same = abundant.iter().find(|other| other.function == line.function);
                let base_ns = same.map_or(line.p99_ns, |other| other.p99_ns);
                line.p99_over_abundant = line.p99_ns as f64 / base_ns.max(1) as f64;
                line
            })
            .collect();
        lines.iter().try_for_each(|line| lab.keep(line.clone()))?;
        Ok(lines)
    }

    /// How long calls are sent.
    fn length(&self) -> Duration {
        let seconds = self.load.duration.unwrap_or(if self.options.quick { 40 } else { 240 });
        Duration::from_secs(seconds.into())
    }
}

fn line(header: &Header, run: &Run<'_>, member: usize, load: &str, replayed: &Replayed) -> Line {
    let answered: Vec<_> =
        replayed.answered.iter().filter(|a| a.arrival.member == member).collect();
    // A call without an answer has waited for ever.
    let latencies: Vec<f64> = answered
        .iter()
        .map(|a| if a.problem.is_none() { a.latency.as_secs_f64() } else { f64::INFINITY })
        .collect();
    let percentile = |percent| {
        let seconds = series::percentile(&latencies, percent).unwrap_or(0.0);
        if seconds.is_finite() { nanoseconds(Duration::from_secs_f64(seconds)) } else { u64::MAX }
    };
    let reclaims = replayed.reclaims(member);
    let gib_seconds = |bytes: fn(&Sample) -> u64| {
        let points: Vec<_> = replayed
            .samples
            .iter()
            .map(|sample| (Moment(sample.at), bytes(sample) as f64 / f64::from(1 << 30)))
            .collect();
        series::integral(&points)
    };
    Line {
        header: header.clone(),
        memory: run.memory.to_owned(),
        function: run.case.functions[member].function.name.clone(),
        load: load.to_owned(),
        budget_bytes: 0,
        peak_bytes: replayed.samples.iter().map(|s| s.committed_bytes).max().unwrap_or(0),
        calls_count: answered.len() as u64,
        failed_count: answered.iter().filter(|a| a.problem.is_some()).count() as u64,
        cold_count: answered.iter().filter(|a| a.cold.is_some()).count() as u64,
        reclaims_count: reclaims.len() as u64,
        reclaim_ns: median(reclaims.iter().map(|(took, _)| took.as_secs_f64()))
            .map_or(0, |seconds| nanoseconds(Duration::from_secs_f64(seconds))),
        failed_reclaims_count: reclaims.iter().filter(|(_, failed)| *failed).count() as u64,
        p50_ns: percentile(50.0),
        p99_ns: percentile(99.0),
        p99_over_abundant: 1.0,
        gib_seconds: gib_seconds(|sample| sample.committed_bytes),
        plugged_gib_seconds: gib_seconds(|sample| sample.memory.plugged_bytes),
        resident_gib_seconds: gib_seconds(|sample| sample.memory.resident.resident_bytes),
    }
}
