//! Stock QEMU on the machine type q35.

mod command;
mod monitor;
mod trace;

use crate::{
    Result, VmError,
    accelerator::Accelerator,
    backend::{
        Backend, BoxFuture, Device, DeviceRequests, Event, HostMemory, RunState, SizeChange,
        Started,
    },
    config::{GuestMemory, VmConfig},
    console::{Console, lines},
    measure::ThreadRole,
    process::Process,
};
use command::{device_id, device_index};
use monitor::Monitor;
use qapi::qmp;
use std::{
    collections::VecDeque,
    fs::File,
    ops::Range,
    os::fd::{AsRawFd, OwnedFd},
    os::unix::net::UnixStream as StdUnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    net::{UnixStream, unix::pipe},
    sync::{broadcast, mpsc::Receiver},
};
use trace::RequestCounter;

/// Lines of standard error that are kept.
const KEPT_LINES: usize = 20;
/// Guest-physical address at which RAM always is.
const LOW_ADDRESS: u64 = 0;

struct Qemu {
    process: Process,
    monitor: Monitor,
    version: String,
    base_bytes: u64,
    regions: Vec<u64>,
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
pub(super) async fn start(config: &VmConfig, accelerator: &Accelerator) -> Result<Started> {
    let (monitor, monitor_end) = pair()?;
    let (channel, channel_end) = pair()?;
    let command = command::command(
        config,
        accelerator.kind,
        monitor_end.as_raw_fd(),
        channel_end.as_raw_fd(),
    );
    tracing::debug!(?command, "starting QEMU");
    let log = config
        .console_log
        .as_ref()
        .map(File::create)
        .transpose()
        .map_err(|e| VmError::system("the console's log file cannot be written", e))?;
    let spawned = tokio::task::spawn_blocking(move || {
        Process::spawn(command, vec![monitor_end, channel_end])
    })
    .await
    .map_err(|e| VmError::system("the VMM cannot be started", e))??;

    let console = Console::new();
    tokio::spawn(console.clone().follow(reader(spawned.stdout.into())?, log));
    let stderr = Arc::new(Mutex::new(Stderr::default()));
    let said = tokio::spawn(follow_stderr(reader(spawned.stderr.into())?, stderr.clone()));

    let process = spawned.process;
    let limit = config.timeouts.start;
    let opened = tokio::select! {
        opened = tokio::time::timeout(limit, set_up(monitor, config)) => match opened {
            Ok(opened) => opened,
            Err(_) => Err(VmError::Start(format!("it did not answer within {} s", limit.as_secs()))),
        },
        _ = process.exited() => Err(VmError::Start("it said nothing".to_owned())),
    };
    let (monitor, events, version) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // Its last words come with its end, and say more than that it has ended.
            process.end(Duration::from_secs(5)).await;
            let _ = tokio::time::timeout(Duration::from_secs(1), said).await;
            let said = lock(&stderr).text();
            return Err(if said.is_empty() { error } else { VmError::Start(said) });
        }
    };
    let backend = Qemu {
        process,
        monitor,
        version,
        base_bytes: config.boot_bytes(),
        regions: config.devices().iter().map(|device| device.region_bytes).collect(),
        stderr,
        counts_requests: config.count_device_requests,
    };
    Ok(Started { backend: Box::new(backend), events, console, channel })
}

