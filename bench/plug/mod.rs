//! Latency of giving an instance memory, and of its first touch. See README.md.

use crate::common::{
    Experiment,
    bound::{Bound, Limit, number},
    chart::{self, Chart, Panel, Series},
    error::Result,
    estimate::Estimate,
    lab::{Lab, Step},
    options::{Methods, Options},
    record::{Header, Record, describe_run},
    select::{methods, of_method, sorted},
    size,
    stand::{Stand, floor, hog_bytes, nanoseconds},
    stats::{Spread, median},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::mechanism::{MechanismName, Sizing};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Instant,
};

const METHODS: [MechanismName; 5] = [
    MechanismName::Squeezy,
    MechanismName::VirtioMem,
    MechanismName::Balloon,
    MechanismName::Node,
    MechanismName::Floor,
];

/// Instances of a VM; only the first comes and goes.
const INSTANCES: u16 = 2;

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    methods: Methods,
    /// Sizes of an instance, with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size::parse_instance)]
    sizes: Vec<u64>,
}

/// One plug and the first touch after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) size_bytes: u64,
    /// Whether this memory was never there before in this VM.
    pub(crate) first: bool,
    /// From the request until the device had the size; 0 where nothing is plugged.
    pub(crate) latency_ns: u64,
    pub(crate) device_requests: u64,
    /// Memory that an instance then touched, each page once.
    pub(crate) touched_bytes: u64,
    /// How long that took, as measured where it ran.
    pub(crate) touch_ns: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }
}

/// One VM's worth of trials.
struct Setting {
    method: MechanismName,
    size_bytes: u64,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.method, size::show(self.size_bytes))
    }
}

impl Step for Setting {
    fn weight(&self) -> f64 {
        self.size_bytes as f64
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "plug";
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
        let default: &[u64] = if self.options.quick {
            &[256 << 20]
        } else {
            &[128 << 20, 512 << 20, 1 << 30, 2 << 30]
        };
        let sizes: BTreeSet<u64> = if self.sizes.is_empty() {
            default.iter().copied().collect()
        } else {
            self.sizes.iter().copied().collect()
        };
        // The first plug of a VM is a case of its own.
        let trials = self.options.trials_or(2, 5) + 1;
        let of = |size_bytes| methods.iter().map(move |&method| Setting { method, size_bytes });
        let settings: Vec<_> = sizes.into_iter().flat_map(of).collect();
        lab.each(&settings, async |lab, setting| match setting.method {
            MechanismName::Floor => self.floor(lab, setting.size_bytes, trials).await,
            _ => one_vm(lab, setting, trials).await,
        })
        .await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "plug",
            "method",
            "",
            "n",
            "median ms",
            "quartiles ms",
            "requests",
            "touch ms",
        ]);
        for size_bytes in sizes(records) {
            for method in methods(records) {
                for first in [true, false] {
                    let lines = || select(records, &method, size_bytes, first);
                    let Some(latency) =
                        Spread::of(lines().map(|line| line.latency_ns as f64 / 1e6))
                    else {
                        continue;
                    };
                    table.row([
                        size::show(size_bytes),
                        method.clone(),
                        if first { "first" } else { "again" }.to_owned(),
                        latency.count.to_string(),
                        number(latency.median),
                        format!("{}-{}", number(latency.low), number(latency.high)),
                        number(
                            median(lines().map(|line| line.device_requests as f64)).unwrap_or(0.0),
                        ),
                        number(
                            median(lines().map(|line| line.touch_ns as f64 / 1e6)).unwrap_or(0.0),
                        ),
                    ]);
                }
            }
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        sizes(records)
            .into_iter()
            .filter_map(|size_bytes| {
                let lines = select(records, "squeezy", size_bytes, false);
                Some(Bound {
                    what: format!(
                        "plug of a partition of {} that was there before",
                        size::show(size_bytes)
                    ),
                    measured: Estimate::median(lines.map(|line| line.latency_ns as f64 / 1e6))?,
                    limit: Limit::AtMost(5.0),
                    unit: " ms",
                })
            })
            .collect()
    }

    fn plot(records: &[Line]) -> Result<String> {
        let sizes = sizes(records);
        let panel = |title: &str, firsts: &[bool], value: fn(&Line) -> u64| Panel {
            title: title.to_owned(),
            x: "memory of the instance".to_owned(),
            y: "milliseconds".to_owned(),
            categories: sizes.iter().map(|&size| size::show(size)).collect(),
            series: methods(records)
                .iter()
                .flat_map(|method| firsts.iter().map(move |&first| (method, first)))
                .map(|(method, first)| Series {
                    name: if first { format!("{method}, first time") } else { method.clone() },
                    colour: chart::colour(method),
                    variant: first,
                    points: sizes
                        .iter()
                        .map(|&size| {
                            let lines = select(records, method, size, first);
                            Spread::of(lines.map(|line| value(line) as f64 / 1e6))
                                .filter(|spread| spread.median > 0.0)
                        })
                        .collect(),
                })
                .filter(|series| series.points.iter().any(Option::is_some))
                .collect(),
            joined: true,
            logarithmic: true,
        };
        Chart {
            title: "Giving an instance its memory, and its first touch of all of it".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("Plug", &[false, true], |line| line.latency_ns),
                panel("First touch", &[false], |line| line.touch_ns),
            ],
            foot: "floor: a process on the host touches as much memory, without a guest."
                .to_owned(),
        }
        .svg()
    }
}

