//! Host memory per instance, in a VM shared with others (N:1) and in a VM of its own (1:1) (Figure
//! 11b of the Squeezy paper). See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, OfFunction, describe_run},
    report::{
        Assessments, Estimate, Sample, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        functions, methods, of_function, sorted,
    },
    rigs::node_rig::{NodeRig, NodeRigOptions, NodeRigPlan, Trial, Usual},
    size::mib,
};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_vmm::mechanism::MechanismName;
use std::time::{Duration, Instant};

const POLICIES: [PolicyName; 2] =
    [PolicyName::Mechanism(MechanismName::Squeezy), PolicyName::Microvm];

/// Host memory of an instance, in its own VM and in a shared one.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    rig: NodeRigOptions,
}

/// A number of idle instances of one function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    function: String,
    instances: u16,
    /// Resident host memory of all their VMs.
    resident_bytes: u64,
    /// The part outside partitions: the kernel, the agent, page tables and, with 1:1, everything.
    base_bytes: u64,
    /// Memory that the guests have.
    plugged_bytes: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "footprint";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let functions = self.rig.functions(session, &Usual::EVERY)?;
        let count = session.options.trials_or(1, 5);
        let trials = self.rig.trials_of_each(count, &functions, &POLICIES);
        session.each(&trials, one).await
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
            |line| (line.function.clone(), by_method(line), line.instances),
            &[
                Column::common("function", |line| line.function.clone()),
                Column::common("method", |line| line.header.method.clone()),
                Column::common("instances", |line| line.instances.to_string()),
                Column::count("n"),
                Column::median("resident MiB", |line| mib(line.resident_bytes)),
                Column::median("per instance MiB", each),
                Column::median("outside MiB", |line| mib(line.base_bytes)),
                Column::median("plugged MiB", |line| mib(line.plugged_bytes)),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let Some(&most) = counts(records).last() else { return };
        let functions = functions(records);
        let ratios = functions.iter().map(|function| {
            let of = |method| select(records, method, function, most).map(each).collect();
            Sample::Ratio(of("microvm"), of("squeezy"))
        });
        let what = format!(
            "host memory of an instance with {} others, 1:1 relative to N:1, mean over functions",
            most - 1
        );
        assessments.add("one-to-one", what, Estimate::mean(ratios));
    }

    fn plot(records: &[Line]) -> Chart {
        let counts = counts(records);
        let panels = functions(records)
            .into_iter()
            .map(|function| Panel {
                title: format!("{function}: resident on the host"),
                x: "instances".to_owned(),
                y: "MiB per instance".to_owned(),
                categories: counts.iter().map(u16::to_string).collect(),
                series: Series::of_methods(&methods(records), |method| {
                    let point = |&n| Spread::of(select(records, method, &function, n).map(each));
                    counts.iter().map(point).collect()
                }),
                joined: true,
                logarithmic: false,
            })
            .collect();
        Chart {
            title: "Host memory per instance, by number of instances".to_owned(),
            subtitle: describe_run(records),
            panels,
            foot: "All host memory of the VMs, divided by the number of instances.".to_owned(),
        }
    }
}

/// Starts more and more instances, up to the maximum.
async fn one(session: &mut Session<Figures>, trial: &Trial<'_>) -> Result {
    let plan = NodeRigPlan::abundant(trial.policy, Duration::from_secs(3600));
    let rig = NodeRig::start(session, trial.functions, &plan).await?;
    rig.warm_up().await?;
    let function = &trial.functions[0].function;
    let most = function.concurrency;
    let steps = std::iter::successors(Some(1_u16), |n| n.checked_mul(2)).take_while(|n| *n < most);
    for instances in steps.chain([most]) {
        session.progress.say(&format!("{trial}: {instances} instances"));
        rig.have(0, instances).await?;
        let sample = rig.sample(Instant::now()).await?;
        let memory = sample.memory;
        let resident_bytes = memory.resident.resident_bytes;
        session.keep(
            trial.header(session, rig.details().as_ref()),
            Figures {
                function: function.name.clone(),
                instances,
                resident_bytes,
                base_bytes: match trial.policy {
                    PolicyName::Microvm => resident_bytes,
                    _ => resident_bytes.saturating_sub(memory.device_resident.resident_bytes),
                },
                plugged_bytes: memory.plugged_bytes,
            },
        )?;
    }
    rig.stop().await;
    Ok(())
}

/// Host memory per instance, in MiB.
fn each(line: &Line) -> f64 {
    mib(line.resident_bytes) / f64::from(line.instances.max(1))
}

fn counts(records: &[Line]) -> Vec<u16> {
    sorted(records, |line| line.instances)
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    function: &'a str,
    instances: u16,
) -> impl Iterator<Item = &'a Line> {
    of_function(records, method, function).filter(move |line| line.instances == instances)
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
        record::{complaint, tests::header},
    };

    #[test]
    fn what_is_shared_is_divided() {
        let line = |method, instances, resident: u64| Measured {
            header: header("footprint", method, 0),
            figures: Figures {
                function: "html".to_owned(),
                instances,
                resident_bytes: resident << 20,
                base_bytes: 1,
                plugged_bytes: 1,
            },
        };
        let records = [line("squeezy", 4, 200), line("microvm", 4, 600)];
        assert_eq!(complaint(&records[0], &["resident_bytes", "instances"]), None);
        assert_eq!(assess::<Arguments>(&records)[0].measured.value, 3.0);
        assert!(Arguments::table(&records).to_string().contains("50"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("microvm"));
    }
}
