//! What is made of the lines: table, bounds and plot.

use super::Line;
use crate::common::{
    bound::{Bound, Limit, number},
    chart::{self, BLUE, Chart, GREEN, ORANGE, Panel, Series, VERMILION},
    error::Result,
    estimate::Estimate,
    record::describe_run,
    select::{in_order, methods, of_method, sorted},
    size,
    stats::{Spread, median},
    table::Table,
};

/// Lines of one method, size and setting of init_on_alloc, without those that were profiled.
fn timed<'a>(
    records: &'a [Line],
    method: &'a str,
    size_bytes: u64,
    init_on_alloc: u8,
) -> impl Iterator<Item = &'a Line> + Clone {
    of_method(records, method).filter(move |line| {
        line.size_bytes == size_bytes && line.init_on_alloc == init_on_alloc && !line.profiled
    })
}

fn figure<'a>(lines: impl Iterator<Item = &'a Line>, value: impl Fn(&Line) -> u64) -> Option<f64> {
    median(lines.map(|line| value(line) as f64))
}

fn sizes(records: &[Line]) -> Vec<u64> {
    sorted(records, |line| line.size_bytes)
}

fn ms(ns: f64) -> String {
    number(ns / 1e6)
}

pub(super) fn table(records: &[Line]) -> Table {
    let mut table = Table::new(&[
        "reclaim",
        "method",
        "zeroing",
        "n",
        "median ms",
        "quartiles ms",
        "guest ms",
        "device ms",
        "migrated",
        "taken, zeroed",
        "requests",
        "resident",
        "failed",
    ]);
    for size_bytes in sizes(records) {
        for init_on_alloc in [0, 1] {
            for method in methods(records) {
                let lines = timed(records, &method, size_bytes, init_on_alloc);
                let Some(latency) = Spread::of(lines.clone().map(|line| line.latency_ns as f64))
                else {
                    continue;
                };
                let of = |value: fn(&Line) -> u64| figure(lines.clone(), value).unwrap_or(f64::NAN);
                let resident = lines.clone().filter_map(|line| line.resident_drop_bytes);
                let resident = median(resident.map(|bytes| bytes as f64));
                table.row([
                    size::show(size_bytes),
                    method.clone(),
                    init_on_alloc.to_string(),
                    latency.count.to_string(),
                    ms(latency.median),
                    format!("{}-{}", ms(latency.low), ms(latency.high)),
                    ms(of(|line| line.guest_ns)),
                    ms(of(|line| line.device_ns)),
                    number(of(|line| line.migrated_pages)),
                    number(of(|line| line.init_on_alloc_taken_pages)),
                    number(of(|line| line.device_requests)),
                    resident
                        .map_or("-".to_owned(), |bytes| format!("-{}", size::show(bytes as u64))),
                    lines.filter(|line| line.failure.is_some()).count().to_string(),
                ]);
            }
        }
    }
    table
}

pub(super) fn bounds(records: &[Line]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    let latency =
        |method, size, init| timed(records, method, size, init).map(|line| line.latency_ns as f64);
    for size_bytes in [512 << 20, 1 << 30] {
        for init in [0, 1] {
            let stock = latency("virtio-mem", size_bytes, init);
            let faster = Estimate::ratio(stock, latency("squeezy", size_bytes, init));
            bounds.extend(faster.map(|measured| Bound {
                what: format!(
                    "reclaim of {}, times faster than virtio-mem, init_on_alloc={init}",
                    size::show(size_bytes)
                ),
                measured,
                limit: Limit::AtLeast(300.0),
                unit: "x",
            }));
        }
    }
    for size_bytes in sizes(records).into_iter().filter(|&size| size >= 1 << 30) {
        for init in [0, 1] {
            let floor = latency("floor", size_bytes, 0).chain(latency("floor", size_bytes, 1));
            let times = Estimate::ratio(latency("squeezy", size_bytes, init), floor);
            bounds.extend(times.map(|measured| Bound {
                what: format!(
                    "reclaim of {} against the floor, init_on_alloc={init}",
                    size::show(size_bytes)
                ),
                measured,
                limit: Limit::AtMost(2.0),
                unit: "x",
            }));
        }
    }
    let ours = || of_method(records, "squeezy").filter(|line| !line.profiled);
    for (what, value, limit) in [
        ("pages migrated per reclaim", (|line| line.migrated_pages) as fn(&Line) -> u64, 0.0),
        (
            "pages taken with init_on_alloc=1 per reclaim",
            |line| line.init_on_alloc_taken_pages,
            0.0,
        ),
        ("requests to the device per reclaim", |line| line.device_requests, 1.0),
    ] {
        let counts = ours().map(|line| value(line) as f64);
        bounds.extend(Estimate::counted(counts, limit).map(|measured| Bound {
            what: what.to_owned(),
            measured,
            limit: Limit::Exactly(limit),
            unit: "",
        }));
    }
    bounds
}

