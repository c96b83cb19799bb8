//! Latency of a function while instances of another one in the same VM end (Figure 9 of the Squeezy
//! paper, Figure 10 of HotMem's). See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, describe_run, nanoseconds},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, number, of_method, sorted,
    },
    rigs::{
        load::Arrival,
        node_rig::{NodeRig, NodeRigOptions, NodeRigPlan, Trial, Usual, trials},
    },
};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_vmm::mechanism::MechanismName;
use std::time::{Duration, Instant};

const USUAL: Usual = Usual { full: &["cnn", "html"], quick: &["html"] };

const POLICIES: [PolicyName; 4] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Mechanism(MechanismName::Balloon),
    PolicyName::Mechanism(MechanismName::Static),
];

/// How long the function is called before, and after, the others end: a call of `cnn` takes seconds
/// under emulation.
const HALF: Duration = Duration::from_secs(40);
const QUICK_HALF: Duration = Duration::from_secs(12);

/// Latency of a function while instances of another one in its VM end.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    rig: NodeRigOptions,
}

/// A call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    function: String,
    /// Instances of the other function that ended.
    ended_count: u64,
    /// When it arrived, relative to when the others were told to end; negative before that.
    after_end_seconds: f64,
    latency_ns: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "interference";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let mut functions = self.rig.functions(session, &USUAL)?;
        functions.truncate(2);
        if functions.len() == 1 {
            let mut other = functions[0].clone();
            other.function.name = format!("{}-other", other.function.name);
            functions.push(other);
        }
        let count = session.options.trials_or(1, 5);
        let trials = trials(count, [&functions[..]], &self.rig.policies.or(&POLICIES));
        let half = if session.options.quick { QUICK_HALF } else { HALF };
        session
            .each(&trials, async |session: &mut Session<Figures>, trial: &Trial<'_>| {
                one(session, trial, half).await
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
        let median_within = |head, from: f64, to: f64| {
            Column::new(head, move |lines: &[&Line]| {
                latency(lines.iter().copied(), from, to)
                    .map_or("-".to_owned(), |spread| number(spread.median))
            })
        };
        Table::of(
            records,
            by_method(records),
            &[
                Column::common("method", |line| line.header.method.clone()),
                Column::new("ended", |lines: &[&Line]| {
                    lines.iter().map(|line| line.ended_count).max().unwrap_or(0).to_string()
                }),
                Column::count("calls"),
                median_within("before ms", f64::MIN, 0.0),
                median_within("2 s after ms", 0.0, 2.0),
                median_within("later ms", 2.0, f64::MAX),
                Column::new("worst after ms", |lines: &[&Line]| {
                    let after = lines.iter().filter(|line| line.after_end_seconds >= 0.0);
                    number(after.map(|line| line.latency_ns as f64 / 1e6).fold(0.0, f64::max))
                }),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        // All calls of a run see the same end of the others, so the unit of repetition is the run.
        let runs = sorted(records, |line| line.header.trial).into_iter().filter_map(|trial| {
            let ours = of_method(records, "squeezy").filter(|line| line.header.trial == trial);
            let before = latency(ours.clone(), f64::MIN, 0.0)?;
            Some(latency(ours, 0.0, 2.0)?.median / before.median)
        });
        let what = "latency in the 2 s after others have ended, relative to before";
        assessments.add("after-an-end", what, Estimate::median(runs));
    }

    fn plot(records: &[Line]) -> Chart {
        let earliest = records.iter().map(|line| line.after_end_seconds).fold(0.0, f64::min);
        let half = -earliest.floor() as i64;
        let panel = Panel {
            title: "Latency by second".to_owned(),
            x: "seconds since the others ended".to_owned(),
            y: "milliseconds".to_owned(),
            categories: (-half..half)
                .map(|s| if s % 4 == 0 { s.to_string() } else { String::new() })
                .collect(),
            series: Series::of_methods(&methods(records), |method| {
                let lines = of_method(records, method);
                let point = |s| latency(lines.clone(), s as f64, s as f64 + 1.0);
                (-half..half).map(point).collect()
            }),
            joined: true,
            logarithmic: true,
        };
        Chart {
            title: "Latency of a function while other instances in its VM end".to_owned(),
            subtitle: describe_run(records),
            panels: vec![panel],
            foot: String::new(),
        }
    }
}

/// Calls one function continuously while instances of a second one in its VM end.
async fn one(session: &mut Session<Figures>, trial: &Trial<'_>, half: Duration) -> Result {
    let [called, ending] = trial.functions else { unreachable!("every trial has two functions") };
    let others = ending.function.concurrency;
    let plan = NodeRigPlan::abundant(trial.policy, Duration::from_secs(3600));
    let plan = NodeRigPlan { one_vm: true, ..plan };
    let mut called = called.clone();
    called.function.concurrency = 1;
    let rig = NodeRig::start(session, &[called.clone(), ending.clone()], &plan).await?;
    rig.have(1, others).await?;
    rig.have(0, 1).await?;
    let header = trial.header(session, rig.details().as_ref());
    let begin = Instant::now();
    let end = begin + half;
    let mut ended = false;
    while begin.elapsed() < 2 * half {
        if !ended && Instant::now() >= end {
            ended = true;
            rig.retire(1);
        }
        let came = Instant::now();
        let answered = rig.call(Arrival { at: came - begin, member: 0 }).await;
        if let Some(problem) = answered.problem {
            session.progress.note(&format!("{trial}: {problem}"));
        }
        session.keep(
            header.clone(),
            Figures {
                function: called.function.name.clone(),
                ended_count: others.into(),
                after_end_seconds: (came - begin).as_secs_f64() - half.as_secs_f64(),
                latency_ns: nanoseconds(answered.latency),
            },
        )?;
    }
    rig.stop().await;
    Ok(())
}

/// Milliseconds, over the calls that arrived within these seconds.
fn latency<'a>(lines: impl Iterator<Item = &'a Line>, from: f64, to: f64) -> Option<Spread> {
    let within = lines.filter(|line| (from..to).contains(&line.after_end_seconds));
    Spread::of(within.map(|line| line.latency_ns as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::assess,
        record::{complaint, tests::header},
        report::Verdict,
    };

    #[test]
    fn before_and_after_are_told_apart() {
        let line = |at: f64, ms: u64| of_run(0, at, ms);
        let records = [line(-1.0, 10), line(0.5, 70), line(5.0, 11)];
        assert_eq!(complaint(&records[0], &["latency_ns"]), None);
        assert_eq!(latency(records.iter(), 0.0, 2.0).unwrap().median, 70.0);
        assert!(Arguments::table(&records).to_string().contains("70"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("Latency"));
    }

    /// Hundreds of calls around the same two ends are two measurements.
    #[test]
    fn runs_are_counted_and_not_their_calls() {
        let run = |trial| {
            let before = (0..100).map(move |_| of_run(trial, -1.0, 10));
            before.chain((0..100).map(move |_| of_run(trial, 0.5, 9)))
        };
        let verdict = |runs| {
            let records: Vec<_> = (0..runs).flat_map(run).collect();
            assess::<Arguments>(&records)[0].verdict()
        };
        assert_eq!([verdict(2), verdict(5)], [Verdict::Unclear, Verdict::Met]);
    }

    fn of_run(trial: u32, at: f64, ms: u64) -> Line {
        Measured {
            header: header("interference", "squeezy", trial),
            figures: Figures {
                function: "html".to_owned(),
                ended_count: 3,
                after_end_seconds: at,
                latency_ns: ms * 1_000_000,
            },
        }
    }
}
