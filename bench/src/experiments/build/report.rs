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

/// Less is not told apart: the host's memory is in huge pages.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// How much less host memory the VM has at the end of a line's phase than it had at most while the project was compiled.
fn given_back_bytes(records: &[Line], line: &Line) -> u64 {
    let compiled = select(records, &line.header.method, Phase::Compile)
        .find(|other| other.header.trial == line.header.trial);
    let peak_bytes = compiled.map_or(0, |other| other.footprint.peak_bytes);
    peak_bytes.saturating_sub(line.footprint.end_bytes)
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
                Column::median("given back since the peak MiB", |line| {
                    mib(given_back_bytes(records, line))
                }),
                Column::median("of that used by the guest MiB", |line| mib(line.used_bytes)),
                Column::median("taking ms", |line| line.footprint.taking_seconds * 1e3),
                Column::median("processors s", |line| line.vcpus_ns as f64 / 1e9),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for (method, variant) in [
            ("soft", "blocks"),
            ("soft, pages", "pages"),
            ("soft, pages, 1s", "pages-every-second"),
        ] {
            let cost = |method| {
                select(records, method, Phase::Compile).map(|line| line.footprint.gib_minutes)
            };
            assessments.add(
                &format!("gib-minutes-{variant}"),
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
                    &format!("{name}-{variant}"),
                    format!("left {when}, {method} relative to free page reporting"),
                    Estimate::ratio(left(method), left("reporting")),
                );
            }
            let given_back = |method| {
                select(records, method, Phase::Clean)
                    .map(|line| given_back_bytes(records, line).max(HUGE_PAGE_BYTES) as f64)
            };
            assessments.add(
                &format!("given-back-{variant}"),
                format!(
                    "given back after make clean since the peak, {method} relative to free page reporting"
                ),
                Estimate::ratio(given_back(method), given_back("reporting")),
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let by_phase = |title: &str, y: &str, of: &dyn Fn(&Line) -> f64| Panel {
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
                by_phase("Over time", "GiB-minutes", &|line| line.footprint.gib_minutes),
                by_phase("At the end", "MiB", &|line| mib(line.footprint.end_bytes)),
                by_phase("Given back since the peak", "MiB", &|line| {
                    mib(given_back_bytes(records, line))
                }),
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
        let line = |method, phase, gib_minutes: f64, given_back_mib: u64| Measured {
            header: header("build", method, 0),
            figures: Figures {
                phase,
                footprint: Footprint {
                    gib_minutes,
                    peak_bytes: 400 << 20,
                    end_bytes: (400 - given_back_mib) << 20,
                    samples_bytes: vec![1 << 20; 7],
                    ..Footprint::default()
                },
                used_bytes: 1,
                vcpus_ns: 1,
            },
        };
        let records: Vec<_> =
            [("reporting", 2.0, 80), ("soft", 1.0, 240), ("soft, pages", 1.0, 400)]
                .into_iter()
                .flat_map(|(method, cost, back)| {
                    PHASES.map(|phase| line(method, phase, cost, back))
                })
                .collect();
        let values: Vec<_> =
            assess::<Arguments>(&records).iter().map(|one| one.measured.value).collect();
        assert_eq!(values, [0.5, 0.5, 0.5, 3.0, 0.5, 0.0, 0.0, 5.0]);
        assert!(Arguments::table(&records).to_string().contains("make clean"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("reporting"));
    }
}