impl Arguments {
    async fn floor(&self, lab: &mut Lab<Line>, size_bytes: u64, trials: u32) -> Result {
        for (trial, done) in
            (0..).zip(floor(size_bytes, self.options.memory_backend, trials).await?)
        {
            lab.keep(Line {
                header: lab.header("floor", trial, None),
                size_bytes,
                first: trial == 0,
                latency_ns: 0,
                device_requests: 0,
                touched_bytes: size_bytes,
                touch_ns: nanoseconds(done.populate),
            })?;
        }
        Ok(())
    }
}

async fn one_vm(lab: &mut Lab<Line>, setting: &Setting, trials: u32) -> Result {
    let &Setting { method, size_bytes } = setting;
    let sizing = Sizing { instance_bytes: size_bytes, instances: INSTANCES, shared_bytes: 0 };
    let mut stand = Stand::start(lab, method, sizing, &[]).await?;
    let bytes = BTreeMap::from([(0, hog_bytes(size_bytes))]);
    let mut last = None;
    for trial in 0..trials {
        let start = Instant::now();
        // The second trial is the first of a plug that is not the first.
        if last.is_some_and(|last| trial > 1 && !lab.has_time(last)) {
            break;
        }
        lab.progress.say(&format!("{setting}: trial {} of {trials}", trial + 1));
        stand.settle().await;
        let plugged = stand.plug(0).await?;
        let touched = stand.fill(&bytes).await?;
        let guest = Some((stand.kernel(), stand.qemu()));
        lab.keep(Line {
            header: lab.header(&method.to_string(), trial, guest),
            size_bytes,
            first: trial == 0,
            latency_ns: plugged.map_or(0, |resize| nanoseconds(resize.latency)),
            device_requests: plugged
                .and_then(|resize| resize.device)
                .map_or(0, |device| device.plug),
            touched_bytes: hog_bytes(size_bytes),
            touch_ns: touched.values().sum(),
        })?;
        stand.kill_all().await?;
        stand.settle().await;
        if let Some(reason) = stand.reclaim(0, &[]).await?.failure {
            lab.progress.note(&format!(
                "{setting}: not all memory came back, so there are no more trials: {reason}"
            ));
            break;
        }
        last = Some(start.elapsed());
    }
    stand.stop().await
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    size_bytes: u64,
    first: bool,
) -> impl Iterator<Item = &'a Line> {
    of_method(records, method)
        .filter(move |line| line.size_bytes == size_bytes && line.first == first)
}

fn sizes(records: &[Line]) -> Vec<u64> {
    sorted(records, |line| line.size_bytes)
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

    #[test]
    fn only_a_second_plug_is_promised_to_be_fast() {
        let line = |first, latency_ns| Line {
            header: header("plug", "squeezy", 0),
            size_bytes: 1 << 30,
            first,
            latency_ns,
            device_requests: 1,
            touched_bytes: 1 << 30,
            touch_ns: 1_000_000,
        };
        let records = [line(true, 900_000_000), line(false, 4_000_000)];
        assert_eq!(complaint(&records[0], &["latency_ns", "touch_ns"]), None);
        let bounds = Arguments::bounds(&repeated(&records));
        assert!(bounds.len() == 1 && bounds[0].verdict() == Verdict::Met);
        assert!(Arguments::plot(&records).unwrap().contains("first time"));
        assert!(Arguments::table(&records).to_string().contains("again"));
    }
}
