//! From a configuration to a VM whose agent answers.

use super::{
    MOST_HANDS, Shared, Vm, memory::check_host_memory, supervisor::supervise, swept::Swept,
};
use crate::{
    Accelerator, AgentClient, Llfree, MemoryBackend, Result, VmConfig, VmError,
    agent::RunningTime,
    backend::{Started, start::start},
    fate::Fate,
    host_memory::{SHARED_HUGE_PAGES_ON, SharedHugePages},
    memory::Running,
    network::Uplink,
};
use std::{
    fmt,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::{Duration, Instant},
};
use tokio::{
    net::UnixStream,
    sync::{Semaphore, watch},
};

/// How far a VM has got in starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootStep {
    /// The accelerator has been chosen.
    Accelerator(Accelerator),
    /// The guest's memory is the VMM's own or in files, whose pages are huge or not by this setting of the host.
    Memory {
        /// Which of the two.
        backend: MemoryBackend,
        /// Whether pages of files are huge.
        are_huge: bool,
        /// The host's `shmem_enabled`.
        setting: String,
    },
    /// The VMM (its name and version) and the guest's processors are running.
    Started(String),
    /// The guest's kernel has written its first line to the console.
    Kernel,
    /// The agent has opened the channel.
    AgentUp,
    /// The VMM's emulator has crashed, with this error, and the VM boots once more.
    Crashed(VmError),
    /// The agent answers, and the initial memory is plugged.
    Ready(Duration),
}

impl BootStep {
    /// Whether whoever runs the host should do something about it: its emulator crashes; or memory was to be in files, by
    /// whatever is configured, and the host has only small pages for them. Private memory in its place is as good as it
    /// gets.
    pub fn is_trouble(&self) -> bool {
        let is_slow =
            matches!(self, Self::Memory { backend: MemoryBackend::Memfd, are_huge: false, .. });
        is_slow || matches!(self, Self::Crashed(_))
    }
}

impl fmt::Display for BootStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accelerator(Accelerator { kind, reason }) => {
                write!(f, "accelerator {kind}: {reason}")
            }
            Self::Memory { backend: MemoryBackend::Ram, are_huge: true, .. } => {
                f.write_str("memory ram: as configured")
            }
            Self::Memory { backend: MemoryBackend::Ram, are_huge: false, setting } => write!(
                f,
                "memory ram: shmem_enabled is {setting}. The host takes memory back without its guest after `{SHARED_HUGE_PAGES_ON}`"
            ),
            Self::Memory { backend: MemoryBackend::Memfd, are_huge: true, setting } => {
                write!(f, "memory memfd, with huge pages: shmem_enabled is {setting}")
            }
            Self::Memory { backend: MemoryBackend::Memfd, are_huge: false, setting } => write!(
                f,
                "memory memfd, with 4 KiB pages: shmem_enabled is {setting}. The host takes memory back many times \
                 faster after `{SHARED_HUGE_PAGES_ON}`"
            ),
            Self::Started(version) => write!(f, "{version} runs"),
            Self::Kernel => f.write_str("the guest's kernel boots"),
            Self::AgentUp => f.write_str("the agent is up"),
            Self::Crashed(error) => write!(f, "{error}: the VM boots once more"),
            Self::Ready(time) => write!(f, "the VM is ready after {:.1} s", time.as_secs_f64()),
        }
    }
}

impl Vm {
    /// Starts a VM and waits until its agent answers and its initial memory is plugged (unless the configuration says that it
    /// has no agent). If the VMM's emulator crashes while it is waited for, the VM is started once more.
    pub async fn start(config: VmConfig) -> Result<Self> {
        Self::start_with(config, |_| {}).await
    }

    /// Like [`Vm::start`], and reports each step.
    pub async fn start_with(config: VmConfig, mut report: impl FnMut(BootStep)) -> Result<Self> {
        config.check()?;
        let (vmm, choice) = (config.vmm.clone(), config.accelerator);
        let accelerator = tokio::task::spawn_blocking(move || vmm.accelerator(choice))
            .await
            .map_err(|e| VmError::system("the accelerator cannot be probed", e))??;
        tracing::info!(kind = %accelerator.kind, reason = accelerator.reason, "accelerator");
        report(BootStep::Accelerator(accelerator.clone()));
        let SharedHugePages { are_available: are_huge, setting } = SharedHugePages::of_host();
        report(BootStep::Memory { backend: config.memory_backend, are_huge, setting });
        let started = Instant::now();
        match Self::boot(config.clone(), accelerator.clone(), started, &mut report).await {
            Err(error) if accelerator.kind.emulates() && is_crash(&error) => {
                report(BootStep::Crashed(error));
                Self::boot(config, accelerator, started, &mut report).await
            }
            booted => booted,
        }
    }

