//! A VM with instances of memhog in it, and what taking one's memory back does.

use super::{
    error::{BenchError, Result},
    lab::Lab,
    record::Record,
};
use futures_util::future::try_join_all;
use squeezy_protocol::{
    InstanceId, InstanceSpec, InstanceState, Memory, PartitionChoice, Profile, ProfileRequest,
};
use squeezy_vmm::{
    AgentClient, BoxFuture, CpuTimes, GRANULE_BYTES, Kernel, MemoryBackend, Resize, Vm, VmConfig,
    VmError,
    mechanism::{Floor, Mechanism, MechanismName, Sizing, Slot},
    round_up,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// How long the guest is left alone before something is measured, so that what was started before
/// does not count.
const SETTLE: Duration = Duration::from_millis(400);
/// How long an instance may take to touch its memory.
const TOUCH_LIMIT: Duration = Duration::from_secs(300);
/// How often is looked whether it has.
const TOUCH_PAUSE: Duration = Duration::from_millis(100);

/// The least there can be, for questions about a method that do not depend on the size.
pub(crate) fn smallest() -> Sizing {
    Sizing { instance_bytes: GRANULE_BYTES, instances: 1, shared_bytes: 0 }
}

/// A VM for instances of one size.
pub(crate) struct Stand {
    vm: Vm,
    method: Box<dyn Mechanism>,
    kernel: String,
    slots: Vec<Option<Slot>>,
    /// Instances that run, with the bytes each takes.
    running: BTreeMap<u16, u64>,
}

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

impl Stand {
    /// Boots a VM that has room for the instances, and none in it.
    pub(crate) async fn start<R: Record>(
        lab: &Lab<R>,
        name: MechanismName,
        sizing: Sizing,
        arguments: &[String],
    ) -> Result<Self> {
        let method = name
            .mechanism(sizing)
            .ok_or_else(|| BenchError::Arguments(format!("the method `{name}` has no VM")))?;
        let kernel = method.kernel();
        let mut config =
            VmConfig::new(format!("bench-{name}"), lab.files.kernel(kernel), lab.files.initramfs());
        config.base_bytes = base_bytes(sizing);
        config.command_line = arguments.to_vec();
        lab.configure(&mut config);
        let vm = Vm::start(method.configure(config)).await?;
        let release = vm.agent()?.info().await?.kernel_release;
        Ok(Self {
            vm,
            method,
            kernel: describe(&release, kernel),
            slots: vec![None; sizing.instances.into()],
            running: BTreeMap::new(),
        })
    }

    /// The guest's kernel, for the header.
    pub(crate) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// The VMM's version, for the header.
    pub(crate) fn qemu(&self) -> &str {
        self.vm.vmm_version()
    }

    fn agent(&self) -> Result<&AgentClient> {
        Ok(self.vm.agent()?)
    }

    /// Plugs memory for an instance that has none; how long the device took for it.
    pub(crate) async fn plug(&mut self, index: u16) -> Result<Option<Resize>> {
        let slot = &mut self.slots[usize::from(index)];
        if slot.is_some() {
            return Ok(None);
        }
        let taken = self.method.slots().take()?;
        let resize = self.method.plug(&self.vm, taken).await?;
        *slot = Some(taken);
        Ok(resize)
    }

    /// Plugs memory for all these instances, starts them at the same time, so that their pages come
    /// to lie as they are touched, and waits until each has its bytes. Returns how long each took to
    /// touch them, in nanoseconds, as measured in the guest.
    pub(crate) async fn fill(&mut self, bytes: &BTreeMap<u16, u64>) -> Result<BTreeMap<u16, u64>> {
        for &index in bytes.keys() {
            self.plug(index).await?;
        }
        let mut starting = JoinSet::new();
        for (&index, &bytes) in bytes {
            let (agent, spec) = (self.agent()?.clone(), self.spec(index, bytes)?);
            starting.spawn(async move {
                agent.start(&spec).await?;
                let touch_ns = touched(&agent, &spec.id).await?;
                Ok::<_, BenchError>((index, touch_ns))
            });
        }
        let mut took = BTreeMap::new();
        while let Some(done) = starting.join_next().await {
            let (index, touch_ns) =
                done.map_err(|e| BenchError::Arguments(format!("a task failed: {e}")))??;
            took.insert(index, touch_ns);
        }
        self.running.extend(bytes);
        Ok(took)
    }

    fn spec(&self, index: u16, bytes: u64) -> Result<InstanceSpec> {
        let slot = self.slots[usize::from(index)]
            .ok_or_else(|| BenchError::Arguments(format!("instance {index} has no memory")))?;
        let mut spec = instance(index, vec!["/bin/memhog".to_owned(), bytes.to_string()])?;
        self.method.place(slot, &mut spec);
        spec.wait_ms = 20_000;
        Ok(spec)
    }

    /// Kills an instance; returns when its processes are gone.
    pub(crate) async fn kill(&mut self, index: u16) -> Result {
        if self.running.remove(&index).is_some() {
            self.agent()?.stop(&id(index)?, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// Kills all instances.
    pub(crate) async fn kill_all(&mut self) -> Result {
        for index in self.running.keys().copied().collect::<Vec<_>>() {
            self.kill(index).await?;
        }
        Ok(())
    }

    /// Bytes that the running instances hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.running.values().sum()
    }

    /// Waits until what was started before is done.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(SETTLE).await;
    }

    /// Plugs memory for all instances at once; how long that took, and requests to the device.
    pub(crate) async fn plug_all(&mut self) -> Result<(u64, u64)> {
        for slot in &mut self.slots {
            *slot = Some(self.method.slots().take()?);
        }
        let slots = self.slots.iter().flatten();
        self.at_once(slots.map(|&slot| self.method.plug(&self.vm, slot)).collect()).await
    }

    /// Takes the memory of all instances, which are gone, back at once.
    pub(crate) async fn reclaim_all(&mut self) -> Result<(u64, u64)> {
        let slots: Vec<_> = self.slots.iter_mut().filter_map(Option::take).collect();
        for &slot in &slots {
            self.method.slots().free(slot)?;
        }
        self.at_once(slots.iter().map(|&slot| self.method.reclaim(&self.vm, slot)).collect()).await
    }

    async fn at_once(
        &self,
        resizes: Vec<BoxFuture<'_, squeezy_vmm::Result<Option<Resize>>>>,
    ) -> Result<(u64, u64)> {
        let start = Instant::now();
        let done = try_join_all(resizes).await?;
        let took = nanoseconds(start.elapsed());
        // Each has seen those of all, as far as they went on at the same time.
        let requests = |resize: &Resize| resize.device.map_or(0, |d| d.plug + d.unplug);
        Ok((took, done.iter().flatten().map(requests).max().unwrap_or(0)))
    }

    /// Has an instance in each slot use its memory and end.
    pub(crate) async fn touch_all(&mut self, size_bytes: u64) -> Result {
        let count = self.slots.len() as u16;
        // A few at a time: all at once would take as long, and memory of the host besides.
        for first in (0..count).step_by(4) {
            let some = first..count.min(first + 4);
            self.fill(&some.map(|index| (index, hog_bytes(size_bytes))).collect()).await?;
            self.kill_all().await?;
        }
        Ok(())
    }

    /// CPU time of the guest's kworkers, in nanoseconds since boot.
    pub(crate) async fn workers_ns(&self) -> Result<u64> {
        Ok(workers_ns(&self.agent()?.memory().await?))
    }

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
        self.method.slots().free(slot)?;
        let outcome = self.method.reclaim(&self.vm, slot).await;

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
        let counters = Counters::between(&before, &after);
        let device = resize.and_then(|resize| resize.device);
        let balloon = self.method.name() == MechanismName::Balloon;
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

    /// Ends the VM.
    pub(crate) async fn stop(self) -> Result {
        Ok(self.vm.stop().await?)
    }
}

/// Base memory: what the kernel, the agent and the memory map need, and no more, for free base
/// memory would be room that a VM in use does not have.
fn base_bytes(sizing: Sizing) -> u64 {
    let all = sizing.shared_bytes + u64::from(sizing.instances) * sizing.instance_bytes;
    round_up((160 << 20) + all / 40, 2 << 20)
}

/// What an instance takes of its memory: all but what its process needs besides, and what a stock
/// kernel keeps on the other processor's free lists without looking there before it kills.
pub(crate) fn hog_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_sub((6 << 20) + size_bytes / 16)
}

/// What a process on the host did, without a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithoutGuest {
    /// How long it took to touch its memory.
    pub(crate) populate: Duration,
    /// How long it took to give it back.
    pub(crate) discard: Duration,
    /// How much less the host had behind it then.
    pub(crate) resident_drop_bytes: u64,
}