/// How to read the breakdown.
const FOOT: &str = "Left: from the request until the device has the size. Right: reclaims of the largest size \
    while ftrace counts calls of kernel functions, which slows the guest down. Migration: migrate_pages. Taking \
    pages: the rest of alloc_contig_range, or balloon_page_alloc, with their zeroing under init_on_alloc=1. \
    Device: the guest waits for its requests, in which the host discards.";

/// A part of a reclaim, of a line that was profiled.
type Part = fn(&Line) -> Option<u64>;

fn function_ns(line: &Line, name: &str) -> Option<u64> {
    line.functions_ns.get(name).copied()
}

/// The parts that the guest's functions are summed up to.
const PARTS: [(&str, plotters::style::RGBColor, Part); 4] = [
    ("migration", VERMILION, |line| function_ns(line, "migrate_pages")),
    ("taking pages", ORANGE, |line| {
        let contiguous = function_ns(line, "alloc_contig_range_noprof");
        let migration = function_ns(line, "migrate_pages").unwrap_or(0);
        contiguous
            .map(|ns| ns.saturating_sub(migration))
            .or_else(|| function_ns(line, "balloon_page_alloc"))
    }),
    ("device", GREEN, |line| {
        function_ns(line, "virtio_mem_send_request").or_else(|| function_ns(line, "tell_host"))
    }),
    ("discard on the host", BLUE, |line| Some(line.device_ns)),
];

/// Where the time goes at the largest size that was profiled.
fn breakdown(records: &[Line]) -> Option<Panel> {
    let profiled = || records.iter().filter(|line| line.profiled);
    let size_bytes = profiled().map(|line| line.size_bytes).max()?;
    let lines: Vec<_> = profiled().filter(|line| line.size_bytes == size_bytes).collect();
    let mut cases = in_order(&lines, |line| (line.header.method.clone(), line.init_on_alloc));
    cases.sort_by_key(|(_, init)| *init);
    let series = PARTS.map(|(name, colour, part)| Series {
        name: name.to_owned(),
        colour,
        variant: false,
        points: cases
            .iter()
            .map(|(method, init)| {
                let lines = lines
                    .iter()
                    .filter(|line| line.header.method == *method && line.init_on_alloc == *init);
                Spread::of(lines.filter_map(|line| part(line)).map(|ns| ns as f64 / 1e6))
                    .filter(|spread| spread.median > 0.0)
            })
            .collect(),
    });
    Some(Panel {
        title: format!("Where the time goes, {}", size::show(size_bytes)),
        x: "method (+: init_on_alloc=1)".to_owned(),
        y: "milliseconds".to_owned(),
        categories: cases
            .iter()
            .map(|(method, init)| format!("{method}{}", if *init == 1 { "+" } else { "" }))
            .collect(),
        series: series.into(),
        joined: false,
        logarithmic: true,
    })
}

