//! Changing the size of a device and waiting until the guest has followed.

use crate::{
    AgentClient, Result, VmError,
    backend::{Backend, Device, DeviceRequests, SizeChange},
    pause::Pause,
};
use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};
use tokio::sync::{
    Mutex,
    broadcast::{self, error::RecvError},
};

/// How long between two looks at a device's size, at first, where the VMM does not report a change at
/// once. A look takes QEMU's main thread, which is the one that carries the guest's requests out: while
/// a report is to be expected, nobody looks.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
/// And at most, later on; and at first where it does.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A resize that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Bytes the guest had before.
    pub before_bytes: u64,
    /// Bytes it was asked to have.
    pub requested_bytes: u64,
    /// Bytes it has now: those that were asked for, or what a later request made of them.
    pub plugged_bytes: u64,
    /// From the request until the device had that size.
    pub latency: Duration,
    /// How many times the device was looked at for it.
    pub polls: u32,
    /// What the guest asked the device for it, if that is counted.
    pub device: Option<DeviceRequests>,
}

/// The size a device was asked for last: a resize that a later one turns round ends with it.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    bytes: AtomicU64,
    /// Held while a size is decided on and sent, so that what was sent last is what is here.
    order: Mutex<()>,
}

impl Asked {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes: bytes.into(), order: Mutex::default() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    /// Asks for the size that `target` then says, unless it has been asked for already.
    pub(crate) async fn send(
        &self,
        backend: &dyn Backend,
        device: Device,
        target: impl Fn() -> u64,
    ) -> Result<u64> {
        let _order = self.order.lock().await;
        let bytes = target();
        let before = self.bytes.swap(bytes, SeqCst);
        if before != bytes {
            let sent = backend.request(device, bytes).await;
            sent.inspect_err(|_| self.bytes.store(before, SeqCst))?;
        }
        Ok(bytes)
    }
}

/// Asks for a size and waits for it.
pub(crate) async fn resize(
    backend: &dyn Backend,
    agent: Option<&AgentClient>,
    device: Device,
    (asked, target): (&Asked, impl Fn() -> u64),
    limit: Duration,
) -> Result<Resize> {
    let pause = Pause::new().map_err(|e| VmError::system("timerfd", e))?;
    let before_bytes = backend.plugged(device).await?;
    let requests = match device {
        Device::VirtioMem(_) => backend.device_requests().await,
        // It asks for page by page, and logging that would take longer than doing it.
        Device::Balloon => None,
    };
    let mut reports = backend.size_changes();
    let mut reported_at_once = backend.reports_at_once(device);
    let start = Instant::now();
    let requested_bytes = asked.send(backend, device, target).await?;
    let mut polls = 0;
    let mut next = match reported_at_once && requested_bytes != before_bytes {
        true => LONGEST_PAUSE,
        false => Duration::ZERO,
    };
    let mut plugged_bytes;
    let latency = loop {
        let look = async {
            pause.wait(next).await.map_err(|e| VmError::system("timerfd", e))?;
            backend.plugged(device).await
        };
        tokio::select! {
            bytes = reported(&mut reports, device) => {
                plugged_bytes = bytes;
                reported_at_once = false;
            }
            looked = look => {
                plugged_bytes = looked?;
                polls += 1;
            }
        }
        let elapsed = start.elapsed();
        // Of several that overlap, each is done when its own part is, however much more is to come.
        let grown = before_bytes < requested_bytes && requested_bytes <= plugged_bytes;
        let shrunk = before_bytes > requested_bytes && requested_bytes >= plugged_bytes;
        if grown || shrunk || plugged_bytes == asked.bytes() {
            break elapsed;
        }
        if elapsed >= limit {
            let shrinks = requested_bytes < plugged_bytes;
            return Err(VmError::Resize {
                requested: requested_bytes,
                plugged: plugged_bytes,
                after: elapsed,
                reason: reason(agent, shrinks).await,
            });
        }
        // A hundredth of what has passed keeps the error small and the host free for the guest.
        next = match reported_at_once {
            true => LONGEST_PAUSE,
            false => (elapsed / 100).clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
        };
    };
    let device = match requests {
        Some(earlier) => backend.device_requests().await.map(|now| now - earlier),
        None => None,
    };
    Ok(Resize { before_bytes, requested_bytes, plugged_bytes, latency, polls, device })
}

/// The size of the device that the VMM reports next.
async fn reported(reports: &mut broadcast::Receiver<SizeChange>, device: Device) -> u64 {
    loop {
        match reports.recv().await {
            Ok(change) if change.device == device => return change.bytes,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            // The VMM is gone; a look at the size says so better.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Why the guest has not done what it was asked to, as far as it says.
async fn reason(agent: Option<&AgentClient>, shrinks: bool) -> String {
    let memory = match agent {
        Some(agent) => tokio::time::timeout(Duration::from_secs(3), agent.memory()).await,
        None => return "there is no agent to say why".to_owned(),
    };
    let memory = match memory {
        Ok(Ok(memory)) => memory,
        Ok(Err(error)) => return format!("the guest cannot say why: {error}"),
        Err(_) => return "the guest does not say why in time; it may be overloaded".to_owned(),
    };
    let free = memory.meminfo_bytes.get("MemAvailable").copied().unwrap_or_default();
    let free = ByteSize(free);
    match memory.squeezy {
        Some(squeezy) if shrinks && !squeezy.shrink_blocked.trim().is_empty() => {
            format!("blocked by partitions: {}", squeezy.shrink_blocked.trim())
        }
        Some(_) if !shrinks => {
            "the size asked for is no whole number of partitions, or the guest has no memory \
                                for their memory map; its kernel log says which"
                .to_owned()
        }
        _ if shrinks => {
            format!("it could not free enough memory to unplug ({free} are available in it)")
        }
        _ => format!("it has not taken all the memory it was offered ({free} are available in it)"),
    }
}