/// Has a process on the host, without a guest, take memory and give it back so many times.
pub(crate) async fn floor(
    bytes: u64,
    backend: MemoryBackend,
    trials: u32,
) -> Result<Vec<WithoutGuest>> {
    let measure = move || {
        let mut floor = Floor::start(bytes, backend)?;
        let mut one = || {
            let populate = floor.populate()?;
            let full_bytes = floor.resident_bytes()?;
            let discard = floor.discard()?;
            let resident_drop_bytes = full_bytes.saturating_sub(floor.resident_bytes()?);
            Ok(WithoutGuest { populate, discard, resident_drop_bytes })
        };
        (0..trials).map(|_| one()).collect::<squeezy_vmm::Result<Vec<_>>>()
    };
    let done = tokio::task::spawn_blocking(measure).await;
    Ok(done.map_err(|e| BenchError::Arguments(format!("the floor cannot be measured: {e}")))??)
}

/// `6.12.117 release`.
pub(crate) fn describe(release: &str, kernel: Kernel) -> String {
    let configuration = match kernel {
        Kernel::Release => "release",
        Kernel::Debug => "debug",
        Kernel::Off => "off",
        Kernel::Node => "node",
    };
    format!("{release} {configuration}")
}

fn id(index: u16) -> Result<InstanceId> {
    format!("i{index}").parse().map_err(|e| BenchError::Arguments(format!("{e}")))
}

