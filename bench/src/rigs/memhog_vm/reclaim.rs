//! Reclaims an instance's memory, and measures that.

use super::{
    MemhogVm,
    counters::{GuestCounters, cpu_delta, system_ns},
};
use crate::{
    error::{BenchError, Result},
    record::nanoseconds,
};
use squeezy_protocol::{Profile, ProfileRequest};
use squeezy_vmm::{CpuTimes, VmError, mechanism::MechanismName};
use std::time::{Duration, Instant};

/// Measurements of a reclaim.
#[derive(Clone, Debug)]
pub(crate) struct Reclaimed {
    /// From the request until the device had that size, or until the caller gave up.
    pub(crate) latency_ns: u64,
    /// Bytes that were given back.
    pub(crate) reclaimed_bytes: u64,
    /// Why less was reclaimed than requested, if so.
    pub(crate) failure: Option<String>,
    /// The guest's work: as counted by the kernel (squeezy), otherwise CPU time of its kworkers.
    pub(crate) guest_ns: u64,
    /// CPU time of the guest's kworkers, which do all such work.
    pub(crate) workers_ns: u64,
    /// The part of the latency spent in the device.
    pub(crate) device_ns: u64,
    /// Requests (virtio-mem) or messages (balloon) to the device.
    pub(crate) device_requests: u64,
    pub(crate) migrated_pages: u64,
    /// Pages that the guest took from its allocator to give them back, or to migrate others into
    /// them.
    pub(crate) taken_pages: u64,
    /// By how much host memory behind the guest's memory decreased.
    pub(crate) resident_drop_bytes: u64,
    /// CPU time of the VMM.
    pub(crate) host: CpuTimes,
    /// Calls of kernel functions, if they were counted.
    pub(crate) profile: Option<Profile>,
}

impl MemhogVm {
    /// Reclaims the memory of an ended instance, and measures that. Counts calls of `functions` if
    /// there are any, which takes time itself.
    pub(crate) async fn reclaim(&mut self, index: u16, functions: &[&str]) -> Result<Reclaimed> {
        let slot = self.slots[usize::from(index)].take().ok_or_else(|| {
            BenchError::Arguments(format!("instance {index} has no memory to reclaim"))
        })?;
        let agent = self.agent()?;
        let asked_before = self.vm.memory().await?;
        if !functions.is_empty() {
            let functions = functions.iter().map(|&name| name.to_owned()).collect();
            agent.start_profile(&ProfileRequest { functions }).await?;
        }
        let before = agent.memory().await?;
        let (host_before, system_before) = self.host_times().await?;

        let start = Instant::now();
        self.mechanism.slots().free(slot)?;
        let outcome = self.mechanism.reclaim(&self.vm, slot).await;

        let (host_after, system_after) = self.host_times().await?;
        let (latency, failure, resize) = match outcome {
            Ok(Some(resize)) => (resize.latency, None, Some(resize)),
            Ok(None) => (start.elapsed(), None, None),
            Err(VmError::Resize { after, reason, .. }) => (after, Some(reason), None),
            Err(error) => return Err(error.into()),
        };
        let after = agent.memory().await?;
        let profile = if functions.is_empty() { None } else { Some(agent.profile().await?) };
        let asked_after = self.vm.memory().await?;

        let host = cpu_delta(&host_before, &host_after);
        let counters = GuestCounters::between(&before, &after);
        let device = resize.and_then(|resize| resize.device);
        let balloon = self.mechanism.name() == MechanismName::Balloon;
        Ok(Reclaimed {
            latency_ns: nanoseconds(latency),
            reclaimed_bytes: asked_before.plugged_bytes.saturating_sub(asked_after.plugged_bytes),
            failure,
            guest_ns: counters.unplug_guest_ns.unwrap_or(counters.workers_ns),
            workers_ns: counters.workers_ns,
            device_ns: match (counters.unplug_device_ns, device) {
                (Some(ns), _) => ns,
                (None, Some(device)) if !balloon => device.device_ns,
                // QEMU can trace each page of a balloon but not each message. What remains is the
                // time that the host's kernel works for QEMU, which is mostly discarding.
                _ => system_after.saturating_sub(system_before),
            },
            device_requests: match device {
                Some(device) if !balloon => device.unplug,
                // A message holds 256 pages (VIRTIO_BALLOON_ARRAY_PFNS_MAX).
                _ => counters.inflated_pages.div_ceil(256),
            },
            migrated_pages: counters.migrated_pages,
            taken_pages: counters.isolated_pages + counters.inflated_pages,
            resident_drop_bytes: asked_before
                .device_resident
                .resident_bytes
                .saturating_sub(asked_after.device_resident.resident_bytes),
            host,
            profile,
        })
    }

    /// CPU time of the VMM's threads, and the part of all of them in the host's kernel.
    async fn host_times(&self) -> Result<(CpuTimes, u64)> {
        let read = || Ok::<_, BenchError>((self.vm.cpu_times()?, system_ns(self.vm.process_id())?));
        match read() {
            Ok(times) => Ok(times),
            // If the VMM is gone, that is the reason, and it will be known in a moment.
            Err(error) => {
                match tokio::time::timeout(Duration::from_secs(1), self.vm.wait()).await {
                    Ok(ended) => Err(ended.into()),
                    Err(_) => Err(error),
                }
            }
        }
    }
}
