//! One VM, from its start to its end.

use crate::{
    Accelerator, AgentClient, Console, CpuTimes, GuestMemory, MemoryBackend, PartitionLayout,
    Resident, Resize, Result, VmConfig, VmError,
    backend::{self, Backend, Device, Event, HostMemory, RunState, Started},
    fate::Fate,
    measure,
    resize::{self, Asked},
};
use serde::{Deserialize, Serialize};
use std::{
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

/// How often the VMM is asked whether it is well.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// A running VM. Dropping it kills it.
pub struct Vm {
    shared: Arc<Shared>,
    agent: Option<AgentClient>,
    memory: HostMemory,
}

/// What the VM's handle and its supervisor share.
struct Shared {
    config: VmConfig,
    accelerator: Accelerator,
    backend: Box<dyn Backend>,
    console: Console,
    fate: Fate,
    /// Whether its end is wanted.
    stopping: AtomicBool,
    /// By device; the first is the balloon's, where there is one.
    asked: Vec<Asked>,
    started: Instant,
}

/// How far a VM has come in starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootStep {
    /// The accelerator is chosen.
    Accelerator(Accelerator),
    /// The VMM runs (its name and version) and the guest's processors with it.
    Started(String),
    /// The guest's kernel has written its first line on the console.
    Kernel,
    /// The agent has opened the channel.
    AgentUp,
    /// The agent answers, and the memory to start with is plugged.
    Ready(Duration),
}

/// A VM's memory at one moment, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// What the guest was asked to have, base included.
    pub asked_bytes: u64,
    /// What it has, base included.
    pub plugged_bytes: u64,
    /// What the host has behind all of it.
    pub resident: Resident,
    /// What the host has behind the part that comes and goes (of a balloon or nothing: all of it).
    pub device_resident: Resident,
}

impl Vm {
    /// Starts a VM and waits until its agent answers (unless the configuration says it has none).
    pub async fn start(config: VmConfig) -> Result<Self> {
        Self::start_with(config, |_| {}).await
    }

    /// As [`Vm::start`], and reports each step.
    pub async fn start_with(config: VmConfig, mut report: impl FnMut(BootStep)) -> Result<Self> {
        config.check()?;
        let choice = config.accelerator;
        let accelerator = tokio::task::spawn_blocking(move || Accelerator::choose(choice))
            .await
            .map_err(|e| VmError::system("the accelerator cannot be probed", e))??;
        tracing::info!(kind = %accelerator.kind, reason = accelerator.reason, "accelerator");
        report(BootStep::Accelerator(accelerator.clone()));
        let initial: u64 = config.devices().iter().map(|device| device.initial_bytes).sum();
        check_host_memory(config.boot_bytes() + initial)?;

        let started = Instant::now();
        let Started { backend, events, console, channel } =
            backend::start(&config, &accelerator).await?;
        report(BootStep::Started(backend.version().to_owned()));
        let initial = match config.memory {
            GuestMemory::Balloon { .. } => vec![Asked::new(config.boot_bytes())],
            _ => config.devices().iter().map(|device| Asked::new(device.initial_bytes)).collect(),
        };
        let shared = Arc::new(Shared {
            config,
            accelerator,
            backend,
            console,
            fate: Fate::new(),
            stopping: AtomicBool::new(false),
            asked: initial,
            started,
        });
        let (channel_open, open) = watch::channel(false);
        tokio::spawn(supervise(shared.clone(), events, channel_open));
        let mut vm = Self { memory: HostMemory::default(), agent: None, shared };
        vm.memory = vm.shared.fate.guard(vm.shared.backend.memory()).await?;
        if vm.config().agent {
            vm.await_agent(channel, open, &mut report).await?;
            vm.settle().await?;
        }
        report(BootStep::Ready(started.elapsed()));
        Ok(vm)
    }

