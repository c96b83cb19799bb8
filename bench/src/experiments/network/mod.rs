//! How fast an instance reaches a server, compared with a program in a VM with QEMU's plain user network. See README.md.

#[path = "../../../../scripts/outside.rs"]
mod outside;
mod server;

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Report, Session},
    record::{Guest, Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method,
    },
    rigs::program_vm::ProgramVm,
    size::mib,
};
use outside::{Outside, PUBLIC};
use serde::{Deserialize, Serialize};
use squeezy_protocol::network::{GATEWAY, NETWORK, NETWORK_PREFIX, address};
use squeezy_vmm::{
    Kernel, QemuOptions, Vm, VmConfig, Vmm,
    network::{Network, Uplink},
};
use std::{os::unix::process::CommandExt, process::Command, time::Duration};

/// In an instance of a VM whose network the daemon judges.
const INSTANCE: &str = "instance";
/// As the only program of a VM with QEMU's user network.
const PLAIN: &str = "plain";

/// How long the program may take, its VM's boot included.
const LIMIT: Duration = Duration::from_secs(180);
/// The pause between looks at a console.
const PAUSE: Duration = Duration::from_millis(100);

/// The variable that says that this process has a network of its own.
const INSIDE: &str = "SQUEEZY_BENCH_NETWORK";

/// Throughput and latency of an instance's network, and of QEMU's own.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// What `netbench` has measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    connect_ns: u64,
    round_trip_ns: u64,
    sent_bytes_per_second: f64,
    received_bytes_per_second: f64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "network";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        if std::env::var_os(INSIDE).is_none() {
            return Err(enter());
        }
        let port = Outside::connect().run(server::serve).join();
        let port = port.unwrap_or_else(|_| Err(std::io::Error::other("it panics")));
        let port = port.map_err(|error| failed(format!("the server: {error}")))?;
        let trials = session.options.trials_or(3, 15);
        let duration = if session.options.quick { 1000 } else { 3000 };
        let program = format!("/bin/netbench --duration {duration} {PUBLIC}:{port}");
        session.progress.plan(f64::from(trials) * 2.0);
        for trial in 0..trials {
            let mut methods = [PLAIN, INSTANCE];
            methods.rotate_left(trial as usize % 2);
            for method in methods {
                session.progress.say(&format!("trial {} of {trials}: {method}", trial + 1));
                let (guest, figures) = match method {
                    PLAIN => plain(session, &program).await?,
                    _ => instance(session, &program).await?,
                };
                let header = session.header(method, trial, Some(&guest));
                session.keep(header, figures)?;
                session.progress.advance(1.0);
            }
        }
        Ok(())
    }
}

/// Starts this program again in a network of its own, in which others can be made; root is not needed for that. Returns
/// only why that is not possible.
fn enter() -> BenchError {
    let Err(error) = std::env::current_exe().and_then(|program| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--"]).arg(program);
        Err::<std::convert::Infallible, _>(
            command.args(std::env::args_os().skip(1)).env(INSIDE, "1").exec(),
        )
    });
    failed(format!("unshare (util-linux) cannot be run: {error}"))
}

fn failed(reason: String) -> BenchError {
    BenchError::Arguments(format!("the experiment needs a network of its own: {reason}"))
}

async fn instance(session: &Session<Figures>, program: &str) -> Result<(Guest, Figures)> {
    let vm = ProgramVm::start(session, Kernel::Release, |config| {
        // Each connection is judged and has a rate, and none of them is refused or slowed down.
        config.network = Some(Uplink::Judged(Network {
            connections_per_second: 10_000,
            bytes_per_second: 1 << 40,
            ..Network::default()
        }));
    })
    .await?;
    let command: Vec<_> = program.split(' ').collect();
    let figures = vm.run_outbound::<Figures>(&command, LIMIT).await?;
    let guest = vm.guest().clone();
    vm.stop().await?;
    Ok((guest, figures))
}

/// The program is all that the VM's init runs, with the VM's own interface.
async fn plain(session: &Session<Figures>, program: &str) -> Result<(Guest, Figures)> {
    let kernel = session.files.kernel(Kernel::Release);
    let mut config = VmConfig::new("bench-network", kernel, session.files.initramfs());
    session.configure(&mut config);
    let arguments = [
        "-netdev".to_owned(),
        format!("user,id=plain,ipv6=off,net={NETWORK}/{NETWORK_PREFIX},host={GATEWAY}"),
        "-device".to_owned(),
        "virtio-net-pci,netdev=plain,romfile=,addr=0x2.0x1".to_owned(),
    ];
    config.vmm = Vmm::Qemu(QemuOptions {
        arguments: arguments.map(Into::into).to_vec(),
        ..Default::default()
    });
    config.agent = false;
    let script = [
        "mount -t proc proc /proc".to_owned(),
        "uname -r".to_owned(),
        "ip link set lo up".to_owned(),
        "ip link set eth0 up".to_owned(),
        format!("ip address add {}/{NETWORK_PREFIX} dev eth0", address(0)),
        format!("ip route add default via {GATEWAY}"),
        program.to_owned(),
        "poweroff -f".to_owned(),
    ];
    config.command_line.push(format!("rdinit=/bin/sh -- -c \"{}\"", script.join("; ")));
    let vm = Vm::start(config).await?;
    let version = vm.vmm_version().to_owned();
    let said = tokio::time::timeout(LIMIT, result_on_console(&vm)).await;
    let said = said.map_err(|_| said_nothing(&vm))??;
    let release = release(&vm);
    // It powers off by itself.
    let _ = vm.stop().await;
    Ok((Guest::new(&release, Kernel::Release, &version), said))
}

