//! QEMU's monitor (QMP): typed commands, and events.

use crate::{
    Result, VmError,
    backend::{Device, Event, GuestEnd, SizeChange},
    host_memory::{HostMemory, MemoryPiece},
    memory::Layout,
    mutex::lock,
};
use futures_util::StreamExt;
use qapi::{
    futures::{QapiService, QmpStreamTokio},
    qmp,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::WriteHalf,
    net::UnixStream,
    sync::{
        broadcast,
        mpsc::{Receiver, channel},
    },
};

use super::command::{CHANNEL_ID, device_id, device_number};

/// How long a command may take unless the caller gives a limit. Discarding a large memfd blocks
/// QEMU's main loop for seconds; whether QEMU hangs is for the supervisor to decide.
const LIMIT: Duration = Duration::from_secs(30);

/// QEMU reports a device's size at most once a second, and delays a change that follows a report
/// sooner. The extra 50 ms allow for the report's delivery.
const REPORT_INTERVAL: Duration = Duration::from_millis(1050);

/// Guest-physical address that is always RAM.
const LOW_ADDRESS: u64 = 0;
/// The first one beyond the hole below 4 GiB.
const HIGH_ADDRESS: u64 = 1 << 32;

/// Size reports that are buffered for a slow receiver.
const SIZE_CHANGES: usize = 64;

type Service = QapiService<QmpStreamTokio<WriteHalf<UnixStream>>>;

/// The command side of the monitor.
pub(super) struct Monitor {
    service: Service,
    sizes: broadcast::Sender<SizeChange>,
    /// When the size of each device was last reported.
    reported: Arc<Mutex<HashMap<Device, Instant>>>,
    /// QEMU's size of a balloon is all of the guest's memory, including these bytes.
    kept_bytes: u64,
}

impl Monitor {
    /// Negotiates with QEMU and starts to process its events. `kept_bytes` is memory that the
    /// balloon never takes.
    pub(super) async fn open(
        socket: UnixStream,
        kept_bytes: u64,
    ) -> std::io::Result<(Self, Receiver<Event>, String)> {
        let negotiation = QmpStreamTokio::open(socket).await?;
        let version = &negotiation.capabilities.QMP.version.qemu;
        let version = format!("QEMU {}.{}.{}", version.major, version.minor, version.micro);
        let (service, mut events) = negotiation.negotiate().await?.into_parts();
        let (sender, receiver) = channel(64);
        let sizes = broadcast::Sender::new(SIZE_CHANGES);
        let reported: Arc<Mutex<HashMap<Device, Instant>>> = Arc::default();
        let (changes, times) = (sizes.clone(), Arc::clone(&reported));
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        if let Some(change) = size_change(&event, kept_bytes) {
                            lock(&times).insert(change.device, Instant::now());
                            // Nobody listens unless a resize is in progress.
                            let _ = changes.send(change);
                        } else if let Some(event) = translate(&event)
                            && sender.send(event).await.is_err()
                        {
                            break;
                        }
                    }
                    // The answer to a command that was given up, or an event of a newer QEMU that
                    // this library does not know.
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                        tracing::debug!(%error, "skipped a message from QEMU");
                    }
                    Err(_) => break,
                }
            }
        });
        Ok((Self { service, sizes, reported, kept_bytes }, receiver, version))
    }

    /// Size changes that QEMU reports from now on: at most one per device and second.
    pub(super) fn size_changes(&self) -> broadcast::Receiver<SizeChange> {
        self.sizes.subscribe()
    }

    /// Whether QEMU would report a change of this device's size immediately.
    pub(super) fn reports_at_once(&self, device: Device) -> bool {
        lock(&self.reported).get(&device).is_none_or(|at| at.elapsed() >= REPORT_INTERVAL)
    }

    /// Runs a command.
    pub(super) async fn run<C>(&self, command: C) -> Result<C::Ok>
    where
        C: qmp::QmpCommand<Ok: Send> + 'static,
    {
        self.run_within(command, LIMIT).await
    }

    /// Runs a command with a time limit.
    pub(super) async fn run_within<C>(&self, command: C, limit: Duration) -> Result<C::Ok>
    where
        C: qmp::QmpCommand<Ok: Send> + 'static,
    {
        let refused = |reason: String| VmError::Command { command: C::NAME.to_owned(), reason };
        // In a task of its own: the caller may stop waiting at any moment, but the library must
        // read the answer to every command, or it takes that answer for the next command's.
        let execution = tokio::spawn(self.service.execute(command));
        match tokio::time::timeout(limit, execution).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(error))) => Err(refused(error.to_string())),
            Ok(Err(error)) => Err(refused(error.to_string())),
            Err(_) => Err(VmError::Hung(limit)),
        }
    }

    /// Requests `bytes` of a device from the guest.
    pub(super) async fn request_size(&self, device: Device, bytes: u64) -> Result<()> {
        match device {
            Device::VirtioMem(number) => {
                let property = "requested-size".to_owned();
                let path = device_id(number);
                self.run(qmp::qom_set { path, property, value: bytes.into() }).await.map(drop)
            }
            Device::Balloon => {
                let value =
                    i64::try_from(bytes.saturating_add(self.kept_bytes)).unwrap_or(i64::MAX);
                self.run(qmp::balloon { value }).await.map(drop)
            }
        }
    }

    /// The size that a device has now, in bytes.
    pub(super) async fn size(&self, device: Device) -> Result<u64> {
        match device {
            Device::VirtioMem(number) => {
                let property = "size".to_owned();
                let value = self.run(qmp::qom_get { path: device_id(number), property }).await?;
                value.as_u64().ok_or_else(|| VmError::Command {
                    command: "qom-get size".to_owned(),
                    reason: format!("{value} is not a size"),
                })
            }
            Device::Balloon => {
                let actual = self.run(qmp::query_balloon {}).await?.actual;
                Ok(beside(actual, self.kept_bytes))
            }
        }
    }

    /// Where the guest's memory is, without its files.
    pub(super) async fn host_memory(&self, layout: &Layout) -> Result<HostMemory> {
        let mut regions = vec![piece(0, 0, 0); layout.regions.len()];
        if !regions.is_empty() {
            for device in self.run(qmp::query_memory_devices {}).await? {
                let qmp::MemoryDeviceInfo::virtio_mem(data) = device else { continue };
                let id = data.data.id.unwrap_or_default();
                let Some(number) = device_number(&id).map(usize::from) else { continue };
                if let (Some(found), Some(region)) =
                    (regions.get_mut(number), layout.regions.get(number))
                {
                    let guest = data.data.memaddr;
                    let host = self.host_address(guest).await?;
                    *found = piece(guest, host, region.region_bytes);
                }
            }
        }
        // In QEMU it is contiguous. The guest sees a hole in it, if it reaches beyond 4 GiB.
        let low = self.host_address(LOW_ADDRESS).await?;
        let mut base = vec![piece(LOW_ADDRESS, low, layout.boot_bytes)];
        if let Ok(high) = self.host_address(HIGH_ADDRESS).await
            && let Some(low_bytes) =
                high.checked_sub(low).filter(|&bytes| bytes < layout.boot_bytes)
        {
            base[0] = piece(LOW_ADDRESS, low, low_bytes);
            base.push(piece(HIGH_ADDRESS, high, layout.boot_bytes - low_bytes));
        }
        Ok(HostMemory { base, regions })
    }

    /// Where an address of the guest's memory is in QEMU's address space. QMP has no command for that,
    /// but the human monitor has.
    async fn host_address(&self, address: u64) -> Result<u64> {
        let command_line = format!("gpa2hva {address:#x}");
        let answer = self.run(qmp::human_monitor_command { command_line, cpu_index: None }).await?;
        answer
            .trim()
            .rsplit_once("is 0x")
            .and_then(|(_, number)| u64::from_str_radix(number, 16).ok())
            .ok_or_else(|| VmError::Measure {
                what: "the address of the guest's memory".to_owned(),
                reason: answer,
            })
    }
}

