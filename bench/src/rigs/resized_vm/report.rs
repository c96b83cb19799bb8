//! Tables and plots of such trials.

use super::{Figures, figures::POINT_NS};
use crate::{
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method,
    },
};

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

/// What an experiment calls things.
pub(crate) struct Wording {
    /// What the program does.
    pub(crate) what: &'static str,
    /// Its mean rate without resizing, with the unit.
    pub(crate) rate: &'static str,
    /// What the rates in the lines are divided by for that.
    pub(crate) scale: f64,
    /// What a sample is, in the plural.
    pub(crate) samples: &'static str,
    /// The plot's title.
    pub(crate) title: &'static str,
}

/// A row for each method.
pub(crate) fn table(records: &[Line], wording: &Wording) -> Table {
    let ms = |ns: Option<u64>| ns.map_or(f64::NAN, |ns| ns as f64 / 1e6);
    let is_resized = |line: &Line| line.resize_vcpus_ns.is_some();
    Table::of(
        records,
        by_method(records),
        &[
            Column::common("method", |line| line.header.method.clone()),
            Column::count("n"),
            Column::median(wording.rate, |line| line.alone.mean_per_second / wording.scale),
            Column::median("resized %", |line| line.mean_percent()),
            Column::quartiles("quartiles %", |line| line.mean_percent()),
            Column::median("by CPU time %", |line| line.by_cpu_time_percent()),
            Column::median("1st percentile %", p1_percent),
            Column::median("worst %", worst_percent),
            Column::median("below 90% alone %", |line| line.alone.slow_percent),
            Column::median("below 90% %", |line| line.resized.slow_percent),
            Column::median("resizes", |line| line.resizes_count as f64),
            Column::median("processors ms", |line| ms(line.resize_vcpus_ns)).only_if(is_resized),
            Column::median("devices ms", |line| ms(line.resize_devices_ns)).only_if(is_resized),
        ],
    )
}

/// Judges how much is left while HyperAlloc resizes the VM: on the whole, and for the same CPU time of the virtual
/// processors, which does not depend on who else uses those of the host.
pub(crate) fn assess(records: &[Line], assessments: &mut Assessments, wording: &Wording) {
    let add = |assessments: &mut Assessments, target, what: &str, percent: fn(&Line) -> f64| {
        let ratios = of_method(records, "hyperalloc").map(|line| percent(line) / 100.0);
        assessments.add(target, format!("{} {what}", wording.what), Estimate::median(ratios));
    };
    let what = "while HyperAlloc resizes the VM, relative to that without";
    add(assessments, "resized", what, |line| line.mean_percent());
    let what = "for the same CPU time of the VM's processors, likewise";
    add(assessments, "by-cpu-time", what, |line| line.by_cpu_time_percent());
}

/// The course over time, what is left on the whole, and what a resize takes.
pub(crate) fn chart(records: &[Line], wording: &Wording) -> Chart {
    let points = records.iter().map(|line| line.course_percent.len()).max().unwrap_or(0);
    let second = |point: usize| point as f64 * POINT_NS as f64 / 1e9;
    let over_time = Panel {
        title: "While the VM is resized".to_owned(),
        x: "seconds since the program began".to_owned(),
        y: "percent of that without".to_owned(),
        categories: (0..points).map(|point| second(point).to_string()).collect(),
        series: Series::of_methods(&methods(records), |method| {
            let at = |point| {
                let here = |line: &Line| line.course_percent.get(point).copied().flatten();
                Spread::of(of_method(records, method).filter_map(here))
            };
            (0..points).map(at).collect()
        }),
        joined: true,
        logarithmic: false,
    };
    let panel = |title: &str, y: &str, measures: &[(String, Measure)]| {
        let mut series = Series::of_methods(&methods(records), |method| {
            let of = |(_, measure): &(String, Measure)| {
                Spread::of(of_method(records, method).filter_map(measure))
            };
            measures.iter().map(of).collect()
        });
        series.retain(|series| series.points.iter().any(Option::is_some));
        Panel {
            title: title.to_owned(),
            x: String::new(),
            y: y.to_owned(),
            categories: measures.iter().map(|(name, _)| name.clone()).collect(),
            series,
            joined: false,
            logarithmic: false,
        }
    };
    let on_the_whole: [(String, Measure); 5] = [
        ("mean".to_owned(), |line| Some(line.mean_percent())),
        ("by CPU time".to_owned(), |line| Some(line.by_cpu_time_percent())),
        ("1st percentile".to_owned(), |line| Some(p1_percent(line))),
        ("worst".to_owned(), |line| Some(worst_percent(line))),
        (format!("{} below 90%", wording.samples), |line| Some(line.resized.slow_percent)),
    ];
    let resize: [(String, Measure); 2] = [
        ("virtual processors".to_owned(), |line| Some(line.resize_vcpus_ns? as f64 / 1e6)),
        ("device threads".to_owned(), |line| Some(line.resize_devices_ns? as f64 / 1e6)),
    ];
    Chart {
        title: wording.title.to_owned(),
        subtitle: describe_run(records),
        panels: vec![
            over_time,
            panel("On the whole", "percent of that without", &on_the_whole),
            panel("CPU time of taking and giving back once", "ms", &resize),
        ],
        foot: "baseline: nobody resizes the VM. 1st percentile and worst: relative to the median without. CPU time: \
               with nothing else in the VM."
            .to_owned(),
    }
}

/// A figure of a line, if it has it.
type Measure = fn(&Line) -> Option<f64>;

fn p1_percent(line: &Line) -> f64 {
    line.of_usual_percent(line.resized.p1_per_second)
}

fn worst_percent(line: &Line) -> f64 {
    line.of_usual_percent(line.resized.worst_per_second)
}
