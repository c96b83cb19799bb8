//! A frozen Java or JavaScript instance in its VM, squeezed as by a node: host memory behind its
//! partition before and after, and the effect on the next calls (Figures 7 and 13 of the Desiccant
//! paper, in a VM). See README.md.

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Report, Session},
    record::{Header, Measured, OfFunction, describe_run, nanoseconds},
    report::{
        Assessments, Estimate, Spread, Table,
        chart::{BLUE, Chart, ORANGE, Panel, Series},
        functions, median, number, of_function,
    },
    rigs::{
        load::Arrival,
        node_rig::{Functions, NodeRig, NodeRigPlan, Seen, Trial, trials},
    },
    size::mib,
};
use serde::{Deserialize, Serialize};
use squeezy_node::{FunctionImage, PolicyName, SqueezeReport};
use squeezy_scaler::SqueezePolicy;
use std::{
    slice,
    time::{Duration, Instant},
};

/// One function for each runtime whose squeezer is in images.
const FUNCTIONS: [&str; 2] = ["java-hotel-searching", "javascript-data-analysis"];

/// The state of an instance when it was measured.
const VANILLA: &str = "vanilla";
const EAGER: &str = "eager";
const RECLAIM: &str = "reclaim";
const IDEAL: &str = "ideal";
const VARIANTS: [&str; 4] = [VANILLA, EAGER, RECLAIM, IDEAL];

/// Calls before an instance is frozen.
const CALLS: u32 = 100;
const QUICK_CALLS: u32 = 20;

/// Calls that are timed before it is frozen, and again after.
const TIMED: usize = 10;

/// How long it may take until a frozen instance has been squeezed.
const SQUEEZE_LIMIT: Duration = Duration::from_secs(120);
/// Interval of checks whether it has.
const PAUSE: Duration = Duration::from_millis(50);

/// Squeezes every frozen instance at once, whatever it holds.
const AT_ONCE: SqueezePolicy = SqueezePolicy {
    floor_bytes: 0,
    ceiling_bytes: 0,
    rise: Duration::from_secs(1),
    frozen_for: Duration::ZERO,
    processors: 1,
    tolerance_bytes: SqueezePolicy::TOLERANCE_BYTES,
};

/// Memory of a frozen Java or JavaScript instance in its VM, before and after it is squeezed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    functions: Functions,
}