/// A program that comes with the guest, in no partition.
pub(crate) fn instance(index: u16, command: Vec<String>) -> Result<InstanceSpec> {
    Ok(InstanceSpec {
        id: id(index)?,
        command,
        environment: BTreeMap::new(),
        working_directory: "/".to_owned(),
        image: None,
        partition: PartitionChoice::None,
        wait_ms: 0,
        memory_limit_bytes: None,
        files_limit_bytes: None,
        memory_node: None,
        cpu_share_millis: None,
        cpu_limit_millis: None,
        seccomp: squeezy_protocol::Seccomp::Default,
        port: None,
    })
}

/// Waits until memhog has written its line; the time it took to touch its memory.
async fn touched(agent: &AgentClient, id: &InstanceId) -> Result<u64> {
    let start = Instant::now();
    let fail = |reason: String| BenchError::Workload { program: "memhog", reason };
    loop {
        let log = agent.log(id).await?;
        for line in log.lines() {
            let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            if let Some(ns) = value.get("touch_ns").and_then(serde_json::Value::as_u64) {
                return Ok(ns);
            }
        }
        if let InstanceState::Ended(reason) = agent.instance(id).await?.state {
            return Err(fail(format!("it ended ({reason:?}): {}", log.trim().replace('\n', "; "))));
        }
        if start.elapsed() > TOUCH_LIMIT {
            return Err(fail(format!(
                "it has not touched its memory within {} s",
                TOUCH_LIMIT.as_secs()
            )));
        }
        tokio::time::sleep(TOUCH_PAUSE).await;
    }
}

/// CPU time that a process has had in the host's kernel, in nanoseconds, to 10 ms.
fn system_ns(process: u32) -> Result<u64> {
    /// Nanoseconds of a tick of /proc on x86-64 (USER_HZ is 100).
    const TICK_NS: u64 = 10_000_000;
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).map_err(|e| BenchError::file(&path, e))?;
    // The name, in parentheses, may hold anything; the 13th field after it is the time.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().nth(12).and_then(|ticks| ticks.parse::<u64>().ok());
    ticks.map(|ticks| ticks * TICK_NS).ok_or_else(|| BenchError::file(&path, "it has no time"))
}

