//! The VM behind a server: pods have a partition each, and roots are made of layers in its pool.

mod boot;
mod container;
mod directories;
mod free;
mod idle;
mod needs;
mod network;
mod oom;
mod pod;
mod process;
mod reads;
mod usage;
mod volumes;

use crate::{
    Id, Name,
    cgroup::{Bound, Cgroup},
    error::{Error, ErrorKind, Result},
    layers::{Cache, Guest, Pool},
    mutex::lock,
    network::Networks,
    serve::Assignment,
    settings::Settings,
    spec::{self, Limits},
    vm::{Added, Container, Ended, Input, Listed, Output, Signal, Usage, Use, Vm},
};
use boot::boot;
use container::Made;
use futures_util::future::BoxFuture;
use pod::Pod;
use reads::Reads;
use squeezy_protocol::{ErrorCode, Instance, InstanceId, Layer, TerminalSize};
use squeezy_vmm::{VmError, mechanism::Mechanism};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::sleep,
};

/// Where images of layers are kept: in a directory of root's, unlike that of the daemon.
pub const LAYERS: &str = "/var/lib/squeezy-shim/layers";

/// How often it is looked whether layers have to make room for others on the disk.
const DISK_INTERVAL: Duration = Duration::from_secs(60);

/// Most processes that the agent is asked to run: it answers 2048 calls at a time, and each process takes a wait, three
/// streams and some more.
const MAX_PROCESSES: usize = 255;
/// Most processes of a container, those that its processes have started included: what the agent's limit leaves it.
const MAX_LISTED: usize = 1024;

/// The VM of a server. It boots with the first pod.
pub struct Machine {
    name: String,
    partition_bytes: u64,
    settings: Settings,
    layers: PathBuf,
    /// The control group that its server is in, unless there is none of its own.
    cgroup: Option<Arc<Cgroup>>,
    /// Whoever boots has it.
    booting: tokio::sync::Mutex<()>,
    booted: watch::Sender<Option<Arc<Booted>>>,
    inside: Mutex<Inside>,
    /// Counts instances.
    started: AtomicU64,
    /// For each process that may run beside those that do.
    free: Arc<Semaphore>,
}

/// What there is once it has booted.
struct Booted {
    vm: squeezy_vmm::Vm,
    mechanism: Box<dyn Mechanism>,
    /// The most memory that it may have on the host.
    bound: Arc<Bound>,
    pool: Pool,
    cache: Cache,
    networks: Arc<Networks>,
    reads: Reads,
    /// Counts volumes.
    volumes: AtomicU32,
    /// The size of a pod's partition, in bytes.
    partition_bytes: u64,
}

#[derive(Default)]
struct Inside {
    pods: HashMap<Id, Pod>,
    containers: HashMap<Id, Arc<Made>>,
    /// By the process's name, from its start until its end is known.
    running: HashMap<Name, Running>,
}

impl Inside {
    /// What a pod requests of the processors, in shares of 1024 for each: its containers together, which may have been
    /// changed, and what its sandbox says while it has none.
    fn shares_of(&self, pod: &Pod) -> u64 {
        let mut containers =
            self.containers.values().filter(|container| container.belongs_to(pod)).peekable();
        match containers.peek() {
            Some(_) => containers.map(|container| container.cpu_shares()).sum(),
            None => pod.cpu_shares(),
        }
    }

    /// The offsets of the layers that a pod's containers have.
    fn layers_of(&self, pod: &Pod) -> Vec<u64> {
        let containers = self.containers.values().filter(|container| container.belongs_to(pod));
        containers.flat_map(|container| container.layers()).collect()
    }
}

/// A process that was started.
struct Running {
    instance: InstanceId,
    /// Its id in the guest.
    pid: u32,
    _one: OwnedSemaphorePermit,
    /// Keeps its pod from being frozen: there may be something to do for this process that nobody else sees.
    one_use: Option<Use>,
}

