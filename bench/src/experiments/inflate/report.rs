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
    size::{self, mib},
};

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

const STEPS: [Step; 4] =
    [Step::TakeTouched, Step::GiveTouched, Step::TakeUntouched, Step::GiveUntouched];

impl Step {
    fn title(self) -> &'static str {
        match self {
            Self::TakeTouched => "take, touched",
            Self::GiveTouched => "give back",
            Self::TakeUntouched => "take, untouched",
            Self::GiveUntouched => "give back again",
        }
    }
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        Table::of(
            records,
            |line| (by_method(line), STEPS.iter().position(|&step| step == line.step)),
            &[
                Column::common("inflate", |line| line.header.method.clone()),
                Column::common("", |line| line.step.title().to_owned()),
                Column::common("size", |line| size::show(line.size_bytes)),
                Column::count("n"),
                Column::median("median ms", |line| line.latency_ns as f64 / 1e6),
                Column::quartiles("quartiles ms", |line| line.latency_ns as f64 / 1e6),
                Column::median("GiB/s", gib_a_second),
                Column::median("ns per 2 MiB", ns_an_area),
                Column::median("host memory back MiB", |line| mib(line.resident_drop_bytes)),
                Column::median("in huge pages MiB", |line| mib(line.huge_bytes)),
                Column::median("processors ms", |line| line.vcpus_ns as f64 / 1e6),
                Column::median("devices ms", |line| line.devices_ns as f64 / 1e6),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let has_huge_pages = records.iter().any(|line| line.huge_bytes > line.size_bytes / 2);
        let of = |method: &'static str, step| {
            of_method(records, method).filter(move |line| line.step == step)
        };
        let latency = |method, step| of(method, step).map(|line| line.latency_ns as f64);
        if has_huge_pages {
            for (name, method) in
                [("against-balloon", "balloon"), ("against-virtio-mem", "virtio-mem")]
            {
                assessments.add(
                    name,
                    format!("touched memory taken, {method} relative to HyperAlloc, huge pages"),
                    Estimate::ratio(
                        latency(method, Step::TakeTouched),
                        latency("hyperalloc", Step::TakeTouched),
                    ),
                );
            }
            assessments.add(
                "frozen",
                "256 MiB of a frozen instance in a stopped VM, huge pages".to_owned(),
                Estimate::median(latency("frozen instance", Step::TakeTouched).map(|ns| ns / 1e6)),
            );
        }
        let by_the_host =
            ["hyperalloc", "hyperalloc, stopped", "hyperalloc, soft", "frozen instance"];
        for method in by_the_host {
            assessments.add(
                "against-discard",
                format!("touched memory taken, {method} relative to the discard in it"),
                Estimate::median(
                    of(method, Step::TakeTouched)
                        .filter_map(|line| Some(line.latency_ns as f64 / line.discard_ns? as f64)),
                ),
            );
        }
        for method in by_the_host {
            let ns_a_byte = |method| of(method, Step::TakeTouched).map(ns_a_byte_back);
            assessments.add(
                "against-floor",
                format!(
                    "touched memory taken, {method} relative to floor, for as much host memory"
                ),
                Estimate::ratio(ns_a_byte(method), ns_a_byte("floor")),
            );
        }
        for (name, step) in [("untouched", Step::TakeUntouched), ("give-back", Step::GiveUntouched)]
        {
            assessments.add(
                name,
                format!("{}, for each 2 MiB", step.title()),
                Estimate::median(of("hyperalloc", step).map(ns_an_area)),
            );
        }
        let stopped = STEPS.into_iter().flat_map(|step| of("hyperalloc, stopped", step));
        assessments.add(
            "guest-time",
            "time of the guest's processors for a step while they are stopped".to_owned(),
            Estimate::counted(stopped.map(|line| line.vcpus_ns as f64), 0.0),
        );
    }

    fn plot(records: &[Line]) -> Chart {
        let panel = |title: &str, steps: &[Step]| Panel {
            title: title.to_owned(),
            x: "step".to_owned(),
            y: "GiB/s".to_owned(),
            categories: steps.iter().map(|step| step.title().to_owned()).collect(),
            series: Series::of_methods(&methods(records), |method| {
                let rate = |step: &Step| {
                    Spread::of(
                        of_method(records, method)
                            .filter(|line| line.step == *step && line.moved_bytes > 0)
                            .map(gib_a_second),
                    )
                };
                steps.iter().map(rate).collect()
            }),
            joined: false,
            logarithmic: true,
        };
        Chart {
            title: "A VM's memory shrinks and grows".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("Taken", &[Step::TakeTouched, Step::TakeUntouched]),
                panel("Given back", &[Step::GiveTouched, Step::GiveUntouched]),
            ],
            foot: "floor: the host discards as much memory, without a guest.".to_owned(),
        }
    }
}

fn gib_a_second(line: &Line) -> f64 {
    line.moved_bytes as f64 / f64::from(1 << 30) / (line.latency_ns as f64 / 1e9)
}

/// Not finite if nothing came back.
fn ns_a_byte_back(line: &Line) -> f64 {
    line.latency_ns as f64 / line.resident_drop_bytes as f64
}

fn ns_an_area(line: &Line) -> f64 {
    line.latency_ns as f64 / (line.moved_bytes as f64 / f64::from(2 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{harness::assess, record::tests::header};

    #[test]
    fn what_is_taken_is_compared_with_the_discard_in_it_and_without_a_guest() {
        let line = |method, latency_ns, discard_ns, resident_drop_bytes| Measured {
            header: header("inflate", method, 0),
            figures: Figures {
                step: Step::TakeTouched,
                size_bytes: 1 << 30,
                latency_ns,
                discard_ns,
                moved_bytes: 1 << 30,
                resident_drop_bytes,
                huge_bytes: 0,
                vcpus_ns: 0,
                devices_ns: 0,
            },
        };
        let records = [
            line("hyperalloc", 115, Some(100), 1 << 30),
            line("hyperalloc, stopped", 130, None, 1 << 30),
            line("hyperalloc, soft", 120, Some(100), 1 << 30),
            line("frozen instance", 33, Some(30), 1 << 28),
            line("floor", 100, Some(100), 1 << 30),
        ];
        let percent: Vec<_> = assess::<Arguments>(&records)
            .iter()
            .map(|it| (it.measured.value * 100.0).round())
            .collect();
        assert_eq!(percent, [115.0, 120.0, 110.0, 115.0, 130.0, 120.0, 132.0, 0.0]);
        assert!(Arguments::table(&records).to_string().contains("frozen instance"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("floor"));
    }
}
