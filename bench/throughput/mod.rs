//! How fast memory comes back while instances are ended under load, by function (Figure 8 of the
//! Squeezy paper). See README.md.

use crate::common::{
    Experiment,
    bound::{Bound, Limit, number},
    cases::cases,
    chart::{Chart, Panel, Series},
    error::Result,
    estimate::Estimate,
    fleet::{FleetPlan, replay},
    functions::Functions,
    lab::Lab,
    load::LoadOptions,
    options::Options,
    policies::Policies,
    record::{Header, Record, describe_run},
    select::{functions, methods, of_function},
    stand::nanoseconds,
    stats::{Spread, median},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_vmm::mechanism::MechanismName;
use std::time::Duration;

const POLICIES: [PolicyName; 3] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Mechanism(MechanismName::Balloon),
];

/// How long an idle instance is kept, of the load's length: short, for reclaims are what is measured.
const KEEP_ALIVE: f64 = 0.1;

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

/// One reclaim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) function: String,
    pub(crate) load: String,
    pub(crate) size_bytes: u64,
    pub(crate) latency_ns: u64,
    /// Of the instance's memory; 0 where the guest had not given all back in time.
    pub(crate) reclaimed_bytes_per_second: f64,
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
    const NAME: &'static str = "throughput";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let default = Functions::default(self.options.quick);
        let functions = self.functions.find(lab, default, self.options.quick)?;
        let seconds = self.load.duration.unwrap_or(if self.options.quick { 40 } else { 240 });
        let length = Duration::from_secs(seconds.into());
        let trials = self.options.trials_or(1, 3);
        let cases = cases(trials, functions.chunks(1), &self.policies.or(&POLICIES));
        lab.each(&cases, async |lab, case| {
            let function = &case.functions[0].function;
            let load = self.load.load(1, length, function.concurrency.into())?;
            let plan = FleetPlan::abundant(case.policy, length.mul_f64(KEEP_ALIVE));
            let replayed = replay(lab, case, &plan, &load.arrivals).await?;
            let header = lab.fleet_header(case, replayed.details.as_ref());
            for (latency, failed) in replayed.reclaims(0) {
                let size_bytes = function.memory_bytes;
                let rate = size_bytes as f64 / latency.as_secs_f64().max(1e-9);
                lab.keep(Line {
                    header: header.clone(),
                    function: function.name.clone(),
                    load: load.source.clone(),
                    size_bytes,
                    latency_ns: nanoseconds(latency),
                    reclaimed_bytes_per_second: if failed { 0.0 } else { rate },
                })?;
            }
            Ok(())
        })
        .await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "function",
            "method",
            "reclaims",
            "MiB/s",
            "quartiles MiB/s",
            "median ms",
        ]);
        for function in functions(records) {
            for method in methods(records) {
                let Some(rate) = rate(records, &method, &function) else { continue };
                let lines = of_function(records, &method, &function);
                let latency = lines.map(|line| line.latency_ns as f64 / 1e6);
                table.row([
                    function.clone(),
                    method.clone(),
                    rate.count.to_string(),
                    number(rate.median),
                    format!("{}-{}", number(rate.low), number(rate.high)),
                    number(median(latency).unwrap_or(0.0)),
                ]);
            }
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        functions(records)
            .iter()
            .filter_map(|function| {
                let rates = |method| rates(records, method, function);
                Some(Bound {
                    what: format!("reclaim throughput under load of {function} against virtio-mem"),
                    measured: Estimate::ratio(rates("squeezy"), rates("virtio-mem"))?,
                    limit: Limit::AtLeast(50.0),
                    unit: "x",
                })
            })
            .collect()
    }

    fn plot(records: &[Line]) -> Result<String> {
        let functions = functions(records);
        let panel = Panel {
            title: "Memory given back".to_owned(),
            x: "function".to_owned(),
            y: "MiB a second".to_owned(),
            categories: functions.clone(),
            series: Series::of_methods(&methods(records), |method| {
                functions.iter().map(|function| rate(records, method, function)).collect()
            }),
            joined: false,
            logarithmic: true,
        };
        Chart {
            title: "Reclaiming while instances are ended under load".to_owned(),
            subtitle: describe_run(records),
            panels: vec![panel],
            foot: records.first().map_or(String::new(), |line| format!("Load: {}.", line.load)),
        }
        .svg()
    }
}

/// In MiB a second.
fn rate(records: &[Line], method: &str, function: &str) -> Option<Spread> {
    Spread::of(rates(records, method, function))
}

/// MiB a second of each reclaim.
fn rates<'a>(
    records: &'a [Line],
    method: &'a str,
    function: &'a str,
) -> impl Iterator<Item = f64> + 'a {
    of_function(records, method, function)
        .map(|line| line.reclaimed_bytes_per_second / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::{complaint, tests::header};

    #[test]
    fn lines_name_their_units() {
        let line = Line {
            header: header("throughput", "squeezy", 0),
            function: "html".to_owned(),
            load: "synthetic".to_owned(),
            size_bytes: 1 << 30,
            latency_ns: 1_000_000_000,
            reclaimed_bytes_per_second: f64::from(1 << 30),
        };
        assert_eq!(complaint(&line, &["reclaimed_bytes_per_second", "function"]), None);
        let records = [line];
        assert!(Arguments::table(&records).to_string().contains("1024"));
        assert!(Arguments::plot(&records).unwrap().contains("html"));
    }
}
