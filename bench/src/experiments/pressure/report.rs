//! Table, verdicts and plot of `pressure`.

use super::{Arguments, Figures, Line, RESTRICTED};
use crate::{
    harness::Report,
    record::describe_run,
    report::{
        Assessments, Estimate, Sample, Spread, Table, by_method,
        chart::{BLUE, Chart, GREEN, Panel, Series},
        functions, methods, of_function, of_method,
    },
};

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        let count = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64)
        };
        let ms = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64 / 1e6)
        };
        Table::of(
            records,
            |line| (line.memory == RESTRICTED, by_method(line), line.function.clone()),
            &[
                Column::common("memory", |line| line.memory.clone()),
                Column::common("method", |line| line.header.method.clone()),
                Column::common("function", |line| line.function.clone()),
                count("calls", |line| line.calls_count),
                count("failed", |line| line.failed_count),
                count("cold", |line| line.cold_count),
                ms("p50 ms", |line| line.p50_ns),
                ms("p99 ms", |line| line.p99_ns),
                Column::median("over abundant", |line| line.p99_over_abundant),
                count("reclaims", |line| line.reclaims_count),
                ms("reclaim ms", |line| line.reclaim_ns),
                Column::median("GiB s", |line| line.gib_seconds),
                Column::median("plugged GiB s", |line| line.plugged_gib_seconds),
                Column::median("resident GiB s", |line| line.resident_gib_seconds),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let functions = functions(records);
        for ours in ["squeezy", "overcommit", "overcommit, memfd"] {
            let ratios = functions
                .iter()
                .map(|function| Sample::Median(ratios(records, ours, function).collect()));
            let Some(measured) = Estimate::mean(ratios) else { continue };
            assessments.add(
                "p99",
                format!(
                    "{ours}: P99 with 70% of the memory relative to plenty, mean over functions"
                ),
                Some(measured),
            );
            assessments.add_counts(
                "failed-calls",
                format!("{ours}: maximum number of lost or wrongly answered calls of a function in a run"),
                of_method(records, ours).map(|line| line.failed_count),
            );
            for other in ["virtio-mem", "harvest"] {
                assessments.add(
                    "gib-seconds",
                    format!("{ours}: GiB-seconds with 70% of the memory relative to {other}"),
                    Estimate::ratio(gib_seconds(records, ours), gib_seconds(records, other)),
                );
            }
        }
        assessments.add(
            "memfd",
            "overcommit: GiB-seconds with 70% of the memory where the host takes it, relative to where instances give it",
            Estimate::ratio(
                gib_seconds(records, "overcommit, memfd"),
                gib_seconds(records, "overcommit"),
            ),
        );
    }

    fn plot(records: &[Line]) -> Chart {
        let (functions, methods) = (functions(records), methods(records));
        let latency = Panel {
            title: "P99 relative to plenty of memory".to_owned(),
            x: "function".to_owned(),
            y: "times".to_owned(),
            categories: functions.clone(),
            series: Series::of_methods(&methods, |method| {
                functions.iter().map(|function| ratio(records, method, function)).collect()
            }),
            joined: false,
            logarithmic: false,
        };
        let over_time = |name: &str, colour, of: fn(&Line) -> f64| Series {
            name: name.to_owned(),
            colour,
            variant: false,
            points: methods
                .iter()
                .map(|method| Spread::of(over_time(records, method, of)))
                .collect(),
        };
        let memory = Panel {
            title: "Memory over time".to_owned(),
            x: "method".to_owned(),
            y: "GiB x seconds".to_owned(),
            categories: methods.clone(),
            series: vec![
                over_time("committed", BLUE, |line| line.gib_seconds),
                over_time("resident on the host", GREEN, |line| line.resident_gib_seconds),
            ],
            joined: false,
            logarithmic: false,
        };
        Chart {
            title: "Functions on a host with 70% of their peak memory".to_owned(),
            subtitle: describe_run(records),
            panels: vec![latency, memory],
            foot: records.first().map_or(String::new(), |line| format!("Load: {}.", line.load)),
        }
    }
}

/// Latency relative to plenty of memory.
fn ratio(records: &[Line], method: &str, function: &str) -> Option<Spread> {
    Spread::of(ratios(records, method, function))
}

fn ratios<'a>(
    records: &'a [Line],
    method: &'a str,
    function: &'a str,
) -> impl Iterator<Item = f64> + 'a {
    select(records, RESTRICTED, method, function).map(|line| line.p99_over_abundant)
}

fn gib_seconds(records: &[Line], method: &str) -> Vec<f64> {
    over_time(records, method, |line| line.gib_seconds)
}

/// For all functions together; every line of a run contains it.
fn over_time(records: &[Line], method: &str, of: fn(&Line) -> f64) -> Vec<f64> {
    let first = functions(records).into_iter().next().unwrap_or_default();
    select(records, RESTRICTED, method, &first).map(of).collect()
}

fn select<'a>(
    records: &'a [Line],
    memory: &'a str,
    method: &'a str,
    function: &'a str,
) -> impl Iterator<Item = &'a Line> {
    of_function(records, method, function).filter(move |line| line.memory == memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiments::pressure::ABUNDANT,
        harness::assess,
        record::{
            Measured, complaint,
            tests::{header, repeated},
        },
        report::{Assessment, Verdict},
    };

    fn line(method: &str, memory: &str, p99_over_abundant: f64, gib_seconds: f64) -> Line {
        Measured {
            header: header("pressure", method, 0),
            figures: Figures {
                memory: memory.to_owned(),
                function: "html".to_owned(),
                load: "synthetic".to_owned(),
                budget_bytes: 1,
                peak_bytes: 1,
                calls_count: 1,
                failed_count: 0,
                cold_count: 1,
                reclaims_count: 1,
                reclaim_ns: 1,
                failed_reclaims_count: 0,
                p50_ns: 1,
                p99_ns: 1,
                p99_over_abundant,
                gib_seconds,
                plugged_gib_seconds: gib_seconds,
                resident_gib_seconds: 1.0,
            },
        }
    }

    #[test]
    fn lines_name_their_units() {
        let required = ["function", "p99_ns", "p99_over_abundant", "gib_seconds"];
        assert_eq!(complaint(&line("squeezy", RESTRICTED, 1.0, 1.0), &required), None);
    }

    #[test]
    fn a_host_that_takes_memory_is_compared_with_instances_that_give_it() {
        let records = [("overcommit", 20.0), ("overcommit, memfd", 18.0)]
            .map(|(method, gib_seconds)| line(method, RESTRICTED, 1.0, gib_seconds));
        let assessed = assess::<Arguments>(&repeated(&records));
        assert_eq!(assessed.last().map(Assessment::verdict), Some(Verdict::Met));
    }

    #[test]
    fn bounds_are_about_little_memory() {
        let records = [
            line("squeezy", ABUNDANT, 1.0, 90.0),
            line("squeezy", RESTRICTED, 1.04, 40.0),
            line("virtio-mem", RESTRICTED, 3.0, 100.0),
            line("harvest", RESTRICTED, 2.0, 60.0),
        ];
        use Verdict::{Met, Missed, Unclear};
        let verdicts = |records: &[Line]| {
            assess::<Arguments>(records).iter().map(Assessment::verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&repeated(&records)), [Met, Met, Met, Missed]);
        // A single run shows only that it lost no call.
        assert_eq!(verdicts(&records), [Unclear, Met, Unclear, Unclear]);
        assert!(Arguments::plot(&records).svg().unwrap().contains("harvest"));
        assert!(Arguments::table(&records).to_string().contains(ABUNDANT));
    }
}
