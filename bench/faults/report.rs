//! What is made of the lines: table, bounds and plot.

use super::Line;
use crate::common::{
    bound::{Bound, Limit, number},
    chart::{BLUE, Chart, GREEN, ORANGE, PURPLE, Panel, Series},
    error::Result,
    estimate::Estimate,
    record::describe_run,
    select::{in_order, methods, of_method},
    stats::{Spread, median},
    table::Table,
};

/// Which case is compared with which.
const COMPARED: [(&str, &str); 2] = [("assigned", "unassigned"), ("unused", "off")];

/// Calls in which the kernel allocates, all of which is charged to who is in a partition.
const ALLOCATING: [&str; 5] = ["open", "poll", "send_unix", "send_tcp", "connect"];

/// By how much a case may be slower than the one it is compared with, in percent.
fn limit(case: &str, test: &str) -> f64 {
    match case {
        "assigned" if ALLOCATING.contains(&test) => 20.0,
        "assigned" => 3.0,
        _ => 1.0,
    }
}

fn tests(records: &[Line]) -> Vec<&str> {
    in_order(records, |line| line.test.as_str())
}

fn select<'a>(
    records: &'a [Line],
    case: &'a str,
    test: &'a str,
) -> impl Iterator<Item = &'a Line> + Clone {
    of_method(records, case).filter(move |line| line.test == test)
}

/// How much slower one case is than the other in each trial, in percent: the two were measured one
/// right after the other, so that what changes slowly on the host cancels out.
fn slower<'a>(
    records: &'a [Line],
    case: &'a str,
    than: &'a str,
    test: &'a str,
) -> impl Iterator<Item = f64> + 'a {
    select(records, case, test).filter_map(move |line| {
        let other =
            select(records, than, test).find(|other| other.header.trial == line.header.trial)?;
        Some((line.operation_ns / other.operation_ns - 1.0) * 100.0)
    })
}

pub(super) fn table(records: &[Line]) -> Table {
    let mut table = Table::new(&[
        "test",
        "case",
        "n",
        "median ns",
        "quartiles ns",
        "slower by %",
        "quartiles %",
    ]);
    for test in tests(records) {
        for case in methods(records) {
            let Some(spread) =
                Spread::of(select(records, &case, test).map(|line| line.operation_ns))
            else {
                continue;
            };
            let compared = COMPARED.iter().find(|(this, _)| *this == case);
            let slower =
                compared.and_then(|(case, than)| Spread::of(slower(records, case, than, test)));
            table.row([
                test.to_owned(),
                case.clone(),
                spread.count.to_string(),
                number(spread.median),
                format!("{}-{}", number(spread.low), number(spread.high)),
                slower.map_or(String::new(), |slower| format!("{:+.2}", slower.median)),
                slower.map_or(String::new(), |slower| {
                    format!("{:+.2} to {:+.2}", slower.low, slower.high)
                }),
            ]);
        }
    }
    table
}

pub(super) fn bounds(records: &[Line]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for (case, than) in COMPARED {
        for test in tests(records) {
            if let Some(measured) = Estimate::median(slower(records, case, than, test)) {
                bounds.push(Bound {
                    what: format!("{test}: {case} slower than {than}"),
                    measured,
                    limit: Limit::AtMost(limit(case, test)),
                    unit: "%",
                });
            }
        }
    }
    bounds
}

pub(super) fn plot(records: &[Line]) -> Result<String> {
    let tests = tests(records);
    let colours = [BLUE, GREEN, ORANGE, PURPLE];
    // Against the median of the case that the others are compared with, so that all tests fit.
    let base = |test: &str| {
        let of = |case: &str| median(select(records, case, test).map(|line| line.operation_ns));
        ["unassigned", "off", "unused", "assigned"].iter().find_map(|case| of(case))
    };
    let panel = |title: &str, cases: &[&str]| Panel {
        title: title.to_owned(),
        x: "test".to_owned(),
        y: "time of one operation, percent".to_owned(),
        categories: tests.iter().map(|test| test.replace('_', " ")).collect(),
        series: methods(records)
            .iter()
            .zip(colours)
            .filter(|(case, _)| cases.contains(&case.as_str()))
            .map(|(case, colour)| Series {
                name: case.clone(),
                colour,
                variant: false,
                points: tests
                    .iter()
                    .map(|test| {
                        let reference = cases
                            .last()
                            .and_then(|last| {
                                median(select(records, last, test).map(|line| line.operation_ns))
                            })
                            .or_else(|| base(test))?;
                        Spread::of(
                            select(records, case, test)
                                .map(|line| line.operation_ns / reference * 100.0),
                        )
                    })
                    .collect(),
            })
            .collect(),
        joined: false,
        logarithmic: false,
    };
    let mut panels = Vec::new();
    for (title, cases) in [
        ("In a partition, against the same VM's other memory", ["assigned", "unassigned"]),
        ("Option built in but not used, against off", ["unused", "off"]),
    ] {
        if records.iter().any(|line| cases.contains(&line.header.method.as_str())) {
            panels.push(panel(title, &cases));
        }
    }
    Chart {
        title: "Page faults, new processes and calls that allocate (less is better)".to_owned(),
        subtitle: describe_run(records),
        panels,
        foot: format!(
            "100 is the median of the second of each pair. The guest's clock counts {}.",
            records.first().map_or("time", |line| line.clock.as_str())
        ),
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{
        bound::Verdict,
        record::{
            complaint,
            tests::{header, repeated},
        },
    };

    fn line(case: &str, trial: u32, operation_ns: f64) -> Line {
        Line {
            header: header("faults", case, trial),
            clock: "time".to_owned(),
            test: "fault_small".to_owned(),
            operations_count: 1000,
            elapsed_ns: (operation_ns * 1000.0) as u64,
            operation_ns,
        }
    }

    #[test]
    fn trials_are_compared_pair_by_pair() {
        // The host became ten times slower in between; a comparison of medians would not see 2%.
        let records = [
            line("assigned", 0, 102.0),
            line("unassigned", 0, 100.0),
            line("assigned", 1, 1020.0),
            line("unassigned", 1, 1000.0),
            line("assigned", 2, 1.0),
        ];
        assert_eq!(complaint(&records[0], &["elapsed_ns", "operations_count"]), None);
        let bounds = bounds(&repeated(&records));
        assert_eq!(bounds.len(), 1);
        assert!((bounds[0].measured.value - 2.0).abs() < 1e-9, "{bounds:?}");
        assert_eq!(bounds[0].verdict(), Verdict::Met);
        assert!(table(&records).to_string().contains("+2.00"));
        assert!(plot(&records).unwrap().contains("fault small"));
    }
}
