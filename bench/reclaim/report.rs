//! What is made of the lines: table, bounds and plot.

use super::Line;
use crate::common::{
    bound::{Bound, Limit, number},
    chart::{self, Chart, Panel, Series},
    error::Result,
    record::{describe_run, methods},
    size,
    stats::{Spread, median},
    table::Table,
};
use std::collections::BTreeSet;

/// Lines of one method, size and setting of init_on_alloc, without those that were profiled.
fn timed<'a>(
    records: &'a [Line],
    method: &'a str,
    size_bytes: u64,
    init_on_alloc: u8,
) -> impl Iterator<Item = &'a Line> + Clone {
    records.iter().filter(move |line| {
        let same = line.size_bytes == size_bytes && line.init_on_alloc == init_on_alloc;
        same && line.header.method == method && !line.profiled
    })
}

fn figure<'a>(lines: impl Iterator<Item = &'a Line>, value: impl Fn(&Line) -> u64) -> Option<f64> {
    median(lines.map(|line| value(line) as f64))
}

fn sizes(records: &[Line]) -> Vec<u64> {
    records.iter().map(|line| line.size_bytes).collect::<BTreeSet<_>>().into_iter().collect()
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
        "zeroed",
        "requests",
        "resident",
        "failed",
    ]);
    for size_bytes in sizes(records) {
        for init_on_alloc in [0, 1] {
            for method in methods(records) {
                let lines = timed(records, &method, size_bytes, init_on_alloc);
                let Some(latency) = Spread::of(lines.clone().map(|line| line.latency_ns as f64)) else { continue };
                let of = |value: fn(&Line) -> u64| figure(lines.clone(), value).unwrap_or(f64::NAN);
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
                    number(of(|line| line.zeroed_pages)),
                    number(of(|line| line.device_requests)),
                    format!("-{}", size::show(of(|line| line.resident_drop_bytes) as u64)),
                    lines.filter(|line| line.failure.is_some()).count().to_string(),
                ]);
            }
        }
    }
    table
}

pub(super) fn bounds(records: &[Line]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    let latency = |method, size, init| figure(timed(records, method, size, init), |line| line.latency_ns);
    for size_bytes in [512 << 20, 1 << 30] {
        for init in [0, 1] {
            if let (Some(stock), Some(ours)) =
                (latency("virtio-mem", size_bytes, init), latency("squeezy", size_bytes, init))
            {
                bounds.push(Bound {
                    what: format!(
                        "reclaim of {}, times faster than virtio-mem, init_on_alloc={init}",
                        size::show(size_bytes)
                    ),
                    measured: stock / ours,
                    limit: Limit::AtLeast(300.0),
                    unit: "x",
                });
            }
        }
    }
    for size_bytes in sizes(records).into_iter().filter(|&size| size >= 1 << 30) {
        let floor = timed(records, "floor", size_bytes, 0).chain(timed(records, "floor", size_bytes, 1));
        let floor = figure(floor, |line| line.latency_ns);
        for init in [0, 1] {
            if let (Some(floor), Some(ours)) = (floor, latency("squeezy", size_bytes, init)) {
                bounds.push(Bound {
                    what: format!("reclaim of {} against the floor, init_on_alloc={init}", size::show(size_bytes)),
                    measured: ours / floor,
                    limit: Limit::AtMost(2.0),
                    unit: "x",
                });
            }
        }
    }
    let ours = || records.iter().filter(|line| line.header.method == "squeezy" && !line.profiled);
    for (what, value, limit) in [
        ("pages migrated per reclaim", (|line| line.migrated_pages) as fn(&Line) -> u64, 0.0),
        ("pages zeroed by the guest per reclaim", |line| line.zeroed_pages, 0.0),
        ("requests to the device per reclaim", |line| line.device_requests, 1.0),
    ] {
        if let Some(measured) = figure(ours(), value) {
            bounds.push(Bound { what: what.to_owned(), measured, limit: Limit::Exactly(limit), unit: "" });
        }
    }
    bounds
}

pub(super) fn plot(records: &[Line]) -> Result<String> {
    let sizes = sizes(records);
    let mut series = Vec::new();
    for method in methods(records) {
        for init in [0, 1] {
            let points: Vec<_> = sizes
                .iter()
                .map(|&size| Spread::of(timed(records, &method, size, init).map(|line| line.latency_ns as f64 / 1e6)))
                .collect();
            if points.iter().any(Option::is_some) {
                let name = if init == 0 { method.clone() } else { format!("{method}, init_on_alloc=1") };
                series.push(Series { name, colour: chart::colour(&method), variant: init == 1, points });
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
    let chart = Chart {
        title: "Reclaiming the memory of an ended instance, the rest of the VM full".to_owned(),
        subtitle: describe_run(records),
        panels: vec![latency],
        foot: String::new(),
    };
    chart.svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::{complaint, tests::header};
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
            zeroed_pages: 0,
            device_requests: 1,
            resident_drop_bytes: size_bytes,
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
            "zeroed_pages",
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
        let verdicts = |records: &[Line]| bounds(records).iter().map(Bound::met).collect::<Vec<_>>();
        assert_eq!(verdicts(&records), [true, true, true, true, true]);
        records[0].latency_ns = 5_000_000;
        records[0].migrated_pages = 1;
        assert_eq!(verdicts(&records), [false, false, false, true, true]);
        // What was profiled says nothing about the latency.
        records[0].profiled = true;
        assert!(bounds(&records).is_empty());
    }

    #[test]
    fn every_size_and_method_is_shown() {
        let records = [line("squeezy", 1 << 30, 3_000_000), line("node", 128 << 20, 9_000_000)];
        let text = table(&records).to_string();
        assert!(text.contains("1 GiB") && text.contains("node"), "{text}");
        assert!(plot(&records).unwrap().contains("128 MiB"));
    }
}
