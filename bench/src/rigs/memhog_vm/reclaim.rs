//! Taking an instance's memory back, and what can be seen of it.

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

/// What happened while an instance's memory was taken back.
#[derive(Clone, Debug)]
pub(crate) struct Reclaimed {
    /// From the request until the device had the size; until it was given up, if it never had.
    pub(crate) latency_ns: u64,
    /// Bytes that were given back.
    pub(crate) reclaimed_bytes: u64,
    /// Why it is not all that was asked for, if it is not.
    pub(crate) failure: Option<String>,
    /// The guest's work for it: by the kernel's own count (squeezy), else CPU time of its kworkers.
    pub(crate) guest_ns: u64,
    /// CPU time of the guest's kworkers, which do all such work.
    pub(crate) workers_ns: u64,
    /// The part of the latency that the device took.
    pub(crate) device_ns: u64,
    /// Requests (virtio-mem) or messages (balloon) to the device.
    pub(crate) device_requests: u64,
    pub(crate) migrated_pages: u64,
    /// Pages the guest took from its allocator in order to give them back, and took to migrate.
    pub(crate) taken_pages: u64,
    /// How much less the host had behind the guest's memory afterwards.
    pub(crate) resident_drop_bytes: u64,
    /// CPU time of the VMM.
    pub(crate) host: CpuTimes,
    /// Calls of kernel functions, if they were counted.
    pub(crate) profile: Option<Profile>,
}

impl MemhogVm {
    /// Takes the memory of an instance that is gone back, and measures that. With `functions` their
    /// calls are counted, which takes time itself.
    pub(crate) async fn reclaim(&mut self, index: u16, functions: &[&str]) -> Result<Reclaimed> {
        let slot = self.slots[usize::from(index)].take().ok_or_else(|| {
            BenchError::Arguments(format!("instance {index} has no memory to take back"))
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
                // QEMU can trace each page of a balloon but not each message, so what is left is the
                // time that the host's kernel works for it, which is the discarding.
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

    /// CPU time of the VMM's threads, and of all of it in the host's kernel.
    async fn host_times(&self) -> Result<(CpuTimes, u64)> {
        let read = || Ok::<_, BenchError>((self.vm.cpu_times()?, system_ns(self.vm.process_id())?));
        match read() {
            Ok(times) => Ok(times),
            // When the VMM is gone, that is the reason, and it is known in a moment.
            Err(error) => {
                match tokio::time::timeout(Duration::from_secs(1), self.vm.wait()).await {
                    Ok(ended) => Err(ended.into()),
                    Err(_) => Err(error),
                }
            }
        }
    }
}