/// A piece of the guest's memory without its file.
fn piece(guest: u64, host_start: u64, bytes: u64) -> MemoryPiece {
    MemoryPiece { guest: guest..guest + bytes, host_start, file: None }
}

/// The memory that a balloon leaves to the guest beyond what the guest always keeps.
fn beside(actual: i64, kept_bytes: u64) -> u64 {
    u64::try_from(actual).unwrap_or_default().saturating_sub(kept_bytes)
}

/// The new size of a device, if the event reports one.
fn size_change(event: &qmp::Event, kept_bytes: u64) -> Option<SizeChange> {
    match event {
        qmp::Event::MEMORY_DEVICE_SIZE_CHANGE { data, .. } => {
            let number = device_number(data.id.as_deref()?)?;
            Some(SizeChange { device: Device::VirtioMem(number), bytes: data.size })
        }
        qmp::Event::BALLOON_CHANGE { data, .. } => {
            let bytes = beside(data.actual, kept_bytes);
            Some(SizeChange { device: Device::Balloon, bytes })
        }
        _ => None,
    }
}

/// Translates the other events that matter.
fn translate(event: &qmp::Event) -> Option<Event> {
    match event {
        qmp::Event::VSERPORT_CHANGE { data, .. } if data.id == CHANNEL_ID => {
            Some(Event::Channel { open: data.open })
        }
        qmp::Event::STOP { .. } => Some(Event::Paused),
        qmp::Event::SHUTDOWN { data, .. } if data.guest => Some(Event::Ended(match data.reason {
            qmp::ShutdownCause::guest_reset => GuestEnd::Restart,
            _ => GuestEnd::PowerOff,
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(name: &str, data: Value) -> qmp::Event {
        let timestamp = json!({ "seconds": 1, "microseconds": 2 });
        serde_json::from_value(json!({ "event": name, "data": data, "timestamp": timestamp }))
            .unwrap()
    }

    #[test]
    fn a_balloon_is_as_large_as_what_it_leaves_beside_the_memory_that_the_guest_keeps() {
        let left = |actual: u64| {
            size_change(&event("BALLOON_CHANGE", json!({ "actual": actual })), 200).unwrap()
        };
        assert_eq!(left(700), SizeChange { device: Device::Balloon, bytes: 500 });
        assert_eq!(left(100).bytes, 0, "it took more than requested");
        let data = json!({ "id": "vmem3", "size": 700, "qom-path": "/vmem3" });
        let plugged = size_change(&event("MEMORY_DEVICE_SIZE_CHANGE", data), 200);
        assert_eq!(plugged, Some(SizeChange { device: Device::VirtioMem(3), bytes: 700 }));
    }

    #[test]
    fn only_a_guest_ends_by_itself() {
        let end = |guest: bool, reason: &str| {
            translate(&event("SHUTDOWN", json!({ "guest": guest, "reason": reason })))
        };
        assert_eq!(end(true, "guest-shutdown"), Some(Event::Ended(GuestEnd::PowerOff)));
        assert_eq!(end(true, "guest-reset"), Some(Event::Ended(GuestEnd::Restart)));
        assert_eq!(end(false, "host-qmp-quit"), None);
    }
}
