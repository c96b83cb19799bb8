//! Latency of reclaiming an instance's memory, by how full the rest of the VM is (Figure 6 of the
//! Squeezy paper). See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method, sorted,
    },
    rigs::memhog_vm::{MemhogVm, Methods, hog_bytes},
    size,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::mechanism::{MechanismName, Sizing};
use std::{collections::BTreeSet, time::Instant};

const METHODS: [MechanismName; 4] =
    [MechanismName::Squeezy, MechanismName::VirtioMem, MechanismName::Balloon, MechanismName::Numa];

/// Instances per VM: the one that ends, and the rest.
const INSTANCES: u16 = 4;

/// What an instance of an otherwise empty VM holds.
const LEAST_BYTES: u64 = 1 << 20;

/// Latency of reclaiming an instance's memory, by how full the rest of the VM is.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    methods: Methods,
    /// Size of an instance
    #[arg(long, value_name = "SIZE", value_parser = size::parse_instance)]
    size: Option<u64>,
    /// How full the rest of the VM is, in percent, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [0, 25, 50, 75, 100],
          value_parser = clap::value_parser!(u8).range(0..=100))]
    fill: Vec<u8>,
}

/// A reclaim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Memory of the ended instance, which is reclaimed.
    size_bytes: u64,
    /// How full the memory of the other instances is.
    fill_percent: u8,
    /// Memory that they hold.
    rest_bytes: u64,
    latency_ns: u64,
    guest_ns: u64,
    device_ns: u64,
    migrated_pages: u64,
    device_requests: u64,
    resident_drop_bytes: u64,
    reclaimed_bytes: u64,
    /// Why not all memory was reclaimed in time.
    failure: Option<String>,
}

impl Experiment for Arguments {
    const NAME: &'static str = "utilisation";

