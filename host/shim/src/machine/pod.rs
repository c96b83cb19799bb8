//! A pod in the VM: its memory, and who lives in it.

use super::{
    Booted,
    container::FILES_PART,
    directories::Directories,
    free::take_free,
    idle::Idle,
    network, process,
    volumes::{check, on_host, remove},
};
use crate::{
    Id,
    error::{Error, ErrorKind, Result},
    freezer::{Freezer, Use},
    mutex::lock,
    network::{Connection, Traffic},
    requests::{MemoryRequest, Socket},
    spec::{self, Freeze},
    volumes,
};
use futures_util::future::join_all;
use squeezy_protocol::{
    Company, ErrorCode, Instance, InstanceId, InstanceSpec, InstanceState, PartitionChoice,
    PartitionNumber, Volume,
};
use squeezy_requests::SOCKET;
use squeezy_vmm::{
    AgentClient, Grain, Resize, VmError,
    mechanism::{Slot, outside_bytes},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    sync::Notify,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

/// Most containers of a pod.
const MAX_CONTAINERS: usize = 32;
/// How long a pod has had no container before its guest reports what is free in it, or the host looks for it once more.
/// Init containers follow each other sooner, and a pod that is to be deleted is, and then all of it is given back.
const EMPTY_FOR: Duration = Duration::from_secs(2);
/// The part of what a container may have outside its partition that files of one shared volume may take, as a divisor,
/// and what each of them takes, in bytes: its inode and dentry.
const FILES_OUTSIDE_PART: u64 = 4;
const FILE_OUTSIDE_BYTES: u64 = 2 << 10;

/// A pod. Its containers are known by their numbers.
#[derive(Clone)]
pub(super) struct Pod {
    host_name: Option<String>,
    /// Its limit, in bytes.
    memory_bytes: u64,
    /// What it requests of the host's processors, as its sandbox says, in shares of 1024 for each.
    cpu_shares: u64,
    inside: Arc<tokio::sync::Mutex<Inside>>,
    /// Where its containers are, or were last, as the guest says. It changes while `inside` is locked, and is there for
    /// those who do not wait for that, too.
    partition: Arc<Mutex<Option<PartitionNumber>>>,
    /// Told before somebody runs who did not.
    begins: Arc<Notify>,
    directories: Arc<Directories>,
    /// If it is frozen when it has nothing to do.
    freezer: Option<Arc<Freezer<Idle>>>,
}

/// Locked while memory is plugged, reclaimed or entered: whoever comes then finds it there or gone.
#[derive(Default)]
struct Inside {
    /// A slot of the VM's mechanism, while there are members.
    slot: Option<Slot>,
    /// Containers that are made and have not ended since.
    members: BTreeSet<u64>,
    /// When the last of them had ended, while there are none.
    emptied: Option<Instant>,
    /// How many have been made.
    entered: u64,
    /// Whether one of them has run since what they left was last given back.
    has_run: bool,
    /// Of these, the ones that run, which is what others can join.
    running: BTreeMap<u64, InstanceId>,
    /// Of these, the ones that containerd has paused.
    paused: BTreeSet<u64>,
    /// The volumes that its containers share, by what they are instead of on the host.
    shared: BTreeMap<PathBuf, u32>,
    /// The instance that keeps the partition while there are such volumes, whose files are in it, and the PID namespace
    /// that containers share: until the pod ends, whether containers run or not.
    keeper: Option<InstanceId>,
    /// Whether its containers share their processes: as its first one says.
    shares_processes: Option<bool>,
    /// How much of the VM's memory each copy that is a volume can take, in bytes.
    copies: BTreeMap<u32, u64>,
    /// With its network, until the pod is deleted. Without one, its containers have a loopback interface only.
    connection: Option<Connection>,
    /// Freezes it, as long as there is a connection.
    watcher: JoinSet<()>,
}

impl Pod {
    /// A pod without containers.
    pub(super) fn new(spec: &spec::Pod, connection: Option<Connection>) -> Self {
        let inside = Inside { connection, ..Inside::default() };
        Self {
            host_name: spec.host_name.clone(),
            memory_bytes: spec.memory_bytes,
            cpu_shares: spec.cpu_shares,
            inside: Arc::new(tokio::sync::Mutex::new(inside)),
            partition: Arc::default(),
            begins: Arc::default(),
            directories: Arc::default(),
            freezer: None,
        }
    }

    /// The same, frozen when it has nothing to do.
    pub(super) async fn frozen(
        self,
        booted: &Arc<Booted>,
        id: &Id,
        freeze: &Freeze,
        traffic: Traffic,
    ) -> Self {
        let request = freeze.requests_occupied.clone();
        let request = request.map(|pod| MemoryRequest::of_running(pod, Socket(SOCKET.into())));
        let idle = Idle { booted: booted.clone(), pod: self.clone(), traffic, request };
        let freezer = Freezer::new(idle, id.clone(), freeze.after);
        let (watched, id) = (freezer.clone(), id.clone());
        self.inside.lock().await.watcher.spawn(async move {
            if let Err(error) = watched.watch().await {
                tracing::error!(
                    "pod {id} is never frozen any more, for its traffic is not seen: {error}"
                );
            }
        });
        Self { freezer: Some(freezer), ..self }
    }

    /// Lets its containers run, but for those that are paused, as long as there is what this returns.
    pub(super) async fn begin_use(&self) -> Result<Option<Use<Idle>>> {
        match &self.freezer {
            Some(freezer) => freezer.begin_use().await.map(Some),
            None => Ok(None),
        }
    }

    /// Has its containers run in a moment, and as long as there is what this returns.
    pub(super) fn wake(&self) -> Option<Use<Idle>> {
        self.freezer.as_ref().map(Freezer::wake)
    }

    /// Keeps it from being frozen, though it may be already, as long as there is what this returns.
    pub(super) fn keep(&self) -> Option<Use<Idle>> {
        self.freezer.as_ref().map(Freezer::keep)
    }

    /// Its limit, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// What it requests of the host's processors while it has no containers, in shares of 1024 for each.
    pub(super) fn cpu_shares(&self) -> u64 {
        self.cpu_shares
    }

    /// Its host name.
    pub(super) fn host_name(&self) -> Option<String> {
        self.host_name.clone()
    }

    /// Ends its connection. Nothing runs in it any more.
    pub(super) async fn disconnect(&self, booted: &Booted) {
        let mut inside = self.inside.lock().await;
        inside.watcher.abort_all();
        if let Some(connection) = inside.connection.take() {
            drop(inside);
            network::disconnect(booted, connection).await;
        }
    }

    /// Makes a container a member. The first one gets the pod memory.
    pub(super) async fn enter(&self, booted: &Booted, container: u64) -> Result<()> {
        let mut inside = self.inside.lock().await;
        if inside.members.len() >= MAX_CONTAINERS {
            return Err(Error::new(
                ErrorKind::Full,
                format_args!("the pod has {MAX_CONTAINERS} containers already"),
            ));
        }
        if inside.slot.is_none() {
            // Before there is a slot: whoever resizes next asks for the memory of all that are taken.
            booted.bound.raise().await?;
            let plugged = match booted.mechanism.slots().take() {
                Ok(slot) => booted.mechanism.plug(&booted.vm, slot).await.map(|_| slot),
                Err(error) => Err(error),
            };
            match plugged {
                Ok(slot) => inside.slot = Some(slot),
                // The slot is free again, and nobody lives in what may have been plugged.
                Err(error) => {
                    booted.bound.lower();
                    return Err(error.into());
                }
            }
        }
        inside.members.insert(container);
        inside.emptied = None;
        inside.entered += 1;
        Ok(())
    }

    /// Starts the instance of a member: beside one that runs, in whose partition it is then, or with a partition of its
    /// own, which is the pod's from then on. One at a time, so that a pod never gets two.
    pub(super) async fn start(
        &self,
        agent: &AgentClient,
        container: u64,
        spec: &InstanceSpec,
    ) -> Result<Instance> {
        let mut inside = self.inside.lock().await;
        if !inside.members.contains(&container) {
            return Err(Error::state("the container has ended"));
        }
        if spec.shared_processes && !*inside.shares_processes.get_or_insert(true) {
            return Err(Error::unsupported(
                "sharing processes with one container of a pod is not supported by this runtime",
            ));
        }
        inside.shares_processes.get_or_insert(false);
        self.begin();
        if inside.keeper.is_none() && (!inside.shared.is_empty() || spec.shared_processes) {
            let keeper = inside.start(agent, &keeper(container, spec), &self.partition).await?;
            inside.keeper = Some(keeper.id);
        }
        let started = inside.start(agent, spec, &self.partition).await?;
        inside.running.insert(container, started.id.clone());
        inside.has_run = true;
        Ok(started)
    }

    /// The volume that its containers have instead of a directory of the host. There has to be a member.
    pub(super) async fn share(&self, booted: &Booted, source: &Path) -> Result<u32> {
        let mut inside = self.inside.lock().await;
        if let Some(&number) = inside.shared.get(source) {
            return Ok(number);
        }
        if inside.shared.len() >= Volume::MAX_OF_INSTANCE {
            return Err(Error::new(
                ErrorKind::Full,
                format_args!("the pod shares {} volumes already", Volume::MAX_OF_INSTANCE),
            ));
        }
        let (path, partition_bytes) = (source.to_owned(), booted.partition_bytes);
        let most_files = outside_bytes(partition_bytes) / FILES_OUTSIDE_PART / FILE_OUTSIDE_BYTES;
        let volume = on_host(move || {
            let most_files = u32::try_from(most_files).unwrap_or(u32::MAX);
            volumes::instead_of(&path, partition_bytes / FILES_PART, most_files)
        });
        let volume = volume.await.map_err(Error::failed)?;
        let number = booted.volume_number();
        booted.vm.agent()?.add_volume(number, &volume).await?;
        inside.shared.insert(source.to_owned(), number);
        Ok(number)
    }

    /// The copies of directories that its containers have.
    pub(super) fn directories(&self) -> &Directories {
        &self.directories
    }

    /// A volume is a copy that can take this much memory, in bytes, from now on.
    pub(super) async fn copies(&self, volume: u32, bytes: u64) -> Result<()> {
        let mut inside = self.inside.lock().await;
        let others = inside.copies.iter().filter(|(number, _)| **number != volume);
        check(others.map(|(_, bytes)| *bytes).chain([bytes]))?;
        inside.copies.insert(volume, bytes);
        Ok(())
    }

    /// That volume is there no more.
    pub(super) async fn copies_no_more(&self, volume: u32) {
        self.inside.lock().await.copies.remove(&volume);
    }

    /// A container that runs is paused from now on, or is no more.
    pub(super) async fn set_paused(&self, container: u64, is_paused: bool) {
        let mut inside = self.inside.lock().await;
        if is_paused && inside.running.contains_key(&container) {
            inside.paused.insert(container);
        } else {
            inside.paused.remove(&container);
        }
    }

    /// The containers that run and are not paused.
    pub(super) async fn unpaused(&self) -> Vec<InstanceId> {
        let inside = self.inside.lock().await;
        let running = inside.running.iter().filter(|(number, _)| !inside.paused.contains(number));
        running.map(|(_, id)| id.clone()).collect()
    }

    /// Somebody is about to run who did not.
    pub(super) fn begin(&self) {
        self.begins.notify_waiters();
    }

    /// Waits until somebody is about to run who did not when this was called.
    pub(super) fn begun(&self) -> impl Future<Output = ()> {
        self.begins.notified()
    }

    /// Where its containers are, or were last, as the guest says.
    pub(super) fn partition(&self) -> Option<PartitionNumber> {
        *lock(&self.partition)
    }

    /// The instance of a container has ended, and the container is as it was made.
    pub(super) async fn stopped(&self, container: u64) {
        self.inside.lock().await.ended(container);
    }

    /// A container has ended, at that moment; all of them, and the pod, if `container` is absent. With the last one, or
    /// with the pod if volumes are kept in it, giving back the pod's memory begins, and whoever comes after this finds it
    /// gone; returns who is about it. Where volumes are kept, what is free beside them is given back, which nobody waits
    /// for.
    pub(super) async fn leave(
        &self,
        booted: &Arc<Booted>,
        container: Option<u64>,
        at: Instant,
    ) -> Option<JoinHandle<()>> {
        let mut inside = self.inside.clone().lock_owned().await;
        let was_there = match container {
            Some(number) => {
                inside.ended(number);
                inside.members.remove(&number)
            }
            None => {
                inside.members.clear();
                inside.running.clear();
                inside.paused.clear();
                true
            }
        };
        if !inside.members.is_empty() {
            return None;
        }
        let emptied = *inside.emptied.get_or_insert(at);
        let booted = booted.clone();
        if inside.keeper.is_none() || container.is_none() {
            let partition = lock(&self.partition).take();
            let end = async move { inside.end(&booted, partition, emptied, at).await };
            return Some(tokio::spawn(end));
        }
        if was_there && inside.has_run {
            let (pod, entered) = (self.clone(), inside.entered);
            tokio::spawn(async move { pod.give_back_free(&booted, entered, emptied).await });
        }
        None
    }

    /// The same, now, until the memory is given back.
    pub(super) async fn left(&self, booted: &Arc<Booted>, container: Option<u64>) {
        if let Some(ends) = self.leave(booted, container, Instant::now()).await {
            let _ = ends.await;
        }
    }

    /// Gives back what is free in the pod's partition, which was `emptied` then, as the next container may be minutes away:
    /// at once where the host takes it by itself, and if so many containers have entered the pod when it has been empty
    /// for a while. A guest has to work for its reports, and what a container's files took is free only when containerd
    /// has deleted it. One that comes in the meantime does not wait for this, as the host takes whole areas of pods that
    /// run, too, and a guest reports when any of a pod's containers is paused.
    async fn give_back_free(&self, booted: &Booted, entered: u64, emptied: Instant) {
        if booted.vm.can_take_free() {
            let begin = Instant::now();
            let bytes = take_free(&booted.vm, self.partition(), Grain::Area).await;
            if bytes > 0 {
                say_free_is_back(emptied, begin, bytes);
            }
        }
        sleep(EMPTY_FOR).await;
        let keeper = self.inside.lock().await.free_beside(entered);
        let (Some(keeper), Ok(agent)) = (keeper, booted.vm.agent()) else { return };
        let begin = Instant::now();
        let bytes = if booted.vm.can_take_free() {
            take_free(&booted.vm, self.partition(), Grain::Area).await
        } else {
            let reported_bytes = process::pause(agent, &keeper).await;
            let resumed = process::resume(agent, &keeper).await;
            match reported_bytes.and_then(|bytes| resumed.map(|()| bytes)) {
                Ok(bytes) => bytes,
                // With the pod.
                Err(error) if process::is_gone(&error) => return,
                Err(error) => {
                    let why = process::in_a_line(&error);
                    return tracing::warn!("the free memory of a pod is not back: {keeper}: {why}");
                }
            }
        };
        say_free_is_back(emptied, begin, bytes);
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inside, &other.inside)
    }
}

