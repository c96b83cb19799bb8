//! What the lines of `pressure` come to.

use super::{ABUNDANT, Line, RESTRICTED};
use crate::common::{
    bound::{Bound, Limit, number},
    chart::{BLUE, Chart, Panel, Series},
    error::Result,
    estimate::{Estimate, Sample},
    record::describe_run,
    select::{functions, methods, of_function, of_method},
    stats::{Spread, median},
    table::Table,
};

pub(super) fn table(records: &[Line]) -> Table {
    let mut table = Table::new(&[
        "memory",
        "method",
        "function",
        "calls",
        "failed",
        "cold",
        "p50 ms",
        "p99 ms",
        "over abundant",
        "reclaims",
        "reclaim ms",
        "GiB s",
        "plugged GiB s",
        "resident GiB s",
    ]);
    for memory in [ABUNDANT, RESTRICTED] {
        for method in methods(records) {
            for function in functions(records) {
                let lines = || select(records, memory, &method, &function);
                if lines().next().is_none() {
                    continue;
                }
                let of = |value: fn(&Line) -> f64| {
                    number(median(lines().map(value)).unwrap_or(f64::INFINITY))
                };
                table.row([
                    memory.to_owned(),
                    method.clone(),
                    function.clone(),
                    of(|line| line.calls_count as f64),
                    of(|line| line.failed_count as f64),
                    of(|line| line.cold_count as f64),
                    of(|line| line.p50_ns as f64 / 1e6),
                    of(|line| line.p99_ns as f64 / 1e6),
                    of(|line| line.p99_over_abundant),
                    of(|line| line.reclaims_count as f64),
                    of(|line| line.reclaim_ns as f64 / 1e6),
                    of(|line| line.gib_seconds),
                    of(|line| line.plugged_gib_seconds),
                    of(|line| line.resident_gib_seconds),
                ]);
            }
        }
    }
    table
}

pub(super) fn bounds(records: &[Line]) -> Vec<Bound> {
    ["squeezy", "overcommit"].into_iter().flat_map(|ours| bounds_of(records, ours)).collect()
}

fn bounds_of(records: &[Line], ours: &str) -> Vec<Bound> {
    let mut bounds = Vec::new();
    let functions = functions(records);
    let ratios =
        functions.iter().map(|function| Sample::Median(ratios(records, ours, function).collect()));
    let Some(measured) = Estimate::mean(ratios) else { return bounds };
    bounds.push(Bound {
        what: format!(
            "{ours}: P99 under 70% of memory over that with plenty, mean over the functions"
        ),
        measured,
        limit: Limit::AtMost(1.05),
        unit: "x",
    });
    let failed = of_method(records, ours).map(|line| line.failed_count as f64);
    bounds.extend(Estimate::counted(failed, 0.0).map(|measured| Bound {
        what: format!("{ours}: most calls of a function lost or answered wrongly in a run"),
        measured,
        limit: Limit::Exactly(0.0),
        unit: "",
    }));
    for other in ["virtio-mem", "harvest"] {
        let against = Estimate::ratio(gib_seconds(records, ours), gib_seconds(records, other));
        bounds.extend(against.map(|measured| Bound {
            what: format!("{ours}: GiB-seconds under 70% of memory against {other}"),
            measured,
            limit: Limit::AtMost(0.5),
            unit: "x",
        }));
    }
    bounds
}

pub(super) fn plot(records: &[Line]) -> Result<String> {
    let (functions, methods) = (functions(records), methods(records));
    let latency = Panel {
        title: "P99 over that with plenty of memory".to_owned(),
        x: "function".to_owned(),
        y: "times".to_owned(),
        categories: functions.clone(),
        series: Series::of_methods(&methods, |method| {
            functions.iter().map(|function| ratio(records, method, function)).collect()
        }),
        joined: false,
        logarithmic: false,
    };
    let memory = Panel {
        title: "Memory that nobody else could have, over time".to_owned(),
        x: "method".to_owned(),
        y: "GiB x seconds".to_owned(),
        categories: methods.clone(),
        series: vec![Series {
            name: "promised".to_owned(),
            colour: BLUE,
            variant: false,
            points: methods.iter().map(|method| Spread::of(gib_seconds(records, method))).collect(),
        }],
        joined: false,
        logarithmic: false,
    };
    Chart {
        title: "Functions on a host with 70% of the memory that their peak takes".to_owned(),
        subtitle: describe_run(records),
        panels: vec![latency, memory],
        foot: records.first().map_or(String::new(), |line| format!("Load: {}.", line.load)),
    }
    .svg()
}

/// How much longer than with plenty of memory.
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

/// Of all functions together, which every line of a run has.
fn gib_seconds(records: &[Line], method: &str) -> Vec<f64> {
    let first = functions(records).into_iter().next().unwrap_or_default();
    select(records, RESTRICTED, method, &first).map(|line| line.gib_seconds).collect()
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
    use crate::common::{
        bound::Verdict,
        record::{
            complaint,
            tests::{header, repeated},
        },
    };

    fn line(method: &str, memory: &str, p99_over_abundant: f64, gib_seconds: f64) -> Line {
        Line {
            header: header("pressure", method, 0),
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
        }
    }

    #[test]
    fn lines_name_their_units() {
        let required = ["function", "p99_ns", "p99_over_abundant", "gib_seconds"];
        assert_eq!(complaint(&line("squeezy", RESTRICTED, 1.0, 1.0), &required), None);
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
        let verdicts =
            |records: &[Line]| bounds(records).iter().map(Bound::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&repeated(&records)), [Met, Met, Met, Missed]);
        // One run tells nothing but that no call was lost in it.
        assert_eq!(verdicts(&records), [Unclear, Met, Unclear, Unclear]);
        assert!(plot(&records).unwrap().contains("harvest"));
        assert!(table(&records).to_string().contains(ABUNDANT));
    }
}
