//! Latency of plugging an instance's memory, and of touching it for the first time. See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session, Step},
    record::{Measured, describe_run, nanoseconds},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{self, Chart, Panel, Series},
        methods, of_method, sorted,
    },
    rigs::memhog_vm::{EVERY_METHOD, MemhogVm, Methods, floor, hog_bytes},
    size,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::mechanism::{MechanismName, Sizing};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Instant,
};

/// Instances per VM; only the first one starts and ends.
const INSTANCES: u16 = 2;

/// Latency of plugging an instance's memory, and of its first touch.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    methods: Methods,
    /// Sizes of an instance, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size::parse_instance)]
    sizes: Vec<u64>,
}

/// A plug, followed by the first touch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    size_bytes: u64,
    /// Whether this memory was never plugged before in this VM.
    first: bool,
    /// From the request until the device had the size; 0 if nothing is plugged.
    latency_ns: u64,
    device_requests: u64,
    /// Memory that an instance then touched, each page once.
    touched_bytes: u64,
    /// How long touching took, as measured in the guest, or on the host for the floor.
    touch_ns: u64,
}

/// The trials in one VM.
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

    fn check(&self) -> Result {
        self.methods.check(&EVERY_METHOD)
    }

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let methods = self.methods.or(session, &EVERY_METHOD, &EVERY_METHOD)?;
        let default: &[u64] = if session.options.quick {
            &[256 << 20]
        } else {
            &[128 << 20, 512 << 20, 1 << 30, 2 << 30]
        };
        let sizes: BTreeSet<u64> = if self.sizes.is_empty() {
            default.iter().copied().collect()
        } else {
            self.sizes.iter().copied().collect()
        };
        // The first plug of a VM is a separate case.
        let trials = session.options.trials_or(2, 5) + 1;
        let of = |size_bytes| methods.iter().map(move |&method| Setting { method, size_bytes });
        let settings: Vec<_> = sizes.into_iter().flat_map(of).collect();
        session
            .each(&settings, async |session, setting| match setting.method {
                MechanismName::Floor => self.floor(session, setting.size_bytes, trials).await,
                _ => one_vm(session, setting, trials).await,
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
        let latency = |line: &Line| line.latency_ns as f64 / 1e6;
        Table::of(
            records,
            |line| (line.size_bytes, by_method(line), !line.first),
            &[
                Column::common("plug", |line| size::show(line.size_bytes)),
                Column::common("method", |line| line.header.method.clone()),
                Column::common("", |line| if line.first { "first" } else { "again" }.to_owned()),
                Column::count("n"),
                Column::median("median ms", latency),
                Column::quartiles("quartiles ms", latency),
                Column::median("requests", |line| line.device_requests as f64),
                Column::median("touch ms", |line| line.touch_ns as f64 / 1e6),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for size_bytes in sizes(records) {
            let lines = select(records, "squeezy", size_bytes, false);
            assessments.add(
                "plug-again",
                format!(
                    "plug of a partition of {} that was plugged before",
                    size::show(size_bytes)
                ),
                Estimate::median(lines.map(|line| line.latency_ns as f64 / 1e6)),
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
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
            title: "Plugging an instance's memory, and touching all of it for the first time"
                .to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("Plug", &[false, true], |line| line.latency_ns),
                panel("First touch", &[false], |line| line.touch_ns),
            ],
            foot: "floor: a process on the host touches as much memory, without a guest."
                .to_owned(),
        }
    }
}

impl Arguments {
    async fn floor(&self, session: &mut Session<Figures>, size_bytes: u64, trials: u32) -> Result {
        for (trial, done) in
            (0..).zip(floor(size_bytes, session.options.memory_backend, trials).await?)
        {
            session.keep(
                session.header("floor", trial, None),
                Figures {
                    size_bytes,
                    first: trial == 0,
                    latency_ns: 0,
                    device_requests: 0,
                    touched_bytes: size_bytes,
                    touch_ns: nanoseconds(done.populate),
                },
            )?;
        }
        Ok(())
    }
}

async fn one_vm(session: &mut Session<Figures>, setting: &Setting, trials: u32) -> Result {
    let &Setting { method, size_bytes } = setting;
    let sizing = Sizing { instance_bytes: size_bytes, instances: INSTANCES, shared_bytes: 0 };
    let mut vm = MemhogVm::start(session, method, sizing, &[]).await?;
    let bytes = BTreeMap::from([(0, hog_bytes(size_bytes))]);
    let mut last = None;
    for trial in 0..trials {
        let start = Instant::now();
        // The second trial is the first one of a repeated plug.
        if last.is_some_and(|last| trial > 1 && !session.has_time(last)) {
            break;
        }
        session.progress.say(&format!("{setting}: trial {} of {trials}", trial + 1));
        vm.settle().await;
        let plugged = vm.plug(0).await?;
        let touched = vm.fill(&bytes).await?;
        let guest = Some(vm.guest());
        session.keep(
            session.header(&method.to_string(), trial, guest),
            Figures {
                size_bytes,
                first: trial == 0,
                latency_ns: plugged.map_or(0, |resize| nanoseconds(resize.latency)),
                device_requests: plugged
                    .and_then(|resize| resize.device)
                    .map_or(0, |device| device.plug),
                touched_bytes: hog_bytes(size_bytes),
                touch_ns: touched.values().sum(),
            },
        )?;
        vm.kill_all().await?;
        vm.settle().await;
        if let Some(reason) = vm.reclaim(0, &[]).await?.failure {
            session.progress.note(&format!(
                "{setting}: not all memory came back, so there are no more trials: {reason}"
            ));
            break;
        }
        last = Some(start.elapsed());
    }
    vm.stop().await
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
    use crate::{
        harness::assess,
        record::{
            complaint,
            tests::{header, repeated},
        },
        report::Verdict,
    };

    #[test]
    fn only_a_second_plug_has_to_be_fast() {
        let line = |first, latency_ns| Measured {
            header: header("plug", "squeezy", 0),
            figures: Figures {
                size_bytes: 1 << 30,
                first,
                latency_ns,
                device_requests: 1,
                touched_bytes: 1 << 30,
                touch_ns: 1_000_000,
            },
        };
        let records = [line(true, 900_000_000), line(false, 4_000_000)];
        assert_eq!(complaint(&records[0], &["latency_ns", "touch_ns"]), None);
        let assessed = assess::<Arguments>(&repeated(&records));
        assert!(assessed.len() == 1 && assessed[0].verdict() == Verdict::Met);
        assert!(Arguments::plot(&records).svg().unwrap().contains("first time"));
        assert!(Arguments::table(&records).to_string().contains("again"));
    }
}
