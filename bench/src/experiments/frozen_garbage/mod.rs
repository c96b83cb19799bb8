//! How much more memory a frozen instance holds than it needs, by function and by its memory limit
//! (Figures 1, 2 and 4 of the Desiccant paper). See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, describe_run},
    report::{
        Spread, Table,
        chart::{BLUE, Chart, GREEN, ORANGE, PURPLE, Panel, Series},
        mean, median, number,
    },
    rigs::process::{
        Instance, Language, OfProcess, ProcessOptions, Subject, Trial, functions_in, of_size,
        sizes_of,
    },
    size::{self, mib},
};
use serde::{Deserialize, Serialize};
use squeezer::Request;

const VANILLA: &str = "vanilla";

/// Memory that a frozen Java or JavaScript instance holds but does not need, by its memory limit.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    processes: ProcessOptions,
}

/// An instance that has been called many times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Memory that no other process maps (USS), after the last call.
    uss_bytes: u64,
    /// The mean of USS after each call.
    mean_uss_bytes: u64,
    /// The maximum of USS after each call.
    most_uss_bytes: u64,
    /// USS after the last call if the heap consisted of live data only.
    ideal_uss_bytes: u64,
    heap_bytes: u64,
    live_bytes: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "frozen-garbage";

    async fn measure(&self, session: &mut Session<OfProcess<Figures>>) -> Result {
        let count = session.options.trials_or(1, 3);
        let trials = self.processes.trials(session, count, &[false]).await?;
        session.each(&trials, async |session, trial| self.one(session, trial).await).await
    }
}

/// A record.
type Line = Measured<OfProcess<Figures>>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = OfProcess<Figures>;

    fn table(records: &[Line]) -> Table {
        let columns: [Column<'_>; 11] = [
            Column::common("function", |line| line.subject.function.clone()),
            Column::common("memory", |line| size::show(line.subject.memory_bytes)),
            Column::count("n"),
            Column::median("USS MiB", |line| mib(line.uss_bytes)),
            Column::median("on average", |line| mib(line.mean_uss_bytes)),
            Column::median("at most", |line| mib(line.most_uss_bytes)),
            Column::median("ideal MiB", |line| mib(line.ideal_uss_bytes)),
            Column::median("heap MiB", |line| mib(line.heap_bytes)),
            Column::median("live MiB", |line| mib(line.live_bytes)),
            Column::median("over ideal", over_ideal),
            Column::median("garbage %", |line| 100.0 * (1.0 - 1.0 / over_ideal(line))),
        ];
        let mut table = Table::under(&columns);
        for language in Language::ALL {
            for memory in sizes_of(records) {
                let of = |line: &&Line| {
                    (line.subject.language, line.subject.memory_bytes) == (language, memory)
                };
                let lines = records.iter().filter(of);
                table.add(lines, |line| line.subject.function.clone(), &columns);
                let ratios = functions_in(records, language);
                let ratios = ratios.iter().filter_map(|function| {
                    median(of_size(records, VANILLA, function, memory).map(over_ideal))
                });
                let Some(ratio) = mean(ratios) else { continue };
                let blank = vec![String::new(); 7];
                let head = [format!("{language}, mean"), size::show(memory)];
                let last = [number(ratio), String::new()];
                table.row(head.into_iter().chain(blank).chain(last));
            }
        }
        table
    }

    fn plot(records: &[Line]) -> Chart {
        let sizes = sizes_of(records);
        let panel = |language| {
            let functions = functions_in(records, language);
            let series = sizes.iter().zip([BLUE, ORANGE, GREEN, PURPLE].into_iter().cycle()).map(
                |(&memory, colour)| Series {
                    name: size::show(memory),
                    colour,
                    variant: false,
                    points: functions
                        .iter()
                        .map(|name| {
                            Spread::of(of_size(records, VANILLA, name, memory).map(over_ideal))
                        })
                        .collect(),
                },
            );
            Panel {
                title: format!("{language}: memory held, relative to memory needed"),
                x: String::new(),
                y: "times the ideal USS".to_owned(),
                series: series.collect(),
                categories: functions,
                joined: false,
                logarithmic: false,
            }
        };
        Chart {
            title: "Memory held by a frozen instance, relative to what it needs".to_owned(),
            subtitle: describe_run(records),
            panels: Language::ALL.map(panel).into(),
            foot:
                "Memory that no other process maps (USS) after the last call; ideal: with only live data in the heap."
                    .to_owned(),
        }
    }
}

impl Arguments {
    /// Measures one instance after each call, and squeezes it at the end to determine its live
    /// data.
    async fn one(&self, session: &mut Session<OfProcess<Figures>>, trial: &Trial) -> Result {
        let mut held = Vec::new();
        let look = async |instance: &Instance| {
            instance.freeze().await?;
            held.push(instance.memory().await?.uss_bytes);
            instance.thaw().await
        };
        let (instance, calls) =
            self.processes.functions.warm(trial, session.options.quick, look).await?;
        let squeezed = instance.squeeze(Request::default()).await?;
        let answer = &squeezed.answer;
        let garbage = answer.before_bytes.saturating_sub(answer.live_bytes);
        let uss_bytes = held.last().copied().unwrap_or(0);
        session.keep(
            trial.header(session, VANILLA),
            OfProcess {
                subject: Subject::new(trial, &instance, squeezed.runtime(), calls),
                figures: Figures {
                    uss_bytes,
                    mean_uss_bytes: mean(held.iter().map(|&bytes| bytes as f64)).unwrap_or(0.0)
                        as u64,
                    most_uss_bytes: held.iter().copied().max().unwrap_or(0),
                    ideal_uss_bytes: uss_bytes.saturating_sub(garbage),
                    heap_bytes: answer.before_bytes,
                    live_bytes: answer.live_bytes,
                },
            },
        )
    }
}

fn over_ideal(line: &Line) -> f64 {
    line.uss_bytes as f64 / line.ideal_uss_bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{complaint, tests::header},
        rigs::process::example,
    };

    #[test]
    fn functions_weigh_the_same() {
        let line = |function: &str, uss: u64| Measured {
            header: header("frozen-garbage", VANILLA, 0),
            figures: OfProcess {
                subject: example(Language::Java, function),
                figures: Figures {
                    uss_bytes: uss << 20,
                    mean_uss_bytes: uss << 20,
                    most_uss_bytes: uss << 20,
                    ideal_uss_bytes: 20 << 20,
                    heap_bytes: 30 << 20,
                    live_bytes: 10 << 20,
                },
            },
        };
        let records = [line("sort", 40), line("time", 160)];
        assert_eq!(complaint(&records[0], &["uss_bytes", "ideal_uss_bytes"]), None);
        let text = Arguments::table(&records).to_string();
        let mean = text.lines().last().unwrap();
        assert!(mean.starts_with("Java, mean  256 MiB") && mean.ends_with("5.00"), "{text}");
        assert!(text.contains("87.5"), "{text}");
        assert!(Arguments::plot(&records).svg().unwrap().contains("256 MiB"));
    }
}