async fn result_on_console(vm: &Vm) -> Result<Figures> {
    loop {
        let lines = vm.console().tail(usize::MAX);
        if let Some(figures) = lines.iter().find_map(|line| serde_json::from_str(line.trim()).ok())
        {
            return Ok(figures);
        }
        if vm.ended().is_some() {
            return Err(said_nothing(vm));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn said_nothing(vm: &Vm) -> BenchError {
    let last = vm.console().tail(5).join("; ");
    BenchError::Workload { program: "netbench".to_owned(), reason: last }
}

/// What `uname -r` has printed.
fn release(vm: &Vm) -> String {
    let lines = vm.console().tail(usize::MAX);
    let release = lines.iter().map(|line| line.trim()).rev().find(|line| {
        line.split('.').count() == 3 && line.chars().all(|c| c.is_ascii_digit() || c == '.')
    });
    release.unwrap_or("unknown").to_owned()
}

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

/// Something that is measured.
struct Quantity {
    /// The name of its target.
    name: &'static str,
    what: &'static str,
    value: fn(&Figures) -> f64,
    /// Whether more of it is better.
    is_rate: bool,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity {
        name: "connect",
        what: "time to connect",
        value: |figures| figures.connect_ns as f64,
        is_rate: false,
    },
    Quantity {
        name: "latency",
        what: "round trip of a byte",
        value: |figures| figures.round_trip_ns as f64,
        is_rate: false,
    },
    Quantity {
        name: "sent",
        what: "bytes sent per second",
        value: |figures| figures.sent_bytes_per_second,
        is_rate: true,
    },
    Quantity {
        name: "received",
        what: "bytes received per second",
        value: |figures| figures.received_bytes_per_second,
        is_rate: true,
    },
];

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        Table::of(
            records,
            by_method(records),
            &[
                Column::common("network", |line| line.header.method.clone()),
                Column::count("n"),
                Column::median("connect us", |line| line.figures.connect_ns as f64 / 1e3),
                Column::median("round trip us", |line| line.figures.round_trip_ns as f64 / 1e3),
                Column::quartiles("quartiles", |line| line.figures.round_trip_ns as f64 / 1e3),
                Column::median("sent MiB/s", |line| mib(line.figures.sent_bytes_per_second as u64)),
                Column::quartiles("quartiles", |line| {
                    mib(line.figures.sent_bytes_per_second as u64)
                }),
                Column::median("received MiB/s", |line| {
                    mib(line.figures.received_bytes_per_second as u64)
                }),
                Column::quartiles("quartiles", |line| {
                    mib(line.figures.received_bytes_per_second as u64)
                }),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for Quantity { name, what, value, is_rate } in QUANTITIES {
            let of = |method| of_method(records, method).map(|line| value(&line.figures));
            // More is better in each of them.
            let ratio = match is_rate {
                true => Estimate::ratio(of(INSTANCE), of(PLAIN)),
                false => Estimate::ratio(of(PLAIN), of(INSTANCE)),
            };
            assessments.add(
                name,
                format!("{what}, an instance compared with QEMU's network"),
                ratio,
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let panel = |title: &str, y: &str, value: fn(&Figures) -> f64| Panel {
            title: title.to_owned(),
            x: String::new(),
            y: y.to_owned(),
            categories: vec![String::new()],
            series: Series::of_methods(&methods, |method| {
                vec![Spread::of(of_method(records, method).map(|line| value(&line.figures)))]
            }),
            joined: false,
            logarithmic: false,
        };
        Chart {
            title: "A server reached from a VM".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("Time to connect", "us", |figures| figures.connect_ns as f64 / 1e3),
                panel("Round trip of a byte", "us", |figures| figures.round_trip_ns as f64 / 1e3),
                panel("Sent", "MiB/s", |figures| mib(figures.sent_bytes_per_second as u64)),
                panel("Received", "MiB/s", |figures| mib(figures.received_bytes_per_second as u64)),
            ],
            foot: "instance: in an instance, with each connection judged. plain: the same program alone in a VM \
                   with QEMU's user network. Medians and quartiles over boots."
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::assess,
        record::tests::{header, repeated},
        report::Verdict,
    };

    #[test]
    fn more_is_better_in_each_target() {
        let line = |method, factor: f64| Measured {
            header: header("network", method, 0),
            figures: Figures {
                connect_ns: (1000.0 / factor) as u64,
                round_trip_ns: (500.0 / factor) as u64,
                sent_bytes_per_second: 1e6 * factor,
                received_bytes_per_second: 2e6 * factor,
            },
        };
        let verdicts = |factor| {
            let records = repeated(&[line(PLAIN, 1.0), line(INSTANCE, factor)]);
            let assessed = assess::<Arguments>(&records);
            assert!(Arguments::plot(&records).svg().unwrap().contains("plain"));
            assert!(Arguments::table(&records).to_string().contains("instance"));
            assessed.iter().map(|one| one.verdict()).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(0.95), [Verdict::Met; 4]);
        assert_eq!(verdicts(0.5), [Verdict::Missed; 4]);
    }
}