impl Inside {
    fn ended(&mut self, container: u64) {
        self.running.remove(&container);
        self.paused.remove(&container);
    }

    /// Starts an instance beside one that runs, or alone if there is none: then `partition` becomes its own.
    async fn start(
        &mut self,
        agent: &AgentClient,
        spec: &InstanceSpec,
        partition: &Mutex<Option<PartitionNumber>>,
    ) -> Result<Instance> {
        while let Some(other) = self.keeper.iter().chain(self.running.values()).next().cloned() {
            let beside = InstanceSpec {
                company: Company::Beside(other.clone()),
                partition: PartitionChoice::None,
                company_memory_limit_bytes: None,
                host_name: None,
                ..spec.clone()
            };
            match process::start(agent, &beside).await {
                Err(error) if is_company_gone(agent, &other, &error).await => {}
                started => return Ok(started?),
            }
            if self.keeper.take_if(|keeper| *keeper == other).is_some() {
                let _ = agent.stop(&other, Duration::ZERO).await;
                // All whose processes were shared have ended with it.
                if spec.shared_processes {
                    return Err(Error::state("the processes of the pod have ended"));
                }
            }
            let gone = self.running.iter().find(|(_, running)| **running == other);
            if let Some(number) = gone.map(|(number, _)| *number) {
                self.ended(number);
            }
        }
        let alone = InstanceSpec {
            company: Company::None,
            partition: PartitionChoice::Any,
            in_network: self.connection.as_ref().map(Connection::number),
            ..spec.clone()
        };
        let started = process::start(agent, &alone).await?;
        *lock(partition) = started.partition;
        Ok(started)
    }

