//! A part of memory that the guest resizes: it is told the size it should have, and follows when it
//! can.

use super::{Elastic, Region, Resize, Running, Target, short_timer::ShortTimer};
use crate::{
    AgentClient, BoxFuture, Result, VmError,
    backend::{Device, Devices, SizeChange},
};
use bytesize::ByteSize;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::sync::{
    Mutex,
    broadcast::{self, error::RecvError},
};

/// The initial interval between polls of the size, if the VMM does not report a change immediately.
/// A poll may occupy the VMM's thread that executes the guest's requests, so nobody polls while a
/// report is expected.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
/// The maximum interval later on, and the initial one if a report is expected.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// How long the guest may take to say why it has not followed: it may be busy with trying to.
const REASON_LIMIT: Duration = Duration::from_secs(10);

/// A device of the VMM: virtio-mem or a balloon.
pub(crate) struct GuestDriven {
    devices: Arc<dyn Devices>,
    device: Device,
    max_bytes: u64,
    start_bytes: u64,
    /// What was requested last. A later request in the other direction ends a resize.
    requested: AtomicU64,
    /// The number of the last request, which is counted before it is sent, and of the last one that the guest was seen
    /// to have fulfilled. That of the VM's start is 1.
    sent: AtomicU64,
    fulfilled: AtomicU64,
    /// Held while a size is chosen and sent, so that `requested` is what was sent last.
    order: Mutex<()>,
}

impl GuestDriven {
    /// A device from which `requested_bytes` were requested at the VM's start, and which should
    /// have `start_bytes` when it is ready.
    pub(super) fn new(
        vm: &Running,
        device: Device,
        max_bytes: u64,
        requested_bytes: u64,
        start_bytes: u64,
    ) -> Self {
        Self {
            devices: vm.devices.clone(),
            device,
            max_bytes,
            start_bytes,
            requested: requested_bytes.into(),
            sent: 1.into(),
            fulfilled: 0.into(),
            order: Mutex::default(),
        }
    }

    /// The virtio-mem device with this number.
    pub(super) fn virtio_mem(vm: &Running, number: u16, region: Region) -> Self {
        let Region { region_bytes, initial_bytes, .. } = region;
        Self::new(vm, Device::VirtioMem(number), region_bytes, initial_bytes, initial_bytes)
    }

    /// Requests the size that `target` computes, unless it already is the requested one. Returns it, and the number of its
    /// request.
    async fn send(&self, target: Target<'_>) -> Result<(u64, u64)> {
        let _order = self.order.lock().await;
        let bytes = target();
        let before = self.requested.load(SeqCst);
        if before != bytes {
            self.sent.fetch_add(1, SeqCst);
            self.requested.store(bytes, SeqCst);
            let sent = self.devices.request(self.device, bytes).await;
            sent.inspect_err(|_| self.requested.store(before, SeqCst))?;
        }
        Ok((bytes, self.sent.load(SeqCst)))
    }

    /// What was requested last, if that is fulfilled and the device cannot grow by itself: it has at most that much then,
    /// and less only for a moment. The VMM, which reads its commands byte by byte, need not be asked.
    fn fulfilled(&self) -> Option<u64> {
        let sent = self.sent.load(SeqCst);
        // In this order: a request that is fulfilled has been stored before it was sent.
        let is_fulfilled = self.fulfilled.load(SeqCst) == sent;
        let requested = self.requested.load(SeqCst);
        // Whoever sends meanwhile counts first, and may be refused.
        let is_last = self.sent.load(SeqCst) == sent;
        (self.device.never_exceeds_request() && is_fulfilled && is_last).then_some(requested)
    }