/// Connects to QEMU, which has started with the machine stopped, and lets the machine run.
async fn set_up(
    socket: UnixStream,
    config: &VmConfig,
) -> Result<(Monitor, Receiver<Event>, String)> {
    let opened = Monitor::open(socket).await.map_err(|e| VmError::Start(e.to_string()))?;
    let monitor = &opened.0;
    if matches!(config.memory, GuestMemory::Partitions(_)) {
        // QEMU lets a guest plug no further than a little beyond the requested size. Slots of
        // partitions start at whole memory blocks, so with sizes that are none the last slots would
        // be out of reach. The usable part never shrinks while the machine runs, so asking for all
        // of it once, before the guest can see it, is enough.
        for (index, device) in (0u16..).zip(&config.devices()) {
            monitor.request_size(index, device.region_bytes).await?;
            monitor.request_size(index, device.initial_bytes).await?;
        }
    }
    monitor.run(qmp::cont {}).await?;
    Ok(opened)
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

    fn request(&self, device: Device, bytes: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match device {
                Device::VirtioMem(index) => self.monitor.request_size(index, bytes).await,
                Device::Balloon => {
                    let value = i64::try_from(bytes).unwrap_or(i64::MAX);
                    self.monitor.run(qmp::balloon { value }).await.map(drop)
                }
            }
        })
    }

    fn plugged(&self, device: Device) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            match device {
                Device::VirtioMem(index) => {
                    let command =
                        qmp::qom_get { path: device_id(index), property: "size".to_owned() };
                    let value = self.monitor.run(command).await?;
                    value.as_u64().ok_or_else(|| VmError::Command {
                        command: "qom-get size".to_owned(),
                        reason: format!("{value} is no size"),
                    })
                }
                Device::Balloon => {
                    let actual = self.monitor.run(qmp::query_balloon {}).await?.actual;
                    Ok(u64::try_from(actual).unwrap_or_default())
                }
            }
        })
    }

    fn size_changes(&self) -> broadcast::Receiver<SizeChange> {
        self.monitor.size_changes()
    }

    fn reports_at_once(&self, device: Device) -> bool {
        self.monitor.reports_at_once(device)
    }

    fn memory(&self) -> BoxFuture<'_, Result<HostMemory>> {
        Box::pin(async move {
            let mut devices = vec![0..0; self.regions.len()];
            if !devices.is_empty() {
                for device in self.monitor.run(qmp::query_memory_devices {}).await? {
                    let qmp::MemoryDeviceInfo::virtio_mem(data) = device else { continue };
                    let id = data.data.id.unwrap_or_default();
                    let Some(index) = device_index(&id).map(usize::from) else { continue };
                    if let (Some(range), Some(bytes)) =
                        (devices.get_mut(index), self.regions.get(index))
                    {
                        let address = data.data.memaddr;
                        *range = self.host_range(address, *bytes).await?;
                    }
                }
            }
            Ok(HostMemory { base: self.host_range(LOW_ADDRESS, self.base_bytes).await?, devices })
        })
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

    fn device_requests(&self) -> BoxFuture<'_, Option<DeviceRequests>> {
        Box::pin(async move {
            if !self.counts_requests {
                return None;
            }
            // QEMU wrote the events before it answered the monitor; the reader may lag behind.
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

impl Qemu {
    /// Where `bytes` of guest-physical memory from `address` on are in QEMU's address space.
    async fn host_range(&self, address: u64, bytes: u64) -> Result<Range<u64>> {
        let answer = self.monitor.human(format!("gpa2hva {address:#x}")).await?;
        let start = answer
            .trim()
            .rsplit_once("is 0x")
            .and_then(|(_, number)| u64::from_str_radix(number, 16).ok())
            .ok_or_else(|| VmError::Measure {
                what: "the address of the guest's memory".to_owned(),
                reason: answer,
            })?;
        Ok(start..start + bytes)
    }
}

impl Stderr {
    /// The kept lines in one, without the program's name and time stamps.
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

fn lock(stderr: &Mutex<Stderr>) -> MutexGuard<'_, Stderr> {
    stderr.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connected pair: the host's end, and QEMU's, which only QEMU inherits. Nothing is left in the
/// file system, and nobody else can connect.
fn pair() -> Result<(UnixStream, OwnedFd)> {
    let fail = |e| VmError::system("a socket cannot be made", e);
    let (ours, theirs) = StdUnixStream::pair().map_err(fail)?;
    ours.set_nonblocking(true).map_err(fail)?;
    Ok((UnixStream::from_std(ours).map_err(fail)?, theirs.into()))
}

fn reader(fd: OwnedFd) -> Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(fd)
        .map_err(|e| VmError::system("the VMM's output cannot be read", e))
}
