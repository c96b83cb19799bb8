//! Table, targets and plot.

use super::{Arguments, Figures, MANY, Test, together::FAULT_TURNS};
use crate::{
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{self, Chart, Panel, Series},
        in_order, methods, of_method,
    },
};

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Test {
    fn title(&self) -> String {
        match self {
            Self::Many { order } => format!("order {order}: many, then freed"),
            Self::One { order } => format!("order {order}: one, freed at once"),
            Self::Fault { fault, in_partition, processes_count } => {
                let place = if *in_partition { ", in a partition" } else { "" };
                let processes = match processes_count {
                    1 => String::new(),
                    count => format!(", {count} processes"),
                };
                format!("{}{place}{processes}", fault.replace('_', " "))
            }
            Self::Life => "after a long life".to_owned(),
            Self::Together { processors_count, turns } => {
                let of = if *turns == 0 { "nothing else" } else { "page faults" };
                format!("{processors_count} processors taking turns, {of}")
            }
            Self::FaultAfterLife { compacts, is_huge } => {
                let became = if *is_huge { "huge" } else { "4 KiB pages" };
                let compacting = if *compacts { ", compacted" } else { "" };
                format!("fault of 2 MiB after a life: {became}{compacting}")
            }
        }
    }
}

/// A test, and what the clock counted: a fault is measured in both.
fn kinds(records: &[Line]) -> Vec<(Test, String)> {
    in_order(records, |line| (line.test.clone(), line.clock.clone()))
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    test: &'a Test,
    clock: &'a str,
) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.test == *test && line.clock == clock)
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        let kinds = kinds(records);
        let kind = |line: &Line| {
            kinds.iter().position(|(test, clock)| *test == line.test && *clock == line.clock)
        };
        let is_life = |line: &Line| line.test == Test::Life;
        let is_timed = |line: &Line| line.operation_ns > 0.0;
        Table::of(
            records,
            |line| (kind(line), by_method(line)),
            &[
                Column::common("test", |line| line.test.title()),
                Column::common("clock", |line| line.clock.clone()),
                Column::common("allocator", |line| line.header.method.clone()),
                Column::count("n"),
                Column::median("median ns", |line| line.operation_ns).only_if(is_timed),
                Column::quartiles("quartiles ns", |line| line.operation_ns).only_if(is_timed),
                Column::median("accesses", |line| line.accesses.unwrap_or_default())
                    .only_if(|line| line.accesses.is_some()),
                Column::median("failed changes", |line| line.failed_changes.unwrap_or_default())
                    .only_if(|line| line.failed_changes.is_some()),
                Column::median("huge pages %", huge_percent).only_if(is_life),
                Column::median("compacted %", compacted_percent).only_if(is_life),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for (test, clock) in kinds(records) {
            let target = match &test {
                Test::Many { order: 0 } | Test::One { order: 0 } => "order-0",
                Test::Fault { fault, processes_count: 1, .. } if clock == "instructions" => {
                    if fault.contains("huge") { "huge-fault" } else { "fault" }
                }
                _ => continue,
            };
            let costs =
                |method| select(records, method, &test, &clock).map(|line| line.operation_ns);
            assessments.add(
                target,
                format!("{}: LLFree relative to the free lists, {clock}", test.title()),
                Estimate::ratio(costs("llfree"), costs("buddy")),
            );
        }
        for (target, percent) in
            [("huge-pages", huge_percent as fn(&Line) -> f64), ("compacted", compacted_percent)]
        {
            let of = |method| select(records, method, &Test::Life, "time").map(percent);
            assessments.add(
                target,
                format!("{target} after a long life, LLFree relative to the free lists"),
                Estimate::ratio(of("llfree"), of("buddy")),
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let kinds = kinds(records);
        let panel =
            |title: &str, x: &str, y: &str, is_of: &dyn Fn(&Test, &str) -> bool, joined: bool| {
                let kinds: Vec<_> =
                    kinds.iter().filter(|(test, clock)| is_of(test, clock)).cloned().collect();
                Panel {
                    title: title.to_owned(),
                    x: x.to_owned(),
                    y: y.to_owned(),
                    categories: kinds.iter().map(|(test, clock)| label(test, clock)).collect(),
                    series: Series::of_methods(&methods(records), |method| {
                        let cost = |(test, clock): &(Test, String)| {
                            Spread::of(
                                select(records, method, test, clock).map(|line| line.operation_ns),
                            )
                        };
                        kinds.iter().map(cost).collect()
                    }),
                    joined,
                    logarithmic: true,
                }
            };
        let life = Panel {
            title: "After a long life".to_owned(),
            x: String::new(),
            y: "percent in huge pages".to_owned(),
            categories: vec!["at once".to_owned(), "compacted".to_owned()],
            series: Series::of_methods(&methods(records), |method| {
                let of = |percent: fn(&Line) -> f64| {
                    Spread::of(select(records, method, &Test::Life, "time").map(percent))
                };
                vec![of(huge_percent), of(compacted_percent)]
            }),
            joined: false,
            logarithmic: false,
        };
        let is_counted = |clock: &str| clock == "instructions";
        let together = |title: &str, of: fn(&Line) -> Option<f64>| {
            let spread = |turns, processors| {
                let is_it = move |line: &&Line| {
                    line.test == Test::Together { processors_count: processors, turns }
                };
                Spread::of(records.iter().filter(is_it).filter_map(of))
            };
            let series = |name: &str, colour, turns| Series {
                name: name.to_owned(),
                colour,
                variant: false,
                points: MANY.iter().map(|&processors| spread(turns, processors)).collect(),
            };
            Panel {
                title: title.to_owned(),
                x: "processors taking turns".to_owned(),
                y: "for each page allocated and freed".to_owned(),
                categories: MANY.iter().map(u16::to_string).collect(),
                series: vec![
                    series("nothing but the allocator", chart::VERMILION, 0),
                    series("page faults", chart::BLUE, FAULT_TURNS),
                ],
                joined: true,
                logarithmic: false,
            }
        };
        Chart {
            title: "Allocating pages with LLFree and with Linux' free lists".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel(
                    "A block allocated and freed",
                    "order",
                    "instructions",
                    &|test, clock| matches!(test, Test::One { .. }) && is_counted(clock),
                    true,
                ),
                panel(
                    "Page faults",
                    "",
                    "instructions",
                    &|test, clock| matches!(test, Test::Fault { .. }) && is_counted(clock),
                    false,
                ),
                panel(
                    "Page faults of 4 KiB",
                    "processes at a time",
                    "ns",
                    &|test, clock| matches!(test, Test::Fault { .. }) && clock == "time",
                    true,
                ),
                life,
                panel(
                    "Faults of 2 MiB after a long life",
                    "what they become",
                    "instructions for each 4 KiB",
                    &|test, clock| matches!(test, Test::FaultAfterLife { .. }) && is_counted(clock),
                    false,
                ),
                together("LLFree: changes that failed", |line| line.failed_changes),
                together("LLFree: accesses to its state", |line| line.accesses),
            ],
            foot: "After a long life, a process asks for three quarters of what is free; compacted: the kernel may move \
                   others' pages to have 2 MiB in a row."
                .to_owned(),
        }
    }
}

/// A label of an axis.
fn label(test: &Test, clock: &str) -> String {
    match test {
        Test::Many { order } | Test::One { order } => order.to_string(),
        Test::Fault { processes_count, .. } if clock == "time" => processes_count.to_string(),
        Test::Fault { fault, in_partition, .. } => {
            let place = if *in_partition { ", partition" } else { "" };
            let pages = if fault.contains("huge") { "2 MiB" } else { "4 KiB" };
            format!("{pages}{place}")
        }
        Test::Life => String::new(),
        Test::Together { processors_count, .. } => processors_count.to_string(),
        Test::FaultAfterLife { compacts, is_huge } => {
            let became = if *is_huge { "huge" } else { "4 KiB" };
            format!("{became}, {}", if *compacts { "compacted" } else { "at once" })
        }
    }
}

fn huge_percent(line: &Line) -> f64 {
    line.huge_bytes as f64 / line.asked_bytes as f64 * 100.0
}

fn compacted_percent(line: &Line) -> f64 {
    line.compacted_bytes as f64 / line.asked_bytes as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{harness::assess, record::tests::header};

    #[test]
    fn each_cost_is_compared_with_that_of_the_free_lists() {
        let line = |method, test: &Test, operation_ns| Measured {
            header: header("allocator", method, 0),
            figures: Figures::timed(test.clone(), "instructions", 1, operation_ns),
        };
        let fault = |fault: &str| Test::Fault {
            fault: fault.to_owned(),
            in_partition: false,
            processes_count: 1,
        };
        let tests = [Test::Many { order: 0 }, fault("fault_small"), fault("fault_huge")];
        let records: Vec<_> = tests
            .iter()
            .flat_map(|test| [line("buddy", test, 100.0), line("llfree", test, 110.0)])
            .collect();
        let assessed = assess::<Arguments>(&records);
        assert_eq!(assessed.len(), 3);
        assert!(assessed.iter().all(|one| (one.measured.value - 1.1).abs() < 1e-9));
        assert!(Arguments::table(&records).to_string().contains("fault huge"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("llfree"));
    }
}