/// Resizing is done by kworkers, whatever the method.
fn workers_ns(memory: &Memory) -> u64 {
    memory.kernel_threads_ns.get("kworker").copied().unwrap_or(0)
}

/// What the guest's counters have counted between two looks.
struct Counters {
    unplug_guest_ns: Option<u64>,
    unplug_device_ns: Option<u64>,
    workers_ns: u64,
    migrated_pages: u64,
    isolated_pages: u64,
    inflated_pages: u64,
}

impl Counters {
    fn between(before: &Memory, after: &Memory) -> Self {
        let vmstat = |name: &str| {
            let value = |memory: &Memory| memory.vmstat.get(name).copied().unwrap_or(0);
            value(after).saturating_sub(value(before))
        };
        let squeezy = |name: &str| {
            let value = |memory: &Memory| memory.squeezy.as_ref()?.counters.get(name).copied();
            Some(value(after)?.saturating_sub(value(before)?))
        };
        Self {
            unplug_guest_ns: squeezy("unplug_guest_ns"),
            unplug_device_ns: squeezy("unplug_device_ns"),
            workers_ns: workers_ns(after).saturating_sub(workers_ns(before)),
            migrated_pages: vmstat("pgmigrate_success"),
            isolated_pages: vmstat("compact_isolated"),
            inflated_pages: vmstat("balloon_inflate"),
        }
    }
}

fn cpu_delta(before: &CpuTimes, after: &CpuTimes) -> CpuTimes {
    CpuTimes {
        vcpus_ns: after.vcpus_ns.saturating_sub(before.vcpus_ns),
        devices_ns: after.devices_ns.saturating_sub(before.devices_ns),
        others_ns: after.others_ns.saturating_sub(before.others_ns),
        threads_ns: BTreeMap::new(),
    }
}

/// A duration as figures carry it.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_protocol::Squeezy;

    fn memory(vmstat: &[(&str, u64)], counters: Option<&[(&str, u64)]>) -> Memory {
        let map = |pairs: &[(&str, u64)]| {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
        };
        Memory {
            vmstat: map(vmstat),
            kernel_threads_ns: map(&[("kworker", vmstat.len() as u64 * 1000)]),
            squeezy: counters.map(|counters| Squeezy {
                partition_size_bytes: 1 << 30,
                shared_size_bytes: 0,
                shrink_blocked: String::new(),
                counters: map(counters),
                partitions: Vec::new(),
            }),
            ..Memory::default()
        }
    }

    #[test]
    fn counters_count_what_came_in_between() {
        let before = memory(&[("pgmigrate_success", 5)], Some(&[("unplug_guest_ns", 10)]));
        let after = memory(
            &[("pgmigrate_success", 7), ("compact_isolated", 4)],
            Some(&[("unplug_guest_ns", 25)]),
        );
        let counters = Counters::between(&before, &after);
        assert_eq!(
            (counters.migrated_pages, counters.isolated_pages, counters.inflated_pages),
            (2, 4, 0)
        );
        assert_eq!((counters.unplug_guest_ns, counters.unplug_device_ns), (Some(15), None));
        assert_eq!(counters.workers_ns, 1000);
        assert_eq!(Counters::between(&memory(&[], None), &memory(&[], None)).unplug_guest_ns, None);
    }

    #[test]
    fn work_of_the_kernel_is_counted() {
        let before = system_ns(std::process::id()).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            std::fs::read("/proc/self/smaps").unwrap();
        }
        let after = system_ns(std::process::id()).unwrap();
        assert!(after > before && after - before < 60_000_000_000, "{before} {after}");
        assert!(system_ns(0).is_err());
    }

    #[test]
    fn the_base_is_what_a_vm_needs_and_little_more() {
        let sizing = Sizing { instance_bytes: 512 << 20, instances: 4, shared_bytes: 0 };
        let bytes = base_bytes(sizing);
        assert!(
            (192 << 20..256 << 20).contains(&bytes) && bytes.is_multiple_of(2 << 20),
            "{bytes}"
        );
    }
}