    /// Waits until the agent has opened the channel and answers.
    async fn await_agent(
        &mut self,
        channel: tokio::net::UnixStream,
        mut open: watch::Receiver<bool>,
        report: &mut impl FnMut(BootStep),
    ) -> Result<()> {
        let shared = self.shared.clone();
        let limit = shared.config.timeouts.boot;
        let boot = async {
            let mut lines = shared.console.listen();
            if shared.console.tail(1).is_empty() {
                tokio::select! {
                    _ = lines.recv() => {}
                    _ = open.wait_for(|open| *open) => {}
                }
            }
            report(BootStep::Kernel);
            let _ = open.wait_for(|open| *open).await;
            report(BootStep::AgentUp);
            let agent =
                AgentClient::connect(channel, shared.fate.clone(), shared.config.timeouts.call)
                    .await?;
            check_version(&agent.info().await?.agent_version)?;
            Ok(agent)
        };
        let late = || VmError::AgentLate { within: limit, console: shared.console.last_line() };
        let agent = shared
            .fate
            .guard(async {
                let remaining = limit.saturating_sub(shared.started.elapsed());
                tokio::time::timeout(remaining, boot).await.map_err(|_| late())?
            })
            .await?;
        self.agent = Some(agent);
        Ok(())
    }

    /// Waits until the memory to start with is there.
    async fn settle(&self) -> Result<()> {
        match self.config().memory {
            GuestMemory::Balloon { .. } => self.resize(0).await.map(drop),
            GuestMemory::Partitions(layout) => {
                self.check_partitions(layout).await?;
                self.resize(layout.shared_bytes).await.map(drop)
            }
            _ => {
                for (index, device) in (0u16..).zip(self.config().devices()) {
                    self.resize_device(Device::VirtioMem(index), device.initial_bytes).await?;
                }
                Ok(())
            }
        }
    }

    /// The guest's kernel must have understood the layout as it was meant.
    async fn check_partitions(&self, layout: PartitionLayout) -> Result<()> {
        let wrong = |what: String| {
            let said = self.console().tail(usize::MAX);
            let said = said
                .iter()
                .rev()
                .find_map(|line| line.find("squeezy:").map(|at| line[at..].to_owned()));
            Err(VmError::NoPartitions(match said {
                Some(line) => format!("{what}; its log says: {line}"),
                None => format!("{what}; was it built with CONFIG_SQUEEZY?"),
            }))
        };
        let Some(squeezy) = self.agent()?.memory().await?.squeezy else {
            return wrong("it runs as a stock kernel".to_owned());
        };
        let count = squeezy.partitions.len();
        if squeezy.partition_size_bytes != layout.partition_bytes
            || count != usize::from(layout.partitions)
        {
            return wrong(format!("it has {count} of {} bytes", squeezy.partition_size_bytes));
        }
        Ok(())
    }

    /// What it was started with.
    pub fn config(&self) -> &VmConfig {
        &self.shared.config
    }

    /// What runs its code, and why.
    pub fn accelerator(&self) -> &Accelerator {
        &self.shared.accelerator
    }

    /// The VMM's name and version.
    pub fn vmm_version(&self) -> &str {
        self.shared.backend.version()
    }

    /// The VMM's process id.
    pub fn process_id(&self) -> u32 {
        self.shared.backend.process().id()
    }

    /// The guest's console.
    pub fn console(&self) -> &Console {
        &self.shared.console
    }

    /// The agent; an error in a VM that was started without one.
    pub fn agent(&self) -> Result<&AgentClient> {
        self.agent
            .as_ref()
            .ok_or_else(|| VmError::AgentLost("the VM was started without one".to_owned()))
    }

    /// Why the VM has ended, if it has.
    pub fn ended(&self) -> Option<VmError> {
        self.shared.fate.known()
    }

    /// Waits until the VM has ended, and says why.
    pub async fn wait(&self) -> VmError {
        self.shared.fate.sealed().await
    }

    /// Asks the guest to have `bytes` of its region, shared partition included (of a balloon: bytes
    /// beside the base), and waits until it has.
    pub async fn resize(&self, bytes: u64) -> Result<Resize> {
        self.resize_device(self.device()?, bytes).await
    }

    /// As [`Vm::resize`], of any device.
    ///
    /// When the guest does not follow in time the error carries its reason, and the request stands:
    /// the guest goes on with it when it can. A later resize of the same device overrides it.
    pub async fn resize_device(&self, device: Device, bytes: u64) -> Result<Resize> {
        self.resize_by(device, || bytes).await
    }

