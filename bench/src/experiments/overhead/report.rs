//! Table, verdict and plot.

use super::{Arguments, DAEMON, Figures, INSIDE};
use crate::{
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table,
        chart::{Chart, Panel, Series},
        number, of_method, sorted,
    },
};

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let called = |line: &Line| line.items_count.is_some();
        Table::of(
            records,
            |line| (!called(line), line.items_count, line.header.method.clone()),
            &[
                Column::common("called", |line| line.header.method.clone()),
                Column::common("items", |line| {
                    line.items_count.map_or("-".to_owned(), |items| items.to_string())
                }),
                Column::new("answer KiB", |lines: &[&Line]| {
                    let bytes = lines.iter().map(|line| line.answer_bytes).max().unwrap_or(0);
                    number(bytes as f64 / 1024.0)
                })
                .only_if(called),
                Column::count("n"),
                Column::common("each", move |line| {
                    if called(line) { "call" } else { "second" }.to_owned()
                }),
                Column::median("latency ms", latency).only_if(called),
                Column::quartiles("quartiles ms", latency).only_if(called),
                Column::median("daemon CPU ms", daemon_cpu),
                Column::quartiles("quartiles ms", daemon_cpu),
                Column::median("VM CPU ms", vm_cpu),
                Column::quartiles("quartiles ms", vm_cpu),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let most = sorted(records, |line| line.items_count).pop();
        let lines = select(records, DAEMON, most.flatten());
        let what = "the daemon's own CPU time for a warm call";
        assessments.add("daemon-time", what, Estimate::median(lines.map(daemon_cpu)));
    }

    fn plot(records: &[Line]) -> Chart {
        let items: Vec<_> =
            sorted(records, |line| line.items_count).into_iter().flatten().collect();
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
            foot: "CPU times are measured on the host. Inside, the client's own work counts as the VM's."
                .to_owned(),
        }
    }
}

impl Figures {
    /// CPU time in milliseconds per call, or per second without calls.
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
    use super::{super::IDLE, Arguments, Figures, *};
    use crate::{
        harness::assess,
        record::{
            Measured, complaint,
            tests::{header, repeated},
        },
        report::Verdict,
    };

    fn line(method: &str, items_count: Option<u32>, daemon_cpu_ns: u64) -> Line {
        Measured {
            header: header("overhead", method, 0),
            figures: Figures {
                function: "html".to_owned(),
                items_count,
                calls_count: items_count.map_or(0, |_| 10),
                answer_bytes: 96_000,
                latency_ns: 80_000_000,
                elapsed_ns: 2_000_000_000,
                daemon_cpu_ns,
                vm_cpu_ns: 70_000_000,
            },
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
        // The target is for the function's own request.
        let assessed = assess::<Arguments>(&repeated(&records));
        assert!(assessed.len() == 1 && assessed[0].verdict() == Verdict::Met, "{assessed:?}");
        assert_eq!(assessed[0].measured.value, 0.9);
        let text = Arguments::table(&records).to_string();
        assert!(text.contains("second") && text.contains("1.50"), "{text}");
        assert!(Arguments::plot(&records).svg().unwrap().contains("Latency"));
        assert!(assess::<Arguments>(&records[3..]).is_empty());
    }
}
