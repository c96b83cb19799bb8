//! What the lines say.

use super::{Arguments, Figures, Line, cluster::Way};
use crate::{
    harness::Report,
    report::{
        Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        in_order, methods, number, of_method,
    },
    size::gib,
};

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

/// Node hours relative to those of a VM for each pod, population by population: their median, and how certain it is.
fn relative(records: &[Line], lines: &[&Line]) -> String {
    let ratios = lines.iter().filter_map(|line| {
        let is_same =
            |other: &&Line| other.varied == line.varied && other.header.trial == line.header.trial;
        let alone = of_method(records, Way::VmPerPod.name()).find(is_same)?;
        Some(line.node_hours_count / alone.node_hours_count)
    });
    Estimate::median(ratios).map_or(String::new(), |ratio| {
        format!("{} ({})", number(ratio.value), ratio.certainty.in_words(""))
    })
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let varied = in_order(records, |line| line.varied.clone());
        let place = |line: &Line| varied.iter().position(|varied| *varied == line.varied);
        let method = by_method(records);
        Table::of(
            records,
            |line| (place(line), method(line)),
            &[
                Column::common("varied", |line| line.varied.clone()),
                Column::common("method", |line| line.header.method.clone()),
                Column::median("nodes at peak", |line| line.peak_nodes_count as f64),
                Column::median("node hours", |line| line.node_hours_count),
                Column::new("of microvm's", |lines| relative(records, lines)),
                Column::median("of node", |line| gib(line.node_bytes)),
                Column::median("promised %", |line| line.promised_percent),
                Column::median("at most %", |line| line.most_percent),
                Column::median("held %", |line| line.held_percent),
                Column::median("pods at peak", |line| line.peak_pods_count as f64),
                Column::median("cold", |line| line.cold_count as f64),
                Column::median("VMs booted", |line| line.booted_count as f64),
                Column::median("waited", |line| line.waited_count as f64),
                Column::median("assigned cold s", |line| line.assigned_cold_ns as f64 / 1e9),
            ],
        )
    }

    fn plot(records: &[Line]) -> Chart {
        let varied = in_order(records, |line| line.varied.clone());
        let panel = |title: &str, y: &str, value: fn(&Line) -> f64| {
            let points = |method: &str| {
                let of = |varied: &String| {
                    let lines = of_method(records, method).filter(|line| line.varied == *varied);
                    Spread::of(lines.map(value))
                };
                varied.iter().map(of).collect()
            };
            Panel {
                title: title.to_owned(),
                x: "what is other than usual".to_owned(),
                y: y.to_owned(),
                categories: varied.clone(),
                series: Series::of_methods(&methods(records), points),
                joined: false,
                logarithmic: false,
            }
        };
        Chart {
            title: "A day of a cluster whose pods are partitions of VMs, or VMs of their own, simulated".to_owned(),
            subtitle: records.first().map_or(String::new(), |line| line.load.clone()),
            panels: vec![
                panel("Memory of the nodes that are paid for", "TiB x hours", |line| {
                    line.node_hours_count * gib(line.node_bytes) / 1024.0
                }),
                panel("Part of it that pods hold", "percent", |line| line.held_percent),
                panel("Mean time to a pod's first answer, assigned", "seconds", |line| {
                    line.assigned_cold_ns as f64 / 1e9
                }),
            ],
            foot: records.first().map_or(String::new(), |line| {
                format!(
                    "What VMs take and how long starts take: as recorded with {} ({}).",
                    line.header.accelerator, line.header.vmm
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Measured, tests::header};

    fn line(method: &str, trial: u32, node_hours_count: f64) -> Line {
        let figures = Figures {
            load: "a few applications".to_owned(),
            varied: "nothing".to_owned(),
            applications_count: 3,
            of_namespace_count: 1,
            limit_step_bytes: 128 << 20,
            node_bytes: 64 << 30,
            pods_per_node_count: 250,
            keep_alive_seconds: 600,
            peak_nodes_count: 2,
            node_hours_count,
            promised_percent: 90.0,
            most_percent: 90.0,
            held_percent: 50.0,
            peak_pods_count: 5,
            cold_count: 7,
            booted_count: 2,
            waited_count: 0,
            assigned_cold_ns: 1_000_000_000,
        };
        Measured { header: header("fleet", method, trial), figures }
    }

    #[test]
    fn node_hours_are_compared_with_those_of_the_same_population() {
        let of_seed = |trial: u32| {
            let alone = f64::from(trial + 1) * 100.0;
            [line("squeezy", trial, alone * 0.75), line("microvm", trial, alone)]
        };
        let records: Vec<Line> = (0..5).flat_map(of_seed).collect();
        let table = Arguments::table(&records).to_string();
        assert!(table.contains("0.750 (90%: 0.750 to 0.750)"), "{table}");
        let table = Arguments::table(&records[..2]).to_string();
        assert!(table.contains("0.750 (one run)"), "{table}");
        assert!(Arguments::plot(&records).svg().unwrap().contains("microvm"));
    }
}