impl Machine {
    /// The VM of this server, which is in that control group, with images of layers in `layers` (usually [`LAYERS`]). It
    /// does not boot yet.
    pub fn new(assignment: &Assignment, cgroup: Option<Arc<Cgroup>>, layers: &Path) -> Self {
        Self {
            name: assignment.server.as_str().to_owned(),
            partition_bytes: assignment.partition_bytes,
            settings: assignment.settings.clone(),
            layers: layers.to_owned(),
            cgroup,
            booting: tokio::sync::Mutex::default(),
            booted: watch::channel(None).0,
            inside: Mutex::default(),
            started: AtomicU64::default(),
            free: Arc::new(Semaphore::new(MAX_PROCESSES)),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        lock(&self.inside)
    }

    /// Boots it, if nobody has.
    async fn boot(&self) -> Result<Arc<Booted>> {
        let _turn = self.booting.lock().await;
        let booted = self.booted.borrow().clone();
        if let Some(booted) = booted {
            return Ok(booted);
        }
        let cache = Cache::open(&self.layers, self.settings.layers_bytes)?;
        let cgroup = self.cgroup.as_deref();
        let booted = boot(&self.name, self.partition_bytes, &self.settings, cache, cgroup);
        let booted = Arc::new(booted.await?);
        tokio::spawn(make_room(Arc::downgrade(&booted)));
        self.booted.send_replace(Some(booted.clone()));
        Ok(booted)
    }

    fn booted(&self) -> Result<Arc<Booted>> {
        self.booted.borrow().clone().ok_or_else(|| Error::state("the VM has not booted"))
    }

    fn pod(&self, id: &Id) -> Result<Pod> {
        let pod = self.inside().pods.get(id).cloned();
        pod.ok_or_else(|| Error::state(format_args!("there is no pod {id} in the VM")))
    }

    fn container(&self, id: &Id) -> Result<Arc<Made>> {
        let container = self.inside().containers.get(id).cloned();
        container.ok_or_else(|| Error::state(format_args!("there is no container {id} in the VM")))
    }

    /// The instance of a process that was started.
    fn instance(&self, name: &Name) -> Result<InstanceId> {
        let instance = self.inside().running.get(name).map(|running| running.instance.clone());
        instance.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format_args!("the process of {name} does not run"))
        })
    }

    /// The right to start one more process.
    fn one_process(&self) -> Result<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_owned().map_err(|_| {
            Error::new(
                ErrorKind::Full,
                format_args!("the VM runs {MAX_PROCESSES} processes already"),
            )
        })
    }

    fn number(&self) -> u64 {
        self.started.fetch_add(1, Ordering::Relaxed)
    }

    fn runs(
        &self,
        name: Name,
        instance: Instance,
        one: OwnedSemaphorePermit,
        one_use: Option<Use>,
    ) {
        let Instance { id, pid, .. } = instance;
        let running = Running { instance: id, pid, _one: one, one_use };
        self.inside().running.insert(name, running);
    }

    /// The host's kernel judges the VM by what is promised to its pods, and gives it their part of the processors. These
    /// are others than before, or have other promises.
    fn promises_have_changed(&self, booted: &Booted) {
        // Locked meanwhile, so that what is written last is what there is.
        let inside = self.inside();
        let pods_bytes = inside.pods.values().map(Pod::memory_bytes);
        if let Err(error) = oom::judge(booted.vm.process_id(), pods_bytes) {
            tracing::warn!(
                "the host would not end this VM in its turn if it had no memory: {error}"
            );
        }
        let cpu_shares: u64 = inside.pods.values().map(|pod| inside.shares_of(pod)).sum();
        if let Some(cgroup) = &self.cgroup
            && let Err(error) = cgroup.weigh(cpu_shares)
        {
            tracing::warn!("the VM does not have its part of the host's processors: {error}");
        }
    }

    /// A process of a container that has this id in the guest.
    fn listed(&self, container: &Id, pid: u32) -> Listed {
        let inside = self.inside();
        let added = inside.running.iter().find_map(|(name, running)| {
            let is_it = running.pid == pid && name.task == *container;
            name.added.clone().filter(|_| is_it)
        });
        Listed { pid, added }
    }
}