pub(super) fn plot(records: &[Line]) -> Result<String> {
    let sizes = sizes(records);
    let mut series = Vec::new();
    for method in methods(records) {
        for init in [0, 1] {
            let points: Vec<_> = sizes
                .iter()
                .map(|&size| {
                    Spread::of(
                        timed(records, &method, size, init)
                            .map(|line| line.latency_ns as f64 / 1e6),
                    )
                })
                .collect();
            if points.iter().any(Option::is_some) {
                let name =
                    if init == 0 { method.clone() } else { format!("{method}, init_on_alloc=1") };
                series.push(Series {
                    name,
                    colour: chart::colour(&method),
                    variant: init == 1,
                    points,
                });
            }
        }
    }
    let latency = Panel {
        title: "Latency".to_owned(),
        x: "memory of the instance that has ended".to_owned(),
        y: "milliseconds".to_owned(),
        categories: sizes.iter().map(|&size| size::show(size)).collect(),
        series,
        joined: true,
        logarithmic: true,
    };
    let mut panels = vec![latency];
    panels.extend(breakdown(records));
    let chart = Chart {
        title: "Reclaiming the memory of an ended instance, the rest of the VM full".to_owned(),
        subtitle: describe_run(records),
        panels,
        foot: FOOT.to_owned(),
    };
    chart.svg()
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
    use std::collections::BTreeMap;

    fn line(method: &str, size_bytes: u64, latency_ns: u64) -> Line {
        Line {
            header: header("reclaim", method, 0),
            size_bytes,
            instances: 4,
            rest_bytes: 0,
            init_on_alloc: 0,
            profiled: false,
            latency_ns,
            guest_ns: 1,
            device_ns: 1,
            migrated_pages: 0,
            init_on_alloc_taken_pages: 0,
            device_requests: 1,
            resident_drop_bytes: Some(size_bytes),
            reclaimed_bytes: size_bytes,
            failure: None,
            functions_ns: BTreeMap::new(),
            functions_calls: BTreeMap::new(),
        }
    }

    #[test]
    fn lines_have_what_was_promised_with_units() {
        let required = [
            "size_bytes",
            "latency_ns",
            "guest_ns",
            "device_ns",
            "migrated_pages",
            "init_on_alloc_taken_pages",
            "device_requests",
            "resident_drop_bytes",
            "init_on_alloc",
        ];
        assert_eq!(complaint(&line("floor", 1 << 30, 1), &required), None);
    }

    #[test]
    fn bounds_compare_medians_of_the_same_size() {
        let mut records = vec![
            line("squeezy", 1 << 30, 3_000_000),
            line("floor", 1 << 30, 2_000_000),
            line("virtio-mem", 1 << 30, 1_200_000_000),
            line("virtio-mem", 256 << 20, 1),
        ];
        use Verdict::{Met, Missed};
        let verdicts = |records: &[Line]| {
            bounds(&repeated(records)).iter().map(Bound::verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&records), [Met; 5]);
        records[0].latency_ns = 5_000_000;
        records[0].migrated_pages = 1;
        assert_eq!(verdicts(&records), [Missed, Missed, Missed, Met, Met]);
        // One reclaim of many that migrates is one too many.
        let mut once = repeated(&[line("squeezy", 1 << 30, 1)]);
        once[3].migrated_pages = 1;
        assert_eq!(bounds(&once)[0].verdict(), Missed);
        // What was profiled says nothing about the latency.
        records[0].profiled = true;
        assert!(bounds(&records).is_empty());
    }

    #[test]
    fn the_breakdown_is_of_the_largest_size_that_was_profiled() {
        let mut large = line("virtio-mem", 1 << 30, 3_000_000);
        large.profiled = true;
        large.functions_ns.insert("alloc_contig_range_noprof".to_owned(), 5_000_000);
        large.functions_ns.insert("migrate_pages".to_owned(), 4_000_000);
        let records = [line("virtio-mem", 2 << 30, 1), large];
        let panel = breakdown(&records).unwrap();
        assert!(panel.title.contains("1 GiB"));
        let medians: Vec<_> =
            panel.series.iter().map(|series| series.points[0].map(|p| p.median)).collect();
        assert_eq!(medians, [Some(4.0), Some(1.0), None, Some(0.000001)]);
        assert!(breakdown(&records[..1]).is_none());
    }

    #[test]
    fn every_size_and_method_is_shown() {
        let records = [line("squeezy", 1 << 30, 3_000_000), line("node", 128 << 20, 9_000_000)];
        let text = table(&records).to_string();
        assert!(text.contains("1 GiB") && text.contains("node"), "{text}");
        assert!(plot(&records).unwrap().contains("128 MiB"));
    }
}
