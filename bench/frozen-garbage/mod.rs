//! How much more a frozen instance holds than it needs, by function and by the memory it may take
//! (Figures 1, 2 and 4 of the Desiccant paper). See README.md.

use crate::common::{
    Experiment,
    bound::number,
    chart::{BLUE, Chart, GREEN, ORANGE, PURPLE, Panel, Series},
    error::Result,
    lab::Lab,
    native::{
        Case, Functions, Instance, Language, OfSubject, Sizes, Subject, cases, functions_in,
        of_size, sizes_of,
    },
    options::Options,
    record::{Header, Record, describe_run},
    size::{self, mib},
    stats::{Spread, mean, median},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_reclaim::Request;

const VANILLA: &str = "vanilla";

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    functions: Functions,
    #[command(flatten)]
    sizes: Sizes,
}

/// An instance that has been called again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    #[serde(flatten)]
    pub(crate) subject: Subject,
    /// What it had of its own after the last call.
    pub(crate) uss_bytes: u64,
    /// The same after each call, on average.
    pub(crate) mean_uss_bytes: u64,
    /// And at its most.
    pub(crate) most_uss_bytes: u64,
    /// What it would have had after the last call if its heap had been what was live.
    pub(crate) ideal_uss_bytes: u64,
    pub(crate) heap_bytes: u64,
    pub(crate) live_bytes: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }

    fn function(&self) -> &str {
        &self.subject.function
    }
}

impl OfSubject for Line {
    fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "frozen-garbage";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let functions = self.functions.find(lab).await?;
        let sizes = self.sizes.or_default(self.options.quick);
        let cases = cases(self.options.trials_or(1, 3), &functions, sizes, &[false]);
        lab.each(&cases, async |lab, case| self.one(lab, case).await).await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "function",
            "memory",
            "n",
            "USS MiB",
            "on average",
            "at most",
            "ideal MiB",
            "heap MiB",
            "live MiB",
            "over ideal",
            "garbage %",
        ]);
        for language in Language::ALL {
            for memory in sizes_of(records) {
                for function in functions_in(records, language) {
                    let lines = || of_size(records, VANILLA, &function, memory);
                    if lines().next().is_none() {
                        continue;
                    }
                    let of = |value: &dyn Fn(&Line) -> f64| {
                        median(lines().map(value)).map_or(String::new(), number)
                    };
                    table.row([
                        function.clone(),
                        size::show(memory),
                        lines().count().to_string(),
                        of(&|line| mib(line.uss_bytes)),
                        of(&|line| mib(line.mean_uss_bytes)),
                        of(&|line| mib(line.most_uss_bytes)),
                        of(&|line| mib(line.ideal_uss_bytes)),
                        of(&|line| mib(line.heap_bytes)),
                        of(&|line| mib(line.live_bytes)),
                        of(&over_ideal),
                        of(&|line| 100.0 * (1.0 - 1.0 / over_ideal(line))),
                    ]);
                }
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

    fn plot(records: &[Line]) -> Result<String> {
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
                title: format!("{language}: memory held over memory needed"),
                x: String::new(),
                y: "times the ideal USS".to_owned(),
                series: series.collect(),
                categories: functions,
                joined: false,
                logarithmic: false,
            }
        };
        Chart {
            title: "What a frozen instance holds over what it needs".to_owned(),
            subtitle: describe_run(records),
            panels: Language::ALL.map(panel).into(),
            foot:
                "Memory that no other process has (USS) after the last call; ideal: with the heap at what is live."
                    .to_owned(),
        }
        .svg()
    }
}

impl Arguments {
    /// One instance, looked at after each call, and squeezed at the end to learn what was live.
    async fn one(&self, lab: &mut Lab<Line>, case: &Case) -> Result {
        let mut held = Vec::new();
        let look = async |instance: &Instance| {
            instance.freeze().await?;
            held.push(instance.memory().await?.uss_bytes);
            instance.thaw().await
        };
        let (instance, calls) = self.functions.warm(case, self.options.quick, look).await?;
        let reclaimed = instance.reclaim(Request::default()).await?;
        let answer = &reclaimed.answer;
        let garbage = answer.before_bytes.saturating_sub(answer.live_bytes);
        let uss_bytes = held.last().copied().unwrap_or(0);
        lab.keep(Line {
            header: lab.native_header(VANILLA, case.trial),
            subject: Subject::new(case, &instance, reclaimed.runtime(), calls),
            uss_bytes,
            mean_uss_bytes: mean(held.iter().map(|&bytes| bytes as f64)).unwrap_or(0.0) as u64,
            most_uss_bytes: held.iter().copied().max().unwrap_or(0),
            ideal_uss_bytes: uss_bytes.saturating_sub(garbage),
            heap_bytes: answer.before_bytes,
            live_bytes: answer.live_bytes,
        })
    }
}

fn over_ideal(line: &Line) -> f64 {
    line.uss_bytes as f64 / line.ideal_uss_bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{
        native::example,
        record::{complaint, tests::header},
    };

    #[test]
    fn functions_weigh_the_same() {
        let line = |function: &str, uss: u64| Line {
            header: header("frozen-garbage", VANILLA, 0),
            subject: example(Language::Java, function),
            uss_bytes: uss << 20,
            mean_uss_bytes: uss << 20,
            most_uss_bytes: uss << 20,
            ideal_uss_bytes: 20 << 20,
            heap_bytes: 30 << 20,
            live_bytes: 10 << 20,
        };
        let records = [line("sort", 40), line("time", 160)];
        assert_eq!(complaint(&records[0], &["uss_bytes", "ideal_uss_bytes"]), None);
        let text = Arguments::table(&records).to_string();
        let mean = text.lines().last().unwrap();
        assert!(mean.starts_with("Java, mean  256 MiB") && mean.ends_with("5.00"), "{text}");
        assert!(text.contains("87.5"), "{text}");
        assert!(Arguments::plot(&records).unwrap().contains("256 MiB"));
    }
}
