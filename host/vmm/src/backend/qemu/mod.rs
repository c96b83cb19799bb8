//! Stock QEMU on the machine type q35.

mod accelerator;
mod command;
mod monitor;
pub(crate) mod options;
mod probe;
mod trace;

use crate::{
    Result, VmError,
    accelerator::Accelerator,
    backend::{
        Backend, BoxFuture, Device, DeviceRequests, Devices, Event, GuestEnd, RunState, SizeChange,
        Started,
    },
    config::VmConfig,
    console::{Console, lines},
    cpu_share::Member,
    host_memory::{HostMemory, MemoryFile},
    measure::ThreadRole,
    memory::Layout,
    memory_backend::MemoryBackend,
    mutex::lock,
    network::{self, Uplink},
    process::Process,
};
use command::Inherited;
use monitor::Monitor;
use options::QemuOptions;
use qapi::qmp;
use std::{
    collections::VecDeque,
    fs::File,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    os::unix::net::UnixStream as StdUnixStream,
    process::ExitStatus,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};
use tokio::{
    net::{UnixStream, unix::pipe},
    sync::{broadcast, mpsc::Receiver as EventReceiver},
};
use trace::RequestCounter;

pub(crate) use accelerator::accelerator;
pub use probe::probe_qemu;

/// What to do if it is not installed.
const INSTALL: &str = "install it with `apt install qemu-system-x86`, or name the program to use";
/// Lines of standard error to keep.
const KEPT_LINES: usize = 20;

struct Qemu {
    process: Process,
    /// Of whose processors it uses a share.
    _member: Option<Member>,
    monitor: Monitor,
    version: String,
    stderr: Arc<Mutex<Stderr>>,
    counts_requests: bool,
}

/// What QEMU has written to its standard error.
#[derive(Default)]
struct Stderr {
    lines: VecDeque<String>,
    requests: RequestCounter,
}

