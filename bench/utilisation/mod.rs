//! Latency of taking an instance's memory back, by how full the rest of the VM is (Figure 6 of the
//! Squeezy paper). See README.md.

use crate::common::{
    Experiment,
    bound::{Bound, Limit, number},
    chart::{Chart, Panel, Series},
    error::Result,
    estimate::Estimate,
    lab::Lab,
    options::{Methods, Options},
    record::{Header, Record, describe_run},
    select::{methods, of_method, sorted},
    size,
    stand::{Stand, hog_bytes},
    stats::{Spread, median},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::mechanism::{MechanismName, Sizing};
use std::{collections::BTreeSet, time::Instant};

const METHODS: [MechanismName; 4] =
    [MechanismName::Squeezy, MechanismName::VirtioMem, MechanismName::Balloon, MechanismName::Node];

/// Instances of a VM: the one that goes, and the rest.
const INSTANCES: u16 = 4;

/// What an instance of an otherwise empty VM holds.
const LEAST_BYTES: u64 = 1 << 20;

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    methods: Methods,
    /// Size of an instance
    #[arg(long, value_name = "SIZE", value_parser = size::parse_instance)]
    size: Option<u64>,
    /// How full the rest of the VM is, in percent, with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [0, 25, 50, 75, 100],
          value_parser = clap::value_parser!(u8).range(0..=100))]
    fill: Vec<u8>,
}