    /// As [`Vm::resize_device`], to what `target` says at the moment of the request. When several
    /// change what it says, whoever asks last asks for the sum of all changes.
    pub(crate) async fn resize_by(
        &self,
        device: Device,
        target: impl Fn() -> u64,
    ) -> Result<Resize> {
        let bytes = target();
        let shared = &*self.shared;
        let base = shared.config.base_bytes;
        let (index, region, offset) = match (device, shared.config.memory) {
            (Device::Balloon, GuestMemory::Balloon { extra_bytes }) => (0, extra_bytes, base),
            (Device::VirtioMem(index), _) => {
                let devices = shared.config.devices();
                let device = devices
                    .get(usize::from(index))
                    .ok_or(VmError::NotResizable("it has no such device"))?;
                (index.into(), device.region_bytes, 0)
            }
            _ => return Err(VmError::NotResizable("it has no balloon")),
        };
        if bytes > region {
            return Err(VmError::RegionTooSmall { asked: bytes, region });
        }
        let asked = &shared.asked[index];
        let work = async {
            check_host_memory((bytes + offset).saturating_sub(asked.bytes()))?;
            let target = || target().min(region) + offset;
            let limit = shared.config.timeouts.resize;
            resize::resize(&*shared.backend, self.agent.as_ref(), device, (asked, target), limit)
                .await
        };
        let mut done = shared.fate.guard(work).await.map_err(|error| match error {
            VmError::Resize { requested, plugged, after, reason } => VmError::Resize {
                requested: requested.saturating_sub(offset),
                plugged: plugged.saturating_sub(offset),
                after,
                reason,
            },
            other => other,
        })?;
        for bytes in [&mut done.before_bytes, &mut done.requested_bytes, &mut done.plugged_bytes] {
            *bytes = bytes.saturating_sub(offset);
        }
        Ok(done)
    }

    /// Asks for a size without waiting for it, to take back a request that has failed.
    pub(crate) async fn withdraw(&self, device: Device, target: impl Fn() -> u64) {
        let offset = if device == Device::Balloon { self.config().base_bytes } else { 0 };
        let index = if let Device::VirtioMem(index) = device { index.into() } else { 0 };
        if let Some(asked) = self.shared.asked.get(index) {
            let _ = asked.send(&*self.shared.backend, device, || target() + offset).await;
        }
    }

    /// The device that [`Vm::resize`] means.
    pub(crate) fn device(&self) -> Result<Device> {
        match self.config().memory {
            GuestMemory::Fixed { .. } => Err(VmError::NotResizable("it is fixed")),
            GuestMemory::Balloon { .. } => Ok(Device::Balloon),
            _ => Ok(Device::VirtioMem(0)),
        }
    }

    /// What is asked for, plugged and resident now.
    pub async fn memory(&self) -> Result<MemoryUse> {
        let shared = &*self.shared;
        let asked: u64 = shared.asked.iter().map(Asked::bytes).sum();
        let mut plugged = 0;
        let work = async {
            match shared.config.memory {
                GuestMemory::Balloon { .. } => {
                    plugged = shared.backend.plugged(Device::Balloon).await?
                }
                _ => {
                    for index in 0..self.memory.devices.len() {
                        let index = u16::try_from(index).unwrap_or(u16::MAX);
                        plugged += shared.backend.plugged(Device::VirtioMem(index)).await?;
                    }
                }
            }
            self.resident().await
        };
        let (base, devices) = shared.fate.guard(work).await?;
        let ballooned = matches!(shared.config.memory, GuestMemory::Balloon { .. });
        let boot_bytes = if ballooned { 0 } else { shared.config.boot_bytes() };
        let mut all = base;
        all += devices;
        Ok(MemoryUse {
            asked_bytes: boot_bytes + asked,
            plugged_bytes: boot_bytes + plugged,
            resident: all,
            device_resident: if self.memory.devices.is_empty() { base } else { devices },
        })
    }

    /// What the host has behind the base and behind the devices.
    async fn resident(&self) -> Result<(Resident, Resident)> {
        let process = self.process_id();
        let mut ranges = vec![self.memory.base.clone()];
        ranges.extend(self.memory.devices.iter().cloned());
        let private = self.config().memory_backend == MemoryBackend::Ram;
        let look = move || measure::resident(process, &ranges, private);
        let sums =
            tokio::task::spawn_blocking(look).await.map_err(|e| VmError::system("smaps", e))??;
        let mut devices = Resident::default();
        sums[1..].iter().for_each(|sum| devices += *sum);
        Ok((sums[0], devices))
    }

    /// CPU time that the VMM's threads have used.
    pub fn cpu_times(&self) -> Result<CpuTimes> {
        measure::cpu_times(self.process_id(), |name| self.shared.backend.thread_role(name))
    }

