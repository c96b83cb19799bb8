//! What a VMM has to be able to do, for one VM. `docs/vmm.md` says the same of VMMs that there are.

pub(crate) mod qemu;
pub(crate) mod start;

use crate::{Result, console::Console, measure::ThreadRole, process::Process};
use serde::{Deserialize, Serialize};
use std::{ops::Range, pin::Pin, process::ExitStatus, sync::Arc, time::Duration};
use tokio::{
    net::UnixStream,
    sync::{broadcast, mpsc},
};

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A VMM process that runs one VM. It ends when the guest does, by powering off or by restarting.
pub(crate) trait Backend: Devices {
    /// The VMM's name and version.
    fn version(&self) -> &str;
    /// Its process.
    fn process(&self) -> &Process;
    /// The end of what it wrote to its standard error.
    fn said(&self) -> String;
    /// Whether the VM runs; the reason if it does not. Fails when the VMM does not answer in time.
    fn run_state(&self, limit: Duration) -> BoxFuture<'_, Result<RunState>>;
    /// What the guest has done to end the VM, if the VMM's process has ended with `status` because of
    /// that. `reported` is what the VMM has said of it, if it has.
    fn guest_end(&self, status: ExitStatus, reported: Option<GuestEnd>) -> Option<GuestEnd>;
    /// What a thread of that name does.
    fn thread_role(&self, name: &str) -> ThreadRole;
    /// Stops the VM's processors.
    fn pause(&self) -> BoxFuture<'_, Result<()>>;
    /// Lets them run again.
    fn resume(&self) -> BoxFuture<'_, Result<()>>;
    /// Tells the VMM to end at once.
    fn quit(&self) -> BoxFuture<'_, Result<()>>;
}

/// The VM's devices whose size can be changed.
pub(crate) trait Devices: Send + Sync {
    /// Asks the guest to have `bytes` of a device.
    fn request(&self, device: Device, bytes: u64) -> BoxFuture<'_, Result<()>>;
    /// Bytes of a device that the guest has.
    fn size(&self, device: Device) -> BoxFuture<'_, Result<u64>>;
    /// What the VMM reports by itself of devices' sizes, from now on. It need not report all.
    fn size_changes(&self) -> broadcast::Receiver<SizeChange>;
    /// Whether it would report a change of this device at once, if it came now.
    fn reports_at_once(&self, device: Device) -> bool;
    /// What devices of this kind have been asked by the guest until now, if that is counted.
    fn device_requests(&self, device: Device) -> BoxFuture<'_, Option<DeviceRequests>>;
}

/// A VM that has just been started.
pub(crate) struct Started {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) console: Console,
    pub(crate) memory: HostMemory,
    /// The host's end of the agent's channel.
    pub(crate) channel: UnixStream,
}

/// A device whose size can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Device {
    /// The virtio-mem device of this number.
    VirtioMem(u16),
    /// The balloon; its size is what it leaves the guest beside the memory that the guest keeps.
    Balloon,
}

/// A device has another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeChange {
    pub(crate) device: Device,
    /// What [`Devices::size`] would have answered at that moment.
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
    /// The guest has ended the VM.
    Ended(GuestEnd),
}

/// How a guest has ended its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestEnd {
    PowerOff,
    Restart,
}

/// Where the guest's memory is on the host, in the VMM's address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostMemory {
    /// What the guest has from its boot on. It may be in several pieces.
    pub(crate) base: Vec<Range<u64>>,
    /// The virtio-mem devices' regions, by number, each in one piece.
    pub(crate) regions: Vec<Range<u64>>,
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
