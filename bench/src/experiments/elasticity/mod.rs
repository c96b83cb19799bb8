//! Instances, guest memory and host memory over time under a bursty load (Figure 1 of the Squeezy
//! paper). See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, describe_run, nanoseconds},
    report::{
        Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, number, of_method,
    },
    rigs::{
        load::LoadOptions,
        node_rig::{NodeRigOptions, NodeRigPlan, Sample, Usual, replay, trials},
    },
    size::{gib, mib},
};
use serde::{Deserialize, Serialize};
use squeezy_node::{PolicyName, series};
use squeezy_scaler::Moment;
use squeezy_vmm::mechanism::MechanismName;
use std::time::Duration;

const USUAL: Usual = Usual { full: &["html", "bfs"], quick: &["html"] };

const POLICIES: [PolicyName; 4] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Mechanism(MechanismName::Static),
    PolicyName::Microvm,
];

/// The keep-alive, as a fraction of the load's length.
const KEEP_ALIVE: f64 = 0.15;

/// Points per curve in the plot.
const POINTS: u64 = 24;

/// Instances and memory over time under a bursty load.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    rig: NodeRigOptions,
}

/// The state at one moment of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    load: String,
    /// Time since the load began.
    at_ns: u64,
    /// Length of the whole load.
    length_ns: u64,
    /// Existing instances, and those that are processing a call.
    alive_count: u64,
    busy_count: u64,
    asked_bytes: u64,
    plugged_bytes: u64,
    resident_bytes: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "elasticity";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let functions = self.rig.functions(session, &USUAL)?;
        let length = self.load.length(if session.options.quick { 45 } else { 240 });
        let most = functions.iter().map(|image| image.function.concurrency).max().unwrap_or(1);
        let load = self.load.load(functions.len(), length, most.into())?;
        let count = session.options.trials_or(1, 1);
        let trials = trials(count, [functions.as_slice()], &self.rig.policies.or(&POLICIES));
        session
            .each(&trials, async |session, trial| {
                let plan = NodeRigPlan::abundant(trial.policy, length.mul_f64(KEEP_ALIVE));
                let replayed = replay(session, trial, &plan, &load.arrivals).await?;
                let header = trial.header(session, replayed.details.as_ref());
                let mut samples = replayed.samples.iter();
                samples.try_for_each(|s| {
                    session.keep(header.clone(), figures(&load.source, length, s))
                })
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
        let integral = |head, bytes: fn(&Line) -> u64| {
            Column::new(head, move |lines: &[&Line]| {
                let first = lines.iter().filter(|line| line.header.trial == 0);
                let points =
                    first.map(|line| (Moment(Duration::from_nanos(line.at_ns)), gib(bytes(line))));
                number(series::integral(&points.collect::<Vec<_>>()))
            })
        };
        let last = |head, bytes: fn(&Line) -> u64| {
            Column::new(head, move |lines: &[&Line]| {
                number(lines.last().map_or(0.0, |line| mib(bytes(line))))
            })
        };
        Table::of(
            records,
            by_method(records),
            &[
                Column::common("method", |line| line.header.method.clone()),
                Column::new("most instances", |lines: &[&Line]| {
                    lines.iter().map(|line| line.alive_count).max().unwrap_or(0).to_string()
                }),
                integral("plugged GiB s", |line| line.plugged_bytes),
                integral("resident GiB s", |line| line.resident_bytes),
                last("plugged MiB at the end", |line| line.plugged_bytes),
                last("resident MiB at the end", |line| line.resident_bytes),
            ],
        )
    }

    fn plot(records: &[Line]) -> Chart {
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
                panel("Memory of the guests", "GiB", |line| gib(line.plugged_bytes)),
                panel("Resident on the host", "GiB", |line| gib(line.resident_bytes)),
            ],
            foot: records.first().map_or(String::new(), |line| format!("Load: {}.", line.load)),
        }
    }
}

fn figures(load: &str, length: Duration, sample: &Sample) -> Figures {
    let count = |of: fn(&squeezy_scaler::Counts) -> usize| {
        sample.counts.iter().map(of).sum::<usize>() as u64
    };
    Figures {
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
    use crate::record::{complaint, tests::header};

    #[test]
    fn memory_over_time_is_summed_up() {
        let line = |seconds: u64| Measured {
            header: header("elasticity", "squeezy", 0),
            figures: Figures {
                load: "synthetic".to_owned(),
                at_ns: seconds * 1_000_000_000,
                length_ns: 10_000_000_000,
                alive_count: 2,
                busy_count: 1,
                asked_bytes: 1 << 30,
                plugged_bytes: 1 << 30,
                resident_bytes: 1 << 29,
            },
        };
        let records: Vec<_> = (0..10).map(line).collect();
        assert_eq!(complaint(&records[0], &["plugged_bytes", "at_ns"]), None);
        let table = Arguments::table(&records).to_string();
        assert!(table.contains("9.00") && table.contains("4.50"), "{table}");
        assert!(Arguments::plot(&records).svg().unwrap().contains("Instances"));
    }
}
