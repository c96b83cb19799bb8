//! CPU time, of the guest and of the host, that taking memory back takes (Figure 7 of the Squeezy
//! and HyperAlloc papers). See README.md.

use crate::common::{
    Experiment,
    bound::{Bound, Limit, number},
    chart::{BLUE, Chart, GREEN, ORANGE, Panel, Series},
    error::Result,
    estimate::Estimate,
    lab::Lab,
    options::{Methods, Options},
    record::{Header, Record, describe_run},
    select::{methods, of_method},
    size,
    stand::{Stand, floor, hog_bytes, nanoseconds},
    stats::{Spread, median},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::mechanism::{MechanismName, Sizing};
use std::{collections::BTreeMap, time::Instant};

const METHODS: [MechanismName; 5] = [
    MechanismName::Squeezy,
    MechanismName::VirtioMem,
    MechanismName::Balloon,
    MechanismName::Node,
    MechanismName::Floor,
];

/// Instances of a VM.
const INSTANCES: u16 = 3;

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    methods: Methods,
    /// Size of an instance
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size::parse_instance)]
    size: u64,
}

/// One reclaim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    /// Memory of the instance that is gone, which is asked back.
    pub(crate) size_bytes: u64,
    pub(crate) latency_ns: u64,
    /// The guest's work for the reclaim: by the kernel's own count (squeezy), else CPU time of its
    /// kworkers.
    pub(crate) guest_ns: u64,
    /// CPU time of the guest's kworkers between two looks, before and after the reclaim.
    pub(crate) guest_kworkers_ns: u64,
    /// The same between two looks with nothing in between: what looking costs.
    pub(crate) guest_kworkers_idle_ns: u64,
    /// The same from before the instance was killed until after: what its end costs.
    pub(crate) guest_kworkers_exit_ns: u64,
    /// How long the device took. QEMU serves virtio-mem and the balloon in the vCPU's thread, so the
    /// guest takes it for its own time.
    pub(crate) device_ns: u64,
    /// CPU time of the VMM's threads that run the guest, which also discard its memory.
    pub(crate) host_vcpus_ns: u64,
    /// CPU time of the VMM's other threads, which answer the questions for the size.
    pub(crate) host_devices_ns: u64,
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
    const NAME: &'static str = "cpu";
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
        let trials = self.options.trials_or(2, 10);
        lab.each(&methods, async |lab, &method| match method {
            MechanismName::Floor => self.floor(lab, trials).await,
            _ => self.one_vm(lab, method, trials).await,
        })
        .await
    }

    fn table(records: &[Line]) -> Table {
        let mut table = Table::new(&[
            "method",
            "n",
            "guest us",
            "kworkers us",
            "of these idle us",
            "at exit us",
            "device us",
            "host vcpus us",
            "host others us",
            "latency us",
            "failed",
        ]);
        for method in methods(records) {
            let lines = || of_method(records, &method);
            let of = |value: fn(&Line) -> u64| {
                number(median(lines().map(|l| value(l) as f64 / 1e3)).unwrap_or(0.0))
            };
            table.row([
                method.clone(),
                lines().count().to_string(),
                of(|line| line.guest_ns),
                of(|line| line.guest_kworkers_ns),
                of(|line| line.guest_kworkers_idle_ns),
                of(|line| line.guest_kworkers_exit_ns),
                of(|line| line.device_ns),
                of(|line| line.host_vcpus_ns),
                of(|line| line.host_devices_ns),
                of(|line| line.latency_ns),
                lines().filter(|line| line.failure.is_some()).count().to_string(),
            ]);
        }
        table
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        let ours = || of_method(records, "squeezy");
        let mut bounds = Vec::new();
        for (what, value) in [
            (
                "guest CPU time per reclaim, by the kernel's count",
                (|line| line.guest_ns) as fn(&Line) -> u64,
            ),
            ("guest CPU time per reclaim, all kworkers, less looking and the device", |line| {
                line.guest_kworkers_ns.saturating_sub(line.guest_kworkers_idle_ns + line.device_ns)
            }),
        ] {
            if let Some(measured) = Estimate::median(ours().map(|line| value(line) as f64 / 1e6)) {
                bounds.push(Bound {
                    what: what.to_owned(),
                    measured,
                    limit: Limit::AtMost(1.0),
                    unit: " ms",
                });
            }
        }
        bounds
    }

    fn plot(records: &[Line]) -> Result<String> {
        let methods = methods(records);
        let series = |name: &str, colour, value: fn(&Line) -> u64| Series {
            name: name.to_owned(),
            colour,
            variant: false,
            points: methods
                .iter()
                .map(|method| {
                    let lines = of_method(records, method);
                    // A logarithmic axis has no place for nothing.
                    Spread::of(lines.map(|line| value(line) as f64 / 1e6))
                        .filter(|spread| spread.median > 0.0)
                })
                .collect(),
        };
        let panel = Panel {
            title: "CPU time of one reclaim".to_owned(),
            x: "method".to_owned(),
            y: "milliseconds".to_owned(),
            series: vec![
                series("guest: kernel", BLUE, |line| line.guest_ns),
                series("host: vCPU threads", ORANGE, |line| line.host_vcpus_ns),
                series("host: other threads", GREEN, |line| line.host_devices_ns),
            ],
            categories: methods.clone(),
            joined: false,
            logarithmic: true,
        };
        let size_bytes = records.first().map_or(0, |line| line.size_bytes);
        Chart {
            title: format!("CPU time of reclaiming {} of an ended instance", size::show(size_bytes)),
            subtitle: describe_run(records),
            panels: vec![panel],
            foot: "The vCPU threads also discard the memory (QEMU serves these devices there) and run whatever else the guest does meanwhile; the others answer the questions for the size."
                .to_owned(),
        }
        .svg()
    }
}

