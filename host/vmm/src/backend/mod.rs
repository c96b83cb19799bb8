//! What a VMM has to be able to do for one VM. `docs/vmm.md` compares existing VMMs by the same
//! points.

pub(crate) mod qemu;
pub(crate) mod start;

use crate::{
    Result, console::Console, host_memory::HostMemory, measure::ThreadRole, process::Process,
};
use serde::{Deserialize, Serialize};
use std::{pin::Pin, process::ExitStatus, sync::Arc, time::Duration};
use tokio::{
    net::UnixStream,
    sync::{broadcast, mpsc},
};

/// A boxed future, as methods of a trait object return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A VMM process that runs one VM. It exits when the guest powers off or restarts.
pub(crate) trait Backend: Devices {
    /// The VMM's name and version.
    fn version(&self) -> &str;
    /// The VMM's process.
    fn process(&self) -> &Process;
    /// The last lines of its standard error.
    fn said(&self) -> String;
    /// Whether the VM is running, and if not, why. Fails if the VMM does not answer within `limit`.
    fn run_state(&self, limit: Duration) -> BoxFuture<'_, Result<RunState>>;
    /// How the guest ended the VM, if that is why the VMM's process exited with `status`.
    /// `reported` is what the VMM has reported about it, if anything.
    fn guest_end(&self, status: ExitStatus, reported: Option<GuestEnd>) -> Option<GuestEnd>;
    /// The role of the thread with this name.
    fn thread_role(&self, name: &str) -> ThreadRole;
    /// Stops the VM's processors.
    fn pause(&self) -> BoxFuture<'_, Result<()>>;
    /// Lets the VM's processors run again.
    fn resume(&self) -> BoxFuture<'_, Result<()>>;
    /// Tells the VMM to exit immediately.
    fn quit(&self) -> BoxFuture<'_, Result<()>>;
}

/// The VM's resizable devices.
pub(crate) trait Devices: Send + Sync {
    /// Sets the size of a device that is requested from the guest.
    fn request(&self, device: Device, bytes: u64) -> BoxFuture<'_, Result<()>>;
    /// The size that a device has now, in bytes.
    fn size(&self, device: Device) -> BoxFuture<'_, Result<u64>>;
    /// Changes of size that the VMM reports on its own, from now on. It need not report all of
    /// them.
    fn size_changes(&self) -> broadcast::Receiver<SizeChange>;
    /// Whether a change of this device's size would be reported immediately if it happened now.
    fn reports_at_once(&self, device: Device) -> bool;
    /// Requests that the guest has made to devices of this kind so far, if they are counted.
    fn device_requests(&self, device: Device) -> BoxFuture<'_, Option<DeviceRequests>>;
}

/// A VM that has just started.
pub(crate) struct Started {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) console: Console,
    pub(crate) memory: HostMemory,
    /// The host's end of the agent's channel.
    pub(crate) channel: UnixStream,
}

/// A resizable device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Device {
    /// The virtio-mem device with this number.
    VirtioMem(u16),
    /// The balloon. Its size is the memory it leaves to the guest beyond what the guest always
    /// keeps.
    Balloon,
}

impl Device {
    /// Whether it has at most what was requested last, once it has had that: a guest plugs no more, and takes as much as it
    /// likes out of its balloon.
    pub(crate) fn never_exceeds_request(self) -> bool {
        matches!(self, Self::VirtioMem(_))
    }
}

/// The size of a device has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeChange {
    pub(crate) device: Device,
    /// What [`Devices::size`] would have returned at that moment.
    pub(crate) bytes: u64,
}

/// Whether a VM is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    Running,
    /// Stopped by a command to the VMM.
    Paused,
    /// Stopped by the VMM, for this reason.
    Stopped(String),
}

/// What a VMM reports on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The agent has opened or closed its end of the channel.
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

/// Requests of the guest to virtio-mem devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequests {
    /// Number of plug requests.
    pub plug: u64,
    /// Number of unplug requests.
    pub unplug: u64,
    /// Nanoseconds from the requests' arrival to their answers, including the time the host takes
    /// to discard memory.
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

/// The devices of a VMM in a test that uses none of them.
#[cfg(test)]
macro_rules! unused_devices {
    ($vmm:ty) => {
        const _: () = {
            use tokio::sync::broadcast;
            use $crate::{
                BoxFuture, Result,
                backend::{Device, DeviceRequests, Devices, SizeChange},
            };

            impl Devices for $vmm {
                fn request(&self, _: Device, _: u64) -> BoxFuture<'_, Result<()>> {
                    unreachable!()
                }

                fn size(&self, _: Device) -> BoxFuture<'_, Result<u64>> {
                    unreachable!()
                }

                fn size_changes(&self) -> broadcast::Receiver<SizeChange> {
                    unreachable!()
                }

                fn reports_at_once(&self, _: Device) -> bool {
                    unreachable!()
                }

                fn device_requests(&self, _: Device) -> BoxFuture<'_, Option<DeviceRequests>> {
                    unreachable!()
                }
            }
        };
    };
}
#[cfg(test)]
pub(crate) use unused_devices;
