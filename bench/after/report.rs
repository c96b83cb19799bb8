//! What the lines say: table, bounds and plot.

use super::{CONTROL, LIBRARIES, Line, PAGEOUT, RECLAIM};
use crate::common::{
    bound::{Bound, Limit, number},
    chart::{Chart, Panel, Series},
    error::Result,
    estimate::{Estimate, Sample},
    native::{Language, functions_in},
    record::describe_run,
    select::{functions, of_function, of_method},
    size::mib,
    stats::{Spread, median},
    table::Table,
};

const METHODS: [&str; 4] = [CONTROL, RECLAIM, LIBRARIES, PAGEOUT];

/// How much slower requests may be, in percent.
const SLOWDOWN_LIMIT: f64 = 5.0;

pub(super) fn table(records: &[Line]) -> Table {
    let mut table = Table::new(&[
        "function",
        "method",
        "n",
        "before ms",
        "after ms",
        "first ms",
        "CPU before ms",
        "after ms",
        "latency %",
        "CPU %",
        "released MiB",
        "reclaim CPU ms",
    ]);
    for language in Language::ALL {
        for function in functions_in(records, language) {
            for method in METHODS {
                let lines = || of_function(records, method, &function);
                if lines().next().is_none() {
                    continue;
                }
                let of = |value: fn(&Line) -> f64| {
                    median(lines().map(value)).map_or(String::new(), number)
                };
                let slower = |spread: Option<Spread>| {
                    spread.map_or(String::new(), |spread| format!("{:+.1}", spread.median))
                };
                table.row([
                    function.clone(),
                    method.to_owned(),
                    lines().count().to_string(),
                    of(|line| ms(line.before_latency_ns)),
                    of(|line| ms(line.after_latency_ns)),
                    of(|line| ms(line.first_latency_ns)),
                    of(|line| ms(line.before_cpu_ns)),
                    of(|line| ms(line.after_cpu_ns)),
                    slower(slowdown(records, method, &function, latency)),
                    slower(slowdown(records, method, &function, cpu)),
                    of(|line| mib(line.released_bytes)),
                    of(|line| ms(line.reclaim_cpu_ns)),
                ]);
            }
        }
    }
    table
}

pub(super) fn bounds(records: &[Line]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for (what, value) in [("latency", latency as fn(&Line) -> f64), ("CPU time", cpu)] {
        for method in [RECLAIM, LIBRARIES] {
            let mut all: Vec<Vec<f64>> = functions(records)
                .iter()
                .map(|function| slowdowns(records, method, function, value).collect())
                .collect();
            all.retain(|function| !function.is_empty());
            let count = all.len();
            let Some(measured) = Estimate::mean(all.into_iter().map(Sample::Median)) else {
                continue;
            };
            bounds.push(Bound {
                what: format!(
                    "{what} of the ten requests after {method} over those before, against {CONTROL}, mean of {count} functions"
                ),
                measured,
                limit: Limit::AtMost(SLOWDOWN_LIMIT),
                unit: "%",
            });
        }
    }
    bounds
}

pub(super) fn plot(records: &[Line]) -> Result<String> {
    let panel = |language| {
        let functions = functions_in(records, language);
        let mut methods = METHODS.map(str::to_owned).to_vec();
        methods.retain(|method| of_method(records, method).next().is_some());
        Panel {
            title: format!("{language}: CPU time of ten requests"),
            x: String::new(),
            y: "after, in % of before".to_owned(),
            series: Series::of_methods(&methods, |method| {
                let change = |function: &String| {
                    Spread::of(of_function(records, method, function).map(|line| 100.0 * cpu(line)))
                };
                functions.iter().map(change).collect()
            }),
            categories: functions,
            joined: false,
            logarithmic: false,
        }
    };
    Chart {
        title: "Requests just after something was done to a frozen instance".to_owned(),
        subtitle: describe_run(records),
        panels: Language::ALL.map(panel).into(),
        foot: "control: frozen as long, and nothing was done; pageout: as much memory moved to swap as a reclaim gives back."
            .to_owned(),
    }
    .svg()
}

/// How many percent more the requests after it took than those before it, in comparison to the
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
    use crate::common::{
        bound::Verdict,
        native::example,
        record::{
            complaint,
            tests::{header, repeated},
        },
    };

    #[test]
    fn a_slowdown_is_against_the_control_of_the_same_trial() {
        let line = |method: &str, trial, after: u64| Line {
            header: header("after", method, trial),
            subject: example(Language::JavaScript, "fft"),
            before_latency_ns: 100,
            after_latency_ns: after,
            first_latency_ns: after,
            before_cpu_ns: 100,
            after_cpu_ns: after,
            before_uss_bytes: 9,
            released_bytes: 5,
            reclaim_cpu_ns: 1,
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
        let [latency, libraries, ..] = &bounds(&repeated(&records))[..] else { panic!() };
        assert!((latency.measured.value - 4.0).abs() < 1e-9, "{latency}");
        assert!((libraries.measured.value - 50.0).abs() < 1e-9, "{libraries}");
        let verdicts = [latency, libraries].map(Bound::verdict);
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed]);
        // The trial of it has no control.
        assert_eq!(slowdown(&records, PAGEOUT, "fft", cpu), None);
        assert!(table(&records).to_string().contains("+4.0"));
        assert!(plot(&records).unwrap().contains("control"));
    }
}