    fn check(&self) -> Result {
        self.methods.check(&METHODS)
    }

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let methods = self.methods.or(session, &METHODS, &METHODS)?;
        let size_bytes =
            self.size.unwrap_or(if session.options.quick { 128 << 20 } else { 512 << 20 });
        let fills: BTreeSet<u8> = self.fill.iter().copied().collect();
        let trials = session.options.trials_or(1, 5);
        session
            .each(&methods, async |session, &method| {
                self.one_vm(session, method, size_bytes, &fills, trials).await
            })
            .await
    }
}

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        Table::of(
            records,
            |line| (line.fill_percent, by_method(line)),
            &[
                Column::common("rest full", |line| format!("{}%", line.fill_percent)),
                Column::common("method", |line| line.header.method.clone()),
                Column::count("n"),
                Column::median("median ms", milliseconds),
                Column::quartiles("quartiles ms", milliseconds),
                Column::median("migrated", |line| line.migrated_pages as f64),
                Column::median("requests", |line| line.device_requests as f64),
                Column::count_of("failed", |line| line.failure.is_some()),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        // Each level relative to the emptiest: the slowest relative to the fastest, selected by
        // measurement, would differ by noise alone.
        let levels = fills(records);
        let Some((emptiest, others)) = levels.split_first() else { return };
        let ours = |fill| select(records, "squeezy", fill).map(milliseconds);
        for fill in others {
            let ratio = Estimate::ratio(ours(*fill), ours(*emptiest));
            assessments.add(
                "slower-when-full",
                format!("reclaim in a VM {fill}% full, slower than in one {emptiest}% full"),
                ratio.map(|ratio| ratio.map(|ratio| (ratio - 1.0) * 100.0)),
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let fills = fills(records);
        let panel = Panel {
            title: "Latency".to_owned(),
            x: "how full the memory of the other instances is".to_owned(),
            y: "milliseconds".to_owned(),
            categories: fills.iter().map(|fill| format!("{fill}%")).collect(),
            series: Series::of_methods(&methods(records), |method| {
                let latency = |&fill| Spread::of(select(records, method, fill).map(milliseconds));
                fills.iter().map(latency).collect()
            }),
            joined: true,
            logarithmic: true,
        };
        let size_bytes = records.first().map_or(0, |line| line.size_bytes);
        Chart {
            title: format!(
                "Reclaiming {} of an ended instance in a VM of {INSTANCES}",
                size::show(size_bytes)
            ),
            subtitle: describe_run(records),
            panels: vec![panel],
            foot: String::new(),
        }
    }
}

impl Arguments {
    async fn one_vm(
        &self,
        session: &mut Session<Figures>,
        method: MechanismName,
        size_bytes: u64,
        fills: &BTreeSet<u8>,
        trials: u32,
    ) -> Result {
        let sizing = Sizing { instance_bytes: size_bytes, instances: INSTANCES, shared_bytes: 0 };
        let mut vm = MemhogVm::start(session, method, sizing, &[]).await?;
        let mut last = None;
        for trial in 0..trials {
            // Levels take turns within a trial, so that a drift of the VM affects all of them.
            for &fill in fills {
                let start = Instant::now();
                if last.is_some_and(|last| trial > 0 && !session.has_time(last)) {
                    continue;
                }
                session.progress.say(&format!(
                    "{method}, the rest {fill}% full: trial {} of {trials}",
                    trial + 1
                ));
                let victim = (trial % u32::from(INSTANCES)) as u16;
                for index in 0..INSTANCES {
                    vm.plug(index).await?;
                }
                // Never zero: otherwise unused memory would be taken instead of the victim's.
                let rest = (hog_bytes(size_bytes) / 100 * u64::from(fill)).max(LEAST_BYTES);
                let bytes = (0..INSTANCES).map(|index| {
                    (index, if index == victim { hog_bytes(size_bytes) } else { rest })
                });
                vm.fill(&bytes.collect()).await?;
                vm.kill(victim).await?;
                vm.settle().await;
                let rest_bytes = vm.held_bytes();
                let reclaimed = vm.reclaim(victim, &[]).await?;
                let guest = Some(vm.guest());
                session.keep(
                    session.header(&method.to_string(), trial, guest),
                    Figures {
                        size_bytes,
                        fill_percent: fill,
                        rest_bytes,
                        latency_ns: reclaimed.latency_ns,
                        guest_ns: reclaimed.guest_ns,
                        device_ns: reclaimed.device_ns,
                        migrated_pages: reclaimed.migrated_pages,
                        device_requests: reclaimed.device_requests,
                        resident_drop_bytes: reclaimed.resident_drop_bytes,
                        reclaimed_bytes: reclaimed.reclaimed_bytes,
                        failure: reclaimed.failure,
                    },
                )?;
                vm.kill_all().await?;
                session.progress.advance(1.0 / (fills.len() as f64 * f64::from(trials)));
                last = Some(start.elapsed());
            }
        }
        vm.stop().await
    }
}

fn select<'a>(records: &'a [Line], method: &'a str, fill: u8) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.fill_percent == fill)
}

/// Duration of a reclaim.
fn milliseconds(line: &Line) -> f64 {
    line.latency_ns as f64 / 1e6
}

fn fills(records: &[Line]) -> Vec<u8> {
    sorted(records, |line| line.fill_percent)
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
        report::{Assessment, Verdict},
    };

    fn line(method: &str, fill_percent: u8, latency_ns: u64) -> Line {
        Measured {
            header: header("utilisation", method, 0),
            figures: Figures {
                size_bytes: 512 << 20,
                fill_percent,
                rest_bytes: 0,
                latency_ns,
                guest_ns: 0,
                device_ns: 0,
                migrated_pages: 0,
                device_requests: 1,
                resident_drop_bytes: 0,
                reclaimed_bytes: 0,
                failure: None,
            },
        }
    }

    #[test]
    fn lines_name_their_units() {
        assert_eq!(complaint(&line("squeezy", 0, 1), &["fill_percent", "latency_ns"]), None);
    }

    #[test]
    fn flat_is_within_a_fifth() {
        let mut records = vec![line("squeezy", 0, 1_000_000), line("squeezy", 100, 1_150_000)];
        let verdicts = |records: &[Line]| {
            let assessed = assess::<Arguments>(&repeated(records));
            assessed.iter().map(Assessment::verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&records), [Verdict::Met]);
        records.push(line("squeezy", 50, 1_300_000));
        assert_eq!(verdicts(&records), [Verdict::Missed, Verdict::Met]);
        assert!(verdicts(&records[..1]).is_empty());
        assert!(Arguments::plot(&records).svg().unwrap().contains("100%"));
        assert!(Arguments::table(&records).to_string().contains("50%"));
    }
}