/// One reclaim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    /// Memory of the instance that is gone, which is asked back.
    pub(crate) size_bytes: u64,
    /// How full the memory of the other instances is.
    pub(crate) fill_percent: u8,
    /// What they hold.
    pub(crate) rest_bytes: u64,
    pub(crate) latency_ns: u64,
    pub(crate) guest_ns: u64,
    pub(crate) device_ns: u64,
    pub(crate) migrated_pages: u64,
    pub(crate) device_requests: u64,
    pub(crate) resident_drop_bytes: u64,
    pub(crate) reclaimed_bytes: u64,
    /// Why not everything was given back in time.
    pub(crate) failure: Option<String>,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "utilisation";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    fn check(&self) -> Result {
        self.methods.chosen(&METHODS).map(drop)
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let (chosen, named) = (self.methods.chosen(&METHODS)?, self.methods.named());
        let methods = lab.available(if named { chosen } else { METHODS.to_vec() }, named);
        let size_bytes =
            self.size.unwrap_or(if self.options.quick { 128 << 20 } else { 512 << 20 });
        let fills: BTreeSet<u8> = self.fill.iter().copied().collect();
        let trials = self.options.trials_or(1, 5);
        lab.each(&methods, async |lab, &method| {
            self.one_vm(lab, method, size_bytes, &fills, trials).await
        })
        .await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "rest full",
            "method",
            "n",
            "median ms",
            "quartiles ms",
            "migrated",
            "requests",
            "failed",
        ]);
        for fill in fills(records) {
            for method in methods(records) {
                let lines = || select(records, &method, fill);
                let Some(spread) = latency(records, &method, fill) else { continue };
                let of = |value: fn(&Line) -> u64| {
                    number(median(lines().map(|l| value(l) as f64)).unwrap_or(0.0))
                };
                table.row([
                    format!("{fill}%"),
                    method.clone(),
                    spread.count.to_string(),
                    number(spread.median),
                    format!("{}-{}", number(spread.low), number(spread.high)),
                    of(|line| line.migrated_pages),
                    of(|line| line.device_requests),
                    lines().filter(|line| line.failure.is_some()).count().to_string(),
                ]);
            }
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        // Each level against the emptiest: the slowest against the fastest, chosen by what was
        // measured, would differ by the noise alone.
        let levels = fills(records);
        let Some((emptiest, others)) = levels.split_first() else { return Vec::new() };
        let ours = |fill| select(records, "squeezy", fill).map(|line| line.latency_ns as f64);
        let bound = |&fill| {
            Some(Bound {
                what: format!("reclaim in a VM {fill}% full, slower than in one {emptiest}% full"),
                measured: Estimate::ratio(ours(fill), ours(*emptiest))?
                    .map(|ratio| (ratio - 1.0) * 100.0),
                limit: Limit::AtMost(20.0),
                unit: "%",
            })
        };
        others.iter().filter_map(bound).collect()
    }

    fn plot(records: &[Line]) -> Result<String> {
        let fills = fills(records);
        let panel = Panel {
            title: "Latency".to_owned(),
            x: "how full the memory of the other instances is".to_owned(),
            y: "milliseconds".to_owned(),
            categories: fills.iter().map(|fill| format!("{fill}%")).collect(),
            series: Series::of_methods(&methods(records), |method| {
                fills.iter().map(|&fill| latency(records, method, fill)).collect()
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
        .svg()
    }
}

impl Arguments {
    async fn one_vm(
        &self,
        lab: &mut Lab<Line>,
        method: MechanismName,
        size_bytes: u64,
        fills: &BTreeSet<u8>,
        trials: u32,
    ) -> Result {
        let sizing = Sizing { instance_bytes: size_bytes, instances: INSTANCES, shared_bytes: 0 };
        let mut stand = Stand::start(lab, method, sizing, &[]).await?;
        let mut last = None;
        for trial in 0..trials {
            // Levels take turns within a trial, so that a drift of the VM hits all of them.
            for &fill in fills {
                let start = Instant::now();
                if last.is_some_and(|last| trial > 0 && !lab.has_time(last)) {
                    continue;
                }
                lab.progress.say(&format!(
                    "{method}, the rest {fill}% full: trial {} of {trials}",
                    trial + 1
                ));
                let victim = (trial % u32::from(INSTANCES)) as u16;
                for index in 0..INSTANCES {
                    stand.plug(index).await?;
                }
                // Never nothing: memory that nobody has would be taken instead of the victim's.
                let rest = (hog_bytes(size_bytes) / 100 * u64::from(fill)).max(LEAST_BYTES);
                let bytes = (0..INSTANCES).map(|index| {
                    (index, if index == victim { hog_bytes(size_bytes) } else { rest })
                });
                stand.fill(&bytes.collect()).await?;
                stand.kill(victim).await?;
                stand.settle().await;
                let rest_bytes = stand.held_bytes();
                let reclaimed = stand.reclaim(victim, &[]).await?;
                let guest = Some((stand.kernel(), stand.qemu()));
                lab.keep(Line {
                    header: lab.header(&method.to_string(), trial, guest),
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
                })?;
                stand.kill_all().await?;
                lab.progress.advance(1.0 / (fills.len() as f64 * f64::from(trials)));
                last = Some(start.elapsed());
            }
        }
        stand.stop().await
    }
}

fn select<'a>(records: &'a [Line], method: &'a str, fill: u8) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.fill_percent == fill)
}

/// In milliseconds.
fn latency(records: &[Line], method: &str, fill: u8) -> Option<Spread> {
    Spread::of(select(records, method, fill).map(|line| line.latency_ns as f64 / 1e6))
}

fn fills(records: &[Line]) -> Vec<u8> {
    sorted(records, |line| line.fill_percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{
        bound::Verdict,
        record::{
            complaint,
            tests::{header, repeated},
        },
    };

    fn line(method: &str, fill_percent: u8, latency_ns: u64) -> Line {
        Line {
            header: header("utilisation", method, 0),
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
            let bounds = Arguments::bounds(&repeated(records));
            bounds.iter().map(Bound::verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&records), [Verdict::Met]);
        records.push(line("squeezy", 50, 1_300_000));
        assert_eq!(verdicts(&records), [Verdict::Missed, Verdict::Met]);
        assert!(verdicts(&records[..1]).is_empty());
        assert!(Arguments::plot(&records).unwrap().contains("100%"));
        assert!(Arguments::table(&records).to_string().contains("50%"));
    }
}
