//! Table, verdicts and plot.

use super::{Arguments, Figures};
use crate::{
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{self, BLUE, Chart, GREEN, ORANGE, Panel, Series, VERMILION},
        in_order, median, methods, of_method, sorted,
    },
    size,
};

/// Lines of one method, size and setting of init_on_alloc that were not profiled.
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

fn sizes(records: &[Line]) -> Vec<u64> {
    sorted(records, |line| line.size_bytes)
}

/// By how much host memory behind the guest's memory decreased, if it was measured.
fn resident(lines: &[&Line]) -> String {
    let drops = lines.iter().filter_map(|line| line.resident_drop_bytes);
    let drop = median(drops.map(|bytes| bytes as f64));
    drop.map_or("-".to_owned(), |bytes| format!("-{}", size::show(bytes as u64)))
}

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        let ms = |line: &Line| line.latency_ns as f64 / 1e6;
        Table::of(
            records.iter().filter(|line| !line.profiled),
            |line| (line.size_bytes, line.init_on_alloc, by_method(line)),
            &[
                Column::common("reclaim", |line| size::show(line.size_bytes)),
                Column::common("method", |line| line.header.method.clone()),
                Column::common("zeroing", |line| line.init_on_alloc.to_string()),
                Column::count("n"),
                Column::median("median ms", ms),
                Column::quartiles("quartiles ms", ms),
                Column::median("guest ms", |line| line.guest_ns as f64 / 1e6),
                Column::median("device ms", |line| line.device_ns as f64 / 1e6),
                Column::median("migrated", |line| line.migrated_pages as f64),
                Column::median("taken, zeroed", |line| line.init_on_alloc_taken_pages as f64),
                Column::median("requests", |line| line.device_requests as f64),
                Column::new("resident", resident),
                Column::count_of("failed", |line| line.failure.is_some()),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let latency = |method, size, init| {
            timed(records, method, size, init).map(|line| line.latency_ns as f64)
        };
        for size_bytes in [512 << 20, 1 << 30] {
            for init in [0, 1] {
                let stock = latency("virtio-mem", size_bytes, init);
                assessments.add(
                    "against-virtio-mem",
                    format!(
                        "reclaim of {}, times faster than virtio-mem, init_on_alloc={init}",
                        size::show(size_bytes)
                    ),
                    Estimate::ratio(stock, latency("squeezy", size_bytes, init)),
                );
            }
        }
        for size_bytes in sizes(records).into_iter().filter(|&size| size >= 1 << 30) {
            for init in [0, 1] {
                let floor = latency("floor", size_bytes, 0).chain(latency("floor", size_bytes, 1));
                assessments.add(
                    "against-floor",
                    format!(
                        "reclaim of {} relative to the floor, init_on_alloc={init}",
                        size::show(size_bytes)
                    ),
                    Estimate::ratio(latency("squeezy", size_bytes, init), floor),
                );
            }
        }
        let mut count = |target, what, value: fn(&Line) -> u64| {
            let ours = of_method(records, "squeezy").filter(|line| !line.profiled);
            assessments.add_counts(target, what, ours.map(value));
        };
        count("migrated-pages", "pages migrated per reclaim", |line| line.migrated_pages);
        count("taken-pages", "pages taken with init_on_alloc=1 per reclaim", |line| {
            line.init_on_alloc_taken_pages
        });
        count("device-requests", "requests to the device per reclaim", |line| line.device_requests);
    }

    fn plot(records: &[Line]) -> Chart {
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
                    let name = if init == 0 {
                        method.clone()
                    } else {
                        format!("{method}, init_on_alloc=1")
                    };
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
            x: "memory of the ended instance".to_owned(),
            y: "milliseconds".to_owned(),
            categories: sizes.iter().map(|&size| size::show(size)).collect(),
            series,
            joined: true,
            logarithmic: true,
        };
        let mut panels = vec![latency];
        panels.extend(breakdown(records));
        Chart {
            title: "Reclaiming the memory of an ended instance, with the rest of the VM full"
                .to_owned(),
            subtitle: describe_run(records),
            panels,
            foot: FOOT.to_owned(),
        }
    }
}

/// How to read the breakdown.
const FOOT: &str = "Left: from the request until the device has that size. Right: reclaims of the largest size \
    with ftrace counting kernel functions, which slows the guest down. Migration: migrate_pages. Taking \
    pages: the rest of alloc_contig_range, or balloon_page_alloc, including zeroing with init_on_alloc=1. \
    Device: the guest waits for its requests while the host discards.";

/// A part of a profiled reclaim.
type Part = fn(&Line) -> Option<u64>;

fn function_ns(line: &Line, name: &str) -> Option<u64> {
    line.functions_ns.get(name).copied()
}

/// The parts into which the guest's functions are grouped.
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

/// The breakdown at the largest size that was profiled.
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
    };
    use std::collections::BTreeMap;

    fn line(method: &str, size_bytes: u64, latency_ns: u64) -> Line {
        Measured {
            header: header("reclaim", method, 0),
            figures: Figures {
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
            },
        }
    }

    #[test]
    fn lines_have_all_figures_with_units() {
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
            assess::<Arguments>(&repeated(records))
                .iter()
                .map(Assessment::verdict)
                .collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&records), [Met; 5]);
        records[0].figures.latency_ns = 5_000_000;
        records[0].figures.migrated_pages = 1;
        assert_eq!(verdicts(&records), [Missed, Missed, Missed, Met, Met]);
        // A single reclaim that migrates is one too many.
        let mut once = repeated(&[line("squeezy", 1 << 30, 1)]);
        once[3].figures.migrated_pages = 1;
        assert_eq!(assess::<Arguments>(&once)[0].verdict(), Missed);
        // A profiled reclaim says nothing about latency.
        records[0].figures.profiled = true;
        assert!(assess::<Arguments>(&records).is_empty());
    }

    #[test]
    fn the_breakdown_is_of_the_largest_size_that_was_profiled() {
        let mut large = line("virtio-mem", 1 << 30, 3_000_000);
        large.figures.profiled = true;
        large.figures.functions_ns.insert("alloc_contig_range_noprof".to_owned(), 5_000_000);
        large.figures.functions_ns.insert("migrate_pages".to_owned(), 4_000_000);
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
        let records = [line("squeezy", 1 << 30, 3_000_000), line("numa", 128 << 20, 9_000_000)];
        let text = Arguments::table(&records).to_string();
        assert!(text.contains("1 GiB") && text.contains("numa"), "{text}");
        assert!(Arguments::plot(&records).svg().unwrap().contains("128 MiB"));
    }
}