/// Starts QEMU and waits until its monitor answers.
pub(crate) async fn start(
    options: &QemuOptions,
    config: &VmConfig,
    accelerator: &Accelerator,
) -> Result<Started> {
    let (monitor, monitor_end) = pair()?;
    let (channel, channel_end) = pair()?;
    let layout = config.layout();
    let files = memory_files(config, &layout)?;
    let memory_ends: Vec<_> = files
        .iter()
        .map(MemoryFile::descriptor)
        .collect::<Result<_, _>>()
        .map_err(cannot_create_memory)?;
    let tap = match &config.network {
        Some(Uplink::Tap(name)) => {
            Some(name.open().map_err(|error| VmError::Config(error.to_string()))?)
        }
        _ => None,
    };
    let pool = config.pool.as_ref().map(|pool| pool.as_fd().try_clone_to_owned()).transpose();
    let pool = pool.map_err(|e| VmError::system("the drive for layers cannot be used", e))?;
    let taps = config.taps.iter().map(|tap| tap.try_clone()).collect::<Result<Vec<_>, _>>();
    let taps = taps.map_err(|e| VmError::system("the tap devices cannot be used", e))?;
    let inherited = Inherited {
        monitor: monitor_end.as_raw_fd(),
        channel: channel_end.as_raw_fd(),
        memory: memory_ends.iter().map(AsRawFd::as_raw_fd).collect(),
        tap: tap.as_ref().map(AsRawFd::as_raw_fd),
        pool: pool.as_ref().map(AsRawFd::as_raw_fd),
        taps: taps.iter().map(AsRawFd::as_raw_fd).collect(),
    };
    let own = [inherited.monitor, inherited.channel];
    let command = command::command(options, config, accelerator.kind, &inherited);
    tracing::debug!(?command, "starting QEMU");
    let log = config
        .console_log
        .as_ref()
        .map(File::create)
        .transpose()
        .map_err(|e| VmError::system("the console's log file cannot be written", e))?;
    let (calls, confined) = mpsc::sync_channel(1);
    let is_judged = matches!(config.network, Some(Uplink::Judged(_)));
    let spawned = tokio::task::spawn_blocking(move || {
        let ends = [monitor_end, channel_end].into_iter().chain(memory_ends);
        let fds = ends.chain(tap).chain(pool).chain(taps).collect();
        let confine = move || match is_judged {
            true => calls.send(network::confine(own)?).map_err(std::io::Error::other),
            false => Ok(()),
        };
        Process::spawn(command, fds, confine, INSTALL)
    })
    .await
    .map_err(|e| VmError::system("the VMM cannot be started", e))??;

    let console = Console::new();
    let output = reader(spawned.stdout.into())?;
    tokio::spawn(console.clone().follow(config.name.clone(), output, log));
    let stderr = Arc::new(Mutex::new(Stderr::default()));
    let said = tokio::spawn(follow_stderr(reader(spawned.stderr.into())?, stderr.clone()));

    let process = spawned.process;
    let member = config.cpu_share.as_ref().map(|share| share.join(process.id())).transpose();
    let member = member.map_err(|e| VmError::system("the VM's processors cannot be shared", e))?;
    let cannot_judge = |error| VmError::system("the VM's network cannot be supervised", error);
    if let (Some(Uplink::Judged(network)), Ok(calls)) = (&config.network, confined.try_recv()) {
        let (openable, counters) = (config.openable.clone(), config.network_counters.clone());
        let share = config.cpu_share.clone();
        network.judge(calls, &process, openable, counters, share).map_err(cannot_judge)?;
    }
    let limit = config.timeouts.start;
    let opened = tokio::select! {
        opened = tokio::time::timeout(limit, set_up(monitor, &layout)) => match opened {
            Ok(opened) => opened,
            Err(_) => Err(VmError::Start(format!("it did not answer within {} s", limit.as_secs()))),
        },
        _ = process.exited() => Err(VmError::Start("it printed nothing".to_owned())),
    };
    let Opened { monitor, events, version, mut memory } = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // What QEMU prints as it exits says more than that it has exited.
            process.end(Duration::from_secs(5)).await;
            let _ = tokio::time::timeout(Duration::from_secs(1), said).await;
            let said = lock(&stderr).text();
            return Err(if said.is_empty() { error } else { VmError::Start(said) });
        }
    };
    memory.set_files(files);
    let counts_requests = config.count_device_requests;
    let backend = Qemu { process, _member: member, monitor, version, stderr, counts_requests };
    Ok(Started { backend: Arc::new(backend), events, console, memory, channel })
}

/// The files of the base memory and of each region; none if memory is private.
fn memory_files(config: &VmConfig, layout: &Layout) -> Result<Vec<MemoryFile>> {
    if config.memory_backend == MemoryBackend::Ram {
        return Ok(Vec::new());
    }
    let regions = layout.regions.iter().map(|region| region.region_bytes);
    let sizes = std::iter::once(layout.boot_bytes).chain(regions);
    sizes
        .map(|bytes| MemoryFile::new(&config.name, bytes))
        .collect::<Result<_, _>>()
        .map_err(cannot_create_memory)
}

fn cannot_create_memory(error: std::io::Error) -> VmError {
    VmError::system("the guest's memory cannot be created", error)
}

/// What QEMU reports once it answers.
struct Opened {
    monitor: Monitor,
    events: EventReceiver<Event>,
    version: String,
    memory: HostMemory,
}

/// Connects to QEMU, which was started with the machine stopped, and starts the machine.
async fn set_up(socket: UnixStream, layout: &Layout) -> Result<Opened> {
    let (monitor, events, version) = Monitor::open(socket, layout.kept_bytes)
        .await
        .map_err(|e| VmError::Start(e.to_string()))?;
    // QEMU lets a guest plug only slightly beyond the requested size. A guest that plugs in any
    // order would not reach the end of its region. The usable part of the region never shrinks
    // while the machine runs, so requesting all of it once, before the guest can see it, is enough.
    for (number, region) in (0u16..).zip(&layout.regions).filter(|(_, region)| region.any_order) {
        let device = Device::VirtioMem(number);
        monitor.request_size(device, region.region_bytes).await?;
        monitor.request_size(device, region.initial_bytes).await?;
    }
    let memory = monitor.host_memory(layout).await?;
    monitor.run(qmp::cont {}).await?;
    Ok(Opened { monitor, events, version, memory })
}

