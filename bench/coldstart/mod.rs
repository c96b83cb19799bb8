//! What the first answer of an instance takes, part by part: in a VM that is there (N:1), in one that
//! has to be booted, and with a VM for each instance (1:1) (Figure 11a of the Squeezy paper). See
//! README.md.

use crate::common::{
    Experiment,
    bound::{Bound, Limit, number},
    cases::{Case, cases},
    chart::{BLUE, Chart, GREEN, ORANGE, PURPLE, Panel, Series, VERMILION},
    error::{BenchError, Result},
    estimate::{Estimate, Sample},
    fleet::{Answered, Arrival, Fleet, FleetPlan, Seen},
    functions::Functions,
    lab::Lab,
    options::Options,
    policies::Policies,
    record::{Header, Record, describe_run},
    select::{functions, in_order, of_function},
    stand::nanoseconds,
    stats::{Spread, median},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_runtime::function::Function;
use squeezy_vmm::mechanism::MechanismName;
use std::time::Duration;

const POLICIES: [PolicyName; 3] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Microvm,
];

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

/// One start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) function: String,
    /// Whether the VM was there, with the function's files in its page cache.
    pub(crate) vm_was_there: bool,
    /// From the call to its answer.
    pub(crate) total_ns: u64,
    /// Booting the VM; 0 where it was there.
    pub(crate) boot_ns: u64,
    /// Plugging memory, of which the sandbox may be set up meanwhile (squeezy).
    pub(crate) plug_ns: u64,
    /// Until the server's command was executed.
    pub(crate) sandbox_ns: u64,
    /// From there until `/init` was answered: interpreter, modules, function.
    pub(crate) init_ns: u64,
    /// The first `/run`.
    pub(crate) run_ns: u64,
    /// Stopping it afterwards, until its last process was reaped.
    pub(crate) stop_ns: u64,
    /// Getting its memory back.
    pub(crate) reclaim_ns: u64,
    /// Its memory.
    pub(crate) size_bytes: u64,
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
    const NAME: &'static str = "coldstart";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let default = Functions::default(self.options.quick);
        let functions = self.functions.find(lab, default, self.options.quick)?;
        let trials = self.options.trials_or(2, 5);
        let cases = cases(trials, functions.chunks(1), &self.policies.or(&POLICIES));
        lab.each(&cases, one).await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "function",
            "method",
            "VM",
            "n",
            "total ms",
            "boot ms",
            "plug ms",
            "sandbox ms",
            "init ms",
            "run ms",
            "stop ms",
            "reclaim ms",
        ]);
        for (function, method, there) in starts(records) {
            let lines = || select(records, &method, &function, there);
            let of = |value: fn(&Line) -> u64| {
                number(median(lines().map(|line| value(line) as f64 / 1e6)).unwrap_or(0.0))
            };
            table.row([
                function.clone(),
                method.clone(),
                if there { "there" } else { "booted" }.to_owned(),
                lines().count().to_string(),
                of(|line| line.total_ns),
                of(|line| line.boot_ns),
                of(|line| line.plug_ns),
                of(|line| line.sandbox_ns),
                of(|line| line.init_ns),
                of(|line| line.run_ns),
                of(|line| line.stop_ns),
                of(|line| line.reclaim_ns),
            ]);
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        let of = |method: &str, function: &str, value: fn(&Line) -> f64| {
            select(records, method, function, true).map(value).collect::<Vec<_>>()
        };
        let functions = functions(records);
        let ratio = functions.iter().map(|function| {
            let total = |line: &Line| line.total_ns as f64;
            Sample::Ratio(of("microvm", function, total), of("squeezy", function, total))
        });
        let part = functions.iter().map(|function| {
            let part = |line: &Line| 100.0 * line.plug_ns as f64 / line.total_ns as f64;
            Sample::Median(of("squeezy", function, part))
        });
        let ratio = Estimate::mean(ratio).map(|measured| Bound {
            what: "cold start, 1:1 against N:1, mean over the functions".to_owned(),
            measured,
            limit: Limit::AtLeast(2.0),
            unit: "x",
        });
        let part = Estimate::mean(part).map(|measured| Bound {
            what: "the plug's part of a cold start, mean over the functions".to_owned(),
            measured,
            limit: Limit::AtMost(1.0),
            unit: "%",
        });
        ratio.into_iter().chain(part).collect()
    }

    fn plot(records: &[Line]) -> Result<String> {
        let panels = functions(records).into_iter().map(|function| panel(records, function));
        Chart {
            title: "From a call to its first answer".to_owned(),
            subtitle: describe_run(records),
            panels: panels.collect(),
            foot: "Of squeezy, plug and sandbox go on side by side.".to_owned(),
        }
        .svg()
    }
}

