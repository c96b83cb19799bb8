//! How the cost of plugging and reclaiming grows with the number of instances that start and end at
//! once, in one VM and in several. See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session, Step},
    record::{Measured, describe_run, nanoseconds},
    report::{
        Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method, sorted,
    },
    rigs::memhog_vm::{MemhogVm, Methods},
    size,
};
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use squeezy_vmm::mechanism::{MechanismName, Sizing};
use std::{fmt, time::Instant};

const METHODS: [MechanismName; 3] =
    [MechanismName::Squeezy, MechanismName::VirtioMem, MechanismName::Balloon];

/// Cost of plugging and reclaiming by the number of instances that start and end at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    methods: Methods,
    /// Size of an instance
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = size::parse_instance)]
    size: u64,
    /// Numbers of instances that start and end at once, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=255))]
    instances: Vec<u16>,
    /// Numbers of VMs in which four instances each start and end at once, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=32))]
    vms: Vec<u16>,
}

/// Instances per VM if there are several VMs.
const IN_EACH: u16 = 4;

/// Instances in one or several VMs, plugged at once and reclaimed at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    size_bytes: u64,
    vms_count: u16,
    /// In each VM.
    instances: u16,
    /// Booting the VMs, one after another.
    boot_ns: u64,
    /// Plugging all instances' memory for the first time, and again.
    first_plug_ns: u64,
    plug_ns: u64,
    /// Reclaiming all instances' memory, of which each page had been used.
    reclaim_ns: u64,
    /// Requests to the devices of all VMs.
    plug_device_requests: u64,
    reclaim_device_requests: u64,
}

/// The trials in one set of VMs.
struct Setting {
    method: MechanismName,
    vms: u16,
    instances: u16,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { method, vms, instances } = self;
        write!(f, "{method}, {instances} instances in each of {vms} VMs")
    }
}

impl Step for Setting {
    fn weight(&self) -> f64 {
        f64::from(self.instances) * f64::from(self.vms)
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "scale";

    fn check(&self) -> Result {
        self.methods.check(&METHODS)
    }

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let chosen = self.methods.or(session, &METHODS, &METHODS)?;
        let (mut counts, mut vms) = (self.instances.clone(), self.vms.clone());
        if counts.is_empty() && vms.is_empty() {
            (counts, vms) = if session.options.quick {
                (vec![1, 4, 16], vec![2, 4])
            } else {
                (vec![1, 2, 4, 8, 16, 32, 64], vec![2, 4, 8])
            };
        }
        let trials = session.options.trials_or(2, 5);
        let in_one = counts.into_iter().map(|instances| (1, instances));
        let in_several = vms.into_iter().map(|vms| (vms, IN_EACH));
        let of =
            |(vms, instances)| chosen.iter().map(move |&method| Setting { method, vms, instances });
        let settings: Vec<_> = in_one.chain(in_several).flat_map(of).collect();
        session
            .each(&settings, async |session, setting| self.one(session, setting, trials).await)
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
        let ms = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64 / 1e6)
        };
        Table::of(
            records,
            |line| (line.vms_count, line.instances, by_method(line)),
            &[
                Column::common("VMs", |line| line.vms_count.to_string()),
                Column::common("instances", |line| line.instances.to_string()),
                Column::common("method", |line| line.header.method.clone()),
                Column::count("n"),
                ms("boot ms", |line| line.boot_ns),
                ms("first plug ms", |line| line.first_plug_ns),
                ms("plug ms", |line| line.plug_ns),
                Column::median("requests", |line| line.plug_device_requests as f64),
                ms("reclaim ms", |line| line.reclaim_ns),
                Column::median("requests", |line| line.reclaim_device_requests as f64),
                Column::median("per instance ms", |line| {
                    line.reclaim_ns as f64 / 1e6 / f64::from(line.vms_count * line.instances)
                }),
            ],
        )
    }

    fn plot(records: &[Line]) -> Chart {
        let in_one =
            panels(records, "instances in one VM", |line| line.vms_count == 1, |l| l.instances);
        let in_several = panels(
            records,
            "VMs with four instances each",
            |line| line.instances == IN_EACH,
            |line| line.vms_count,
        );
        Chart {
            title: "Instances that start and end at once".to_owned(),
            subtitle: describe_run(records),
            panels: in_one.into_iter().chain(in_several).collect(),
            foot: String::new(),
        }
    }
}

