//! A container in the VM.

use super::{Booted, free::take_free, pod::Pod, process, volumes::Volumes};
use crate::{
    cgroup::SHARES,
    error::{Error, Result},
    layers::Taken,
    mutex::lock,
    spec::Limits,
    vm::{Added, Container, Ended, Output},
};
use squeezy_protocol::{
    Company, Instance, InstanceId, InstanceSpec, LimitsRequest, PartitionNumber,
};
use squeezy_vmm::{Grain, mechanism::outside_bytes};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// How long an instance may wait for its partition, in milliseconds. It is plugged already.
const PARTITION_WAIT_MS: u32 = 30_000;
/// The part of a pod's memory that files may take, as a divisor: half, the default of tmpfs.
pub(super) const FILES_PART: u64 = 2;

/// A memory limit that a container can have in a partition, in bytes: of its files, too, which have a part of it.
fn bounded(limit_bytes: u64, partition_bytes: u64) -> u64 {
    limit_bytes.clamp(InstanceSpec::MIN_MEMORY_BYTES * FILES_PART, partition_bytes)
}

/// The limit that the guest has to watch. Whoever may have all of the partition is limited by the partition.
fn watched(limit_bytes: u64, partition_bytes: u64) -> Option<u64> {
    Some(limit_bytes).filter(|bytes| *bytes < partition_bytes)
}

/// The same, as an update says it: what is absent there stays as it is.
fn told(limit_bytes: u64, partition_bytes: u64) -> u64 {
    watched(limit_bytes, partition_bytes).unwrap_or(u64::MAX)
}

/// These limits for an instance that runs; what is absent stays as it is.
fn change(limits: Limits, partition_bytes: u64) -> LimitsRequest {
    let memory_bytes = limits.memory_bytes.map(|bytes| bounded(bytes, partition_bytes));
    LimitsRequest {
        private_limit_bytes: memory_bytes.map(|bytes| told(bytes, partition_bytes)),
        files_limit_bytes: memory_bytes.map(|bytes| bytes / FILES_PART),
        cpu_share_millis: limits.cpu_share_millis,
        cpu_limit_millis: limits.cpu_limit_millis,
    }
}

/// Gives an instance that is not started yet these limits; what is absent stays as it is.
fn limit(spec: &mut InstanceSpec, limits: Limits, partition_bytes: u64) {
    if let Some(bytes) = limits.memory_bytes.map(|bytes| bounded(bytes, partition_bytes)) {
        spec.private_limit_bytes = watched(bytes, partition_bytes);
        spec.files_limit_bytes = Some(bytes / FILES_PART);
    }
    spec.cpu_share_millis = limits.cpu_share_millis.or(spec.cpu_share_millis);
    spec.cpu_limit_millis = limits.cpu_limit_millis.or(spec.cpu_limit_millis);
}

/// A container that was made.
pub(super) struct Made {
    number: u64,
    id: InstanceId,
    /// What it is started with. Its limits are those that it has now.
    spec: Mutex<InstanceSpec>,
    pod: Pod,
    layers: Mutex<Option<Taken>>,
    /// Until it has ended.
    volumes: Mutex<Option<Volumes>>,
    /// Its partition, while it runs.
    partition: Mutex<Option<PartitionNumber>>,
}

impl Made {
    /// Makes a container of a pod whose others have the layers at the offsets `of_pod`. If that fails, nothing of it is
    /// left.
    pub(super) async fn new(
        booted: &Arc<Booted>,
        number: u64,
        container: &Container,
        pod: Pod,
        of_pod: &[u64],
    ) -> Result<Self> {
        let partition_bytes = booted.partition_bytes;
        pod.enter(booted, number).await?;
        let take = booted.pool.take(&booted.cache, &**booted, &container.layers, of_pod);
        let taken = match take.await {
            Ok(taken) => taken,
            Err(error) => {
                pod.left(booted, Some(number)).await;
                return Err(error);
            }
        };
        let volumes = match Volumes::new(booted, &pod, &container.spec.root.volumes).await {
            Ok(volumes) => volumes,
            Err(error) => {
                booted.pool.leave(taken).await;
                pod.left(booted, Some(number)).await;
                return Err(error);
            }
        };
        let (root, limits) = (&container.spec.root, container.spec.limits);
        let process = &container.spec.process;
        let mut spec = InstanceSpec {
            layers: taken.offsets().to_vec(),
            wait_ms: PARTITION_WAIT_MS,
            memory_limit_bytes: Some(outside_bytes(partition_bytes)),
            company_memory_limit_bytes: Some(outside_bytes(partition_bytes)),
            filters: container.spec.filters.clone(),
            shared_processes: container.spec.shares_processes,
            host_name: pod.host_name(),
            read_only_root: root.is_read_only,
            pseudoterminals: true,
            sees_limits: root.sees_limits,
            sees_message_queues: root.sees_message_queues,
            files_limit_changes: true,
            hidden_paths: root.hidden_paths.clone(),
            read_only_paths: root.read_only_paths.clone(),
            volumes: volumes.mounts.clone(),
            // containerd's identifiers are longer than the agent's, and have other letters.
            ..process::spec(format!("container-{number}"), process, container.has_input)
        };
        let memory_bytes = limits.memory_bytes.or(Some(partition_bytes));
        limit(&mut spec, Limits { memory_bytes, ..limits }, partition_bytes);
        let (layers, volumes) = (Mutex::new(Some(taken)), Mutex::new(Some(volumes)));
        let (id, spec) = (spec.id.clone(), Mutex::new(spec));
        Ok(Self { number, id, spec, pod, layers, volumes, partition: Mutex::default() })
    }

