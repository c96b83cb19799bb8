//! From a configuration to a VM whose agent answers.

use super::{Shared, Vm, check_host_memory, supervisor::supervise};
use crate::{
    Accelerator, AgentClient, GuestMemory, PartitionLayout, Result, VmConfig, VmError,
    agent::RunningTime,
    backend::{self, Device, HostMemory, Started},
    fate::Fate,
    resize::Asked,
};
use bytesize::ByteSize;
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};
use tokio::sync::watch;

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

impl fmt::Display for BootStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accelerator(Accelerator { kind, reason }) => {
                write!(f, "accelerator {kind}: {reason}")
            }
            Self::Started(version) => write!(f, "{version} runs"),
            Self::Kernel => f.write_str("the guest's kernel boots"),
            Self::AgentUp => f.write_str("the agent is up"),
            Self::Ready(time) => write!(f, "the VM is ready after {:.1} s", time.as_secs_f64()),
        }
    }
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
            paused: watch::Sender::new(false),
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
            let timer = RunningTime(shared.paused.subscribe());
            let limit = shared.config.timeouts.call;
            let agent = AgentClient::connect(channel, shared.fate.clone(), timer, limit).await?;
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
            return wrong(format!("it has {count} of {}", ByteSize(squeezy.partition_size_bytes)));
        }
        Ok(())
    }
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
