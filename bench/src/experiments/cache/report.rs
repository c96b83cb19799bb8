//! Table, verdicts and plot.

use super::{Arguments, Figures, RECLAIM, VANILLA, VARIANTS};
use crate::{
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table,
        chart::{Chart, Panel, Series},
        of_method, sorted,
    },
    size::{self, mib},
};

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let count = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64)
        };
        let in_ms = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| ms(value(line)))
        };
        Table::of(
            records,
            |line| {
                let variant = VARIANTS.iter().position(|variant| *variant == line.variant);
                (line.scale_factor, variant)
            },
            &[
                Column::common("variant", |line| line.variant.clone()),
                Column::common("factor", |line| line.scale_factor.to_string()),
                Column::count("n"),
                count("calls", |line| line.requests_count),
                count("wrong", |line| line.wrong_count),
                count("cold", |line| line.cold_boots_count),
                Column::median("cold %", cold_percent),
                count("evicted", |line| line.evictions_count),
                Column::median("alive", |line| line.alive_count),
                Column::median("charged MiB", |line| line.charged_bytes / f64::from(1 << 20)),
                Column::median("per s", |line| line.answered_per_second),
                Column::median("CPU %", processor_percent),
                Column::median("squeezing %", squeezing_percent),
                in_ms("p50 ms", |line| line.p50_ns),
                in_ms("p90 ms", |line| line.p90_ns),
                in_ms("p95 ms", |line| line.p95_ns),
                in_ms("p99 ms", |line| line.p99_ns),
                count("squeezes", |line| line.squeezes_count),
                count("failed", |line| line.squeeze_failures_count),
                Column::median("MiB back", |line| mib(line.given_back_bytes)),
                in_ms("pause ms", |line| line.pause_p50_ns),
                count("waited", |line| line.waited_count),
                in_ms("wait ms", |line| line.wait_p50_ns),
                in_ms("most ms", |line| line.wait_most_ns),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let factors = factors(records);
        let ratio = |over, under, factor, value: fn(&Line) -> f64| {
            let of = |variant| select(records, variant, factor).map(value);
            Estimate::ratio(of(over), of(under))
        };
        // If there were none, assume one: the ratio is then a lower bound.
        let rate = |line: &Line| line.cold_boots_count.max(1) as f64 / line.requests_count as f64;
        // The best factor of these runs; the interval does not account for having chosen it from
        // them.
        let best = factors
            .iter()
            .filter_map(|&factor| Some((ratio(VANILLA, RECLAIM, factor, rate)?, factor)))
            .max_by(|a, b| a.0.value.total_cmp(&b.0.value));
        if let Some((measured, factor)) = best {
            let what = format!("cold-boot rate of {VANILLA} over {RECLAIM}, scale factor {factor}");
            assessments.add("cold-boots", what, Some(measured));
        }
        if let Some(&factor) = factors.get(factors.len().saturating_sub(1) / 2) {
            let p99 = |line: &Line| line.p99_ns as f64;
            let what = format!("p99 of {RECLAIM} over {VANILLA}, scale factor {factor}");
            assessments.add("p99", what, ratio(RECLAIM, VANILLA, factor, p99));
        }
        let wrong = records.iter().map(|line| line.wrong_count);
        assessments.add_counts("wrong-answers", "maximum number of wrong answers in a run", wrong);
    }

    fn plot(records: &[Line]) -> Chart {
        let factors = factors(records);
        let variants = VARIANTS.map(str::to_owned);
        let panel = |title: &str, y: &str, logarithmic, value: fn(&Line) -> f64| Panel {
            title: title.to_owned(),
            x: "scale factor".to_owned(),
            y: y.to_owned(),
            categories: factors.iter().map(u32::to_string).collect(),
            series: Series::of_methods(&variants, |variant| {
                let of = |&factor| Spread::of(select(records, variant, factor).map(value));
                factors.iter().map(of).collect()
            }),
            joined: true,
            logarithmic,
        };
        Chart {
            title: records.first().map_or(String::new(), |line| {
                let (functions, cache) = (line.functions_count, size::show(line.cache_bytes));
                format!("Instances of {functions} functions that share {cache}")
            }),
            subtitle: describe_run(records),
            panels: vec![
                panel("Cold boots", "of 100 requests", false, cold_percent),
                panel("Latency, 99th percentile", "ms", true, |l| ms(l.p99_ns)),
                panel("CPU time", "% of a processor", false, processor_percent),
            ],
            foot: records.first().map_or(String::new(), |line| {
                format!("{}, at scale factor {}", line.load, line.scale_factor)
            }),
        }
    }
}

