//! What is made of the lines: table, bound and plot.

use super::{DAEMON, INSIDE, Line};
use crate::common::{
    bound::{Bound, Limit, number},
    chart::{Chart, Panel, Series},
    error::Result,
    estimate::Estimate,
    record::describe_run,
    select::{of_method, sorted},
    stats::Spread,
    table::Table,
};

pub(super) fn table(records: &[Line]) -> Table {
    let mut table = Table::new(&[
        "called",
        "items",
        "answer KiB",
        "n",
        "each",
        "latency ms",
        "quartiles ms",
        "daemon CPU ms",
        "quartiles ms",
        "VM CPU ms",
        "quartiles ms",
    ]);
    let key =
        |line: &Line| (line.items_count.is_none(), line.items_count, line.header.method.clone());
    for (idle, items, method) in sorted(records, key) {
        let lines = || select(records, &method, items);
        let cells = |value: fn(&Line) -> f64| {
            let show =
                |s: Spread| [number(s.median), format!("{}-{}", number(s.low), number(s.high))];
            Spread::of(lines().map(value)).map(show).unwrap_or_default()
        };
        let bytes = lines().map(|line| line.answer_bytes).max().unwrap_or(0);
        let unless_idle = |cell: String| if idle { "-".to_owned() } else { cell };
        let head = [
            method.clone(),
            items.map_or("-".to_owned(), |items| items.to_string()),
            unless_idle(number(bytes as f64 / 1024.0)),
            lines().count().to_string(),
            if idle { "second" } else { "call" }.to_owned(),
        ];
        let latency = cells(latency).map(unless_idle);
        let [daemon, vm] = [cells(daemon_cpu), cells(vm_cpu)];
        table.row(head.into_iter().chain(latency).chain(daemon).chain(vm));
    }
    table
}

pub(super) fn bounds(records: &[Line]) -> Vec<Bound> {
    let most = sorted(records, |line| line.items_count).pop();
    let bound = |measured| Bound {
        what: "the daemon's own CPU time for a warm call".to_owned(),
        measured,
        limit: Limit::AtMost(1.0),
        unit: " ms",
    };
    let lines = select(records, DAEMON, most.flatten());
    Estimate::median(lines.map(daemon_cpu)).map(bound).into_iter().collect()
}

pub(super) fn plot(records: &[Line]) -> Result<String> {
    let items: Vec<_> = sorted(records, |line| line.items_count).into_iter().flatten().collect();
    let panel = |title: &str, methods: &[&str], value: fn(&Line) -> f64| Panel {
        title: title.to_owned(),
        x: "items of the page".to_owned(),
        y: "milliseconds a call".to_owned(),
        categories: items.iter().map(u32::to_string).collect(),
        series: Series::of_methods(
            &methods.iter().map(|&method| method.to_owned()).collect::<Vec<_>>(),
            |method| {
                let point = |&n| Spread::of(select(records, method, Some(n)).map(value));
                items.iter().map(point).collect()
            },
        ),
        joined: false,
        logarithmic: false,
    };
    Chart {
        title: "Calls of a warm instance, through the daemon and from inside the VM".to_owned(),
        subtitle: describe_run(records),
        panels: vec![
            panel("CPU time of the daemon", &[DAEMON], daemon_cpu),
            panel("CPU time of the VM", &[DAEMON, INSIDE], vm_cpu),
            panel("Latency", &[DAEMON, INSIDE], latency),
        ],
        foot: "CPU times are the host's. Inside, the client's own work is the VM's too.".to_owned(),
    }
    .svg()
}

impl Line {
    /// CPU time for each call, or for each second without one, in milliseconds.
    fn each(&self, cpu_ns: u64) -> f64 {
        let whole = match self.calls_count {
            0 => self.elapsed_ns as f64 / 1e9,
            calls => calls.into(),
        };
        cpu_ns as f64 / 1e6 / whole
    }
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    items: Option<u32>,
) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.items_count == items)
}

fn latency(line: &Line) -> f64 {
    line.latency_ns as f64 / 1e6
}

fn daemon_cpu(line: &Line) -> f64 {
    line.each(line.daemon_cpu_ns)
}

fn vm_cpu(line: &Line) -> f64 {
    line.each(line.vm_cpu_ns)
}

#[cfg(test)]
mod tests {
    use super::{super::IDLE, *};
    use crate::common::{
        bound::Verdict,
        record::{
            complaint,
            tests::{header, repeated},
        },
    };

    fn line(method: &str, items_count: Option<u32>, daemon_cpu_ns: u64) -> Line {
        Line {
            header: header("overhead", method, 0),
            function: "html".to_owned(),
            items_count,
            calls_count: items_count.map_or(0, |_| 10),
            answer_bytes: 96_000,
            latency_ns: 80_000_000,
            elapsed_ns: 2_000_000_000,
            daemon_cpu_ns,
            vm_cpu_ns: 70_000_000,
        }
    }

    #[test]
    fn a_call_is_counted_and_a_second_without_one() {
        let records = [
            line(DAEMON, Some(0), 20_000_000),
            line(DAEMON, Some(1000), 9_000_000),
            line(INSIDE, Some(1000), 1_000_000),
            line(IDLE, None, 3_000_000),
        ];
        assert_eq!(complaint(&records[0], &["daemon_cpu_ns", "vm_cpu_ns", "items_count"]), None);
        assert_eq!((daemon_cpu(&records[1]), daemon_cpu(&records[3])), (0.9, 1.5));
        // The bound is about the function's own request.
        let promised = bounds(&repeated(&records));
        assert!(promised.len() == 1 && promised[0].verdict() == Verdict::Met, "{promised:?}");
        assert_eq!(promised[0].measured.value, 0.9);
        let text = table(&records).to_string();
        assert!(text.contains("second") && text.contains("1.50"), "{text}");
        assert!(plot(&records).unwrap().contains("Latency"));
        assert!(bounds(&records[3..]).is_empty());
    }
}
