//! CPU time of guest and host for reclaiming memory (Figure 7 of the Squeezy and HyperAlloc
//! papers). See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, describe_run, nanoseconds},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{BLUE, Chart, GREEN, ORANGE, Panel, Series},
        methods, of_method,
    },
    rigs::memhog_vm::{EVERY_METHOD, MemhogVm, Methods, floor, hog_bytes},
    size,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::mechanism::{MechanismName, Sizing};
use std::{collections::BTreeMap, time::Instant};

/// Instances per VM.
const INSTANCES: u16 = 3;

/// CPU time of a reclaim, in the guest and on the host.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    methods: Methods,
    /// Size of an instance
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size::parse_instance)]
    size: u64,
}

/// One reclaim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Memory of the ended instance, which is reclaimed.
    size_bytes: u64,
    latency_ns: u64,
    /// The guest's work for the reclaim: as counted by the kernel (squeezy), otherwise CPU time of
    /// its kworkers.
    guest_ns: u64,
    /// CPU time of the guest's kworkers between samples before and after the reclaim.
    guest_kworkers_ns: u64,
    /// The same between two samples with nothing in between: the cost of sampling.
    guest_kworkers_idle_ns: u64,
    /// The same from before the instance was killed until after: the cost of its exit.
    guest_kworkers_exit_ns: u64,
    /// Time that the device took. QEMU handles requests to virtio-mem and the balloon in the vCPU's
    /// thread, so the guest counts it as its own time.
    device_ns: u64,
    /// CPU time of the VMM's vCPU threads, which also discard memory.
    host_vcpus_ns: u64,
    /// CPU time of the VMM's other threads, which answer size queries.
    host_devices_ns: u64,
    reclaimed_bytes: u64,
    /// Why not all memory was reclaimed in time.
    failure: Option<String>,
}

impl Experiment for Arguments {
    const NAME: &'static str = "cpu";

    fn check(&self) -> Result {
        self.methods.check(&EVERY_METHOD)
    }

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let methods = self.methods.or(session, &EVERY_METHOD, &EVERY_METHOD)?;
        let trials = session.options.trials_or(2, 10);
        session
            .each(&methods, async |session, &method| match method {
                MechanismName::Floor => self.floor(session, trials).await,
                _ => self.one_vm(session, method, trials).await,
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
        let us = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64 / 1e3)
        };
        Table::of(
            records,
            by_method(records),
            &[
                Column::common("method", |line| line.header.method.clone()),
                Column::count("n"),
                us("guest us", |line| line.guest_ns),
                us("kworkers us", |line| line.guest_kworkers_ns),
                us("of these idle us", |line| line.guest_kworkers_idle_ns),
                us("exit us", |line| line.guest_kworkers_exit_ns),
                us("device us", |line| line.device_ns),
                us("host vcpus us", |line| line.host_vcpus_ns),
                us("host others us", |line| line.host_devices_ns),
                us("latency us", |line| line.latency_ns),
                Column::count_of("failed", |line| line.failure.is_some()),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        let mut add = |what, value: fn(&Line) -> u64| {
            let ours = of_method(records, "squeezy").map(|line| value(line) as f64 / 1e6);
            assessments.add("guest-time", what, Estimate::median(ours));
        };
        add("guest CPU time per reclaim, as counted by the kernel", |line| line.guest_ns);
        add("guest CPU time per reclaim, all kworkers, without sampling and the device", |line| {
            line.guest_kworkers_ns.saturating_sub(line.guest_kworkers_idle_ns + line.device_ns)
        });
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let series = |name: &str, colour, value: fn(&Line) -> u64| Series {
            name: name.to_owned(),
            colour,
            variant: false,
            points: methods
                .iter()
                .map(|method| {
                    let lines = of_method(records, method);
                    // Zero does not exist on a logarithmic axis.
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
            foot: "vCPU threads also discard the memory (QEMU handles these devices there) and run whatever else the guest does; the other threads answer size queries."
                .to_owned(),
        }
    }
}

impl Arguments {
    async fn one_vm(
        &self,
        session: &mut Session<Figures>,
        method: MechanismName,
        trials: u32,
    ) -> Result {
        let size_bytes = self.size;
        let sizing = Sizing { instance_bytes: size_bytes, instances: INSTANCES, shared_bytes: 0 };
        let mut vm = MemhogVm::start(session, method, sizing, &[]).await?;
        let full: BTreeMap<u16, u64> =
            (0..INSTANCES).map(|index| (index, hog_bytes(size_bytes))).collect();
        let mut last = None;
        for trial in 0..trials {
            let start = Instant::now();
            if last.is_some_and(|last| !session.has_time(last)) {
                break;
            }
            session.progress.say(&format!("{method}: trial {} of {trials}", trial + 1));
            vm.fill(&full).await?;
            vm.settle().await;
            let victim = (trial % u32::from(INSTANCES)) as u16;
            let looks = vm.workers_ns().await?;
            let idle = vm.workers_ns().await?;
            vm.kill(victim).await?;
            vm.settle().await;
            let gone = vm.workers_ns().await?;
            let reclaimed = vm.reclaim(victim, &[]).await?;
            let guest = Some(vm.guest());
            session.keep(
                session.header(&method.to_string(), trial, guest),
                Figures {
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
                },
            )?;
            vm.kill_all().await?;
            session.progress.advance(1.0 / f64::from(trials));
            last = Some(start.elapsed());
        }
        vm.stop().await
    }

    async fn floor(&self, session: &mut Session<Figures>, trials: u32) -> Result {
        for (trial, done) in
            (0..).zip(floor(self.size, session.options.memory_backend, trials).await?)
        {
            let latency_ns = nanoseconds(done.discard);
            session.keep(
                session.header("floor", trial, None),
                Figures {
                    size_bytes: self.size,
                    latency_ns,
                    guest_ns: 0,
                    guest_kworkers_ns: 0,
                    guest_kworkers_idle_ns: 0,
                    guest_kworkers_exit_ns: 0,
                    device_ns: latency_ns,
                    host_vcpus_ns: 0,
                    // A single thread does nothing else.
                    host_devices_ns: latency_ns,
                    reclaimed_bytes: self.size,
                    failure: None,
                },
            )?;
        }
        Ok(())
    }
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

    #[test]
    fn lines_name_their_units_and_the_bound_is_a_millisecond() {
        let line = Measured {
            header: header("cpu", "squeezy", 0),
            figures: Figures {
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
            },
        };
        assert_eq!(complaint(&line, &["guest_ns", "host_vcpus_ns", "host_devices_ns"]), None);
        let assessed = assess::<Arguments>(&repeated(std::slice::from_ref(&line)));
        let verdicts: Vec<_> = assessed.iter().map(Assessment::verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed]);
        assert!(Arguments::plot(std::slice::from_ref(&line)).svg().unwrap().contains("vCPU"));
        assert!(Arguments::table(&[line]).to_string().contains("400"));
    }
}