/// Has images of layers make room for others on the disk, and then layers in the pool, as long as there is the VM.
async fn make_room(booted: Weak<Booted>) {
    while let Some(booted) = booted.upgrade() {
        if let Err(error) = booted.cache.give_back(0).await {
            tracing::warn!("images of layers make no room on the disk: {error}");
        }
        if let Err(error) = booted.pool.give_back(&booted.cache, &*booted).await {
            tracing::warn!("layers of the VM make no room on the disk: {error}");
        }
        drop(booted);
        sleep(DISK_INTERVAL).await;
    }
}

impl Vm for Machine {
    fn create_pod<'a>(&'a self, id: &'a Id, pod: &'a spec::Pod) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let booted = self.boot().await?;
            let (connection, traffic) = network::connect(&booted, pod).await?;
            let mut made = Pod::new(pod, connection);
            if let (Some(freeze), Some(traffic)) = (&pod.freeze, traffic) {
                made = made.frozen(&booted, id, freeze, traffic).await;
            }
            self.inside().pods.insert(id.clone(), made);
            self.promises_have_changed(&booted);
            Ok(())
        })
    }

    fn end_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Ok(pod) = self.pod(id) else { return Ok(()) };
            // It goes on by itself.
            drop(pod.leave(&self.booted()?, None, Instant::now()).await);
            Ok(())
        })
    }

    fn delete_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Ok(pod) = self.pod(id) else { return Ok(()) };
            let booted = self.booted()?;
            pod.left(&booted, None).await;
            pod.disconnect(&booted).await;
            self.inside().pods.remove(id);
            self.promises_have_changed(&booted);
            Ok(())
        })
    }

    fn create<'a>(&'a self, id: &'a Id, container: &'a Container) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (booted, pod) = (self.booted()?, self.pod(&container.pod)?);
            if !container.spec.limits.bounds_memory() {
                // kubelet's number for a pod is the sum of its containers' limits.
                let of_pod_mib = pod.memory_bytes() >> 20;
                tracing::warn!(
                    "container {id} has no memory limit, and so no part in the {of_pod_mib} MiB of its pod but what others \
                     leave"
                );
            }
            let (number, of_pod) = (self.number(), self.inside().layers_of(&pod));
            let made = Made::new(&booted, number, container, pod, &of_pod).await?;
            self.inside().containers.insert(id.clone(), Arc::new(made));
            self.promises_have_changed(&booted);
            Ok(())
        })
    }

    fn begin_use<'a>(&'a self, container: &'a Id) -> BoxFuture<'a, Result<Use>> {
        Box::pin(async move {
            let begun: Use = match self.container(container) {
                Ok(container) => Box::new(container.pod().begin_use().await?),
                Err(_) => Box::new(()),
            };
            Ok(begun)
        })
    }

    fn start<'a>(&'a self, id: &'a Id, one_use: Use) -> BoxFuture<'a, Result<Output>> {
        Box::pin(async move {
            let (container, one) = (self.container(id)?, self.one_process()?);
            let (instance, output) = container.start(&self.booted()?).await?;
            // What it is to read may come at any time.
            let one_use = Some(one_use).filter(|_| container.has_input());
            self.runs(id.clone().into(), instance, one, one_use);
            Ok(output)
        })
    }

    fn add<'a>(
        &'a self,
        name: &'a Name,
        added: &'a Added,
        one_use: Use,
    ) -> BoxFuture<'a, Result<Output>> {
        Box::pin(async move {
            let container = self.container(&name.task)?;
            let (booted, spec) = (self.booted()?, container.added(self.number(), added));
            process::check_length(&spec)?;
            let one = self.one_process()?;
            let agent = booted.vm.agent()?;
            let instance = process::start(agent, &spec).await?;
            let output = process::output(agent, &spec).await?;
            self.runs(name.clone(), instance, one, Some(one_use));
            Ok(output)
        })
    }

    fn input<'a>(&'a self, name: &'a Name, from: Input) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (booted, instance) = (self.booted()?, self.instance(name)?);
            process::input(booted.vm.agent()?, &instance, from).await
        })
    }

    fn wait<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Ended>> {
        Box::pin(async move {
            let (booted, instance) = (self.booted()?, self.instance(name)?);
            let ended = match &name.added {
                None => self.container(&name.task)?.wait(&booted).await,
                Some(_) => process::wait(booted.vm.agent()?, &instance).await,
            };
            self.inside().running.remove(name);
            ended
        })
    }

    fn signal<'a>(
        &'a self,
        name: &'a Name,
        signal: Signal,
        all: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (booted, instance) = (self.booted()?, self.instance(name)?);
            // It waits for nothing: what is frozen can be killed, too, and has other signals when it runs.
            let pod = self.container(&name.task)?.pod().clone();
            let one_use = match signal {
                Signal::KILL => pod.keep(),
                _ => pod.wake(),
            };
            process::signal(booted.vm.agent()?, &instance, signal, all).await?;
            if let (Some(running), Some(one_use)) = (self.inside().running.get_mut(name), one_use) {
                // It has its own way to end, which may take a while.
                running.one_use.get_or_insert_with(|| Box::new(one_use));
            }
            Ok(())
        })
    }

    fn pause<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let booted = self.booted()?;
            self.container(id)?.pause(&booted).await
        })
    }

    fn resume<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let booted = self.booted()?;
            self.container(id)?.resume(&booted).await
        })
    }

    fn resize<'a>(&'a self, name: &'a Name, size: TerminalSize) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (booted, instance) = (self.booted()?, self.instance(name)?);
            Ok(booted.vm.agent()?.resize_terminal(&instance, size).await?)
        })
    }

    fn delete<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Ok(container) = self.container(id) else { return Ok(()) };
            let booted = self.booted()?;
            container.unmake(&booted).await;
            self.inside().containers.remove(id);
            self.promises_have_changed(&booted);
            Ok(())
        })
    }

    fn processes<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Vec<Listed>>> {
        Box::pin(async move {
            let (booted, container) = (self.booted()?, self.container(id)?);
            let pids = booted.vm.agent()?.processes(container.id()).await?;
            if pids.len() > MAX_LISTED {
                return Err(Error::failed(format_args!(
                    "the guest says that a container has more than {MAX_LISTED} processes"
                )));
            }
            Ok(pids.into_iter().map(|pid| self.listed(id, pid)).collect())
        })
    }

    fn usage<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Usage>> {
        Box::pin(async move {
            match self.container(id) {
                Ok(container) => self.usage_of(container.pod(), Some(container.id())).await,
                Err(_) => self.usage_of(&self.pod(id)?, None).await,
            }
        })
    }

    fn update<'a>(&'a self, id: &'a Id, limits: Limits) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Ok(container) = self.container(id) else {
                return Err(Error::unsupported(
                    "changing the limits of a pod, not of its containers, is not supported by this runtime",
                ));
            };
            let booted = self.booted()?;
            container.update(&booted, limits).await?;
            self.promises_have_changed(&booted);
            Ok(())
        })
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        let mut booted = self.booted.subscribe();
        Box::pin(async move {
            let found = booted.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
            match found {
                Some(booted) => booted.vm.wait().await.to_string(),
                None => std::future::pending().await,
            }
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Some(booted) = self.booted.borrow().clone() else { return };
            if let Err(error) = booted.vm.stop().await {
                tracing::error!("{error}");
            }
            // Of those that nobody could delete because the VM had ended.
            let left: Vec<Pod> = self.inside().pods.drain().map(|(_, pod)| pod).collect();
            for pod in left {
                pod.disconnect(&booted).await;
            }
        })
    }
}

impl Guest for Booted {
    fn add(&self, layer: Layer) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { Ok(self.vm.agent()?.add_layer(layer).await?) })
    }

    fn remove(&self, offset_bytes: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.vm.agent()?.remove_layer(offset_bytes).await {
                Err(VmError::Agent { code: ErrorCode::NotFound, .. }) => Ok(()),
                removed => Ok(removed?),
            }
        })
    }
}

impl From<VmError> for Error {
    fn from(error: VmError) -> Self {
        let kind = match &error {
            VmError::Agent { code: ErrorCode::Invalid, .. } => ErrorKind::Invalid,
            VmError::Full { .. } | VmError::NoPartition { .. } => ErrorKind::Full,
            _ => ErrorKind::Failed,
        };
        Self::new(kind, error)
    }
}