/// A frozen instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    function: String,
    variant: String,
    /// Host memory behind its partition, which contains only its own pages.
    uss_bytes: u64,
    /// Memory of its heap that is resident in the guest.
    heap_bytes: u64,
    live_bytes: u64,
    /// Size of its partition.
    size_bytes: u64,
    /// Calls that it had answered.
    calls_count: u32,
    /// The squeeze: its duration, its CPU time, and how long the instance could not have taken a
    /// call.
    took_ns: u64,
    cpu_ns: u64,
    pause_ns: u64,
    /// Median latencies of a call before it was frozen, the first one after, and one of the ten
    /// after.
    before_ns: u64,
    first_ns: u64,
    after_ns: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "squeeze";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let functions = self.functions.find(session, &FUNCTIONS)?;
        let count = session.options.trials_or(1, 5);
        let trials = trials(count, functions.chunks(1), &[PolicyName::Overcommit]);
        let calls = if session.options.quick { QUICK_CALLS } else { CALLS };
        session
            .each(&trials, async |session, trial| {
                one(session, trial, calls, false).await?;
                one(session, trial, calls, true).await
            })
            .await
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
        let vanilla_over_it = |lines: &[&Line]| {
            let function = lines.first().map_or("", |line| &line.function);
            let vanilla = median(of_function(records, VANILLA, function).map(uss_mib));
            let this = median(lines.iter().map(|line| uss_mib(line)));
            vanilla.zip(this).map_or(String::new(), |(vanilla, this)| number(vanilla / this))
        };
        Table::of(
            records,
            |line| {
                let variant = VARIANTS.iter().position(|variant| *variant == line.variant);
                (line.function.clone(), variant)
            },
            &[
                Column::common("function", |line| line.function.clone()),
                Column::common("variant", |line| line.variant.clone()),
                Column::count("n"),
                Column::median("host MiB", uss_mib),
                Column::median("heap MiB", |line| mib(line.heap_bytes)),
                Column::median("live MiB", |line| mib(line.live_bytes)),
                Column::new("vanilla over it", vanilla_over_it),
                ms("call before ms", |line| line.before_ns),
                ms("first after ms", |line| line.first_ns),
                ms("ten after ms", |line| line.after_ns),
                ms("squeezed in ms", |line| line.took_ns),
                ms("CPU ms", |line| line.cpu_ns),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for function in functions(records) {
            let over_live = |line: &Line| line.heap_bytes as f64 / line.live_bytes as f64;
            let java = function.starts_with("java-");
            assessments.add(
                if java { "heap-over-live-java" } else { "heap-over-live-javascript" },
                format!("heap resident after a squeeze over live bytes, {function}"),
                Estimate::median(of_function(records, RECLAIM, &function).map(over_live)),
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let panel = |function: String| {
            let series = |name: &str, colour, value: fn(&Line) -> f64| Series {
                name: name.to_owned(),
                colour,
                variant: false,
                points: VARIANTS
                    .map(|variant| Spread::of(of_function(records, variant, &function).map(value)))
                    .to_vec(),
            };
            Panel {
                series: vec![
                    series("on the host", BLUE, uss_mib),
                    series("live in its heap", ORANGE, |line| mib(line.live_bytes)),
                ],
                title: function.clone(),
                x: "instance".to_owned(),
                y: "MiB".to_owned(),
                categories: VARIANTS.map(str::to_owned).to_vec(),
                joined: false,
                logarithmic: false,
            }
        };
        Chart {
            title: "Memory of a frozen instance in its VM".to_owned(),
            subtitle: describe_run(records),
            panels: functions(records).into_iter().map(panel).collect(),
            foot: "Host memory behind the instance's partition.".to_owned(),
        }
    }
}

/// Measures one instance: called, frozen, squeezed and called again.
async fn one(session: &mut Session<Figures>, trial: &Trial<'_>, calls: u32, eager: bool) -> Result {
    let mut image = trial.functions[0].clone();
    image.function.concurrency = 1;
    if eager {
        image.function.environment.insert("EAGER_GC".to_owned(), "1".to_owned());
    }
    let plan = NodeRigPlan {
        squeezing: Some(AT_ONCE),
        ..NodeRigPlan::abundant(trial.policy, Duration::from_secs(3600))
    };
    let rig = NodeRig::start(session, slice::from_ref(&image), &plan).await?;
    let mut before = Vec::new();
    for call in 1..=calls {
        session.progress.tick(&format!("{trial}: {call} of {calls} calls"));
        before.push(answered(&rig, &image).await?);
    }
    let report = squeezed(&rig, &image).await?;
    let mut after = Vec::new();
    for _ in 0..TIMED {
        after.push(answered(&rig, &image).await?);
    }
    let details = rig.details();
    rig.stop().await;

    let problem = |reason: &String| problem(&image, reason.clone());
    let heap = report.heap.as_ref().map_err(problem)?;
    report.given_back.as_ref().map_err(problem)?;
    let timed = |times: &[Duration]| {
        let of = median(times.iter().rev().take(TIMED).map(Duration::as_secs_f64));
        nanoseconds(Duration::from_secs_f64(of.unwrap_or(0.0)))
    };
    let mut keep = |variant: &str, uss_bytes, heap_bytes| {
        let header = trial.header(session, details.as_ref());
        session.keep(
            Header { method: variant.to_owned(), ..header },
            Figures {
                function: image.function.name.clone(),
                variant: variant.to_owned(),
                uss_bytes,
                heap_bytes,
                live_bytes: heap.live_bytes,
                size_bytes: image.function.memory_bytes,
                calls_count: calls,
                took_ns: nanoseconds(report.took),
                cpu_ns: nanoseconds(report.cpu),
                pause_ns: heap.pause_ns,
                before_ns: timed(&before),
                first_ns: after.first().map_or(0, |&first| nanoseconds(first)),
                after_ns: timed(&after),
            },
        )
    };
    if eager {
        return keep(EAGER, report.before_bytes, heap.before_bytes);
    }
    let garbage = heap.before_bytes.saturating_sub(heap.live_bytes);
    keep(VANILLA, report.before_bytes, heap.before_bytes)?;
    keep(RECLAIM, report.resident_bytes, heap.after_bytes)?;
    keep(IDEAL, report.before_bytes.saturating_sub(garbage), heap.live_bytes)
}

/// The latency of a correctly answered call.
async fn answered(rig: &NodeRig, image: &FunctionImage) -> Result<Duration> {
    let answered = rig.call(Arrival { at: Duration::ZERO, member: 0 }).await;
    match answered.problem {
        None => Ok(answered.latency),
        Some(reason) => Err(problem(image, reason)),
    }
}

/// Waits until the instance has been squeezed.
async fn squeezed(rig: &NodeRig, image: &FunctionImage) -> Result<SqueezeReport> {
    let deadline = Instant::now() + SQUEEZE_LIMIT;
    loop {
        let report = rig.seen().into_iter().find_map(|seen| match seen {
            Seen::Squeezed(result) => Some(result),
            _ => None,
        });
        match report {
            Some(result) => return result.map(|report| *report).map_err(|e| problem(image, e)),
            None if Instant::now() > deadline => {
                let reason = "its instance was not squeezed in time".to_owned();
                return Err(problem(image, reason));
            }
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn problem(image: &FunctionImage, reason: String) -> BenchError {
    BenchError::function(format!("{}: {reason}", image.function.name))
}

fn uss_mib(line: &Line) -> f64 {
    mib(line.uss_bytes)
}

impl OfFunction for Figures {
    fn function(&self) -> &str {
        &self.function
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::assess,
        record::{
            complaint,
            tests::{header, repeated},
        },
        report::Verdict,
    };

    #[test]
    fn an_instance_is_compared_with_itself() {
        let line = |variant: &str, uss_mib: u64, heap_mib: u64| Measured {
            header: header("squeeze", variant, 0),
            figures: Figures {
                function: "java-hotel-searching".to_owned(),
                variant: variant.to_owned(),
                uss_bytes: uss_mib << 20,
                heap_bytes: heap_mib << 20,
                live_bytes: 10 << 20,
                size_bytes: 256 << 20,
                calls_count: 100,
                took_ns: 1_000_000,
                cpu_ns: 1_000_000,
                pause_ns: 1_000_000,
                before_ns: 1_000_000,
                first_ns: 2_000_000,
                after_ns: 1_500_000,
            },
        };
        let records = [line(VANILLA, 120, 100), line(RECLAIM, 30, 11), line(IDEAL, 30, 10)];
        let fields = ["function", "variant", "uss_bytes", "live_bytes"];
        assert_eq!(complaint(&records[0], &fields), None);
        let [heap] = &assess::<Arguments>(&repeated(&records))[..] else { panic!("one function") };
        assert!((heap.measured.value - 1.1).abs() < 1e-9, "{heap}");
        assert_eq!(heap.verdict(), Verdict::Missed);
        assert!(Arguments::table(&records).to_string().contains("4.00"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("hotel"));
    }
}
