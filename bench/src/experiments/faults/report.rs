//! Table, verdicts and plot.

use super::{Arguments, Figures};
use crate::{
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{BLUE, Chart, GREEN, ORANGE, PURPLE, Panel, Series},
        in_order, median, methods, of_method,
    },
};

/// The pairs of cases that are compared.
const COMPARED: [(&str, &str); 2] = [("assigned", "unassigned"), ("unused", "off")];

/// Tests of system calls in which the kernel allocates memory that is charged to an instance.
const ALLOCATING: [&str; 5] = ["open", "poll", "send_unix", "send_tcp", "connect"];

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

/// By how many percent one case is slower than the other in each trial: both were measured in
/// succession, so that slow changes on the host cancel out.
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

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let tests = tests(records);
        let by_method = by_method(records);
        let slower = |head, show: fn(Spread) -> String| {
            Column::new(head, move |lines: &[&Line]| {
                let Some(line) = lines.first() else { return String::new() };
                let compared = COMPARED.iter().find(|(this, _)| *this == line.header.method);
                let slower = compared
                    .and_then(|(case, than)| Spread::of(slower(records, case, than, &line.test)));
                slower.map_or(String::new(), show)
            })
        };
        Table::of(
            records,
            |line| (tests.iter().position(|test| *test == line.test), by_method(line)),
            &[
                Column::common("test", |line| line.test.clone()),
                Column::common("case", |line| line.header.method.clone()),
                Column::count("n"),
                Column::median("median ns", |line| line.operation_ns),
                Column::quartiles("quartiles ns", |line| line.operation_ns),
                slower("slower by %", |slower| format!("{:+.2}", slower.median)),
                slower("quartiles %", |slower| {
                    format!("{:+.2} to {:+.2}", slower.low, slower.high)
                }),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for (case, than) in COMPARED {
            for test in tests(records) {
                let target = match case {
                    "assigned" if ALLOCATING.contains(&test) => "allocating-calls",
                    "assigned" => "assigned",
                    _ => "unused",
                };
                let what = format!("{test}: {case} slower than {than}");
                let slower = slower(records, case, than, test);
                assessments.add(target, what, Estimate::median(slower));
            }
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let tests = tests(records);
        let colours = [BLUE, GREEN, ORANGE, PURPLE];
        // Relative to the median of the second case of each pair, so that all tests fit.
        let base = |test: &str| {
            let of = |case: &str| median(select(records, case, test).map(|line| line.operation_ns));
            ["unassigned", "off", "unused", "assigned"].iter().find_map(|case| of(case))
        };
        let panel = |title: &str, cases: &[&str]| Panel {
            title: title.to_owned(),
            x: "test".to_owned(),
            y: "time per operation, percent".to_owned(),
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
                                    median(
                                        select(records, last, test).map(|line| line.operation_ns),
                                    )
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
            ("In a partition vs. other memory of the same VM", ["assigned", "unassigned"]),
            ("Option built in but unused vs. off", ["unused", "off"]),
        ] {
            if records.iter().any(|line| cases.contains(&line.header.method.as_str())) {
                panels.push(panel(title, &cases));
            }
        }
        Chart {
            title: "Page faults, new processes and allocating system calls (lower is better)"
                .to_owned(),
            subtitle: describe_run(records),
            panels,
            foot: format!(
                "100: median of unassigned, or of off. The guest's clock counts {}.",
                records.first().map_or("time", |line| line.clock.as_str())
            ),
        }
    }
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
        report::Verdict,
    };

    fn line(case: &str, trial: u32, operation_ns: f64) -> Line {
        Measured {
            header: header("faults", case, trial),
            figures: Figures {
                clock: "time".to_owned(),
                test: "fault_small".to_owned(),
                operations_count: 1000,
                elapsed_ns: (operation_ns * 1000.0) as u64,
                operation_ns,
            },
        }
    }

    #[test]
    fn trials_are_compared_pair_by_pair() {
        // The host became ten times slower in between; comparing medians would not show the 2%.
        let records = [
            line("assigned", 0, 102.0),
            line("unassigned", 0, 100.0),
            line("assigned", 1, 1020.0),
            line("unassigned", 1, 1000.0),
            line("assigned", 2, 1.0),
        ];
        assert_eq!(complaint(&records[0], &["elapsed_ns", "operations_count"]), None);
        let assessed = assess::<Arguments>(&repeated(&records));
        assert_eq!(assessed.len(), 1);
        assert!((assessed[0].measured.value - 2.0).abs() < 1e-9, "{assessed:?}");
        assert_eq!(assessed[0].verdict(), Verdict::Met);
        assert!(Arguments::table(&records).to_string().contains("+2.00"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("fault small"));
    }
}
