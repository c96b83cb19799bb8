//! Table, targets and plot.

use super::{Arguments, Figures, Phase};
use crate::{
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method,
    },
    rigs::compile_vm::{LEGEND, over_time},
    size::mib,
};

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

const PHASES: [Phase; 3] = [Phase::Compile, Phase::Clean, Phase::DropCache];

impl Phase {
    fn title(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::Clean => "make clean",
            Self::DropCache => "cache dropped",
        }
    }
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    phase: Phase,
) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.phase == phase)
}

/// What the phase's GiB-minutes are without its length.
fn mean_mib(line: &Line) -> f64 {
    line.footprint.gib_minutes * 1024.0 * 60.0 / line.footprint.seconds
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        Table::of(
            records,
            |line| (line.phase, by_method(line)),
            &[
                Column::common("build", |line| line.phase.title().to_owned()),
                Column::common("reclaimed by", |line| line.header.method.clone()),
                Column::count("n"),
                Column::median("seconds", |line| line.footprint.seconds),
                Column::median("GiB-minutes", |line| line.footprint.gib_minutes),
                Column::quartiles("quartiles", |line| line.footprint.gib_minutes),
                Column::median("mean MiB", mean_mib),
                Column::median("peak MiB", |line| mib(line.footprint.peak_bytes)),
                Column::median("at the end MiB", |line| mib(line.footprint.end_bytes)),
                Column::median("of that used by the guest MiB", |line| mib(line.used_bytes)),
                Column::median("taking ms", |line| line.footprint.taking_seconds * 1e3),
                Column::median("processors s", |line| line.vcpus_ns as f64 / 1e9),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for method in ["soft", "soft, pages", "soft, pages, 1s"] {
            let cost = |method| {
                select(records, method, Phase::Compile).map(|line| line.footprint.gib_minutes)
            };
            assessments.add(
                "gib-minutes",
                format!("GiB-minutes, {method} relative to free page reporting"),
                Estimate::ratio(cost(method), cost("reporting")),
            );
            for (name, phase, when) in [
                ("cleaned", Phase::Clean, "after make clean"),
                ("left", Phase::DropCache, "after make clean and without page cache"),
            ] {
                let left = |method| {
                    select(records, method, phase).map(|line| line.footprint.end_bytes as f64)
                };
                assessments.add(
                    name,
                    format!("left {when}, {method} relative to free page reporting"),
                    Estimate::ratio(left(method), left("reporting")),
                );
            }
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let by_phase = |title: &str, y: &str, of: fn(&Line) -> f64| Panel {
            title: title.to_owned(),
            x: String::new(),
            y: y.to_owned(),
            categories: PHASES.iter().map(|phase| phase.title().to_owned()).collect(),
            series: Series::of_methods(&methods, |method| {
                PHASES
                    .iter()
                    .map(|&phase| Spread::of(select(records, method, phase).map(of)))
                    .collect()
            }),
            joined: false,
            logarithmic: false,
        };
        Chart {
            title: "Host memory of a VM while a C project is compiled in it".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                by_phase("Over time", "GiB-minutes", |line| line.footprint.gib_minutes),
                by_phase("At the end", "MiB", |line| mib(line.footprint.end_bytes)),
                over_time(&methods, |method| {
                    let first = of_method(records, method).filter(|line| line.header.trial == 0);
                    first.flat_map(|line| line.footprint.samples_bytes.clone()).collect()
                }),
            ],
            foot: LEGEND.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{harness::assess, record::tests::header, rigs::compile_vm::Footprint};

    #[test]
    fn soft_reclaim_is_compared_with_reporting() {
        let line = |method, phase, gib_minutes: f64| Measured {
            header: header("build", method, 0),
            figures: Figures {
                phase,
                footprint: Footprint {
                    gib_minutes,
                    end_bytes: (gib_minutes * 100.0) as u64,
                    samples_bytes: vec![1 << 20; 7],
                    ..Footprint::default()
                },
                used_bytes: 1,
                vcpus_ns: 1,
            },
        };
        let records: Vec<_> = [("reporting", 2.0), ("soft", 1.0)]
            .into_iter()
            .flat_map(|(method, cost)| PHASES.map(|phase| line(method, phase, cost)))
            .collect();
        let values: Vec<_> =
            assess::<Arguments>(&records).iter().map(|one| one.measured.value).collect();
        assert_eq!(values, [0.5, 0.5, 0.5]);
        assert!(Arguments::table(&records).to_string().contains("make clean"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("reporting"));
    }
}
