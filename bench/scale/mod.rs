//! How the cost of plugging and reclaiming grows with the number of instances that come and go at
//! once. See README.md.

use crate::common::{
    Experiment,
    bound::number,
    chart::{Chart, Panel, Series},
    error::Result,
    lab::{Lab, Step},
    options::{Methods, Options},
    record::{Header, Record, describe_run},
    select::{methods, of_method, sorted},
    size,
    stand::{Stand, nanoseconds},
    stats::{Spread, median},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::method::{MethodName, Sizing};
use std::{fmt, time::Instant};

const METHODS: [MethodName; 3] = [MethodName::Squeezy, MethodName::VirtioMem, MethodName::Balloon];

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    methods: Methods,
    /// Size of an instance
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = size::parse_instance)]
    size: u64,
    /// How many come and go at once, with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=255))]
    instances: Vec<u16>,
}

/// So many instances, plugged at once and reclaimed at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) size_bytes: u64,
    pub(crate) instances: u16,
    /// Booting a VM with room for them.
    pub(crate) boot_ns: u64,
    /// Plugging all of them for the first time, and again.
    pub(crate) first_plug_ns: u64,
    pub(crate) plug_ns: u64,
    /// Taking the memory of all of them back, of which each page had been used.
    pub(crate) reclaim_ns: u64,
    pub(crate) plug_device_requests: u64,
    pub(crate) reclaim_device_requests: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }
}

/// One VM's worth of trials.
struct Setting {
    method: MethodName,
    instances: u16,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} instances", self.method, self.instances)
    }
}

impl Step for Setting {
    fn weight(&self) -> f64 {
        self.instances.into()
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "scale";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    fn check(&self) -> Result {
        self.methods.chosen(&METHODS).map(drop)
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let chosen = self.methods.chosen(&METHODS)?;
        let chosen = if self.methods.named() { chosen } else { METHODS.to_vec() };
        let mut counts = self.instances.clone();
        if counts.is_empty() {
            counts = if self.options.quick { vec![1, 4, 16] } else { vec![1, 2, 4, 8, 16, 32, 64] };
        }
        let trials = self.options.trials_or(2, 5);
        let of = |instances| chosen.iter().map(move |&method| Setting { method, instances });
        let settings: Vec<_> = counts.into_iter().flat_map(of).collect();
        lab.each(&settings, async |lab, setting| self.one(lab, setting, trials).await).await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "instances",
            "method",
            "n",
            "boot ms",
            "first plug ms",
            "plug ms",
            "requests",
            "reclaim ms",
            "requests",
            "an instance ms",
        ]);
        for instances in counts(records) {
            for method in methods(records) {
                let lines = || select(records, &method, instances);
                if lines().next().is_none() {
                    continue;
                }
                let of =
                    |value: fn(&Line) -> f64| number(median(lines().map(value)).unwrap_or(0.0));
                table.row([
                    instances.to_string(),
                    method.clone(),
                    lines().count().to_string(),
                    of(|line| line.boot_ns as f64 / 1e6),
                    of(|line| line.first_plug_ns as f64 / 1e6),
                    of(|line| line.plug_ns as f64 / 1e6),
                    of(|line| line.plug_device_requests as f64),
                    of(|line| line.reclaim_ns as f64 / 1e6),
                    of(|line| line.reclaim_device_requests as f64),
                    of(|line| line.reclaim_ns as f64 / 1e6 / f64::from(line.instances)),
                ]);
            }
        }
        table
    }

    fn plot(records: &[Line]) -> Result<String> {
        let counts = counts(records);
        let panel = |title: &str, value: fn(&Line) -> u64| Panel {
            title: title.to_owned(),
            x: "instances at once".to_owned(),
            y: "milliseconds for all".to_owned(),
            categories: counts.iter().map(u16::to_string).collect(),
            series: Series::of_methods(&methods(records), |method| {
                let lines = |&count| select(records, method, count);
                let point = |count| Spread::of(lines(count).map(|line| value(line) as f64 / 1e6));
                counts.iter().map(point).collect()
            }),
            joined: true,
            logarithmic: true,
        };
        Chart {
            title: "Instances that come and go at once".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("Plug", |line| line.plug_ns),
                panel("Reclaim", |line| line.reclaim_ns),
            ],
            foot: String::new(),
        }
        .svg()
    }
}

impl Arguments {
    async fn one(&self, lab: &mut Lab<Line>, setting: &Setting, trials: u32) -> Result {
        let &Setting { method, instances } = setting;
        let sizing = Sizing { instance_bytes: self.size, instances, shared_bytes: 0 };
        let start = Instant::now();
        let mut stand = Stand::start(lab, method, sizing, &[]).await?;
        let boot_ns = nanoseconds(start.elapsed());
        let (first_plug_ns, _) = stand.plug_all().await?;
        stand.reclaim_all().await?;
        for trial in 0..trials {
            stand.settle().await;
            let (plug_ns, plug_device_requests) = stand.plug_all().await?;
            stand.touch_all(self.size).await?;
            stand.settle().await;
            let (reclaim_ns, reclaim_device_requests) = stand.reclaim_all().await?;
            let guest = Some((stand.kernel(), stand.qemu()));
            lab.keep(Line {
                header: lab.header(&method.to_string(), trial, guest),
                size_bytes: self.size,
                instances,
                boot_ns,
                first_plug_ns,
                plug_ns,
                reclaim_ns,
                plug_device_requests,
                reclaim_device_requests,
            })?;
        }
        stand.stop().await
    }
}

fn counts(records: &[Line]) -> Vec<u16> {
    sorted(records, |line| line.instances)
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    instances: u16,
) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.instances == instances)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::{complaint, tests::header};

    #[test]
    fn lines_name_their_units() {
        let line = Line {
            header: header("scale", "squeezy", 0),
            size_bytes: 128 << 20,
            instances: 4,
            boot_ns: 1,
            first_plug_ns: 1,
            plug_ns: 1,
            reclaim_ns: 8_000_000,
            plug_device_requests: 1,
            reclaim_device_requests: 1,
        };
        assert_eq!(complaint(&line, &["instances", "reclaim_ns"]), None);
        let records = [line];
        assert!(Arguments::table(&records).to_string().contains("2.00"));
        assert!(Arguments::plot(&records).unwrap().contains("Reclaim"));
    }
}