    /// What keeps the partition, if something has run in it since what is free was last given back, and no more than these
    /// containers have entered.
    fn free_beside(&mut self, entered: u64) -> Option<InstanceId> {
        if self.entered != entered || !std::mem::take(&mut self.has_run) {
            return None;
        }
        self.keeper.clone()
    }

    /// Gives back all that the pod has, which was `emptied` then. Nothing runs in it but what keeps its partition.
    async fn end(
        &mut self,
        booted: &Booted,
        partition: Option<PartitionNumber>,
        emptied: Instant,
        begin: Instant,
    ) {
        let (keeper, shared, slot) =
            (self.keeper.take(), std::mem::take(&mut self.shared), self.slot.take());
        self.has_run = false;
        let end_keeper = async {
            if let (Some(keeper), Ok(agent)) = (keeper, booted.vm.agent())
                && let Err(error) = agent.stop(&keeper, Duration::ZERO).await
                && !process::is_gone(&error)
            {
                tracing::error!("instance {keeper}: {}", process::in_a_line(&error));
            }
        };
        let removes = join_all(shared.into_values().map(|number| remove(booted, number)));
        // The guest's kernel lets go of the partition in the moment that nobody is in it any more, if it has been asked to.
        let reclaimed = async {
            let slot = slot?;
            // What its containers have left is the host's before the guest is even asked for it.
            take_free(&booted.vm, partition, Grain::Area).await;
            let called = begin.elapsed();
            Some((called, reclaim(booted, slot).await?))
        };
        let ((), _, reclaimed) = tokio::join!(end_keeper, removes, reclaimed);
        if let Some((called, Resize { lead, latency, plugged_bytes, .. })) = reclaimed {
            // With what the request took, and the memory that the VM's pods have. The guest is asked about it once more
            // after that.
            tracing::info!(
                empty_us = begin.duration_since(emptied).as_micros(),
                after_us = (called + lead + latency).as_micros(),
                latency_us = latency.as_micros(),
                plugged_bytes,
                "the memory of a pod is back"
            );
        }
    }
}

