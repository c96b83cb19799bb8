//! Latency and memory of functions on a host without enough memory for all of their instances
//! (Figure 10 of the Squeezy paper). See README.md.

mod report;
mod wasteful;

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Session, Step},
    record::{Header, Measured, OfFunction, nanoseconds},
    report::median,
    rigs::{
        load::{FunctionsLoad, LoadOptions},
        node_rig::{
            NodeRigOptions, NodeRigPlan, Replayed, Sample, Trial, Usual, memory_backends, method,
            replay, trials,
        },
    },
};
use serde::{Deserialize, Serialize};
use squeezy_node::{FunctionImage, PolicyName, series};
use squeezy_scaler::Moment;
use squeezy_vmm::{MemoryBackend, mechanism::MechanismName};
use std::{fmt, time::Duration};

/// Together with [`wasteful`].
const USUAL: Usual = Usual { full: &["html", "bfs", "cnn", "bert"], quick: &["html"] };

/// The policies that are compared by default.
const POLICIES: [PolicyName; 5] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Overcommit,
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Harvest,
    PolicyName::Mechanism(MechanismName::Static),
];

/// With unlimited memory.
const ABUNDANT: &str = "abundant";
/// With [`SHARE`] of the peak of the unlimited run.
const RESTRICTED: &str = "restricted";
const SHARE: f64 = 0.7;

/// The keep-alive, as a fraction of the load's length.
const KEEP_ALIVE: f64 = 0.4;

/// Latency and memory of functions on a host without enough memory for all their instances.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    rig: NodeRigOptions,
}

/// One function under one policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// `abundant` or `restricted`.
    memory: String,
    function: String,
    /// Describes the load.
    load: String,
    /// Memory budget of all VMs and instances; 0 if unlimited.
    budget_bytes: u64,
    /// Peak of the memory committed to them, for all functions.
    peak_bytes: u64,
    calls_count: u64,
    /// Calls without a correct response.
    failed_count: u64,
    /// Calls for which an instance was started.
    cold_count: u64,
    /// Number of reclaims of its instances, and their median latency.
    reclaims_count: u64,
    reclaim_ns: u64,
    /// Reclaims after which the guest had not given everything back.
    failed_reclaims_count: u64,
    p50_ns: u64,
    p99_ns: u64,
    /// `p99_ns` relative to the same function in the run with abundant memory.
    p99_over_abundant: f64,
    /// Memory committed to VMs and instances, integrated over time, for all functions together.
    gib_seconds: f64,
    /// The same for memory that the guests have, which for frozen or paused ones exceeds what is
    /// committed.
    plugged_gib_seconds: f64,
    /// The same for memory resident on the host.
    resident_gib_seconds: f64,
}

pub(crate) type Line = Measured<Figures>;

/// A run of the load.
struct Run<'a> {
    trial: Trial<'a>,
    memory_backend: MemoryBackend,
    /// [`ABUNDANT`] or [`RESTRICTED`].
    memory: &'static str,
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {} memory", self.trial, self.memory_backend, self.memory)
    }
}

impl Step for Run<'_> {}

