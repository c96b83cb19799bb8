//! Functions whose instances share a cache of limited memory, under a load at several scale
//! factors: unmodified, with eager collection, and squeezed (Figures 9 and 10 of the Desiccant
//! paper). See README.md.

mod counters;
mod instance_task;
mod load;
mod process_host;
mod report;

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Session, Step},
    record::nanoseconds,
    rigs::{
        load::{Arrival, LoadOptions},
        process::{self, FunctionChoice, NativeFunction, Setup, parse_share, percent},
    },
    size::{self, parse_instance},
};
use counters::Counters;
use process_host::{ProcessHost, Rules};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use squeezy_scaler::SqueezePolicy;
use std::{fmt, sync::Arc, thread, time::Duration};

const VANILLA: &str = "vanilla";
const EAGER: &str = "eager";
const RECLAIM: &str = "reclaim";
const VARIANTS: [&str; 3] = [VANILLA, EAGER, RECLAIM];

/// Cold boots and latency of functions whose instances share a cache, with and without squeezing.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    functions: FunctionChoice,
    #[command(flatten)]
    load: LoadOptions,
    /// How many times as fast to replay the load, separated by commas [default: 5,10,15,20,25,30;
    /// with --quick 5,15,25]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale_factors: Vec<u32>,
    /// Variants to compare, separated by commas: vanilla, eager, reclaim
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = VARIANTS, default_values = VARIANTS)]
    variants: Vec<String>,
    /// Share of the memory from which on frozen instances are squeezed, in percent; less, where bursts need more than
    /// the rest
    #[arg(long, value_name = "PERCENT", default_value = "25", value_parser = clap::value_parser!(u32).range(1..=100))]
    threshold: u32,
    /// Calls of each function before the load begins
    #[arg(long, value_name = "CALLS", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    warm_up: u32,
    /// Number of functions in the load; the seed decides which function each of them is
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1000))]
    members: u32,
    /// An instance's share of a processor
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = parse_share)]
    processors: f64,
    /// Memory for all instances
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_instance)]
    cache: u64,
    /// Memory of a working instance
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_instance)]
    size: u64,
}

/// A replay of a load with one variant at one scale factor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Same as `method` in the header.
    variant: String,
    scale_factor: u32,
    /// Describes the load.
    load: String,
    /// Number of functions in the load.
    functions_count: u64,
    /// Memory for all instances.
    cache_bytes: u64,
    /// Memory of a working instance.
    memory_bytes: u64,
    /// The memory of frozen instances above which squeezing begins.
    threshold_bytes: u64,
    /// Calls of each function before the load.
    warm_up_count: u32,
    /// An instance's share of a processor.
    processor_percent: f64,
    requests_count: u64,
    /// Requests with a wrong response or none.
    wrong_count: u64,
    /// Instances started.
    cold_boots_count: u64,
    /// Instances ended to make room.
    evictions_count: u64,
    /// Mean number of instances when a request arrived.
    alive_count: f64,
    /// Mean memory charged for them at that time.
    charged_bytes: f64,
    answered_per_second: f64,
    took_ns: u64,
    /// CPU time of all instances.
    instances_cpu_ns: u64,
    /// CPU time of this program: making calls, freezing, measuring memory and evicting libraries.
    platform_cpu_ns: u64,
    /// CPU time of instances during squeezes.
    squeeze_cpu_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p95_ns: u64,
    p99_ns: u64,
    squeezes_count: u64,
    squeeze_failures_count: u64,
    given_back_bytes: u64,
    /// How long an instance that was squeezed could not run: median and maximum.
    pause_p50_ns: u64,
    pause_most_ns: u64,
    /// Requests that arrived while their instance was being squeezed.
    waited_count: u64,
    /// How long they waited for that at most: median and maximum.
    wait_p50_ns: u64,
    wait_most_ns: u64,
}

/// One run.
struct Run<'a> {
    variant: &'a str,
    factor: u32,
    trial: u32,
    arrivals: &'a [Arrival],
    source: &'a str,
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variant, factor, trial, .. } = self;
        write!(f, "{variant}, scale factor {factor}, trial {trial}")
    }
}

impl Step for Run<'_> {}

impl Experiment for Arguments {
    const NAME: &'static str = "cache";

