//! The host memory of three VMs that compile a C project, all at the same time or one after the other (Figure 11 of
//! the HyperAlloc paper). See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method,
    },
    rigs::compile_vm::{
        CLEAN, CompileVm, Footprint, LEGEND, LIMIT, Reclaim, compile, over_time, watch,
    },
    size::mib,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::MemoryBackend;
use std::time::Instant;

/// The VMs.
const VMS: usize = 3;

/// The host memory of three VMs that compile a C project, at the same time or one after the other.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// When the VMs compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// All at the same time.
    Together,
    /// One after the other. Each drops its page cache when it is done.
    InTurn,
}

impl Order {
    fn title(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::InTurn => "in turn",
        }
    }
}

/// All VMs together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    order: Order,
    #[serde(flatten)]
    footprint: Footprint,
}

impl Experiment for Arguments {
    const NAME: &'static str = "several";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        // Only memory that the host shares can be taken from outside, so all methods have it.
        session.options.memory_backend = MemoryBackend::Memfd;
        let trials = session.options.trials_or(1, 5);
        // No target compares those that run together, so they are measured once.
        let runs = |trial: u32| {
            let together = Some(Order::Together).filter(|_| trial == 0 && !session.options.quick);
            let orders = together.into_iter().chain([Order::InTurn]);
            let ways = move |order| {
                Reclaim::in_trial(&Reclaim::COMPARED, trial).map(move |it| (order, it))
            };
            orders.flat_map(ways).collect::<Vec<_>>()
        };
        let runs: Vec<_> = (0..trials).map(runs).collect();
        session.progress.plan(runs.iter().map(Vec::len).sum::<usize>() as f64);
        for (trial, runs) in (0..).zip(runs) {
            let start = Instant::now();
            for (order, reclaim) in runs {
                let title = order.title();
                session
                    .progress
                    .say(&format!("trial {} of {trials}: {reclaim}, {title}", trial + 1));
                one(session, reclaim, trial, order).await?;
                session.progress.advance(1.0);
            }
            if !session.has_time(start.elapsed()) {
                break;
            }
        }
        Ok(())
    }
}

async fn one(session: &mut Session<Figures>, reclaim: Reclaim, trial: u32, order: Order) -> Result {
    let mut vms = Vec::new();
    for _ in 0..VMS {
        vms.push(CompileVm::start(session, reclaim).await?);
    }
    let watched: Vec<&CompileVm> = vms.iter().collect();
    let script = format!("{}; {CLEAN}; echo built; sleep 3000", compile(1));
    let work = async {
        for vm in &vms {
            vm.begin(&script).await?;
            if order == Order::InTurn {
                vm.said("built", LIMIT).await?;
                vm.vm().agent()?.drop_page_cache().await?;
            }
        }
        for vm in &vms {
            vm.said("built", LIMIT * VMS as u32).await?;
        }
        Ok(())
    };
    let ((), footprint) = watch(&watched, reclaim, work).await?;
    let header = session.header(&reclaim.to_string(), trial, Some(vms[0].guest()));
    session.keep(header, Figures { order, footprint })?;
    for vm in vms {
        vm.stop().await?;
    }
    Ok(())
}

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

const ORDERS: [Order; 2] = [Order::Together, Order::InTurn];

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    order: Order,
) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.order == order)
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        Table::of(
            records,
            |line| (line.order, by_method(line)),
            &[
                Column::common("several VMs", |line| line.order.title().to_owned()),
                Column::common("reclaimed by", |line| line.header.method.clone()),
                Column::count("n"),
                Column::median("seconds", |line| line.footprint.seconds),
                Column::median("GiB-minutes", |line| line.footprint.gib_minutes),
                Column::quartiles("quartiles", |line| line.footprint.gib_minutes),
                Column::median("peak MiB", |line| mib(line.footprint.peak_bytes)),
                Column::quartiles("quartiles MiB", |line| mib(line.footprint.peak_bytes)),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for (method, target) in [("soft", "peak-blocks"), ("soft, pages", "peak-pages")] {
            let peak = |method| {
                select(records, method, Order::InTurn).map(|line| line.footprint.peak_bytes as f64)
            };
            assessments.add(
                target,
                format!(
                    "most memory at a time, VMs in turn, {method} relative to free page reporting"
                ),
                Estimate::ratio(peak(method), peak("reporting")),
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let by_order = |title: &str, y: &str, of: fn(&Line) -> f64| Panel {
            title: title.to_owned(),
            x: String::new(),
            y: y.to_owned(),
            categories: ORDERS.iter().map(|order| order.title().to_owned()).collect(),
            series: Series::of_methods(&methods, |method| {
                ORDERS
                    .iter()
                    .map(|&order| Spread::of(select(records, method, order).map(of)))
                    .collect()
            }),
            joined: false,
            logarithmic: false,
        };
        Chart {
            title: "Host memory of three VMs that compile a C project".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                by_order("Most at a time", "MiB", |line| mib(line.footprint.peak_bytes)),
                by_order("Over time", "GiB-minutes", |line| line.footprint.gib_minutes),
                over_time(&methods, |method| {
                    let first = select(records, method, Order::InTurn)
                        .filter(|line| line.header.trial == 0);
                    first.flat_map(|line| line.footprint.samples_bytes.clone()).collect()
                }),
            ],
            foot: format!(
                "{LEGEND} In turn: each begins when the one before is done and has dropped its page cache."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{harness::assess, record::tests::header};

    #[test]
    fn peaks_of_vms_in_turn_are_compared() {
        let line = |method, order, peak_bytes| Measured {
            header: header("several", method, 0),
            figures: Figures { order, footprint: Footprint { peak_bytes, ..Footprint::default() } },
        };
        let records = [
            line("reporting", Order::InTurn, 400),
            line("reporting", Order::Together, 400),
            line("soft", Order::InTurn, 100),
        ];
        assert_eq!(assess::<Arguments>(&records)[0].measured.value, 0.25);
        assert!(Arguments::table(&records).to_string().contains("in turn"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("reporting"));
    }
}
