//! The cost of requests right after a squeeze, relative to those before it (Figure 13 of the
//! Desiccant paper). See README.md.

mod pageout;
mod report;

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Session},
    record::nanoseconds,
    report::mean,
    rigs::process::{Call, Functions, Instance, OfProcess, Subject, Trial, trials},
    size::parse_instance,
};
use serde::{Deserialize, Serialize};
use squeezer::{Answer, Request};
use std::time::{Duration, Instant};

/// What is done to the frozen instance: nothing; a squeeze; a squeeze and the eviction of its
/// libraries; or as much of its memory is swapped out.
const CONTROL: &str = "control";
const RECLAIM: &str = "reclaim";
const LIBRARIES: &str = "reclaim+libraries";
const PAGEOUT: &str = "pageout";

/// Requests that are compared before, and the same number after.
const COMPARED: u32 = 10;
/// Requests to settle between one treatment and the requests before the next.
const BETWEEN: u32 = 30;
/// Limit on their duration under `--quick`; there may be fewer then.
const QUICK_BETWEEN: Duration = Duration::from_secs(1);
/// How long an instance is frozen.
const FROZEN: Duration = Duration::from_millis(300);

/// Latency and CPU time of the requests just after a squeeze, compared with those before it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    functions: Functions,
    /// Memory of an instance
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_instance)]
    size: u64,
}

/// Ten requests before and ten after a treatment of an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Mean latency of a request before.
    before_latency_ns: u64,
    /// Mean latency of a request after.
    after_latency_ns: u64,
    /// Latency of the first request after.
    first_latency_ns: u64,
    /// Mean CPU time of the instance per request before.
    before_cpu_ns: u64,
    /// Mean CPU time of the instance per request after.
    after_cpu_ns: u64,
    /// Memory that no other process maps (USS), before.
    before_uss_bytes: u64,
    /// By how much it shrank, or how much was swapped out.
    released_bytes: u64,
    /// CPU time of the instance for the squeeze itself.
    reclaim_cpu_ns: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "after";

    async fn measure(&self, session: &mut Session<OfProcess<Figures>>) -> Result {
        let functions = self.functions.find(session).await?;
        let mut methods = vec![CONTROL, RECLAIM, LIBRARIES];
        if pageout::is_possible() {
            methods.push(PAGEOUT);
        } else {
            session
                .progress
                .note(&format!("left out: {PAGEOUT}, because this machine has no swap"));
        }
        let count = session.options.trials_or(3, 10);
        let trials = trials(count, &functions, &[self.size], &[false]);
        let mut longest = Duration::ZERO;
        session
            .each(&trials, async |session, trial| {
                if trial.number > 0 && !session.has_time(longest) {
                    return Ok(());
                }
                let start = Instant::now();
                // Rotated, so that each method is first equally often.
                methods.rotate_left(1);
                self.one(session, trial, &methods).await?;
                longest = longest.max(start.elapsed());
                Ok(())
            })
            .await
    }
}

impl Arguments {
    /// Measures one instance with each method in turn.
    async fn one(
        &self,
        session: &mut Session<OfProcess<Figures>>,
        trial: &Trial,
        methods: &[&str],
    ) -> Result {
        let warm = self.functions.warm(trial, session.options.quick, async |_| Ok(()));
        let (instance, calls) = warm.await?;
        // This squeeze also tells the runtime, and how much a squeeze gives back.
        let found = instance.memory().await?.uss_bytes;
        let squeezed = instance.squeeze(Request::default()).await?;
        let mut released = found.saturating_sub(instance.memory().await?.uss_bytes);
        let subject = Subject::new(trial, &instance, squeezed.runtime(), calls);
        for method in methods {
            settle(&instance, session.options.quick).await?;
            let before = compared(&instance).await?;
            let done = treat(&instance, method, released).await?;
            let after = compared(&instance).await?;
            if *method == RECLAIM {
                released = done.released_bytes;
            }
            let cpu = |calls: &[Call]| average(calls.iter().map(|call| call.cpu_ns));
            let latency =
                |calls: &[Call]| average(calls.iter().map(|call| nanoseconds(call.latency)));
            session.keep(
                trial.header(session, method),
                OfProcess {
                    subject: subject.clone(),
                    figures: Figures {
                        before_latency_ns: latency(&before),
                        after_latency_ns: latency(&after),
                        first_latency_ns: latency(&after[..1]),
                        before_cpu_ns: cpu(&before),
                        after_cpu_ns: cpu(&after),
                        before_uss_bytes: done.before_uss_bytes,
                        released_bytes: done.released_bytes,
                        reclaim_cpu_ns: done.answer.map_or(0, |answer| answer.cpu_ns),
                    },
                },
            )?;
        }
        Ok(())
    }
}

/// Makes requests until the last treatment has no effect any more.
async fn settle(instance: &Instance, quick: bool) -> Result {
    let start = Instant::now();
    for _ in 0..BETWEEN {
        if quick && start.elapsed() > QUICK_BETWEEN {
            break;
        }
        instance.call().await?;
    }
    Ok(())
}

/// The result of a treatment.
struct Done {
    before_uss_bytes: u64,
    released_bytes: u64,
    answer: Option<Answer>,
}

/// Freezes an instance for a while, and treats it meanwhile.
async fn treat(instance: &Instance, method: &str, wanted_bytes: u64) -> Result<Done> {
    instance.freeze().await?;
    let before_uss_bytes = instance.memory().await?.uss_bytes;
    let mut answer = None;
    let mut swapped = None;
    match method {
        RECLAIM | LIBRARIES => {
            instance.thaw().await?;
            answer = Some(instance.squeeze(Request::default()).await?.answer);
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