impl Arguments {
    async fn one_vm(&self, lab: &mut Lab<Line>, method: MechanismName, trials: u32) -> Result {
        let size_bytes = self.size;
        let sizing = Sizing { instance_bytes: size_bytes, instances: INSTANCES, shared_bytes: 0 };
        let mut stand = Stand::start(lab, method, sizing, &[]).await?;
        let full: BTreeMap<u16, u64> =
            (0..INSTANCES).map(|index| (index, hog_bytes(size_bytes))).collect();
        let mut last = None;
        for trial in 0..trials {
            let start = Instant::now();
            if last.is_some_and(|last| !lab.has_time(last)) {
                break;
            }
            lab.progress.say(&format!("{method}: trial {} of {trials}", trial + 1));
            stand.fill(&full).await?;
            stand.settle().await;
            let victim = (trial % u32::from(INSTANCES)) as u16;
            let looks = stand.workers_ns().await?;
            let idle = stand.workers_ns().await?;
            stand.kill(victim).await?;
            stand.settle().await;
            let gone = stand.workers_ns().await?;
            let reclaimed = stand.reclaim(victim, &[]).await?;
            let guest = Some((stand.kernel(), stand.qemu()));
            lab.keep(Line {
                header: lab.header(&method.to_string(), trial, guest),
                size_bytes,
                latency_ns: reclaimed.latency_ns,
                guest_ns: reclaimed.guest_ns,
                guest_kworkers_ns: reclaimed.workers_ns,
                guest_kworkers_idle_ns: idle.saturating_sub(looks),
                guest_kworkers_exit_ns: gone.saturating_sub(idle),
                device_ns: reclaimed.device_ns,
                host_vcpus_ns: reclaimed.host.vcpus_ns,
                host_devices_ns: reclaimed.host.devices_ns,
                reclaimed_bytes: reclaimed.reclaimed_bytes,
                failure: reclaimed.failure,
            })?;
            stand.kill_all().await?;
            lab.progress.advance(1.0 / f64::from(trials));
            last = Some(start.elapsed());
        }
        stand.stop().await
    }

    async fn floor(&self, lab: &mut Lab<Line>, trials: u32) -> Result {
        for (trial, done) in (0..).zip(floor(self.size, self.options.memory_backend, trials).await?)
        {
            let latency_ns = nanoseconds(done.discard);
            lab.keep(Line {
                header: lab.header("floor", trial, None),
                size_bytes: self.size,
                latency_ns,
                guest_ns: 0,
                guest_kworkers_ns: 0,
                guest_kworkers_idle_ns: 0,
                guest_kworkers_exit_ns: 0,
                device_ns: latency_ns,
                host_vcpus_ns: 0,
                // One thread that does nothing else.
                host_devices_ns: latency_ns,
                reclaimed_bytes: self.size,
                failure: None,
            })?;
        }
        Ok(())
    }
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
    fn lines_name_their_units_and_the_bound_is_a_millisecond() {
        let line = Line {
            header: header("cpu", "squeezy", 0),
            size_bytes: 512 << 20,
            latency_ns: 1,
            guest_ns: 400_000,
            guest_kworkers_ns: 1_400_000,
            guest_kworkers_idle_ns: 1,
            guest_kworkers_exit_ns: 1,
            device_ns: 1,
            host_vcpus_ns: 1,
            host_devices_ns: 1,
            reclaimed_bytes: 1,
            failure: None,
        };
        assert_eq!(complaint(&line, &["guest_ns", "host_vcpus_ns", "host_devices_ns"]), None);
        let bounds = Arguments::bounds(&repeated(std::slice::from_ref(&line)));
        let verdicts: Vec<_> = bounds.iter().map(Bound::verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed]);
        assert!(Arguments::plot(std::slice::from_ref(&line)).unwrap().contains("vCPU"));
        assert!(Arguments::table(&[line]).to_string().contains("400"));
    }
}