    /// Its instance.
    pub(super) fn id(&self) -> &InstanceId {
        &self.id
    }

    /// The offsets of its layers in the pool.
    pub(super) fn layers(&self) -> Vec<u64> {
        lock(&self.layers).iter().flat_map(Taken::offsets).copied().collect()
    }

    /// Whether its process has a standard input.
    pub(super) fn has_input(&self) -> bool {
        lock(&self.spec).input
    }

    /// Whether it is one of this pod's.
    pub(super) fn belongs_to(&self, pod: &Pod) -> bool {
        self.pod.is_same(pod)
    }

    /// The pod that it belongs to.
    pub(super) fn pod(&self) -> &Pod {
        &self.pod
    }

    /// The most private memory that it may have, in bytes, if that is less than its partition.
    pub(super) fn private_limit_bytes(&self) -> Option<u64> {
        lock(&self.spec).private_limit_bytes
    }

    /// What it requests of the processors, in shares of 1024 for each.
    pub(super) fn cpu_shares(&self) -> u64 {
        let millis = lock(&self.spec).cpu_share_millis.unwrap_or(0);
        // As many as these thousandths have come from.
        (u64::from(millis) * SHARES).div_ceil(1000)
    }

    /// Changes its limits: at once if it runs, and otherwise for its start, which is not under way. If that is refused, it
    /// has its former ones. If the guest does not answer in time, it may have the new ones there, and the former ones here
    /// until it is updated again.
    pub(super) async fn update(&self, booted: &Booted, limits: Limits) -> Result<()> {
        let most = booted.partition_bytes;
        if let Some(bytes) = limits.memory_bytes.filter(|bytes| *bytes > most && *bytes < u64::MAX)
        {
            return Err(Error::invalid(format_args!(
                "a memory limit of {} MiB is more than the pod's partition of {} MiB, which cannot grow: make the pod \
                 anew with a higher limit",
                bytes >> 20,
                most >> 20
            )));
        }
        if self.partition().is_some() {
            booted.vm.agent()?.change_limits(&self.id, change(limits, most)).await?;
        }
        limit(&mut lock(&self.spec), limits, most);
        Ok(())
    }

    /// Its partition, while it runs.
    pub(super) fn partition(&self) -> Option<PartitionNumber> {
        *lock(&self.partition)
    }

    /// Starts its process. If that fails, it is as it was.
    pub(super) async fn start(&self, booted: &Arc<Booted>) -> Result<(Instance, Output)> {
        let agent = booted.vm.agent()?;
        let spec = lock(&self.spec).clone();
        let instance = self.pod.start(agent, self.number, &spec).await?;
        match process::output(agent, &spec).await {
            Ok(output) => {
                *lock(&self.partition) = instance.partition;
                Ok((instance, output))
            }
            Err(error) => {
                self.pod.stopped(self.number).await;
                Err(error)
            }
        }
    }

    /// Keeps its processes from running, and gives back what memory they do not need.
    pub(super) async fn pause(&self, booted: &Booted) -> Result<()> {
        let reported_bytes = process::pause(booted.vm.agent()?, self.id()).await?;
        self.pod.set_paused(self.number, true).await;
        let begun = self.pod.begun();
        let taken_bytes = if self.pod.unpaused().await.is_empty() {
            // Whoever runs there would find single pages of its own taken.
            tokio::select! {
                bytes = take_free(&booted.vm, self.partition(), Grain::Page) => bytes,
                () = begun => 0,
            }
        } else {
            take_free(&booted.vm, self.partition(), Grain::Area).await
        };
        let bytes = reported_bytes.saturating_add(taken_bytes);
        tracing::info!("instance {} is frozen, and {bytes} bytes of it are the host's", self.id());
        Ok(())
    }

    /// Lets them run again.
    pub(super) async fn resume(&self, booted: &Booted) -> Result<()> {
        self.pod.begin();
        process::resume(booted.vm.agent()?, self.id()).await?;
        self.pod.set_paused(self.number, false).await;
        Ok(())
    }