impl Arguments {
    async fn one(&self, session: &mut Session<Figures>, setting: &Setting, trials: u32) -> Result {
        let &Setting { method, vms, instances } = setting;
        let sizing = Sizing { instance_bytes: self.size, instances, shared_bytes: 0 };
        let start = Instant::now();
        let mut running = Vec::new();
        for _ in 0..vms {
            running.push(MemhogVm::start(session, method, sizing, &[]).await?);
        }
        let boot_ns = nanoseconds(start.elapsed());
        let (first_plug_ns, _) = in_all(running.iter_mut().map(MemhogVm::plug_all)).await?;
        in_all(running.iter_mut().map(MemhogVm::reclaim_all)).await?;
        for trial in 0..trials {
            running[0].settle().await;
            let (plug_ns, plug_device_requests) =
                in_all(running.iter_mut().map(MemhogVm::plug_all)).await?;
            for vm in &mut running {
                vm.touch_all(self.size).await?;
            }
            running[0].settle().await;
            let (reclaim_ns, reclaim_device_requests) =
                in_all(running.iter_mut().map(MemhogVm::reclaim_all)).await?;
            let guest = Some(running[0].guest());
            session.keep(
                session.header(&method.to_string(), trial, guest),
                Figures {
                    size_bytes: self.size,
                    vms_count: vms,
                    instances,
                    boot_ns,
                    first_plug_ns,
                    plug_ns,
                    reclaim_ns,
                    plug_device_requests,
                    reclaim_device_requests,
                },
            )?;
        }
        for vm in running {
            vm.stop().await?;
        }
        Ok(())
    }
}

/// Plug and reclaim of some lines, over `growing`; nothing if it has only one value.
fn panels(
    records: &[Line],
    x: &str,
    chosen: fn(&Line) -> bool,
    count: fn(&Line) -> u16,
) -> Vec<Panel> {
    let records: Vec<_> = records.iter().filter(|line| chosen(line)).cloned().collect();
    let counts = sorted(&records, count);
    if counts.len() < 2 {
        return Vec::new();
    }
    let panel = |title: &str, value: fn(&Line) -> u64| Panel {
        title: title.to_owned(),
        x: x.to_owned(),
        y: "milliseconds for all".to_owned(),
        categories: counts.iter().map(u16::to_string).collect(),
        series: Series::of_methods(&methods(&records), |method| {
            let lines = |n| of_method(&records, method).filter(move |line| count(line) == n);
            let point = |&n| Spread::of(lines(n).map(|line| value(line) as f64 / 1e6));
            counts.iter().map(point).collect()
        }),
        joined: true,
        logarithmic: true,
    };
    vec![panel("Plug", |line| line.plug_ns), panel("Reclaim", |line| line.reclaim_ns)]
}

/// Resizes all VMs at once; returns how long that took, and the number of requests to their
/// devices.
async fn in_all(
    resizes: impl Iterator<Item: Future<Output = Result<(u64, u64)>>>,
) -> Result<(u64, u64)> {
    let start = Instant::now();
    let done = try_join_all(resizes).await?;
    Ok((nanoseconds(start.elapsed()), done.into_iter().map(|(_, requests)| requests).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{complaint, tests::header};

    #[test]
    fn lines_name_their_units() {
        let line = |vms| Measured {
            header: header("scale", "squeezy", 0),
            figures: Figures {
                size_bytes: 128 << 20,
                vms_count: vms,
                instances: 4,
                boot_ns: 1,
                first_plug_ns: 1,
                plug_ns: 1,
                reclaim_ns: 8_000_000,
                plug_device_requests: 1,
                reclaim_device_requests: 1,
            },
        };
        assert_eq!(complaint(&line(1), &["vms_count", "instances", "reclaim_ns"]), None);
        let records = [line(1), line(2)];
        let table = Arguments::table(&records).to_string();
        assert!(table.contains("2.00") && table.contains("1.00"), "{table}");
        assert!(Arguments::plot(&records).svg().unwrap().contains("Reclaim"));
    }
}