    fn check(&self) -> Result {
        if self.size > self.cache {
            let (size, cache) = (size::show(self.size), size::show(self.cache));
            return Err(BenchError::Arguments(format!(
                "an instance of {size} does not fit into a cache of {cache}: lower --size or raise --cache"
            )));
        }
        Ok(())
    }

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let functions = self.functions.find(session).await?;
        let members = self.members as usize;
        let population = load::population(members, functions.len(), self.load.seed);
        let population: Vec<_> =
            population.into_iter().map(|index| functions[index].clone()).collect();
        let factors: &[u32] = match (&self.scale_factors[..], session.options.quick) {
            ([], true) => &[5, 15, 25],
            ([], false) => &[5, 10, 15, 20, 25, 30],
            (named, _) => named,
        };
        let length = self.load.length(if session.options.quick { 30 } else { 300 });
        let loads = factors
            .iter()
            .map(|&factor| Ok((factor, load::load(&self.load, members, length, factor)?)))
            .collect::<Result<Vec<_>>>()?;
        // Runs that are compared follow each other.
        let mut runs = Vec::new();
        for trial in 0..session.options.trials_or(1, 5) {
            for (factor, load) in &loads {
                runs.extend(self.variants.iter().map(|variant| Run {
                    variant,
                    factor: *factor,
                    trial,
                    arrivals: &load.arrivals,
                    source: &load.source,
                }));
            }
        }
        session.each(&runs, async |session, run| self.one(session, &population, run).await).await
    }
}

impl Arguments {
    fn threshold_bytes(&self) -> u64 {
        self.cache / 100 * u64::from(self.threshold)
    }

    async fn one(
        &self,
        session: &mut Session<Figures>,
        population: &[Arc<NativeFunction>],
        run: &Run<'_>,
    ) -> Result {
        let processors = self.processors;
        let there = thread::available_parallelism().map_or(1, |there| there.get() as u32);
        let squeezing_processors = if run.variant == RECLAIM { there } else { 0 };
        let squeezing = SqueezePolicy::above(self.threshold_bytes(), squeezing_processors);
        let rules = Rules {
            cache_bytes: self.cache,
            setup: Setup { memory_bytes: self.size, processors, eager: run.variant == EAGER },
            squeezing,
            processors: there,
        };
        let mut host = ProcessHost::new(population.to_vec(), &rules)?;
        host.warm_up(self.warm_up).await?;
        let before = own_cpu();
        let tell = |at: Duration, counters: &Counters| {
            let (answered, calls) = (counters.latencies.len(), run.arrivals.len());
            let line = format!("{run}: {answered} of {calls} answered after {} s", at.as_secs());
            session.progress.tick(&line);
        };
        let counters = host.replay(run.arrivals, tell).await?;
        let platform_cpu_ns = nanoseconds(own_cpu().saturating_sub(before));
        host.stop().await;
        if let Some(trouble) = &counters.trouble {
            session.progress.note(&format!("{run}: {trouble}"));
        }
        let header = process::header(session, run.variant, run.trial);
        session.keep(header, self.figures(run, &counters, platform_cpu_ns))
    }

    fn figures(&self, run: &Run<'_>, counters: &Counters, platform_cpu_ns: u64) -> Figures {
        let requests = run.arrivals.len();
        let average = |sum: u64| sum as f64 / requests.max(1) as f64;
        let latency = |percent| percentile(&counters.latencies, percent);
        Figures {
            variant: run.variant.to_owned(),
            scale_factor: run.factor,
            load: run.source.to_owned(),
            functions_count: self.members.into(),
            cache_bytes: self.cache,
            memory_bytes: self.size,
            threshold_bytes: self.threshold_bytes(),
            warm_up_count: self.warm_up,
            processor_percent: percent(self.processors),
            requests_count: requests as u64,
            wrong_count: counters.wrong_count,
            cold_boots_count: counters.cold_boots_count,
            evictions_count: counters.evictions_count,
            alive_count: average(counters.alive_sum),
            charged_bytes: average(counters.charged_sum_bytes),
            answered_per_second: counters.latencies.len() as f64 / counters.took.as_secs_f64(),
            took_ns: nanoseconds(counters.took),
            instances_cpu_ns: counters.cpu_ns,
            platform_cpu_ns,
            squeeze_cpu_ns: nanoseconds(counters.squeeze_cpu),
            p50_ns: latency(50.0),
            p90_ns: latency(90.0),
            p95_ns: latency(95.0),
            p99_ns: latency(99.0),
            squeezes_count: counters.squeezes_count,
            squeeze_failures_count: counters.squeeze_failures_count,
            given_back_bytes: counters.given_back_bytes,
            pause_p50_ns: percentile(&counters.pauses, 50.0),
            pause_most_ns: percentile(&counters.pauses, 100.0),
            waited_count: counters.waits.len() as u64,
            wait_p50_ns: percentile(&counters.waits, 50.0),
            wait_most_ns: percentile(&counters.waits, 100.0),
        }
    }
}

/// CPU time used by this program.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// 0 if there are no times.
fn percentile(times: &[Duration], percent: f64) -> u64 {
    let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    let found = squeezy_node::series::percentile(&seconds, percent).unwrap_or(0.0);
    nanoseconds(Duration::from_secs_f64(found))
}