/// Says how much free memory of a pod, which was `emptied` then, is the host's since `begin`, and how long that took
/// without the time before it, in which another container could have come.
fn say_free_is_back(emptied: Instant, begin: Instant, bytes: u64) {
    let latency_us = begin.elapsed().as_micros();
    let empty_us = begin.duration_since(emptied).as_micros();
    tracing::info!(empty_us, latency_us, bytes, "the free memory of a pod is back");
}

/// The spec of an instance that keeps the partition of a pod, with the limits of a container of this number.
fn keeper(container: u64, spec: &InstanceSpec) -> InstanceSpec {
    let id = format!("keeper-{container}").parse().expect("it is an id");
    InstanceSpec {
        wait_ms: spec.wait_ms,
        memory_limit_bytes: spec.memory_limit_bytes,
        cpu_share_millis: Some(InstanceSpec::MIN_CPU_MILLIS),
        company_memory_limit_bytes: spec.company_memory_limit_bytes,
        host_name: spec.host_name.clone(),
        ..InstanceSpec::new(id, Vec::new())
    }
}

/// Whether an instance did not start because the one beside it has ended.
async fn is_company_gone(agent: &AgentClient, other: &InstanceId, error: &VmError) -> bool {
    process::is_gone(error)
        && match agent.instance(other).await {
            Ok(instance) => matches!(instance.state, InstanceState::Ended(_)),
            Err(error) => matches!(error, VmError::Agent { code: ErrorCode::NotFound, .. }),
        }
}

/// Gives back the memory of a pod. Returns nothing if it is not the host's then.
async fn reclaim(booted: &Booted, slot: Slot) -> Option<Resize> {
    let reclaimed = match booted.mechanism.slots().free(slot) {
        Ok(()) => booted.mechanism.reclaim(&booted.vm, slot).await,
        Err(error) => Err(error),
    };
    match reclaimed {
        Ok(resize) => {
            booted.bound.lower();
            resize
        }
        // The guest goes on with it, and whoever resizes next asks for as much more. The bound stays as high.
        Err(error) => {
            let why = process::in_a_line(&error);
            tracing::error!("the memory of a pod is not back: {why}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_given_back_once_where_something_has_run_and_nobody_has_come() {
        let keeper: InstanceId = "keeper-0".parse().unwrap();
        let mut inside = Inside { keeper: Some(keeper.clone()), entered: 2, ..Inside::default() };
        assert_eq!(inside.free_beside(2), None, "neither has run");
        inside.has_run = true;
        assert_eq!(inside.free_beside(1), None, "the second one has come since");
        assert_eq!(inside.free_beside(2), Some(keeper));
        assert_eq!(inside.free_beside(2), None, "it is back");
    }
}
