//! Reclaim throughput while instances end under load, by function (Figure 8 of the Squeezy paper).
//! See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, OfFunction, describe_run, nanoseconds},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        functions, methods, of_function,
    },
    rigs::{
        load::LoadOptions,
        node_rig::{NodeRigOptions, NodeRigPlan, Usual, replay},
    },
};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_vmm::mechanism::MechanismName;

const POLICIES: [PolicyName; 3] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Mechanism(MechanismName::Balloon),
];

/// The keep-alive, as a fraction of the load's length: short, because the experiment measures
/// reclaims.
const KEEP_ALIVE: f64 = 0.1;

/// Reclaim throughput while instances end under load.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    rig: NodeRigOptions,
}

/// A reclaim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    function: String,
    load: String,
    size_bytes: u64,
    latency_ns: u64,
    /// Of the instance's memory; 0 if the guest had not given all of it back in time.
    reclaimed_bytes_per_second: f64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "throughput";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let functions = self.rig.functions(session, &Usual::EVERY)?;
        let length = self.load.length(if session.options.quick { 40 } else { 240 });
        let count = session.options.trials_or(1, 3);
        let trials = self.rig.trials_of_each(count, &functions, &POLICIES);
        session
            .each(&trials, async |session, trial| {
                let function = &trial.functions[0].function;
                let load = self.load.load(1, length, function.concurrency.into())?;
                let plan = NodeRigPlan::abundant(trial.policy, length.mul_f64(KEEP_ALIVE));
                let replayed = replay(session, trial, &plan, &load.arrivals).await?;
                let header = trial.header(session, replayed.details.as_ref());
                for (latency, failed) in replayed.reclaims(0) {
                    let size_bytes = function.memory_bytes;
                    let rate = size_bytes as f64 / latency.as_secs_f64().max(1e-9);
                    session.keep(
                        header.clone(),
                        Figures {
                            function: function.name.clone(),
                            load: load.source.clone(),
                            size_bytes,
                            latency_ns: nanoseconds(latency),
                            reclaimed_bytes_per_second: if failed { 0.0 } else { rate },
                        },
                    )?;
                }
                Ok(())
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
        let by_method = by_method(records);
        Table::of(
            records,
            |line| (line.function.clone(), by_method(line)),
            &[
                Column::common("function", |line| line.function.clone()),
                Column::common("method", |line| line.header.method.clone()),
                Column::count("reclaims"),
                Column::median("MiB/s", rate),
                Column::quartiles("quartiles MiB/s", rate),
                Column::median("median ms", |line| line.latency_ns as f64 / 1e6),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for function in functions(records) {
            let rates = |method| of_function(records, method, &function).map(rate);
            assessments.add(
                "against-virtio-mem",
                format!("reclaim throughput under load of {function} relative to virtio-mem"),
                Estimate::ratio(rates("squeezy"), rates("virtio-mem")),
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let functions = functions(records);
        let panel = Panel {
            title: "Reclaim throughput".to_owned(),
            x: "function".to_owned(),
            y: "MiB a second".to_owned(),
            categories: functions.clone(),
            series: Series::of_methods(&methods(records), |method| {
                let rates = |function: &String| {
                    Spread::of(of_function(records, method, function).map(rate))
                };
                functions.iter().map(rates).collect()
            }),
            joined: false,
            logarithmic: true,
        };
        Chart {
            title: "Reclaiming while instances end under load".to_owned(),
            subtitle: describe_run(records),
            panels: vec![panel],
            foot: records.first().map_or(String::new(), |line| format!("Load: {}.", line.load)),
        }
    }
}

/// In MiB per second.
fn rate(line: &Line) -> f64 {
    line.reclaimed_bytes_per_second / f64::from(1 << 20)
}

impl OfFunction for Figures {
    fn function(&self) -> &str {
        &self.function
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{complaint, tests::header};

    #[test]
    fn lines_name_their_units() {
        let line = Measured {
            header: header("throughput", "squeezy", 0),
            figures: Figures {
                function: "html".to_owned(),
                load: "synthetic".to_owned(),
                size_bytes: 1 << 30,
                latency_ns: 1_000_000_000,
                reclaimed_bytes_per_second: f64::from(1 << 30),
            },
        };
        assert_eq!(complaint(&line, &["reclaimed_bytes_per_second", "function"]), None);
        let records = [line];
        assert!(Arguments::table(&records).to_string().contains("1024"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("html"));
    }
}