fn panel(records: &[Line], function: String) -> Panel {
    let mut starts = starts(records);
    starts.retain(|(of, ..)| *of == function);
    let series = |name: &str, colour, value: fn(&Line) -> u64| Series {
        name: name.to_owned(),
        colour,
        variant: false,
        points: starts
            .iter()
            .map(|(function, method, there)| {
                let lines = select(records, method, function, *there);
                // A logarithmic axis has no place for nothing.
                Spread::of(lines.map(|line| value(line) as f64 / 1e6))
                    .filter(|spread| spread.median >= 0.1)
            })
            .collect(),
    };
    Panel {
        series: vec![
            series("boot", VERMILION, |line| line.boot_ns),
            series("plug", BLUE, |line| line.plug_ns),
            series("sandbox", GREEN, |line| line.sandbox_ns),
            series("init", ORANGE, |line| line.init_ns),
            series("run", PURPLE, |line| line.run_ns),
        ],
        categories: starts
            .iter()
            .map(|(_, method, there)| format!("{method}{}", if *there { "" } else { " +VM" }))
            .collect(),
        title: function,
        x: "method, and whether the VM had to be booted".to_owned(),
        y: "milliseconds".to_owned(),
        joined: false,
        logarithmic: true,
    }
}

/// The first instance of a machine, and the second.
async fn one(lab: &mut Lab<Line>, case: &Case<'_>) -> Result {
    let plan = FleetPlan::abundant(case.policy, Duration::from_secs(3600));
    let fleet = Fleet::start(lab, case.functions, &plan).await?;
    for vm_was_there in [false, true] {
        let seen_before = fleet.seen().len();
        let answered = fleet.call(Arrival { at: Duration::ZERO, member: 0 }).await;
        if let Some(problem) = &answered.problem {
            return Err(BenchError::function(problem.clone()));
        }
        fleet.evict().await?;
        let seen = &fleet.seen()[seen_before..];
        let header = lab.fleet_header(case, fleet.details().as_ref());
        lab.keep(line(header, &case.functions[0].function, vm_was_there, &answered, seen))?;
    }
    fleet.stop().await;
    Ok(())
}

fn line(
    header: Header,
    function: &Function,
    vm_was_there: bool,
    answered: &Answered,
    seen: &[Seen],
) -> Line {
    let mut line = Line {
        header,
        function: function.name.clone(),
        vm_was_there,
        total_ns: nanoseconds(answered.latency),
        boot_ns: 0,
        plug_ns: 0,
        sandbox_ns: 0,
        init_ns: 0,
        run_ns: nanoseconds(answered.latency.saturating_sub(answered.waited)),
        stop_ns: 0,
        reclaim_ns: 0,
        size_bytes: function.memory_bytes,
    };
    for seen in seen {
        match seen {
            Seen::Booted(took) => line.boot_ns = nanoseconds(*took),
            Seen::Plugged(took) => line.plug_ns = nanoseconds(*took),
            Seen::Started(times) => {
                line.sandbox_ns = nanoseconds(times.spawn);
                line.init_ns = nanoseconds(times.init);
            }
            Seen::Reclaimed { stop, latency, .. } => {
                line.stop_ns = nanoseconds(*stop);
                line.reclaim_ns = latency.map_or(0, nanoseconds);
            }
            Seen::Squeezed(_) => {}
        }
    }
    line
}

/// Function, method, and whether the VM was there.
fn starts(records: &[Line]) -> Vec<(String, String, bool)> {
    in_order(records, |line| (line.function.clone(), line.header.method.clone(), line.vm_was_there))
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    function: &'a str,
    there: bool,
) -> impl Iterator<Item = &'a Line> {
    of_function(records, method, function).filter(move |line| line.vm_was_there == there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::{complaint, tests::header};
    use squeezy_node::StartTimes;

    #[test]
    fn the_parts_of_a_start_come_from_what_was_seen() {
        let ms = Duration::from_millis;
        let answered = Answered {
            arrival: Arrival { at: ms(0), member: 0 },
            latency: ms(100),
            waited: ms(80),
            cold: Some(ms(50)),
            problem: None,
        };
        let seen = [
            Seen::Booted(ms(20)),
            Seen::Plugged(ms(3)),
            Seen::Started(StartTimes { spawn: ms(4), init: ms(50) }),
        ];
        let html = include_str!("../../functions/html/function.toml");
        let html = Function::parse(html).unwrap();
        let of = |method| line(header("coldstart", method, 0), &html, true, &answered, &seen);
        let line = of("squeezy");
        assert_eq!((line.boot_ns, line.run_ns, line.init_ns), (20_000_000, 20_000_000, 50_000_000));
        assert_eq!(complaint(&line, &["total_ns", "function"]), None);
        let records = [line, of("microvm")];
        assert_eq!(Arguments::bounds(&records).len(), 2);
        assert!(Arguments::table(&records).to_string().contains("there"));
        assert!(Arguments::plot(&records).unwrap().contains("sandbox"));
    }
}
