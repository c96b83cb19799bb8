//! What the requests just after a reclaim take, against those before it (Figure 13 of the
//! Desiccant paper). See README.md.

mod pageout;
mod report;

use crate::common::{
    Experiment,
    bound::Bound,
    error::{BenchError, Result},
    lab::Lab,
    native::{Call, Case, Functions, Instance, OfSubject, Subject, cases},
    options::Options,
    record::{Header, Record},
    size::parse_instance,
    stand::nanoseconds,
    stats::mean,
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_reclaim::{Answer, Request};
use std::time::{Duration, Instant};

/// What is done to the frozen instance: nothing; a reclaim; that and its libraries evicted; as much
/// of its memory moved to swap.
const CONTROL: &str = "control";
const RECLAIM: &str = "reclaim";
const LIBRARIES: &str = "reclaim+libraries";
const PAGEOUT: &str = "pageout";

/// Requests that are compared, before and after.
const COMPARED: u32 = 10;
/// Requests between what was done last and those before what is done next.
const BETWEEN: u32 = 30;
/// How long these may take under `--quick`, at the price of some.
const QUICK_BETWEEN: Duration = Duration::from_secs(1);
/// How long an instance is frozen.
const FROZEN: Duration = Duration::from_millis(300);

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    functions: Functions,
    /// Memory of an instance
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_instance)]
    size: u64,
}

/// Ten requests before and ten after something was done to an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    #[serde(flatten)]
    pub(crate) subject: Subject,
    /// Of a request before, on average.
    pub(crate) before_latency_ns: u64,
    /// Of a request after, on average.
    pub(crate) after_latency_ns: u64,
    /// Of the first one after.
    pub(crate) first_latency_ns: u64,
    /// CPU time of the instance for a request before, on average.
    pub(crate) before_cpu_ns: u64,
    /// And for one after.
    pub(crate) after_cpu_ns: u64,
    /// Memory that no other process has, before.
    pub(crate) before_uss_bytes: u64,
    /// How much less it was then, or how much went to swap.
    pub(crate) released_bytes: u64,
    /// CPU time of the instance that the reclaim itself took.
    pub(crate) reclaim_cpu_ns: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }

    fn function(&self) -> &str {
        &self.subject.function
    }
}

impl OfSubject for Line {
    fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "after";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let functions = self.functions.find(lab).await?;
        let mut methods = vec![CONTROL, RECLAIM, LIBRARIES];
        if pageout::is_possible() {
            methods.push(PAGEOUT);
        } else {
            lab.progress.note(&format!("left out: {PAGEOUT}, for this machine has no swap"));
        }
        let trials = self.options.trials_or(3, 10);
        let cases = cases(trials, &functions, &[self.size], &[false]);
        let mut longest = Duration::ZERO;
        lab.each(&cases, async |lab, case| {
            if case.trial > 0 && !lab.has_time(longest) {
                return Ok(());
            }
            let start = Instant::now();
            // Each is as often the first as another.
            methods.rotate_left(1);
            self.one(lab, case, &methods).await?;
            longest = longest.max(start.elapsed());
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
    /// One instance, to which one after the other is done.
    async fn one(&self, lab: &mut Lab<Line>, case: &Case, methods: &[&str]) -> Result {
        let warm = self.functions.warm(case, self.options.quick, async |_| Ok(()));
        let (instance, calls) = warm.await?;
        // Also tells the runtime, and how much a reclaim gives back.
        let found = instance.memory().await?.uss_bytes;
        let reclaimed = instance.reclaim(Request::default()).await?;
        let mut released = found.saturating_sub(instance.memory().await?.uss_bytes);
        let subject = Subject::new(case, &instance, reclaimed.runtime(), calls);
        for method in methods {
            self.settle(&instance).await?;
            let before = compared(&instance).await?;
            let done = treat(&instance, method, released).await?;
            let after = compared(&instance).await?;
            if *method == RECLAIM {
                released = done.released_bytes;
            }
            let cpu = |calls: &[Call]| average(calls.iter().map(|call| call.cpu_ns));
            let latency =
                |calls: &[Call]| average(calls.iter().map(|call| nanoseconds(call.latency)));
            lab.keep(Line {
                header: lab.native_header(method, case.trial),
                subject: subject.clone(),
                before_latency_ns: latency(&before),
                after_latency_ns: latency(&after),
                first_latency_ns: latency(&after[..1]),
                before_cpu_ns: cpu(&before),
                after_cpu_ns: cpu(&after),
                before_uss_bytes: done.before_uss_bytes,
                released_bytes: done.released_bytes,
                reclaim_cpu_ns: done.answer.map_or(0, |answer| answer.cpu_ns),
            })?;
        }
        Ok(())
    }

    /// Lets an instance forget what was done to it last.
    async fn settle(&self, instance: &Instance) -> Result {
        let start = Instant::now();
        for _ in 0..BETWEEN {
            if self.options.quick && start.elapsed() > QUICK_BETWEEN {
                break;
            }
            instance.call().await?;
        }
        Ok(())
    }
}

/// What was done to an instance.
struct Done {
    before_uss_bytes: u64,
    released_bytes: u64,
    answer: Option<Answer>,
}

/// Freezes an instance for a while, and does something to it meanwhile.
async fn treat(instance: &Instance, method: &str, wanted_bytes: u64) -> Result<Done> {
    instance.freeze().await?;
    let before_uss_bytes = instance.memory().await?.uss_bytes;
    let mut answer = None;
    let mut swapped = None;
    match method {
        RECLAIM | LIBRARIES => {
            instance.thaw().await?;
            answer = Some(instance.reclaim(Request::default()).await?.answer);
            instance.freeze().await?;
            if method == LIBRARIES {
                instance.evict_libraries().await?;
            }
        }
        PAGEOUT => swapped = Some(page_out(instance, wanted_bytes).await?),
        _ => {}
    }
    let after = instance.memory().await?.uss_bytes;
    tokio::time::sleep(FROZEN).await;
    instance.thaw().await?;
    let released_bytes = swapped.unwrap_or(before_uss_bytes.saturating_sub(after));
    Ok(Done { before_uss_bytes, released_bytes, answer })
}

async fn page_out(instance: &Instance, wanted_bytes: u64) -> Result<u64> {
    let process = instance.process().clone();
    let work = move || pageout::page_out(&process, wanted_bytes);
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| e.to_string())
        .and_then(|result| result.map_err(|e| e.to_string()))
        .map_err(|e| BenchError::Arguments(format!("process_madvise(2): {e}; be root")))
}

async fn compared(instance: &Instance) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    for _ in 0..COMPARED {
        calls.push(instance.call().await?);
    }
    Ok(calls)
}

fn average(values: impl Iterator<Item = u64>) -> u64 {
    mean(values.map(|value| value as f64)).unwrap_or(0.0) as u64
}
