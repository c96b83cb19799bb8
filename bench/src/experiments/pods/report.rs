//! What the lines say.

use super::{APART, Arguments, Figures, Line, TOGETHER};
use crate::{
    harness::Report,
    record::describe_run,
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{BLUE, Chart, GREEN, ORANGE, Panel, Series},
        methods, number, of_method,
    },
    size::mib,
};
use squeezy_node::series::percentile;

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
const SERVER_MOST: Value = |figures| match figures {
    Figures::Server { most_bytes, .. } => most_bytes.map(mib),
    _ => None,
};
/// A pod that is deleted, in milliseconds.
const BACK: Value = |figures| match figures {
    Figures::Reclaim { back_ns, .. } => Some(*back_ns as f64 / 1e6),
    _ => None,
};
const REQUEST: Value = |figures| match figures {
    Figures::Reclaim { request_ns, .. } => Some(*request_ns as f64 / 1e6),
    _ => None,
};

/// The same from the end of its last container.
const BACK_SINCE_END: Value = |figures| match figures {
    Figures::Reclaim { empty_ns: Some(empty_ns), back_ns, .. } => {
        Some((empty_ns + back_ns) as f64 / 1e6)
    }
    _ => None,
};
/// A pod that stays, in milliseconds: until it is given back, and from then on.
const EMPTY: Value = |figures| match figures {
    Figures::Emptied { empty_ns, .. } => Some(*empty_ns as f64 / 1e6),
    _ => None,
};
const EMPTIED: Value = |figures| match figures {
    Figures::Emptied { back_ns, .. } => Some(*back_ns as f64 / 1e6),
    _ => None,
};
/// In MiB.
const FREED: Value = |figures| match figures {
    Figures::Emptied { freed_bytes, .. } => Some(mib(*freed_bytes)),
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

/// A percentile of a figure. A spread hides what is slow in one of ten.
fn percentile_of(head: &'static str, percent: f64, value: Value) -> Column<'static> {
    Column::new(head, move |lines| {
        let values: Vec<f64> = lines.iter().filter_map(|line| value(&line.figures)).collect();
        percentile(&values, percent).map_or(String::new(), number)
    })
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
                median("at most", SERVER_MOST),
                Column::count_of("reclaims", |line| BACK(&line.figures).is_some()),
                median("back ms", BACK),
                percentile_of("90%", 90.0, BACK),
                percentile_of("longest", 100.0, BACK),
                median("request ms", REQUEST),
                median("since end ms", BACK_SINCE_END),
                percentile_of("90%", 90.0, BACK_SINCE_END),
                percentile_of("longest", 100.0, BACK_SINCE_END),
                Column::count_of("emptied", |line| EMPTIED(&line.figures).is_some()),
                median("wait ms", EMPTY),
                median("then ms", EMPTIED),
                percentile_of("90%", 90.0, EMPTIED),
                percentile_of("longest", 100.0, EMPTIED),
                median("freed MiB", FREED),
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
            "the end of a pod's sandbox until its memory is the host's",
            Estimate::median(of(records, TOGETHER, BACK)),
        );
        let migrated = records.iter().filter_map(|line| match line.figures {
            Figures::Reclaim { migrated_pages, .. } | Figures::Emptied { migrated_pages, .. } => {
                Some(migrated_pages)
            }
            _ => None,
        });
        assessments.add_counts(
            "migrated-pages",
            "pages migrated for that, or for a pod that stays",
            migrated,
        );
        assessments.add(
            "memory",
            "host memory of the pods, a VM for each relative to one VM",
            ratio(MEMORY),
        );
        assessments.add(
            "server",
            "resident memory of the server of the VM with most pods",
            Estimate::median(of(records, TOGETHER, SERVER)),
        );
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
                    vec![
                        ("from its end", BLUE, BACK),
                        ("the request", GREEN, REQUEST),
                        ("it stays: after the wait", ORANGE, EMPTIED),
                    ],
                ),
            ],
            foot: "squeezy: all pods in one VM, without the first, which boots it. microvm: a VM for each pod, with room \
                   for no other, with the same shim."
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
        let server = |pods_count, mib: u64| Figures::Server {
            pods_count,
            resident_bytes: mib << 20,
            most_bytes: None,
        };
        let figures = match method {
            // The first one boots.
            TOGETHER => {
                let mut all =
                    vec![start(false, 5000), start(true, start_ms), memory, server(32, 9)];
                all.extend(backs());
                all
            }
            _ => vec![start(false, start_ms), memory, server(1, 3), server(1, 3)],
        };
        let line = |figures| Measured { header: header("pods", method, 0), figures };
        figures.into_iter().map(line).collect()
    }

    /// A pod that is deleted, and one that stays.
    fn backs() -> [Figures; 2] {
        let reclaim = Figures::Reclaim {
            size_bytes: 256 << 20,
            back_ns: 4_000_000,
            request_ns: 2_000_000,
            empty_ns: Some(30_000_000),
            migrated_pages: 0,
        };
        let emptied = Figures::Emptied {
            size_bytes: 256 << 20,
            empty_ns: 2_000_000_000,
            back_ns: 3_000_000,
            freed_bytes: 200 << 20,
            migrated_pages: 0,
        };
        [reclaim, emptied]
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
    fn what_is_slow_in_one_of_ten_is_in_the_table() {
        let back = |back_ms: u64| Figures::Reclaim {
            size_bytes: 256 << 20,
            back_ns: back_ms * 1_000_000,
            request_ns: 1,
            empty_ns: None,
            migrated_pages: 0,
        };
        let line =
            |back_ms| Measured { header: header("pods", TOGETHER, 0), figures: back(back_ms) };
        let records: Vec<Line> = [4, 4, 4, 4, 4, 4, 4, 4, 4, 13, 750].map(line).into();
        let table = Arguments::table(&records).to_string();
        let cells: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
        assert!(cells.windows(3).any(|next| next == ["4.00", "13.0", "750"]), "{table}");
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
