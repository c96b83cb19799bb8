//! Instances, guest memory and host memory over time under a bursty load (Figure 1 of the Squeezy
//! paper). See README.md.

use crate::common::{
    Experiment,
    bound::number,
    cases::cases,
    chart::{Chart, Panel, Series},
    error::Result,
    fleet::{FleetPlan, Sample, replay},
    functions::Functions,
    lab::Lab,
    load::LoadOptions,
    options::Options,
    policies::Policies,
    record::{Header, Record, describe_run},
    select::{methods, of_method},
    stand::nanoseconds,
    stats::Spread,
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_runtime::{Moment, series};
use squeezy_vmm::mechanism::MechanismName;
use std::time::Duration;

const POLICIES: [PolicyName; 4] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Mechanism(MechanismName::Static),
    PolicyName::Microvm,
];

/// How long an idle instance is kept, of the load's length.
const KEEP_ALIVE: f64 = 0.15;

/// Points of a curve in the plot.
const POINTS: u64 = 24;

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

/// One moment of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) load: String,
    /// From the load's begin on.
    pub(crate) at_ns: u64,
    /// Of the whole load.
    pub(crate) length_ns: u64,
    /// Instances there are, and those that work on a call.
    pub(crate) alive_count: u64,
    pub(crate) busy_count: u64,
    pub(crate) asked_bytes: u64,
    pub(crate) plugged_bytes: u64,
    pub(crate) resident_bytes: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "elasticity";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let default: &[&str] = if self.options.quick { &["html"] } else { &["html", "bfs"] };
        let functions = self.functions.find(lab, default, self.options.quick)?;
        let seconds = self.load.duration.unwrap_or(if self.options.quick { 45 } else { 240 });
        let length = Duration::from_secs(seconds.into());
        let most = functions.iter().map(|image| image.function.concurrency).max().unwrap_or(1);
        let load = self.load.load(functions.len(), length, most.into())?;
        let trials = self.options.trials_or(1, 1);
        let cases = cases(trials, [functions.as_slice()], &self.policies.or(&POLICIES));
        lab.each(&cases, async |lab, case| {
            let plan = FleetPlan::abundant(case.policy, length.mul_f64(KEEP_ALIVE));
            let replayed = replay(lab, case, &plan, &load.arrivals).await?;
            let header = lab.fleet_header(case, replayed.details.as_ref());
            let mut samples = replayed.samples.iter();
            samples.try_for_each(|s| lab.keep(line(header.clone(), &load.source, length, s)))
        })
        .await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "method",
            "most instances",
            "plugged GiB s",
            "resident GiB s",
            "plugged MiB at the end",
            "resident MiB at the end",
        ]);
        for method in methods(records) {
            let lines = || of_method(records, &method);
            let integral = |value: fn(&Line) -> u64| {
                let points: Vec<_> = lines()
                    .filter(|line| line.header.trial == 0)
                    .map(|line| {
                        let at = Moment(Duration::from_nanos(line.at_ns));
                        (at, value(line) as f64 / f64::from(1 << 30))
                    })
                    .collect();
                series::integral(&points)
            };
            let last = |value: fn(&Line) -> u64| {
                number(
                    lines().next_back().map_or(0.0, |line| value(line) as f64 / f64::from(1 << 20)),
                )
            };
            table.row([
                method.clone(),
                lines().map(|line| line.alive_count).max().unwrap_or(0).to_string(),
                number(integral(|line| line.plugged_bytes)),
                number(integral(|line| line.resident_bytes)),
                last(|line| line.plugged_bytes),
                last(|line| line.resident_bytes),
            ]);
        }
        table
    }

    fn plot(records: &[Line]) -> Result<String> {
        let length_ns = records.iter().map(|line| line.length_ns).max().unwrap_or(1).max(POINTS);
        let step_ns = length_ns / POINTS;
        let seconds = |point: u64| format!("{:.0}", (point * step_ns) as f64 / 1e9);
        let panel = |title: &str, y: &str, value: fn(&Line) -> f64| Panel {
            title: title.to_owned(),
            x: "seconds".to_owned(),
            y: y.to_owned(),
            categories: (0..POINTS)
                .map(|point| if point % 4 == 0 { seconds(point) } else { String::new() })
                .collect(),
            series: Series::of_methods(&methods(records), |method| {
                let lines = |point| {
                    of_method(records, method).filter(move |line| line.at_ns / step_ns == point)
                };
                (0..POINTS).map(|point| Spread::of(lines(point).map(value))).collect()
            }),
            joined: true,
            logarithmic: false,
        };
        Chart {
            title: "Instances and memory over time".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("Instances", "count", |line| line.alive_count as f64),
                panel("Memory of the guests", "GiB", |line| {
                    line.plugged_bytes as f64 / f64::from(1 << 30)
                }),
                panel("Resident on the host", "GiB", |line| {
                    line.resident_bytes as f64 / f64::from(1 << 30)
                }),
            ],
            foot: records.first().map_or(String::new(), |line| format!("Load: {}.", line.load)),
        }
        .svg()
    }
}

fn line(header: Header, load: &str, length: Duration, sample: &Sample) -> Line {
    let count = |of: fn(&squeezy_runtime::Counts) -> usize| {
        sample.counts.iter().map(of).sum::<usize>() as u64
    };
    Line {
        header,
        load: load.to_owned(),
        at_ns: nanoseconds(sample.at),
        length_ns: nanoseconds(length),
        alive_count: count(|counts| counts.starting + counts.idle + counts.busy),
        busy_count: count(|counts| counts.busy),
        asked_bytes: sample.memory.asked_bytes,
        plugged_bytes: sample.memory.plugged_bytes,
        resident_bytes: sample.memory.resident.resident_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::{complaint, tests::header};

    #[test]
    fn memory_over_time_is_summed_up() {
        let line = |seconds: u64| Line {
            header: header("elasticity", "squeezy", 0),
            load: "synthetic".to_owned(),
            at_ns: seconds * 1_000_000_000,
            length_ns: 10_000_000_000,
            alive_count: 2,
            busy_count: 1,
            asked_bytes: 1 << 30,
            plugged_bytes: 1 << 30,
            resident_bytes: 1 << 29,
        };
        let records: Vec<_> = (0..10).map(line).collect();
        assert_eq!(complaint(&records[0], &["plugged_bytes", "at_ns"]), None);
        let table = Arguments::table(&records).to_string();
        assert!(table.contains("9.00") && table.contains("4.50"), "{table}");
        assert!(Arguments::plot(&records).unwrap().contains("Instances"));
    }
}