impl Experiment for Arguments {
    const NAME: &'static str = "pressure";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let mut functions = self.rig.functions(session, &USUAL)?;
        if self.rig.functions.are_usual()
            && let Some(html) = functions.iter().find(|image| image.function.name == "html")
        {
            functions.push(wasteful::wasteful(html)?);
        }
        let functions = functions;
        let scaled = scaled_down(&functions);
        let policies = self.rig.policies.or(&POLICIES);
        let count = session.options.trials_or(1, 5);
        let burst = functions.iter().map(|image| u32::from(image.function.concurrency)).max();
        let load = self.load.load(
            functions.len(),
            self.length(session.options.quick),
            burst.unwrap_or(1),
        )?;
        let mut runs = Vec::new();
        for of_trial in trials(count, [functions.as_slice()], &policies).chunks(policies.len()) {
            let memory_backend = memory_backends(of_trial[0].policy)[0];
            runs.push(Run { trial: of_trial[0], memory_backend, memory: ABUNDANT });
            runs.extend(of_trial.iter().flat_map(|&trial| {
                let functions = if is_fixed(trial.policy) { &scaled } else { &functions };
                let trial = Trial { functions, ..trial };
                let backends = memory_backends(trial.policy).iter();
                backends.map(move |&memory_backend| Run {
                    trial,
                    memory_backend,
                    memory: RESTRICTED,
                })
            }));
        }
        let mut abundant = Vec::new();
        session
            .each(&runs, async |session, run| {
                if run.memory == ABUNDANT {
                    abundant.clear();
                }
                let lines = self.run(session, run, &load, &abundant).await;
                if run.memory == ABUNDANT {
                    // Without it, there is nothing to compare the others with.
                    abundant = lines.map_err(|error| BenchError::Arguments(error.to_string()))?;
                    return Ok(());
                }
                lines.map(drop)
            })
            .await
    }
}

/// Whether a policy's VMs have all their memory from boot, so that none can be reclaimed; they are
/// scaled down instead.
fn is_fixed(policy: PolicyName) -> bool {
    policy == PolicyName::Mechanism(MechanismName::Static)
}

/// The same functions, with room in their VMs scaled down with the budget.
fn scaled_down(functions: &[FunctionImage]) -> Vec<FunctionImage> {
    let mut scaled = functions.to_vec();
    for image in &mut scaled {
        let concurrency = &mut image.function.concurrency;
        *concurrency = ((f64::from(*concurrency) * SHARE) as u16).max(1);
    }
    scaled
}

impl Arguments {
    /// Replays the load once; returns a line for each function.
    async fn run(
        &self,
        session: &mut Session<Figures>,
        run: &Run<'_>,
        load: &FunctionsLoad,
        abundant: &[Line],
    ) -> Result<Vec<Line>> {
        let Run { trial, memory_backend, memory } = run;
        session.options.memory_backend = *memory_backend;
        let limited = *memory == RESTRICTED && !is_fixed(trial.policy);
        let budget_bytes = limited.then(|| {
            let peak = abundant.iter().map(|line| line.peak_bytes).max().unwrap_or(0);
            (peak as f64 * SHARE) as u64
        });
        let keep_alive = self.length(session.options.quick).mul_f64(KEEP_ALIVE);
        let plan = NodeRigPlan::new(trial.policy, budget_bytes.unwrap_or(u64::MAX), keep_alive);
        let replayed = replay(session, trial, &plan, &load.arrivals).await?;
        let header = Header {
            method: method((trial.policy, *memory_backend)),
            ..trial.header(session, replayed.details.as_ref())
        };
        let lines: Vec<Line> = (0..trial.functions.len())
            .map(|member| {
                let mut line = line(&header, run, member, &load.source, &replayed);
                line.figures.budget_bytes = budget_bytes.unwrap_or(0);
                let same = abundant.iter().find(|other| other.function == line.function);
                let base_ns = same.map_or(line.p99_ns, |other| other.p99_ns);
                line.figures.p99_over_abundant = line.p99_ns as f64 / base_ns.max(1) as f64;
                line
            })
            .collect();
        for line in &lines {
            session.keep(line.header.clone(), line.figures.clone())?;
        }
        Ok(lines)
    }

    /// How long calls are sent.
    fn length(&self, quick: bool) -> Duration {
        self.load.length(if quick { 40 } else { 240 })
    }
}

fn line(header: &Header, run: &Run<'_>, member: usize, load: &str, replayed: &Replayed) -> Line {
    let answered: Vec<_> =
        replayed.answered.iter().filter(|a| a.arrival.member == member).collect();
    // A call without a response counts as infinitely long.
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
    Measured {
        header: header.clone(),
        figures: Figures {
            memory: run.memory.to_owned(),
            function: run.trial.functions[member].function.name.clone(),
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
        },
    }
}

impl OfFunction for Figures {
    fn function(&self) -> &str {
        &self.function
    }
}
