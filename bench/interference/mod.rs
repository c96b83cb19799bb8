//! Latency of a function while instances of another one in the same VM are ended (Figure 9 of the
//! Squeezy paper, Figure 10 of HotMem's). See README.md.

use crate::common::{
    Experiment,
    bound::{Bound, Limit, number},
    cases::{Case, cases},
    chart::{Chart, Panel, Series},
    error::Result,
    estimate::Estimate,
    fleet::{Arrival, Fleet, FleetPlan},
    functions::Functions,
    lab::Lab,
    options::Options,
    policies::Policies,
    record::{Header, Record, describe_run},
    select::{methods, of_method, sorted},
    stand::nanoseconds,
    stats::Spread,
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_vmm::mechanism::MechanismName;
use std::time::{Duration, Instant};

const POLICIES: [PolicyName; 4] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Mechanism(MechanismName::Balloon),
    PolicyName::Mechanism(MechanismName::Static),
];

/// How long the function is called before and after the others end: a call of `cnn` takes seconds
/// under emulation.
const HALF: Duration = Duration::from_secs(40);
const QUICK_HALF: Duration = Duration::from_secs(12);

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    functions: Functions,
    #[command(flatten)]
    policies: Policies,
}

/// One call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) function: String,
    /// Instances of the other function that ended.
    pub(crate) ended_count: u64,
    /// When it came, from the moment on at which the others were told to end; before that, below 0.
    pub(crate) after_end_seconds: f64,
    pub(crate) latency_ns: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "interference";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let default: &[&str] = if self.options.quick { &["html"] } else { &["cnn", "html"] };
        let mut functions = self.functions.find(lab, default, self.options.quick)?;
        functions.truncate(2);
        if functions.len() == 1 {
            let mut other = functions[0].clone();
            other.function.name = format!("{}-other", other.function.name);
            functions.push(other);
        }
        let trials = self.options.trials_or(1, 5);
        let cases = cases(trials, [&functions[..]], &self.policies.or(&POLICIES));
        let half = if self.options.quick { QUICK_HALF } else { HALF };
        lab.each(&cases, async |lab: &mut Lab<Line>, case: &Case<'_>| one(lab, case, half).await)
            .await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "method",
            "ended",
            "calls",
            "before ms",
            "2 s after ms",
            "later ms",
            "worst after ms",
        ]);
        for method in methods(records) {
            let lines = || of_method(records, &method);
            let of = |from: f64, to: f64| latency(lines(), from, to);
            let show = |spread: Option<Spread>| spread.map_or("-".to_owned(), |s| number(s.median));
            let after = lines().filter(|line| line.after_end_seconds >= 0.0);
            table.row([
                method.clone(),
                lines().map(|line| line.ended_count).max().unwrap_or(0).to_string(),
                lines().count().to_string(),
                show(of(f64::MIN, 0.0)),
                show(of(0.0, 2.0)),
                show(of(2.0, f64::MAX)),
                number(after.map(|line| line.latency_ns as f64 / 1e6).fold(0.0, f64::max)),
            ]);
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        // The calls of one run all meet the same end of the others: it is the run that is repeated.
        let runs = sorted(records, |line| line.header.trial).into_iter().filter_map(|trial| {
            let ours = of_method(records, "squeezy").filter(|line| line.header.trial == trial);
            let before = latency(ours.clone(), f64::MIN, 0.0)?;
            Some(latency(ours, 0.0, 2.0)?.median / before.median)
        });
        let bound = |measured| Bound {
            what: "latency in the 2 s after others have ended over that before".to_owned(),
            measured,
            limit: Limit::AtMost(1.0),
            unit: "x",
        };
        Estimate::median(runs).map(bound).into_iter().collect()
    }

    fn plot(records: &[Line]) -> Result<String> {
        let earliest = records.iter().map(|line| line.after_end_seconds).fold(0.0, f64::min);
        let half = -earliest.floor() as i64;
        let panel = Panel {
            title: "Latency in each second".to_owned(),
            x: "seconds from the end of the others on".to_owned(),
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
            title: "A function while others in its VM end".to_owned(),
            subtitle: describe_run(records),
            panels: vec![panel],
            foot: String::new(),
        }
        .svg()
    }
}

/// One function that is called all the time, and a second one in its VM whose instances end.
async fn one(lab: &mut Lab<Line>, case: &Case<'_>, half: Duration) -> Result {
    let [called, ending] = case.functions else { unreachable!("every case has two functions") };
    let others = ending.function.concurrency;
    let plan = FleetPlan::abundant(case.policy, Duration::from_secs(3600));
    let plan = FleetPlan { one_vm: true, ..plan };
    let mut called = called.clone();
    called.function.concurrency = 1;
    let fleet = Fleet::start(lab, &[called.clone(), ending.clone()], &plan).await?;
    fleet.have(1, others).await?;
    fleet.have(0, 1).await?;
    let header = lab.fleet_header(case, fleet.details().as_ref());
    let begin = Instant::now();
    let end = begin + half;
    let mut ended = false;
    while begin.elapsed() < 2 * half {
        if !ended && Instant::now() >= end {
            ended = true;
            fleet.retire(1);
        }
        let came = Instant::now();
        let answered = fleet.call(Arrival { at: came - begin, member: 0 }).await;
        if let Some(problem) = answered.problem {
            lab.progress.note(&format!("{case}: {problem}"));
        }
        lab.keep(Line {
            header: header.clone(),
            function: called.function.name.clone(),
            ended_count: others.into(),
            after_end_seconds: (came - begin).as_secs_f64() - half.as_secs_f64(),
            latency_ns: nanoseconds(answered.latency),
        })?;
    }
    fleet.stop().await;
    Ok(())
}

/// In milliseconds, of the calls that came within these seconds.
fn latency<'a>(lines: impl Iterator<Item = &'a Line>, from: f64, to: f64) -> Option<Spread> {
    let within = lines.filter(|line| (from..to).contains(&line.after_end_seconds));
    Spread::of(within.map(|line| line.latency_ns as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{
        bound::Verdict,
        record::{complaint, tests::header},
    };

    #[test]
    fn before_and_after_are_told_apart() {
        let line = |at: f64, ms: u64| of_run(0, at, ms);
        let records = [line(-1.0, 10), line(0.5, 70), line(5.0, 11)];
        assert_eq!(complaint(&records[0], &["latency_ns"]), None);
        assert_eq!(latency(records.iter(), 0.0, 2.0).unwrap().median, 70.0);
        assert!(Arguments::table(&records).to_string().contains("70"));
        assert!(Arguments::plot(&records).unwrap().contains("Latency"));
    }

    /// Hundreds of calls that met the same two ends are two measurements.
    #[test]
    fn runs_are_counted_and_not_their_calls() {
        let run = |trial| {
            let before = (0..100).map(move |_| of_run(trial, -1.0, 10));
            before.chain((0..100).map(move |_| of_run(trial, 0.5, 9)))
        };
        let verdict = |runs| {
            let records: Vec<_> = (0..runs).flat_map(run).collect();
            Arguments::bounds(&records)[0].verdict()
        };
        assert_eq!([verdict(2), verdict(5)], [Verdict::Unclear, Verdict::Met]);
    }

    fn of_run(trial: u32, at: f64, ms: u64) -> Line {
        Line {
            header: header("interference", "squeezy", trial),
            function: "html".to_owned(),
            ended_count: 3,
            after_end_seconds: at,
            latency_ns: ms * 1_000_000,
        }
    }
}
