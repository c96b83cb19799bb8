//! The time to an instance's first answer, broken down: in a running VM (N:1), in a VM that has to
//! be booted, and with a VM per instance (1:1) (Figure 11a of the Squeezy paper). See README.md.

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Report, Session},
    record::{Measured, OfFunction, describe_run, nanoseconds},
    report::{
        Assessments, Estimate, Sample, Spread, Table,
        chart::{BLUE, Chart, GREEN, ORANGE, PURPLE, Panel, Series, VERMILION},
        functions, in_order, of_function,
    },
    rigs::{
        load::Arrival,
        node_rig::{Answered, NodeRig, NodeRigOptions, NodeRigPlan, Seen, Trial, Usual},
    },
};
use serde::{Deserialize, Serialize};
use squeezy_node::{PolicyName, function::Function};
use squeezy_vmm::mechanism::MechanismName;
use std::time::Duration;

const POLICIES: [PolicyName; 3] = [
    PolicyName::Mechanism(MechanismName::Squeezy),
    PolicyName::Mechanism(MechanismName::VirtioMem),
    PolicyName::Microvm,
];

/// Time to the first answer of an instance, part by part, in its own VM and in a shared one.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    rig: NodeRigOptions,
}

/// A cold start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) function: String,
    /// Whether the VM was already running, with the function's files in its page cache.
    pub(crate) vm_was_there: bool,
    /// From the call to its answer.
    pub(crate) total_ns: u64,
    /// Booting the VM; 0 if it was running.
    pub(crate) boot_ns: u64,
    /// Plugging memory; with squeezy, the sandbox is set up at the same time.
    pub(crate) plug_ns: u64,
    /// Until the server's command was executed.
    pub(crate) sandbox_ns: u64,
    /// From there until `/init` was answered: interpreter, modules, function.
    pub(crate) init_ns: u64,
    /// The first `/run`.
    pub(crate) run_ns: u64,
    /// Stopping the instance, until its last process was reaped.
    pub(crate) stop_ns: u64,
    /// Reclaiming its memory.
    pub(crate) reclaim_ns: u64,
    /// Size of its memory.
    pub(crate) size_bytes: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "coldstart";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let functions = self.rig.functions(session, &Usual::EVERY)?;
        let count = session.options.trials_or(2, 5);
        let trials = self.rig.trials_of_each(count, &functions, &POLICIES);
        session.each(&trials, one).await
    }
}

/// A record.
pub(crate) type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let starts = starts(records);
        let ms = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64 / 1e6)
        };
        Table::of(
            records,
            |line| starts.iter().position(|it| *it == start(line)),
            &[
                Column::common("function", |line| line.function.clone()),
                Column::common("method", |line| line.header.method.clone()),
                Column::common("VM", |line| {
                    if line.vm_was_there { "there" } else { "booted" }.to_owned()
                }),
                Column::count("n"),
                ms("total ms", |line| line.total_ns),
                ms("boot ms", |line| line.boot_ns),
                ms("plug ms", |line| line.plug_ns),
                ms("sandbox ms", |line| line.sandbox_ns),
                ms("init ms", |line| line.init_ns),
                ms("run ms", |line| line.run_ns),
                ms("stop ms", |line| line.stop_ns),
                ms("reclaim ms", |line| line.reclaim_ns),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
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
        assessments.add(
            "one-to-one",
            "cold start, 1:1 relative to N:1, mean over functions",
            Estimate::mean(ratio),
        );
        assessments.add(
            "plug",
            "the plug's share of a cold start, mean over functions",
            Estimate::mean(part),
        );
    }

    fn plot(records: &[Line]) -> Chart {
        let panels = functions(records).into_iter().map(|function| panel(records, function));
        Chart {
            title: "Time from a call to an instance's first answer".to_owned(),
            subtitle: describe_run(records),
            panels: panels.collect(),
            foot: "With squeezy, plugging memory and setting up the sandbox overlap.".to_owned(),
        }
    }
}

/// The parts of a function's starts, by method.
pub(crate) fn panel(records: &[Line], function: String) -> Panel {
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
                // Zero does not exist on a logarithmic axis.
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
        x: "method; +VM: the VM had to be booted".to_owned(),
        y: "milliseconds".to_owned(),
        joined: false,
        logarithmic: true,
    }
}

/// The first instance in a VM, and the second.
async fn one(session: &mut Session<Figures>, trial: &Trial<'_>) -> Result {
    let plan = NodeRigPlan::abundant(trial.policy, Duration::from_secs(3600));
    let rig = NodeRig::start(session, trial.functions, &plan).await?;
    for vm_was_there in [false, true] {
        let seen_before = rig.seen().len();
        let answered = rig.call(Arrival { at: Duration::ZERO, member: 0 }).await;
        if let Some(problem) = &answered.problem {
            return Err(BenchError::function(problem.clone()));
        }
        rig.evict().await?;
        let seen = &rig.seen()[seen_before..];
        let header = trial.header(session, rig.details().as_ref());
        let function = &trial.functions[0].function;
        session.keep(header, Figures::of(function, vm_was_there, &answered, seen))?;
    }
    rig.stop().await;
    Ok(())
}

impl Figures {
    /// The phases of a start.
    pub(crate) fn of(
        function: &Function,
        vm_was_there: bool,
        answered: &Answered,
        seen: &[Seen],
    ) -> Self {
        let mut figures = Self {
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
                Seen::Booted(took) => figures.boot_ns = nanoseconds(*took),
                Seen::Plugged(took) => figures.plug_ns = nanoseconds(*took),
                Seen::Started(times) => {
                    figures.sandbox_ns = nanoseconds(times.spawn);
                    figures.init_ns = nanoseconds(times.init);
                }
                Seen::Reclaimed { stop, latency, .. } => {
                    figures.stop_ns = nanoseconds(*stop);
                    figures.reclaim_ns = latency.map_or(0, nanoseconds);
                }
                Seen::Squeezed(_) | Seen::Paused => {}
            }
        }
        figures
    }
}

/// Function, method, and whether the VM was running.
fn starts(records: &[Line]) -> Vec<(String, String, bool)> {
    in_order(records, start)
}

fn start(line: &Line) -> (String, String, bool) {
    (line.function.clone(), line.header.method.clone(), line.vm_was_there)
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    function: &'a str,
    there: bool,
) -> impl Iterator<Item = &'a Line> {
    of_function(records, method, function).filter(move |line| line.vm_was_there == there)
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
        let html = include_str!("../../../../functions/html/function.toml");
        let html = Function::parse(html).unwrap();
        let of = |method| Measured {
            header: header("coldstart", method, 0),
            figures: Figures::of(&html, true, &answered, &seen),
        };
        let line = of("squeezy");
        assert_eq!((line.boot_ns, line.run_ns, line.init_ns), (20_000_000, 20_000_000, 50_000_000));
        assert_eq!(complaint(&line, &["total_ns", "function"]), None);
        let records = [line, of("microvm")];
        assert_eq!(assess::<Arguments>(&records).len(), 2);
        assert!(Arguments::table(&records).to_string().contains("there"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("sandbox"));
    }
}