    /// Ends the VM: the guest powers off, or is killed when it does not in time. Returns when its
    /// process is gone.
    pub async fn stop(self) -> Result<()> {
        let shared = &*self.shared;
        shared.stopping.store(true, Ordering::SeqCst);
        let process = shared.backend.process();
        if let (Some(agent), None) = (&self.agent, shared.fate.known()) {
            let polite = async {
                let _ = agent.shutdown().await;
                process.exited().await
            };
            let _ = tokio::time::timeout(shared.config.timeouts.stop, polite).await;
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), shared.backend.quit()).await;
        shared.fate.seal(VmError::Stopped);
        if process.end(Duration::from_secs(10)).await {
            Ok(())
        } else {
            Err(VmError::System {
                what: "the VMM's process does not end",
                reason: format!("process {} hangs in the kernel", process.id()),
            })
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.shared.fate.seal(VmError::Stopped);
        self.shared.backend.process().kill();
    }
}

/// Watches the VMM until it has ended, and seals the VM's fate.
async fn supervise(
    shared: Arc<Shared>,
    mut events: mpsc::Receiver<Event>,
    channel_open: watch::Sender<bool>,
) {
    let process = shared.backend.process();
    let mut ended = None;
    let mut tick = tokio::time::interval(WATCH_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            status = process.exited() => {
                // The console's and the monitor's last words are on their way.
                tokio::time::sleep(Duration::from_millis(50)).await;
                while let Ok(event) = events.try_recv() {
                    if let Event::Ended { restart } = event {
                        ended = Some(restart);
                    }
                }
                return shared.fate.seal(shared.reason_of(status, ended));
            }
            line = shared.console.panicked() => {
                return shared.fate.seal(VmError::Panicked(line.to_string()));
            }
            Some(event) = events.recv() => match event {
                Event::Channel { open } => {
                    if !open && *channel_open.borrow() && !shared.stopping.load(Ordering::SeqCst) {
                        let lost = VmError::AgentLost("it has closed the channel, or its process has ended".to_owned());
                        let fate = shared.fate.clone();
                        tokio::spawn(async move { fate.seal_later(lost).await });
                    }
                    channel_open.send_replace(open);
                }
                Event::Ended { restart } => ended = Some(restart),
                Event::Paused => shared.look(&ended).await,
            },
            _ = tick.tick(), if shared.fate.known().is_none() => shared.look(&ended).await,
        }
    }
}

impl Shared {
    /// Asks the VMM how the VM is.
    async fn look(&self, ended: &Option<bool>) {
        match self.backend.run_state(self.config.timeouts.hang).await {
            // A guest that has ended is stopped until the VMM exits.
            Ok(RunState::Paused(reason)) if ended.is_none() => {
                self.fate.seal(VmError::Paused(reason))
            }
            Err(error @ VmError::Hung(_)) => self.fate.seal(error),
            // When the monitor is gone, so is the process, in a moment.
            Ok(_) | Err(_) => {}
        }
    }

    /// Why the VMM's process has ended.
    fn reason_of(&self, status: ExitStatus, ended: Option<bool>) -> VmError {
        if self.stopping.load(Ordering::SeqCst) {
            return VmError::Stopped;
        }
        if let Some(line) = self.console.panic() {
            return VmError::Panicked(line.to_string());
        }
        match ended {
            Some(restart) if status.success() => VmError::PoweredOff {
                what: if restart { "restarted" } else { "powered off" },
                console: self.console.last_line(),
            },
            _ => VmError::Died { how: describe(status), said: self.backend.said() },
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(9)) => {
            "killed by signal 9; when nobody did that, the host ran out of memory".to_owned()
        }
        (_, Some(signal)) => format!("killed by signal {signal}"),
        (code, None) => format!("exit status {}", code.unwrap_or_default()),
    }
}

/// The host must have what is going to be used on top.
fn check_host_memory(needed: u64) -> Result<()> {
    if needed == 0 {
        return Ok(());
    }
    let available = measure::available_bytes()?;
    if needed > available { Err(VmError::HostMemory { needed, available }) } else { Ok(()) }
}

/// Host and guest come from one source; their versions' first two numbers must be the same.
fn check_version(guest: &str) -> Result<()> {
    let host = env!("CARGO_PKG_VERSION");
    let first_two =
        |version: &str| -> Vec<String> { version.split('.').take(2).map(str::to_owned).collect() };
    if first_two(guest) == first_two(host) {
        Ok(())
    } else {
        Err(VmError::AgentVersion { guest: guest.to_owned(), host })
    }
}
