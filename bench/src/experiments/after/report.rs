//! Table, verdicts and plot.

use super::{Arguments, CONTROL, Figures, LIBRARIES, PAGEOUT, RECLAIM};
use crate::{
    harness::Report,
    record::{Measured, OfFunction, describe_run},
    report::{
        Assessments, Estimate, Sample, Spread, Table,
        chart::{Chart, Panel, Series},
        functions, of_function, of_method,
    },
    rigs::process::{Language, OfProcess, functions_in},
    size::mib,
};

const METHODS: [&str; 4] = [CONTROL, RECLAIM, LIBRARIES, PAGEOUT];

/// A record.
type Line = Measured<OfProcess<Figures>>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = OfProcess<Figures>;

    fn table(records: &[Line]) -> Table {
        let in_ms = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| ms(value(line)))
        };
        let slower = |head, value: fn(&Line) -> f64| {
            Column::common(head, move |line: &Line| {
                slowdown(records, &line.header.method, line.function(), value)
                    .map_or(String::new(), |spread| format!("{:+.1}", spread.median))
            })
        };
        Table::of(
            records,
            |line| {
                let method = METHODS.iter().position(|method| *method == line.header.method);
                (line.subject.language, line.function().to_owned(), method)
            },
            &[
                Column::common("function", |line| line.function().to_owned()),
                Column::common("method", |line| line.header.method.clone()),
                Column::count("n"),
                in_ms("before ms", |line| line.before_latency_ns),
                in_ms("after ms", |line| line.after_latency_ns),
                in_ms("first ms", |line| line.first_latency_ns),
                in_ms("CPU before ms", |line| line.before_cpu_ns),
                in_ms("after ms", |line| line.after_cpu_ns),
                slower("latency %", latency),
                slower("CPU %", cpu),
                Column::median("released MiB", |line| mib(line.released_bytes)),
                in_ms("reclaim CPU ms", |line| line.reclaim_cpu_ns),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for (what, value) in [("latency", latency as fn(&Line) -> f64), ("CPU time", cpu)] {
            for method in [RECLAIM, LIBRARIES] {
                let mut all: Vec<Vec<f64>> = functions(records)
                    .iter()
                    .map(|function| slowdowns(records, method, function, value).collect())
                    .collect();
                all.retain(|function| !function.is_empty());
                let what = format!(
                    "{what} of the ten requests after {method} over those before, relative to {CONTROL}, mean of {} functions",
                    all.len()
                );
                let measured = Estimate::mean(all.into_iter().map(Sample::Median));
                assessments.add("ten-requests", what, measured);
            }
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let panel = |language| {
            let functions = functions_in(records, language);
            let mut methods = METHODS.map(str::to_owned).to_vec();
            methods.retain(|method| of_method(records, method).next().is_some());
            Panel {
                title: format!("{language}: CPU time of ten requests"),
                x: String::new(),
                y: "after, % of before".to_owned(),
                series: Series::of_methods(&methods, |method| {
                    let change = |function: &String| {
                        Spread::of(
                            of_function(records, method, function).map(|line| 100.0 * cpu(line)),
                        )
                    };
                    functions.iter().map(change).collect()
                }),
                categories: functions,
                joined: false,
                logarithmic: false,
            }
        };
        Chart {
            title: "Requests right after a frozen instance was squeezed or swapped out".to_owned(),
            subtitle: describe_run(records),
            panels: Language::ALL.map(panel).into(),
            foot: "control: only frozen, for as long; pageout: as much memory swapped out as a reclaim gives back."
                .to_owned(),
        }
    }
}

/// By how many percent requests were slower after the treatment than before, relative to the
/// control of the same trial.
fn slowdown(
    records: &[Line],
    method: &str,
    function: &str,
    value: fn(&Line) -> f64,
) -> Option<Spread> {
    Spread::of(slowdowns(records, method, function, value))
}

fn slowdowns<'a>(
    records: &'a [Line],
    method: &'a str,
    function: &'a str,
    value: fn(&Line) -> f64,
) -> impl Iterator<Item = f64> + 'a {
    let of_trial = move |line: &Line| {
        let trial = line.header.trial;
        let mut controls = of_function(records, CONTROL, function);
        let control = controls.find(|control| control.header.trial == trial)?;
        Some(100.0 * (value(line) / value(control) - 1.0))
    };
    of_function(records, method, function).filter_map(of_trial)
}

fn latency(line: &Line) -> f64 {
    line.after_latency_ns as f64 / line.before_latency_ns as f64
}

fn cpu(line: &Line) -> f64 {
    line.after_cpu_ns as f64 / line.before_cpu_ns as f64
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::assess,
        record::{
            Measured, complaint,
            tests::{header, repeated},
        },
        report::{Assessment, Verdict},
        rigs::process::example,
    };

    #[test]
    fn a_slowdown_is_against_the_control_of_the_same_trial() {
        let line = |method: &str, trial, after: u64| Measured {
            header: header("after", method, trial),
            figures: OfProcess {
                subject: example(Language::JavaScript, "fft"),
                figures: Figures {
                    before_latency_ns: 100,
                    after_latency_ns: after,
                    first_latency_ns: after,
                    before_cpu_ns: 100,
                    after_cpu_ns: after,
                    before_uss_bytes: 9,
                    released_bytes: 5,
                    reclaim_cpu_ns: 1,
                },
            },
        };
        let records = [
            line(CONTROL, 0, 100),
            line(RECLAIM, 0, 104),
            line(CONTROL, 1, 200),
            line(RECLAIM, 1, 208),
            line(LIBRARIES, 1, 300),
            line(PAGEOUT, 2, 300),
        ];
        assert_eq!(complaint(&records[0], &["before_cpu_ns", "after_latency_ns"]), None);
        let [latency, libraries, ..] = &assess::<Arguments>(&repeated(&records))[..] else {
            panic!()
        };
        assert!((latency.measured.value - 4.0).abs() < 1e-9, "{latency}");
        assert!((libraries.measured.value - 50.0).abs() < 1e-9, "{libraries}");
        let verdicts = [latency, libraries].map(Assessment::verdict);
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed]);
        // Its trial has no control.
        assert_eq!(slowdown(&records, PAGEOUT, "fft", cpu), None);
        assert!(Arguments::table(&records).to_string().contains("+4.0"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("control"));
    }
}
