//! Table, targets and plot.

use super::{Arguments, CODE, Figures, IMAGE, Line, PAGE_BYTES};
use crate::{
    experiments::coldstart,
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        functions, methods, of_function,
    },
    size::mib,
};

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

/// From the call to the answer in a VM that runs: without its boot, in milliseconds.
fn start_ms(line: &Line) -> f64 {
    line.start.total_ns.saturating_sub(line.start.boot_ns) as f64 / 1e6
}

fn sent_kib(line: &Line) -> f64 {
    line.sent_bytes as f64 / 1024.0
}

fn used_mib(line: &Line) -> f64 {
    mib(line.used_pages * PAGE_BYTES)
}

/// The lines of a method and a function, of first instances or of further ones.
fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    function: &'a str,
    vm_was_there: bool,
) -> impl Iterator<Item = &'a Line> {
    let lines = of_function(records, method, function);
    lines.filter(move |line| line.start.vm_was_there == vm_was_there)
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        let ms = |head, value: fn(&coldstart::Figures) -> u64| {
            Column::median(head, move |line: &Line| value(&line.start) as f64 / 1e6)
        };
        Table::of(
            records,
            |line| (line.start.function.clone(), line.start.vm_was_there, by_method(line)),
            &[
                Column::common("function", |line| line.start.function.clone()),
                Column::common("given as", |line| line.header.method.clone()),
                Column::common("instance", |line| {
                    if line.start.vm_was_there { "further" } else { "first" }.to_owned()
                }),
                Column::count("n"),
                Column::median("start ms", start_ms),
                Column::quartiles("quartiles ms", start_ms),
                ms("plug ms", |start| start.plug_ns),
                ms("sandbox ms", |start| start.sandbox_ns),
                ms("init ms", |start| start.init_ns),
                ms("run ms", |start| start.run_ns),
                ms("before: boot ms", |start| start.boot_ns),
                Column::median("sent KiB", sent_kib),
                Column::median("used MiB", used_mib),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for (name, vm_was_there) in [("first", false), ("further", true)] {
            for function in functions(records) {
                let of = |method| select(records, method, &function, vm_was_there).map(start_ms);
                assessments.add(
                    name,
                    format!("cold start of code relative to an image, {name} instance, {function}"),
                    Estimate::ratio(of(CODE), of(IMAGE)),
                );
            }
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let start =
            |line: &Line| Measured { header: line.header.clone(), figures: line.start.clone() };
        let starts: Vec<coldstart::Line> = records.iter().map(start).collect();
        let functions = functions(records);
        let panel = |title: &str, y: &str, value: fn(&Line) -> f64, logarithmic| Panel {
            title: title.to_owned(),
            x: "function".to_owned(),
            y: y.to_owned(),
            categories: functions.clone(),
            series: Series::of_methods(&methods(records), |method| {
                let of = |function: &String| {
                    Spread::of(select(records, method, function, true).map(value))
                };
                functions.iter().map(of).collect()
            }),
            joined: false,
            logarithmic,
        };
        let parts = functions.iter().map(|function| coldstart::panel(&starts, function.clone()));
        let counts = [
            panel("The first request to an instance's server", "KiB", sent_kib, true),
            panel("Used by an instance after its first answer", "MiB", used_mib, false),
        ];
        Chart {
            title: "Time to the first answer of a function given as code, and as an image"
                .to_owned(),
            subtitle: describe_run(records),
            panels: parts.chain(counts).collect(),
            foot: "code: it comes with the first request to an instance of a runtime's image. image: it is in an image of \
                   its own, with a server of its own. Plugging memory and setting up the sandbox overlap."
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::assess,
        record::{
            complaint,
            tests::{header, repeated},
        },
        report::Verdict,
    };

    /// The two starts of a trial.
    fn trial(method: &str, first_ms: u64, further_ms: u64) -> [Line; 2] {
        const MS: u64 = 1_000_000;
        [(false, first_ms, 1000), (true, further_ms, 0)].map(|(vm_was_there, ms, boot_ms)| {
            let start = coldstart::Figures {
                function: "python".to_owned(),
                vm_was_there,
                total_ns: (boot_ms + ms) * MS,
                boot_ns: boot_ms * MS,
                plug_ns: 3 * MS,
                sandbox_ns: 4 * MS,
                init_ns: (ms - 9) * MS,
                run_ns: 5 * MS,
                stop_ns: MS,
                reclaim_ns: MS,
                size_bytes: 256 << 20,
            };
            let figures = Figures { start, sent_bytes: 2048, used_pages: 512 };
            Measured { header: header("code", method, 0), figures }
        })
    }

    #[test]
    fn code_is_compared_with_an_image_without_the_boot() {
        let records = [trial(CODE, 400, 50), trial(IMAGE, 200, 100)].concat();
        let assessed = assess::<Arguments>(&repeated(&records));
        let values: Vec<f64> = assessed.iter().map(|one| one.measured.value).collect();
        assert_eq!(values, [2.0, 0.5]);
        let verdicts: Vec<Verdict> = assessed.iter().map(|one| one.verdict()).collect();
        assert_eq!(verdicts, [Verdict::Missed, Verdict::Met]);
    }

    #[test]
    fn table_and_plot_have_both_ways() {
        let records = [trial(CODE, 400, 50), trial(IMAGE, 200, 100)].concat();
        let table = Arguments::table(&records).to_string();
        let rows: Vec<Vec<&str>> =
            table.lines().skip(1).map(|row| row.split_whitespace().take(3).collect()).collect();
        let row = |given, instance| vec!["python", given, instance];
        let right =
            [row(CODE, "first"), row(IMAGE, "first"), row(CODE, "further"), row(IMAGE, "further")];
        assert_eq!(rows, right);
        let plot = Arguments::plot(&records).svg().unwrap();
        assert!(plot.contains("code +VM") && plot.contains("image +VM"), "{plot}");
    }

    #[test]
    fn a_line_is_read_back() {
        for line in trial(CODE, 400, 50) {
            assert_eq!(
                complaint(&line, &["function", "total_ns", "sent_bytes", "used_pages"]),
                None
            );
            let text = serde_json::to_string(&line).unwrap();
            let again: Line = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), text);
        }
    }
}
