//! What a VMM has to be able to do. QEMU is the only one, which `start` names: no setting chooses
//! another.
//!
//! The trait asks for nothing that Cloud Hypervisor (`/api/v1/vm.resize-zone`) and Firecracker
//! (`PATCH /hotplug/memory`) could not do as well.

pub(crate) mod qemu;

use crate::{
    Result, accelerator::Accelerator, config::VmConfig, console::Console, measure::ThreadRole,
    process::Process,
};
use serde::{Deserialize, Serialize};
use std::{ops::Range, pin::Pin, time::Duration};
use tokio::{
    net::UnixStream,
    sync::{broadcast, mpsc},
};

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A VMM process that runs one VM.
pub(crate) trait Backend: Send + Sync {
    /// The VMM's name and version.
    fn version(&self) -> &str;
    /// Its process.
    fn process(&self) -> &Process;
    /// The end of what it wrote to its standard error.
    fn said(&self) -> String;
    /// Whether the VM runs; the reason if it does not. Fails when the VMM does not answer in time.
    fn run_state(&self, limit: Duration) -> BoxFuture<'_, Result<RunState>>;
    /// Asks the guest to have `bytes` of a device.
    fn request(&self, device: Device, bytes: u64) -> BoxFuture<'_, Result<()>>;
    /// Bytes of a device that the guest has.
    fn plugged(&self, device: Device) -> BoxFuture<'_, Result<u64>>;
    /// What the VMM reports by itself of devices' sizes, from now on. It need not report all.
    fn size_changes(&self) -> broadcast::Receiver<SizeChange>;
    /// Whether it would report a change of this device at once, if it came now.
    fn reports_at_once(&self, device: Device) -> bool;
    /// Where in the VMM's address space the guest's memory is.
    fn memory(&self) -> BoxFuture<'_, Result<HostMemory>>;
    /// What a thread of that name does.
    fn thread_role(&self, name: &str) -> ThreadRole;
    /// What the virtio-mem devices have been asked by the guest until now, if that is counted.
    fn device_requests(&self) -> BoxFuture<'_, Option<DeviceRequests>>;
    /// Stops the VM's processors.
    fn pause(&self) -> BoxFuture<'_, Result<()>>;
    /// Lets them run again.
    fn resume(&self) -> BoxFuture<'_, Result<()>>;
    /// Tells the VMM to end at once.
    fn quit(&self) -> BoxFuture<'_, Result<()>>;
}

/// A VM that has just been started.
pub(crate) struct Started {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) console: Console,
    /// The host's end of the agent's channel.
    pub(crate) channel: UnixStream,
}

/// Starts the VM, with the only backend there is.
pub(crate) async fn start(config: &VmConfig, accelerator: &Accelerator) -> Result<Started> {
    qemu::start(config, accelerator).await
}

/// A device whose size can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// The virtio-mem device of this index.
    VirtioMem(u16),
    /// The balloon; its size is what it leaves the guest beside the base.
    Balloon,
}

/// A device has another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeChange {
    pub(crate) device: Device,
    /// What [`Backend::plugged`] would have answered at that moment.
    pub(crate) bytes: u64,
}

/// Whether a VM runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    Running,
    /// Stopped because the VMM was told so.
    Paused,
    /// Stopped by the VMM, for this reason.
    Stopped(String),
}

/// What a VMM reports by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The agent has opened its end of the channel, or closed it.
    Channel { open: bool },
    /// The VMM has stopped the VM.
    Paused,
    /// The guest has ended the VM; `true` when it wanted to restart.
    Ended { restart: bool },
}

/// Where the guest's memory is on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostMemory {
    /// What the guest has from its boot on.
    pub(crate) base: Range<u64>,
    /// The regions of the virtio-mem devices.
    pub(crate) devices: Vec<Range<u64>>,
}

/// What virtio-mem devices were asked by the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequests {
    /// Requests to plug.
    pub plug: u64,
    /// Requests to unplug.
    pub unplug: u64,
    /// Nanoseconds between the requests' arrival and their answers, discarding on the host included.
    pub device_ns: u64,
}

impl std::ops::Sub for DeviceRequests {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            plug: self.plug.saturating_sub(earlier.plug),
            unplug: self.unplug.saturating_sub(earlier.unplug),
            device_ns: self.device_ns.saturating_sub(earlier.device_ns),
        }
    }
}