impl Backend for Qemu {
    fn version(&self) -> &str {
        &self.version
    }

    fn process(&self) -> &Process {
        &self.process
    }

    fn said(&self) -> String {
        lock(&self.stderr).text()
    }

    fn run_state(&self, limit: Duration) -> BoxFuture<'_, Result<RunState>> {
        Box::pin(async move {
            let status = self.monitor.run_within(qmp::query_status {}, limit).await?.status;
            Ok(match status {
                qmp::RunState::running | qmp::RunState::shutdown => RunState::Running,
                qmp::RunState::paused => RunState::Paused,
                other => RunState::Stopped(qapi::Enum::name(&other).to_owned()),
            })
        })
    }

    fn guest_end(&self, status: ExitStatus, reported: Option<GuestEnd>) -> Option<GuestEnd> {
        // QEMU reports both, and exits with success.
        reported.filter(|_| status.success())
    }

    fn thread_role(&self, name: &str) -> ThreadRole {
        if name.starts_with("CPU ") {
            ThreadRole::Vcpu
        } else if name.starts_with("qemu-system")
            || name.starts_with("IO ")
            || name.starts_with("worker")
        {
            ThreadRole::Device
        } else {
            ThreadRole::Other
        }
    }

    fn pause(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.monitor.run(qmp::stop {}).await.map(drop) })
    }

    fn resume(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.monitor.run(qmp::cont {}).await.map(drop) })
    }

    fn quit(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.monitor.run_within(qmp::quit {}, Duration::from_secs(1)).await.map(drop)
        })
    }
}

impl Devices for Qemu {
    fn request(&self, device: Device, bytes: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.monitor.request_size(device, bytes))
    }

    fn size(&self, device: Device) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.monitor.size(device))
    }

    fn size_changes(&self) -> broadcast::Receiver<SizeChange> {
        self.monitor.size_changes()
    }

    fn reports_at_once(&self, device: Device) -> bool {
        self.monitor.reports_at_once(device)
    }

    fn device_requests(&self, device: Device) -> BoxFuture<'_, Option<DeviceRequests>> {
        Box::pin(async move {
            // A balloon has one request per page, and logging them would take longer than executing
            // them.
            if !self.counts_requests || device == Device::Balloon {
                return None;
            }
            // QEMU wrote the events before it answered the monitor, but they may not have been read
            // yet.
            let mut before = lock(&self.stderr).requests.sum();
            loop {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let now = lock(&self.stderr).requests.sum();
                if now == before {
                    return Some(now);
                }
                before = now;
            }
        })
    }
}

impl Stderr {
    /// The kept lines joined into one, without the program's name and time stamps.
    fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

async fn follow_stderr(source: pipe::Receiver, stderr: Arc<Mutex<Stderr>>) {
    lines(source, |line| {
        let mut stderr = lock(&stderr);
        if stderr.requests.take(line) || line.is_empty() {
            return;
        }
        tracing::debug!(line, "QEMU says");
        let line = line.split_once("qemu-system-x86_64: ").map_or(line, |(_, rest)| rest);
        if stderr.lines.len() == KEPT_LINES {
            stderr.lines.pop_front();
        }
        stderr.lines.push_back(line.to_owned());
    })
    .await;
}

/// A connected pair of sockets: the host's end, and QEMU's, which only QEMU inherits. Nothing
/// appears in the file system, so nobody else can connect.
fn pair() -> Result<(UnixStream, OwnedFd)> {
    let fail = |e| VmError::system("a socket cannot be created", e);
    let (ours, theirs) = StdUnixStream::pair().map_err(fail)?;
    ours.set_nonblocking(true).map_err(fail)?;
    Ok((UnixStream::from_std(ours).map_err(fail)?, theirs.into()))
}

fn reader(fd: OwnedFd) -> Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(fd)
        .map_err(|e| VmError::system("the VMM's output cannot be read", e))
}
