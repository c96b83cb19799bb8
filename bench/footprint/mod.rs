//! Host memory that an instance takes, in a VM with others (N:1) and in one of its own (1:1)
//! (Figure 11b of the Squeezy paper). See README.md.

use crate::common::{
    Experiment,
    bound::{Bound, Limit, number},
    cases::{Case, cases},
    chart::{Chart, Panel, Series},
    error::Result,
    estimate::{Estimate, Sample},
    fleet::{Fleet, FleetPlan},
    functions::Functions,
    lab::Lab,
    options::Options,
    policies::Policies,
    record::{Header, Record, describe_run},
    select::{functions, methods, of_function, sorted},
    size::mib,
    stats::{Spread, median},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_vmm::mechanism::MechanismName;
use std::time::{Duration, Instant};

const POLICIES: [PolicyName; 2] =
    [PolicyName::Mechanism(MechanismName::Squeezy), PolicyName::Microvm];

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    functions: Functions,
}

/// So many instances of one function, all of which wait for the next call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) function: String,
    pub(crate) instances: u16,
    /// All memory of their VMs that is resident on the host.
    pub(crate) resident_bytes: u64,
    /// Of that, what is no partition: the kernel, the agent, page tables and, of 1:1, everything.
    pub(crate) base_bytes: u64,
    /// What the guests have been given.
    pub(crate) plugged_bytes: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }

    fn function(&self) -> &str {
        &self.function
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "footprint";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let default = Functions::default(self.options.quick);
        let functions = self.functions.find(lab, default, self.options.quick)?;
        let trials = self.options.trials_or(1, 5);
        let cases = cases(trials, functions.chunks(1), &self.policies.or(&POLICIES));
        lab.each(&cases, one).await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "function",
            "method",
            "instances",
            "n",
            "resident MiB",
            "an instance MiB",
            "no partition MiB",
            "plugged MiB",
        ]);
        for function in functions(records) {
            for method in methods(records) {
                for instances in counts(records) {
                    let lines = || select(records, &method, &function, instances);
                    if lines().next().is_none() {
                        continue;
                    }
                    let of =
                        |value: fn(&Line) -> f64| number(median(lines().map(value)).unwrap_or(0.0));
                    table.row([
                        function.clone(),
                        method.clone(),
                        instances.to_string(),
                        lines().count().to_string(),
                        of(|line| mib(line.resident_bytes)),
                        of(each),
                        of(|line| mib(line.base_bytes)),
                        of(|line| mib(line.plugged_bytes)),
                    ]);
                }
            }
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        let Some(&most) = counts(records).last() else { return Vec::new() };
        let functions = functions(records);
        let ratios = functions.iter().map(|function| {
            let of = |method| select(records, method, function, most).map(each).collect();
            Sample::Ratio(of("microvm"), of("squeezy"))
        });
        let what = format!(
            "host memory of an instance beside {} others, 1:1 against N:1, mean over the functions",
            most - 1
        );
        let bound = |measured| Bound { what, measured, limit: Limit::AtLeast(2.5), unit: "x" };
        Estimate::mean(ratios).map(bound).into_iter().collect()
    }

    fn plot(records: &[Line]) -> Result<String> {
        let counts = counts(records);
        let panels = functions(records)
            .into_iter()
            .map(|function| Panel {
                title: format!("{function}: resident on the host"),
                x: "instances".to_owned(),
                y: "MiB for each instance".to_owned(),
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
            title: "Host memory of an instance, by how many there are".to_owned(),
            subtitle: describe_run(records),
            panels,
            foot: "Everything that the VMs hold, divided by the instances.".to_owned(),
        }
        .svg()
    }
}

/// Ever more instances, until all there may be.
async fn one(lab: &mut Lab<Line>, case: &Case<'_>) -> Result {
    let plan = FleetPlan::abundant(case.policy, Duration::from_secs(3600));
    let fleet = Fleet::start(lab, case.functions, &plan).await?;
    fleet.warm_up().await?;
    let function = &case.functions[0].function;
    let most = function.concurrency;
    let steps = std::iter::successors(Some(1_u16), |n| n.checked_mul(2)).take_while(|n| *n < most);
    for instances in steps.chain([most]) {
        lab.progress.say(&format!("{case}: {instances} instances"));
        fleet.have(0, instances).await?;
        let sample = fleet.sample(Instant::now()).await?;
        let memory = sample.memory;
        let resident_bytes = memory.resident.resident_bytes;
        lab.keep(Line {
            header: lab.fleet_header(case, fleet.details().as_ref()),
            function: function.name.clone(),
            instances,
            resident_bytes,
            base_bytes: match case.policy {
                PolicyName::Microvm => resident_bytes,
                _ => resident_bytes.saturating_sub(memory.device_resident.resident_bytes),
            },
            plugged_bytes: memory.plugged_bytes,
        })?;
    }
    fleet.stop().await;
    Ok(())
}

/// The share of one instance, in MiB.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::{complaint, tests::header};

    #[test]
    fn what_is_shared_is_divided() {
        let line = |method, instances, resident: u64| Line {
            header: header("footprint", method, 0),
            function: "html".to_owned(),
            instances,
            resident_bytes: resident << 20,
            base_bytes: 1,
            plugged_bytes: 1,
        };
        let records = [line("squeezy", 4, 200), line("microvm", 4, 600)];
        assert_eq!(complaint(&records[0], &["resident_bytes", "instances"]), None);
        assert_eq!(Arguments::bounds(&records)[0].measured.value, 3.0);
        assert!(Arguments::table(&records).to_string().contains("50"));
        assert!(Arguments::plot(&records).unwrap().contains("microvm"));
    }
}
