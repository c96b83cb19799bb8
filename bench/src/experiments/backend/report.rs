//! Table, targets and plot.

use super::{Arguments, Figures, Step};
use crate::{
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method,
    },
    size::mib,
};

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

/// Steps that a call waits for, and steps that give memory back.
const WAITED_FOR: [Step; 4] = [Step::Boot, Step::ColdStart, Step::Touch, Step::Plug];
const GIVES_BACK: [Step; 4] = [Step::Reclaim, Step::Take, Step::Frozen, Step::FrozenPages];

impl Step {
    fn title(self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::Plug => "plug 512 MiB",
            Self::Touch => "first touch of 512 MiB",
            Self::Reclaim => "reclaim of 512 MiB",
            Self::Take => "of it, by the host",
            Self::Frozen => "frozen: free blocks",
            Self::FrozenPages => "frozen: every other page",
            Self::ColdStart => "cold start of html",
            Self::Paused => "pause",
        }
    }
}

fn select<'a>(records: &'a [Line], method: &'a str, step: Step) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.step == step)
}

fn ms(line: &Line) -> f64 {
    line.latency_ns as f64 / 1e6
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        Table::of(
            records,
            |line| (line.step, by_method(line)),
            &[
                Column::common("step", |line| line.step.title().to_owned()),
                Column::common("memory backend", |line| line.header.method.clone()),
                Column::count("n"),
                Column::median("median ms", ms),
                Column::quartiles("quartiles ms", ms),
                Column::median("discard ms", |line| line.discard_ns.unwrap_or(0) as f64 / 1e6)
                    .only_if(|line| line.discard_ns.is_some()),
                Column::median("processors ms", |line| line.vcpus_ns.unwrap_or(0) as f64 / 1e6)
                    .only_if(|line| line.vcpus_ns.is_some()),
                Column::median("back MiB", |line| mib(line.resident_drop_bytes.unwrap_or(0)))
                    .only_if(|line| line.resident_drop_bytes.is_some()),
                Column::median("resident MiB", |line| mib(line.resident_bytes)),
                Column::median("in huge pages MiB", |line| mib(line.huge_bytes)),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        // Without them the file is for what only it can do, and slower in everything else.
        if !select(records, "memfd", Step::Touch).any(|line| line.huge_bytes > 256 << 20) {
            return;
        }
        let latency = |method, step| select(records, method, step).map(ms);
        for (name, step) in [
            ("boot", Step::Boot),
            ("cold-start", Step::ColdStart),
            ("touch", Step::Touch),
            ("reclaim", Step::Reclaim),
        ] {
            assessments.add(
                name,
                format!("{}, memfd with huge pages relative to ram", step.title()),
                Estimate::ratio(latency("memfd", step), latency("ram", step)),
            );
        }
        let over_discard = select(records, "memfd", Step::Take)
            .filter_map(|line| Some(line.latency_ns as f64 / line.discard_ns? as f64));
        assessments.add(
            "against-discard",
            "an ended instance's memory taken by the host, relative to the discard in it"
                .to_owned(),
            Estimate::median(over_discard),
        );
        assessments.add(
            "frozen",
            format!("{}, ram relative to memfd with huge pages", Step::Frozen.title()),
            Estimate::ratio(latency("ram", Step::Frozen), latency("memfd", Step::Frozen)),
        );
        let resident =
            |method| select(records, method, Step::Paused).map(|line| line.resident_bytes as f64);
        assessments.add(
            "paused",
            "memory of a paused VM with a frozen instance of html, memfd relative to ram"
                .to_owned(),
            Estimate::ratio(resident("memfd"), resident("ram")),
        );
    }

    fn plot(records: &[Line]) -> Chart {
        let panel =
            |title: &str, y: &str, steps: &[Step], of: fn(&Line) -> f64, logarithmic| Panel {
                title: title.to_owned(),
                x: String::new(),
                y: y.to_owned(),
                categories: steps.iter().map(|step| step.title().to_owned()).collect(),
                series: Series::of_methods(&methods(records), |method| {
                    let spread = |&step: &Step| Spread::of(select(records, method, step).map(of));
                    steps.iter().map(spread).collect()
                }),
                joined: false,
                logarithmic,
            };
        Chart {
            title: "Guest memory that is private to the VMM, and in a file that the host works on"
                .to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("What a call waits for", "milliseconds", &WAITED_FOR, ms, true),
                panel("Memory given back", "milliseconds", &GIVES_BACK, ms, true),
                panel(
                    "Left on the host",
                    "MiB",
                    &[Step::Frozen, Step::FrozenPages, Step::Paused],
                    |line| mib(line.resident_bytes),
                    false,
                ),
            ],
            foot: "ram: private memory; frozen instances give memory back through the balloon. memfd: the host takes it \
                   out of the guest's allocator. floor: another process on the host discards as much of a file."
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{harness::assess, record::tests::header, report::Assessment};

    #[test]
    fn backends_are_compared_where_memory_is_huge() {
        let line = |method, step, latency_ns, huge_bytes| Measured {
            header: header("backend", method, 0),
            figures: Figures {
                step,
                latency_ns,
                discard_ns: Some(100),
                vcpus_ns: None,
                resident_drop_bytes: Some(1 << 20),
                resident_bytes: 1 << 30,
                huge_bytes,
            },
        };
        let of = |huge_bytes| {
            [
                line("ram", Step::Boot, 400, 0),
                line("memfd", Step::Boot, 500, 0),
                line("ram", Step::Touch, 200, 512 << 20),
                line("memfd", Step::Touch, 100, huge_bytes),
                line("memfd", Step::Take, 103, 0),
                line("floor", Step::Take, 99, 0),
                line("ram", Step::Frozen, 300, 0),
                line("memfd", Step::Frozen, 100, 0),
            ]
        };
        let percent = |it: &Assessment| (it.measured.value * 100.0).round();
        let values: Vec<_> = assess::<Arguments>(&of(512 << 20)).iter().map(percent).collect();
        assert_eq!(values, [125.0, 50.0, 103.0, 300.0]);
        assert!(assess::<Arguments>(&of(0)).is_empty());
        assert!(Arguments::table(&of(0)).to_string().contains("frozen: free blocks"));
        assert!(Arguments::plot(&of(0)).svg().unwrap().contains("memfd"));
    }
}
