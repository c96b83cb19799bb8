//! What the lines say.

use super::{APART, Arguments, Figures, Line, TOGETHER};
use crate::{
    harness::Report,
    record::describe_run,
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{BLUE, Chart, GREEN, ORANGE, Panel, Series},
        methods, of_method,
    },
    size::mib,
};

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

/// A figure of those lines that have it.
type Value = fn(&Figures) -> Option<f64>;

/// A start, in milliseconds: all of it, and its parts.
const TOTAL: Value = |figures| match figures {
    Figures::Start { total_ns, .. } => Some(*total_ns as f64 / 1e6),
    _ => None,
};
const POD: Value = |figures| match figures {
    Figures::Start { pod_ns, .. } => Some(*pod_ns as f64 / 1e6),
    _ => None,
};
const CONTAINER: Value = |figures| match figures {
    Figures::Start { container_ns, .. } => Some(*container_ns as f64 / 1e6),
    _ => None,
};
const ANSWER: Value = |figures| match figures {
    Figures::Start { answer_ns, .. } => Some(*answer_ns as f64 / 1e6),
    _ => None,
};
/// In MiB.
const MEMORY: Value = |figures| match figures {
    Figures::Memory { all_bytes, .. } => Some(mib(*all_bytes)),
    _ => None,
};
const SERVER: Value = |figures| match figures {
    Figures::Server { resident_bytes, .. } => Some(mib(*resident_bytes)),
    _ => None,
};
/// In milliseconds.
const BACK: Value = |figures| match figures {
    Figures::Reclaim { back_ns, .. } => Some(*back_ns as f64 / 1e6),
    _ => None,
};
const REQUEST: Value = |figures| match figures {
    Figures::Reclaim { request_ns, .. } => Some(*request_ns as f64 / 1e6),
    _ => None,
};

/// Whether a line is not of the first pod of a VM that others share: that one boots it.
fn is_typical(line: &Line) -> bool {
    let is_first = matches!(line.figures, Figures::Start { vm_was_there: false, .. });
    !is_first || line.header.method != TOGETHER
}

/// The figures of a method.
fn of<'a>(records: &'a [Line], method: &'a str, value: Value) -> impl Iterator<Item = f64> + 'a {
    let typical = of_method(records, method).filter(|line| is_typical(line));
    typical.filter_map(move |line| value(&line.figures))
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let median = |head, value: Value| {
            Column::median(head, move |line: &Line| match is_typical(line) {
                true => value(&line.figures).unwrap_or(f64::NAN),
                false => f64::NAN,
            })
        };
        Table::of(
            records,
            by_method(records),
            &[
                Column::common("method", |line| line.header.method.clone()),
                Column::count_of("starts", |line| {
                    is_typical(line) && TOTAL(&line.figures).is_some()
                }),
                median("total ms", TOTAL),
                median("pod ms", POD),
                median("container ms", CONTAINER),
                median("answer ms", ANSWER),
                median("memory MiB", MEMORY),
                median("server MiB", SERVER),
                Column::count_of("reclaims", |line| BACK(&line.figures).is_some()),
                median("back ms", BACK),
                median("request ms", REQUEST),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let ratio =
            |value| Estimate::ratio(of(records, APART, value), of(records, TOGETHER, value));
        assessments.add(
            "further-pod",
            "time to a pod's first answer, a VM for each relative to a VM that runs",
            ratio(TOTAL),
        );
        assessments.add(
            "back",
            "the deletion of a pod's sandbox until its memory is the host's",
            Estimate::median(of(records, TOGETHER, BACK)),
        );
        let migrated = records.iter().filter_map(|line| match line.figures {
            Figures::Reclaim { migrated_pages, .. } => Some(migrated_pages),
            _ => None,
        });
        assessments.add_counts("migrated-pages", "pages migrated for that", migrated);
        assessments.add(
            "memory",
            "host memory of the pods, a VM for each relative to one VM",
            ratio(MEMORY),
        );
        let servers = [TOGETHER, APART].into_iter().flat_map(|method| of(records, method, SERVER));
        assessments.add("server", "resident memory of a server", Estimate::median(servers));
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let by_methods = |value: Value| -> Vec<_> {
            methods.iter().map(|method| Spread::of(of(records, method, value))).collect()
        };
        let panel = |title: &str, y: &str, series: Vec<(&str, _, Value)>| Panel {
            title: title.to_owned(),
            x: String::new(),
            y: y.to_owned(),
            categories: methods.clone(),
            series: series
                .into_iter()
                .map(|(name, colour, value)| Series {
                    name: name.to_owned(),
                    colour,
                    variant: false,
                    points: by_methods(value),
                })
                .collect(),
            joined: false,
            logarithmic: false,
        };
        Chart {
            title: "Pods through containerd".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel(
                    "From the request to the first answer",
                    "milliseconds",
                    vec![
                        ("pod", BLUE, POD),
                        ("container", GREEN, CONTAINER),
                        ("answer", ORANGE, ANSWER),
                    ],
                ),
                panel("Host memory of all pods", "MiB", vec![("all processes", BLUE, MEMORY)]),
                panel("A server of the shim", "MiB resident", vec![("server", BLUE, SERVER)]),
                panel(
                    "Memory of a pod of 256 MiB",
                    "milliseconds until it is back",
                    vec![("from the end", BLUE, BACK), ("the request", GREEN, REQUEST)],
                ),
            ],
            foot: "squeezy: all pods in one VM, without the first, which boots it. microvm: a VM for each pod, with the \
                   same shim."
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
            Measured, complaint,
            tests::{header, repeated},
        },
        report::Verdict,
    };

    fn lines(method: &str, start_ms: u64, memory_mib: u64) -> Vec<Line> {
        let start = |vm_was_there, ms: u64| Figures::Start {
            pods_count: 3,
            vm_was_there,
            total_ns: ms * 1_000_000,
            pod_ns: ms * 400_000,
            container_ns: ms * 400_000,
            answer_ns: ms * 200_000,
        };
        let memory = Figures::Memory {
            pods_count: 16,
            all_bytes: memory_mib << 20,
            vmm_bytes: 1,
            servers_bytes: 1,
        };
        let server = Figures::Server { pods_count: 16, resident_bytes: 9 << 20 };
        let reclaim = Figures::Reclaim {
            size_bytes: 256 << 20,
            back_ns: 4_000_000,
            request_ns: 2_000_000,
            migrated_pages: 0,
        };
        let figures = match method {
            // The first one boots.
            TOGETHER => vec![start(false, 5000), start(true, start_ms), memory, server, reclaim],
            _ => vec![start(false, start_ms), memory, server],
        };
        let line = |figures| Measured { header: header("pods", method, 0), figures };
        figures.into_iter().map(line).collect()
    }

    #[test]
    fn a_vm_for_each_pod_is_compared_with_further_pods_of_one() {
        let records = [lines(TOGETHER, 500, 400), lines(APART, 4000, 2000)].concat();
        for line in &records {
            assert_eq!(complaint(line, &["kind"]), None);
        }
        let assessed = assess::<Arguments>(&repeated(&records));
        let values: Vec<f64> = assessed.iter().map(|one| one.measured.value).collect();
        assert_eq!(values, [8.0, 4.0, 0.0, 5.0, 9.0]);
        assert!(assessed.iter().all(|one| one.verdict() == Verdict::Met));
        assert!(Arguments::table(&records).to_string().contains("4000"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("microvm"));
    }

    #[test]
    fn a_line_is_read_back() {
        for line in lines(TOGETHER, 500, 400) {
            let text = serde_json::to_string(&line).unwrap();
            let again: Line = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), text);
        }
    }
}