    /// Starts a VM, within the time that it has from when it was `started` first.
    async fn boot(
        config: VmConfig,
        accelerator: Accelerator,
        started: Instant,
        report: &mut impl FnMut(BootStep),
    ) -> Result<Self> {
        check_host_memory(config.layout().start_bytes())?;
        let Started { backend, events, console, memory, channel } =
            start(&config, &accelerator).await?;
        report(BootStep::Started(backend.version().to_owned()));
        let reclaimer = Arc::new(OnceLock::new());
        let running = Running { devices: backend.clone(), reclaimer: reclaimer.clone() };
        let elastic = config.memory.start(&running);
        let shared = Arc::new(Shared {
            config,
            accelerator,
            backend,
            host_memory: memory,
            reclaimer,
            elastic,
            console,
            fate: Fate::new(),
            stopping: AtomicBool::new(false),
            paused: watch::Sender::new(false),
            condemned: Arc::default(),
            swept: Swept::default(),
            hands: Arc::new(Semaphore::new(MOST_HANDS)),
            started,
        });
        let (channel_open, open) = watch::channel(false);
        tokio::spawn(supervise(shared.clone(), events, channel_open));
        let mut vm = Self { agent: None, shared };
        if let Err(error) = vm.get_ready(channel, open, report).await {
            // Whoever hears of it may use the memory for something else.
            vm.shared.fate.seal(error.clone());
            vm.shared.fate.ended().await;
            return Err(error);
        }
        report(BootStep::Ready(started.elapsed()));
        Ok(vm)
    }

    /// Waits until its guest is as the configuration says.
    async fn get_ready(
        &mut self,
        channel: UnixStream,
        open: watch::Receiver<bool>,
        report: &mut impl FnMut(BootStep),
    ) -> Result<()> {
        if !self.config().agent {
            return Ok(());
        }
        self.await_agent(channel, open, report).await?;
        self.limit_connections()?;
        self.settle().await
    }

    /// Waits until the agent has opened the channel and answers.
    async fn await_agent(
        &mut self,
        channel: UnixStream,
        mut open: watch::Receiver<bool>,
        report: &mut impl FnMut(BootStep),
    ) -> Result<()> {
        let shared = self.shared.clone();
        let limit = shared.config.timeouts.boot;
        // Large, and else a part of each future up to that of whoever boots a VM.
        let boot = Box::pin(async {
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
            let timer = RunningTime(shared.paused.subscribe());
            let limit = shared.config.timeouts.call;
            let agent = AgentClient::connect(channel, shared.fate.clone(), timer, limit).await?;
            let info = agent.info().await?;
            check_version(&info.agent_version)?;
            Ok((agent, info))
        });
        let late = || VmError::AgentLate { within: limit, console: shared.console.last_line() };
        let (agent, info) = shared
            .fate
            .guard(async {
                let remaining = limit.saturating_sub(shared.started.elapsed());
                tokio::time::timeout(remaining, boot).await.map_err(|_| late())?
            })
            .await?;
        self.agent = Some(agent);
        if self.config().llfree != Llfree::Off {
            let missing = || {
                VmError::AllocatorState(
                    "the guest's kernel has none: build it with `make kernel`".to_owned(),
                )
            };
            self.let_take_free(info.llfree.ok_or_else(missing)?).await?;
        }
        Ok(())
    }

    /// Limits the guest's connections, if it has a network that is judged.
    fn limit_connections(&self) -> Result<()> {
        let Some(Uplink::Judged(network)) = &self.config().network else { return Ok(()) };
        let limited = network.limit_connections(self.shared.backend.process());
        limited.map_err(|error| VmError::system("the VM's connections cannot be limited", error))
    }

    /// Waits until the initial memory is plugged.
    async fn settle(&self) -> Result<()> {
        self.config().memory.check_guest(self.agent()?, self.console()).await?;
        for (number, part) in (0u16..).zip(&self.shared.elastic) {
            self.resize_part(number, part.start_bytes()).await?;
        }
        Ok(())
    }
}

/// Whether the VMM has broken down by itself. QEMU's emulator rarely does, when the guest's kernel changes its code beside
/// other processors. No tenant's code runs in a guest until its agent answers.
fn is_crash(error: &VmError) -> bool {
    matches!(error, VmError::Died { signal: Some(libc::SIGSEGV), .. })
}

/// Host and guest are built from the same source; the first two numbers of their versions must
/// agree.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_says_which_memory_the_vm_has_why_and_what_is_faster() {
        let memory = |backend, are_huge, setting: &str| {
            let step = BootStep::Memory { backend, are_huge, setting: setting.to_owned() };
            assert_eq!(step.is_trouble(), backend == MemoryBackend::Memfd && !are_huge);
            step.to_string()
        };
        let (ram, memfd) = (MemoryBackend::Ram, MemoryBackend::Memfd);
        let remedy = "`echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled`";
        assert_eq!(memory(ram, true, "advise"), "memory ram: as configured");
        assert_eq!(
            memory(ram, false, "never"),
            format!(
                "memory ram: shmem_enabled is never. The host takes memory back without its guest after {remedy}"
            )
        );
        assert_eq!(
            memory(memfd, true, "within_size"),
            "memory memfd, with huge pages: shmem_enabled is within_size"
        );
        assert_eq!(
            memory(memfd, false, "deny"),
            format!(
                "memory memfd, with 4 KiB pages: shmem_enabled is deny. The host takes memory back many times \
                 faster after {remedy}"
            )
        );
    }
}
