//! One VM, from its start to its end.

mod boot;
mod pause;
mod supervisor;

use crate::{
    Accelerator, AgentClient, Console, CpuTimes, GuestMemory, MemoryBackend, Resident, Resize,
    Result, VmConfig, VmError,
    backend::{Backend, Device, HostMemory},
    fate::Fate,
    measure,
    resize::{self, Asked},
};
use serde::{Deserialize, Serialize};
use squeezy_protocol::PartitionNumber;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

pub use boot::BootStep;

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
    /// Whether its processors are stopped because somebody wanted that.
    paused: watch::Sender<bool>,
    /// By device; the first is the balloon's, where there is one.
    asked: Vec<Asked>,
    started: Instant,
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

impl std::ops::AddAssign for MemoryUse {
    fn add_assign(&mut self, other: Self) {
        self.asked_bytes += other.asked_bytes;
        self.plugged_bytes += other.plugged_bytes;
        self.resident += other.resident;
        self.device_resident += other.device_resident;
    }
}

impl Vm {
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

    /// Bytes that the device of [`Vm::resize`] has plugged now.
    pub(crate) async fn plugged(&self) -> Result<u64> {
        let device = self.device()?;
        self.shared.fate.guard(self.shared.backend.plugged(device)).await
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

    /// Bytes that the host has behind one partition. Its number comes from the guest, so there may be none
    /// of that number. Memory that others may map is not counted so: see [`MemoryBackend`].
    pub async fn partition_resident(&self, partition: PartitionNumber) -> Result<u64> {
        let config = self.config();
        if config.memory_backend != MemoryBackend::Ram {
            return Err(VmError::system(
                "counting the pages of a partition",
                "only of backend ram",
            ));
        }
        let range = match (config.memory, self.memory.devices.first()) {
            (GuestMemory::Partitions(layout), Some(device)) => layout
                .range(partition)
                .map(|range| device.start + range.start..device.start + range.end),
            _ => None,
        };
        let Some(range) = range else {
            return Err(VmError::AgentLost(format!("it speaks of a partition {partition}")));
        };
        let process = self.process_id();
        let look = move || measure::resident_part(process, &range);
        let work = async {
            tokio::task::spawn_blocking(look).await.map_err(|e| VmError::system("pagemap", e))?
        };
        self.shared.fate.guard(work).await
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

    /// Ends the VM: the guest powers off, or is killed when it does not in time or is paused. Returns
    /// when its process is gone.
    pub async fn stop(&self) -> Result<()> {
        let shared = &*self.shared;
        shared.stopping.store(true, Ordering::SeqCst);
        let process = shared.backend.process();
        if let (Some(agent), None, false) = (&self.agent, shared.fate.known(), self.is_paused()) {
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

/// The host must have what is going to be used on top.
fn check_host_memory(needed: u64) -> Result<()> {
    if needed == 0 {
        return Ok(());
    }
    let available = measure::available_bytes()?;
    if needed > available { Err(VmError::HostMemory { needed, available }) } else { Ok(()) }
}