fn cold_percent(line: &Line) -> f64 {
    100.0 * line.cold_boots_count as f64 / line.requests_count as f64
}

/// Of one processor.
fn processor_percent(line: &Line) -> f64 {
    100.0 * (line.instances_cpu_ns + line.platform_cpu_ns) as f64 / line.took_ns as f64
}

/// Of the total CPU time.
fn squeezing_percent(line: &Line) -> f64 {
    100.0 * line.squeeze_cpu_ns as f64 / (line.instances_cpu_ns + line.platform_cpu_ns) as f64
}

fn ms(time_ns: u64) -> f64 {
    time_ns as f64 / 1e6
}

fn factors(records: &[Line]) -> Vec<u32> {
    sorted(records, |line| line.scale_factor)
}

fn select<'a>(
    records: &'a [Line],
    variant: &'a str,
    factor: u32,
) -> impl Iterator<Item = &'a Line> + Clone {
    of_method(records, variant).filter(move |line| line.scale_factor == factor)
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

    fn line(variant: &str, scale_factor: u32, cold_boots_count: u64, p99_ns: u64) -> Line {
        Measured {
            header: header("cache", variant, 0),
            figures: Figures {
                variant: variant.to_owned(),
                scale_factor,
                load: "synthetic".to_owned(),
                functions_count: 40,
                cache_bytes: 2 << 30,
                memory_bytes: 256 << 20,
                threshold_bytes: 1 << 29,
                warm_up_count: 5,
                processor_percent: 100.0,
                requests_count: 200,
                wrong_count: 0,
                cold_boots_count,
                evictions_count: 0,
                alive_count: 20.0,
                charged_bytes: 1e9,
                answered_per_second: 3.0,
                took_ns: 60_000_000_000,
                instances_cpu_ns: 29_000_000_000,
                platform_cpu_ns: 1_000_000_000,
                squeeze_cpu_ns: 300_000_000,
                p50_ns: 1,
                p90_ns: 1,
                p95_ns: 1,
                p99_ns,
                squeezes_count: 1,
                squeeze_failures_count: 0,
                given_back_bytes: 1 << 20,
                pause_p50_ns: 1,
                pause_most_ns: 1,
                waited_count: 0,
                wait_p50_ns: 0,
                wait_most_ns: 0,
            },
        }
    }

    #[test]
    fn the_best_factor_and_the_middle_one_are_judged() {
        let mut records = Vec::new();
        for (factor, cold, p99) in [(5, 3, 900), (15, 0, 500), (25, 30, 100)] {
            records.extend([line(VANILLA, factor, 60, 1000), line(RECLAIM, factor, cold, p99)]);
        }
        assert_eq!(complaint(&records[0], &["variant", "scale_factor"]), None);
        let judged = |records: &[Line]| {
            let assessed = assess::<Arguments>(&repeated(records));
            assessed.iter().map(|b| (b.measured.value, b.verdict())).collect::<Vec<_>>()
        };
        use Verdict::{Met, Missed};
        assert_eq!(judged(&records), [(60.0, Met), (0.5, Met), (0.0, Met)]);
        records[0].figures.wrong_count = 1;
        assert_eq!(judged(&records)[2], (1.0, Missed));
        let text = Arguments::table(&records).to_string();
        // 30 s of CPU time in a minute, 1% of it for squeezing, and 30 cold boots of 60 in 200.
        assert!(text.contains(" 50.0 ") && text.contains(" 1.00 ") && text.contains(" 15.0 "));
        let plot = Arguments::plot(&records).svg().unwrap();
        assert!(plot.contains("40 functions that share 2 GiB") && plot.contains("Cold boots"));
    }
}