    /// The spec of one more process in it.
    pub(super) fn added(&self, number: u64, added: &Added) -> InstanceSpec {
        InstanceSpec {
            company: Company::Inside(self.id().clone()),
            filters: lock(&self.spec).filters.clone(),
            ..process::spec(format!("added-{number}"), &added.process, added.has_input)
        }
    }

    /// Waits until its process has ended. Its memory, if it was the last of its pod, is being given back when this
    /// returns.
    pub(super) async fn wait(&self, booted: &Arc<Booted>) -> Result<Ended> {
        let ended = process::wait(booted.vm.agent()?, self.id()).await?;
        let at = Instant::now();
        *lock(&self.partition) = None;
        self.leave_volumes(booted, true).await;
        // Nobody has to wait for it.
        drop(self.pod.leave(booted, Some(self.number), at).await);
        Ok(ended)
    }

    /// Gives back its volumes; `has_run` says whether there is something to be written back.
    async fn leave_volumes(&self, booted: &Booted, has_run: bool) {
        let volumes = lock(&self.volumes).take();
        if let Some(volumes) = volumes {
            if has_run {
                volumes.report(booted).await;
            }
            volumes.remove(booted, &self.pod).await;
        }
    }

    /// Gives back what it has. Its process does not run, unless nobody could wait for it.
    pub(super) async fn unmake(&self, booted: &Arc<Booted>) {
        let may_run = lock(&self.partition).take().is_some();
        if may_run && let Ok(agent) = booted.vm.agent() {
            let _ = agent.stop(self.id(), Duration::ZERO).await;
        }
        self.leave_volumes(booted, false).await;
        self.pod.left(booted, Some(self.number)).await;
        let layers = lock(&self.layers).take();
        if let Some(layers) = layers {
            booted.pool.leave(layers).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION_BYTES: u64 = 256 << 20;

    #[test]
    fn only_a_limit_below_the_partition_is_watched() {
        for (limit_bytes, expected) in [
            (u64::MAX, None),
            (PARTITION_BYTES, None),
            (PARTITION_BYTES - 1, Some(PARTITION_BYTES - 1)),
            (1, Some(InstanceSpec::MIN_MEMORY_BYTES * FILES_PART)),
        ] {
            let bytes = bounded(limit_bytes, PARTITION_BYTES);
            assert_eq!(watched(bytes, PARTITION_BYTES), expected, "{limit_bytes}");
        }
        assert_eq!(told(u64::MAX, PARTITION_BYTES), u64::MAX);
        assert_eq!(told(PARTITION_BYTES, PARTITION_BYTES), u64::MAX);
        assert_eq!(told(100 << 20, PARTITION_BYTES), 100 << 20);
    }

    #[test]
    fn what_is_updated_while_it_runs_is_what_it_would_start_with() {
        let mut spec = InstanceSpec::new("a".parse().unwrap(), vec!["sh".to_owned()]);
        for memory_bytes in [1, 64 << 20, PARTITION_BYTES, u64::MAX] {
            let limits = Limits { memory_bytes: Some(memory_bytes), ..Limits::default() };
            limit(&mut spec, limits, PARTITION_BYTES);
            let request = change(limits, PARTITION_BYTES);
            assert_eq!(request.files_limit_bytes, spec.files_limit_bytes, "{memory_bytes}");
            let private_bytes = request.private_limit_bytes.filter(|bytes| *bytes < u64::MAX);
            assert_eq!(private_bytes, spec.private_limit_bytes, "{memory_bytes}");
        }
        let limits = Limits { cpu_limit_millis: Some(250), ..Limits::default() };
        let request = change(limits, PARTITION_BYTES);
        let only = LimitsRequest { cpu_limit_millis: Some(250), ..LimitsRequest::default() };
        assert_eq!(request, only);
    }

    #[test]
    fn what_is_updated_before_the_start_is_what_it_starts_with() {
        let mut spec = InstanceSpec::new("a".parse().unwrap(), vec!["sh".to_owned()]);
        let first = Limits {
            memory_bytes: Some(64 << 20),
            cpu_share_millis: Some(500),
            cpu_limit_millis: None,
        };
        limit(&mut spec, first, PARTITION_BYTES);
        let memory = |spec: &InstanceSpec| (spec.private_limit_bytes, spec.files_limit_bytes);
        assert_eq!(memory(&spec), (Some(64 << 20), Some(32 << 20)));
        limit(
            &mut spec,
            Limits { cpu_limit_millis: Some(250), ..Limits::default() },
            PARTITION_BYTES,
        );
        assert_eq!(memory(&spec), (Some(64 << 20), Some(32 << 20)));
        assert_eq!((spec.cpu_share_millis, spec.cpu_limit_millis), (Some(500), Some(250)));
        // No limit but the partition.
        limit(&mut spec, Limits { memory_bytes: Some(u64::MAX), ..first }, PARTITION_BYTES);
        assert_eq!(memory(&spec), (None, Some(128 << 20)));
    }
}
