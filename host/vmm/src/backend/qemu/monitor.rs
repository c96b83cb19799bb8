//! QEMU's monitor: typed commands (QMP) and events.

use crate::{
    Result, VmError,
    backend::{Device, Event, SizeChange},
};
use futures_util::StreamExt;
use qapi::{
    futures::{QapiService, QmpStreamTokio},
    qmp,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
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

use super::command::{CHANNEL_ID, device_id, device_index};

/// How long a command may take, unless a caller says otherwise. Discarding a large memfd holds
/// QEMU's main loop for seconds; whether it hangs is for the supervisor to judge.
const LIMIT: Duration = Duration::from_secs(30);

/// QEMU reports a device's size once a second at most: what comes sooner after a report is held back
/// until then. A little more, for a report takes its time to get here.
const REPORT_INTERVAL: Duration = Duration::from_millis(1050);

/// Reports of sizes that are kept for one who is slow to take them.
const SIZE_CHANGES: usize = 64;

type Service = QapiService<QmpStreamTokio<WriteHalf<UnixStream>>>;

/// The commands' side of the monitor.
pub(super) struct Monitor {
    service: Service,
    sizes: broadcast::Sender<SizeChange>,
    /// When each device's size was last reported.
    reported: Arc<Mutex<HashMap<Device, Instant>>>,
}

impl Monitor {
    /// Greets QEMU and starts to take in its events.
    pub(super) async fn open(
        socket: UnixStream,
    ) -> std::io::Result<(Self, Receiver<Event>, String)> {
        let negotiation = QmpStreamTokio::open(socket).await?;
        let version = &negotiation.capabilities.QMP.version.qemu;
        let version = format!("QEMU {}.{}.{}", version.major, version.minor, version.micro);
        let (service, mut events) = negotiation.negotiate().await?.into_parts();
        let (sender, receiver) = channel(64);
        let sizes = broadcast::Sender::new(SIZE_CHANGES);
        let reported = Arc::default();
        let (changes, times) = (sizes.clone(), Arc::clone(&reported));
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        if let Some(change) = size_change(&event) {
                            lock(&times).insert(change.device, Instant::now());
                            // Without a resize under way nobody listens.
                            let _ = changes.send(change);
                        } else if let Some(event) = translate(&event)
                            && sender.send(event).await.is_err()
                        {
                            break;
                        }
                    }
                    // The answer to a command that nobody waits for any more, or an event that a
                    // newer QEMU has and this library does not.
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                        tracing::debug!(%error, "a message of QEMU was skipped");
                    }
                    Err(_) => break,
                }
            }
        });
        Ok((Self { service, sizes, reported }, receiver, version))
    }

    /// Sizes of devices, as QEMU reports them from now on: of each device at most one a second.
    pub(super) fn size_changes(&self) -> broadcast::Receiver<SizeChange> {
        self.sizes.subscribe()
    }

    /// Whether QEMU would report a change of this device at once.
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

    /// Runs a command that may take this long.
    pub(super) async fn run_within<C>(&self, command: C, limit: Duration) -> Result<C::Ok>
    where
        C: qmp::QmpCommand<Ok: Send> + 'static,
    {
        let refused = |reason: String| VmError::Command { command: C::NAME.to_owned(), reason };
        // A task of its own: whoever asked may stop waiting at any moment, but the library must see
        // every command through to its answer, or it mistakes that for the next one's.
        let execution = tokio::spawn(self.service.execute(command));
        match tokio::time::timeout(limit, execution).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(error))) => Err(refused(error.to_string())),
            Ok(Err(error)) => Err(refused(error.to_string())),
            Err(_) => Err(VmError::Hung(limit)),
        }
    }

    /// Asks the guest to have `bytes` of a virtio-mem device.
    pub(super) async fn request_size(&self, index: u16, bytes: u64) -> Result<()> {
        let property = "requested-size".to_owned();
        let command = qmp::qom_set { path: device_id(index), property, value: bytes.into() };
        self.run(command).await.map(drop)
    }

    /// Runs a command of the human monitor, for what QMP has no command.
    pub(super) async fn human(&self, line: String) -> Result<String> {
        self.run(qmp::human_monitor_command { command_line: line, cpu_index: None }).await
    }
}

fn lock(
    times: &Mutex<HashMap<Device, Instant>>,
) -> std::sync::MutexGuard<'_, HashMap<Device, Instant>> {
    times.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The size of a device, if that is what the event is about.
fn size_change(event: &qmp::Event) -> Option<SizeChange> {
    match event {
        qmp::Event::MEMORY_DEVICE_SIZE_CHANGE { data, .. } => {
            let index = device_index(data.id.as_deref()?)?;
            Some(SizeChange { device: Device::VirtioMem(index), bytes: data.size })
        }
        qmp::Event::BALLOON_CHANGE { data, .. } => {
            Some(SizeChange { device: Device::Balloon, bytes: data.actual.try_into().ok()? })
        }
        _ => None,
    }
}

/// The other events that matter.
fn translate(event: &qmp::Event) -> Option<Event> {
    match event {
        qmp::Event::VSERPORT_CHANGE { data, .. } if data.id == CHANNEL_ID => {
            Some(Event::Channel { open: data.open })
        }
        qmp::Event::STOP { .. } => Some(Event::Paused),
        qmp::Event::SHUTDOWN { data, .. } if data.guest => {
            Some(Event::Ended { restart: data.reason == qmp::ShutdownCause::guest_reset })
        }
        _ => None,
    }
}