    /// Requests a size and waits for it.
    async fn follow(
        &self,
        target: Target<'_>,
        limit: Duration,
        agent: Option<&AgentClient>,
    ) -> Result<Resize> {
        let called = Instant::now();
        let timer = ShortTimer::new().map_err(|e| VmError::system("timerfd", e))?;
        let fulfilled = self.fulfilled();
        let mut before_bytes = match fulfilled {
            Some(bytes) => bytes,
            None => self.size().await?,
        };
        let earlier = self.devices.device_requests(self.device).await;
        let mut reports = self.devices.size_changes();
        let mut reported_at_once = self.devices.reports_at_once(self.device);
        let start = Instant::now();
        let (requested_bytes, number) = self.send(target).await?;
        // It may have less for a moment: then it grows.
        if fulfilled == Some(requested_bytes) {
            before_bytes = self.size().await?;
        }
        let mut polls = 0;
        let mut next = match reported_at_once && requested_bytes != before_bytes {
            true => LONGEST_PAUSE,
            false => Duration::ZERO,
        };
        let mut plugged_bytes;
        let latency = loop {
            let look = async {
                timer.wait(next).await.map_err(|e| VmError::system("timerfd", e))?;
                self.size().await
            };
            tokio::select! {
                bytes = reported(&mut reports, self.device) => {
                    plugged_bytes = bytes;
                    reported_at_once = false;
                }
                looked = look => {
                    plugged_bytes = looked?;
                    polls += 1;
                }
            }
            let elapsed = start.elapsed();
            // Of several that overlap, each is done once its own part is, however much more is
            // requested.
            let grown = before_bytes < requested_bytes && requested_bytes <= plugged_bytes;
            let shrunk = before_bytes > requested_bytes && requested_bytes >= plugged_bytes;
            if grown || shrunk || plugged_bytes == self.requested_bytes() {
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
            // Waiting a hundredth of the elapsed time keeps the error small and leaves the host to
            // the guest.
            next = match reported_at_once {
                true => LONGEST_PAUSE,
                false => (elapsed / 100).clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
            };
        };
        // A report may be of the moment before the request, when the device was on its way to another size, unless that one
        // was fulfilled.
        let is_sure = async || {
            fulfilled.is_some() || self.size().await.is_ok_and(|bytes| bytes == requested_bytes)
        };
        if self.device.never_exceeds_request()
            && plugged_bytes == requested_bytes
            && is_sure().await
        {
            self.fulfilled.fetch_max(number, SeqCst);
        }
        let device = match earlier {
            Some(earlier) => {
                self.devices.device_requests(self.device).await.map(|now| now - earlier)
            }
            None => None,
        };
        let lead = start - called;
        Ok(Resize {
            before_bytes,
            requested_bytes,
            plugged_bytes,
            lead,
            latency,
            discarding: None,
            polls,
            device,
        })
    }
}

impl Elastic for GuestDriven {
    fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    fn start_bytes(&self) -> u64 {
        self.start_bytes
    }

    fn requested_bytes(&self) -> u64 {
        self.requested.load(SeqCst)
    }

    fn size(&self) -> BoxFuture<'_, Result<u64>> {
        self.devices.size(self.device)
    }

    fn request<'a>(&'a self, target: Target<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.send(target).await.map(drop) })
    }

    fn resize<'a>(
        &'a self,
        target: Target<'a>,
        limit: Duration,
        agent: Option<&'a AgentClient>,
    ) -> BoxFuture<'a, Result<Resize>> {
        Box::pin(self.follow(target, limit, agent))
    }
}

/// The next size of the device that the VMM reports.
async fn reported(reports: &mut broadcast::Receiver<SizeChange>, device: Device) -> u64 {
    loop {
        match reports.recv().await {
            Ok(change) if change.device == device => return change.bytes,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            // The VMM is gone; polling the size gives a better error.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Why the guest has not followed, as far as it can say.
async fn reason(agent: Option<&AgentClient>, shrinks: bool) -> String {
    let memory = match agent {
        Some(agent) => tokio::time::timeout(REASON_LIMIT, agent.memory()).await,
        None => return "the VM has no agent that could say why".to_owned(),
    };
    let memory = match memory {
        Ok(Ok(memory)) => memory,
        Ok(Err(error)) => return format!("the guest cannot say why: {error}"),
        Err(_) => return "the guest did not say why in time; it may be overloaded".to_owned(),
    };
    let free = memory.meminfo_bytes.get("MemAvailable").copied().unwrap_or_default();
    let free = ByteSize(free);
    match memory.squeezy {
        Some(squeezy) if shrinks && !squeezy.shrink_blocked.trim().is_empty() => {
            format!("blocked by partitions: {}", squeezy.shrink_blocked.trim())
        }
        Some(_) if !shrinks => {
            "the requested size is not a whole number of partitions, or the guest has no memory \
                                for their memory map; its kernel log says which"
                .to_owned()
        }
        _ if shrinks => {
            format!("it could not free enough memory to unplug ({free} are available in it)")
        }
        _ => format!("it has not taken all the memory it was offered ({free} are available in it)"),
    }
}

#[cfg(test)]
mod tests;
