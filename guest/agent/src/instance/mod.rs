//! Instances: start, status and end.

mod doom;
mod end;
mod launch;
mod log;
pub mod output;
mod reaper;
mod spawn;
mod validate;

use crate::{cgroup::Cgroup, console, error::ApiError, layers::Layers};
use output::{Output, Stream, StreamBody};
use reaper::{ExitStatus, Reaper};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use squeezy_protocol::{
    ErrorCode, ExitReason, Instance, InstanceId, InstanceSpec, InstanceState, Layer, NetworkAccess,
    PartitionNumber, SignalRequest, Usage, network,
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    net::Ipv4Addr,
    os::fd::AsFd,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, oneshot, watch};

/// Maximum number of instances, including ended ones that were not deleted. Each takes some kernel memory, so
/// a host that forgets to delete them must notice.
const MAX_INSTANCES: usize = 1024;
/// How long processes may take to die of SIGKILL: the kernel may have gigabytes to free.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long processes may take to freeze; one in an uninterruptible sleep freezes only after it.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between checks whether they are frozen.
const FREEZE_PAUSE: Duration = Duration::from_millis(1);

/// All instances of the VM.
#[derive(Debug)]
pub struct Instances {
    entries: RefCell<BTreeMap<InstanceId, Rc<Entry>>>,
    /// The number of the next address. An address is not given away again before all others were: connections of its
    /// last instance may still be known outside.
    next_address: Cell<u16>,
    layers: Layers,
    reaper: Rc<Reaper>,
}

/// One instance.
#[derive(Debug)]
pub struct Entry {
    id: InstanceId,
    /// Number that sets its users apart from those of all others.
    user: u32,
    /// Its address in the VM's network, if it has one.
    address: Option<Ipv4Addr>,
    port: Option<u16>,
    /// The layers of its root, by their offsets.
    layers: Vec<u64>,
    state: watch::Sender<InstanceState>,
    /// Whether the host asked for its end.
    stopping: Cell<bool>,
    /// Whether it is frozen, or being frozen.
    frozen: Cell<bool>,
    /// Whether it can only be killed. Locked while the kernel is being told.
    doomed: Mutex<bool>,
    /// Number of requests under way; 0 while it is frozen.
    requests: Cell<usize>,
    cgroup: OnceCell<Cgroup>,
    output: OnceCell<Output>,
    start: Cell<Start>,
    /// Its network namespace and the agent's own.
    networks: RefCell<Option<[File; 2]>>,
}

/// What is known about an instance once it runs.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    pid: u32,
    partition: Option<PartitionNumber>,
    /// How many processes the partition's OOM killer had killed before.
    partition_oom_kills: u64,
    start_ns: u64,
    partition_wait_ns: u64,
}

impl Instances {
    /// Creates an empty list of instances, and starts to reap orphans.
    pub fn start() -> io::Result<Rc<Self>> {
        let (entries, next_address) = (RefCell::default(), Cell::new(0));
        let (layers, reaper) = (Layers::default(), Reaper::start()?);
        Ok(Rc::new(Self { entries, next_address, layers, reaper }))
    }

    /// All instances, ordered by ID.
    pub fn list(&self) -> Vec<Instance> {
        self.entries.borrow().values().map(|entry| entry.description()).collect()
    }

    /// One instance.
    pub fn get(&self, id: &InstanceId) -> Result<Rc<Entry>, ApiError> {
        self.entries
            .borrow()
            .get(id)
            .cloned()
            .ok_or_else(|| ApiError::new(ErrorCode::NotFound, format!("there is no instance {id}")))
    }

    /// Starts an instance and returns once its command has been executed. Once begun, the start continues
    /// even if the caller gives up.
    pub async fn create(self: &Rc<Self>, spec: InstanceSpec) -> Result<Instance, ApiError> {
        let begin = Instant::now();
        validate::check(&spec)?;
        let entry = {
            let mut entries = self.entries.borrow_mut();
            if entries.contains_key(&spec.id) {
                return Err(ApiError::new(
                    ErrorCode::Exists,
                    format!("there is already an instance {}", spec.id),
                ));
            }
            if entries.len() >= MAX_INSTANCES {
                return Err(ApiError::new(
                    ErrorCode::Unavailable,
                    format!(
                        "there are already {MAX_INSTANCES} instances: delete those that have ended"
                    ),
                ));
            }
            let taken: BTreeSet<u32> = entries.values().map(|entry| entry.user).collect();
            let user = (0..).find(|user| !taken.contains(user)).unwrap_or_default();
            let address = match spec.network {
                NetworkAccess::None => None,
                NetworkAccess::Outbound => Some(self.address(&entries)),
            };
            let entry = Rc::new(Entry::new(&spec, user, address));
            entries.insert(spec.id.clone(), Rc::clone(&entry));
            entry
        };
        let (report, reported) = oneshot::channel();
        tokio::task::spawn_local(Rc::clone(self).live(entry, spec, begin, report));
        reported.await.unwrap_or_else(|_| Err(ApiError::internal("starting", "its task is gone")))
    }

    /// Adds a layer that instances can be started on.
    pub fn add_layer(&self, layer: Layer) -> Result<(), ApiError> {
        self.layers.add(layer)
    }

    /// Removes a layer, unless an instance has it.
    pub async fn remove_layer(&self, offset_bytes: u64) -> Result<(), ApiError> {
        let has = |entry: &&Rc<Entry>| entry.layers.contains(&offset_bytes);
        let user = self.entries.borrow().values().find(has).map(|entry| entry.id.clone());
        if let Some(id) = user {
            let message = format!("instance {id} has the layer at {offset_bytes}");
            return Err(ApiError::new(ErrorCode::Unavailable, message));
        }
        self.layers.remove(offset_bytes).await
    }

    /// An address that none of these instances has, of which there are fewer than addresses.
    fn address(&self, entries: &BTreeMap<InstanceId, Rc<Entry>>) -> Ipv4Addr {
        loop {
            let number = self.next_address.get();
            self.next_address.set((number + 1) % network::ADDRESSES);
            let address = network::address(number);
            if entries.values().all(|entry| entry.address != Some(address)) {
                return address;
            }
        }
    }

    /// Runs an instance from start to end.
    async fn live(
        self: Rc<Self>,
        entry: Rc<Entry>,
        spec: InstanceSpec,
        begin: Instant,
        report: oneshot::Sender<Result<Instance, ApiError>>,
    ) {
        match launch::launch(&self, &entry, &spec, begin).await {
            Ok(exited) => {
                entry.state.send_replace(InstanceState::Running);
                let _ = report.send(Ok(entry.description()));
                let status = exited.await.unwrap_or(ExitStatus::Exited(-1));
                entry.finish(status).await;
            }
            Err(error) => {
                if let Some(cgroup) = entry.cgroup.get() {
                    let _ = cgroup.kill();
                    if let Err(error) = cgroup.remove().await {
                        console!("instance {}: {error}", entry.id);
                    }
                }
                self.entries.borrow_mut().remove(&entry.id);
                entry.state.send_replace(InstanceState::Ended(ExitReason::Stopped));
                let _ = report.send(Err(error));
            }
        }
    }

    /// Ends an instance, and forgets it once all its processes are gone.
    pub async fn delete(&self, id: &InstanceId, grace: Duration) -> Result<Instance, ApiError> {
        let entry = self.get(id)?;
        if entry.is_alive() {
            entry.stopping.set(true);
            // Without time to end by itself it is killed as it is. Nothing else is possible if its memory is gone.
            if !grace.is_zero() && entry.spare().await.is_ok() {
                entry.thaw()?;
                if entry.ask_to_end() {
                    let _ = tokio::time::timeout(grace, entry.ended()).await;
                }
            }
            if entry.is_alive() {
                entry.kill()?;
                tokio::time::timeout(KILL_TIMEOUT, entry.ended()).await.map_err(|_| {
                    ApiError::internal(
                        &format!("stopping instance {id}"),
                        "its processes did not die of SIGKILL within 60 s",
                    )
                })?;
            }
        }
        let mut entries = self.entries.borrow_mut();
        // While this call waited, another may have deleted it and created a new one with the same ID.
        if entries.get(id).is_some_and(|now| Rc::ptr_eq(now, &entry)) {
            entries.remove(id);
        }
        Ok(entry.description())
    }
}

impl Entry {
    fn new(spec: &InstanceSpec, user: u32, address: Option<Ipv4Addr>) -> Self {
        Self {
            id: spec.id.clone(),
            user,
            address,
            port: spec.port,
            layers: spec.layers.clone(),
            state: watch::Sender::new(InstanceState::Starting),
            stopping: Cell::new(false),
            frozen: Cell::new(false),
            doomed: Mutex::default(),
            requests: Cell::new(0),
            cgroup: OnceCell::new(),
            output: OnceCell::new(),
            start: Cell::default(),
            networks: RefCell::default(),
        }
    }

    /// Its ID.
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// The TCP port of its HTTP server.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Its current state.
    pub fn description(&self) -> Instance {
        let start = self.start.get();
        Instance {
            id: self.id.clone(),
            state: *self.state.borrow(),
            frozen: self.frozen.get(),
            partition: start.partition,
            pid: start.pid,
            start_ns: start.start_ns,
            partition_wait_ns: start.partition_wait_ns,
        }
    }

    /// Waits for its end.
    pub async fn ended(&self) -> Instance {
        let mut state = self.state.subscribe();
        // The sender is in self, so the wait can only end with a state.
        let _ = state.wait_for(|state| matches!(state, InstanceState::Ended(_))).await;
        self.description()
    }

    /// What it has written to its standard output and error from byte `from` on, as far as it is kept, and
    /// the offset after its last byte. Nothing if that is not kept.
    pub fn log(&self, from: u64) -> io::Result<(Vec<u8>, u64)> {
        match self.output.get() {
            Some(Output::Log(log)) => log.read(from),
            _ => Ok((Vec::new(), 0)),
        }
    }

    /// One of the streams that it writes, for whoever asks first.
    pub fn stream(&self, stream: Stream) -> Result<StreamBody, ApiError> {
        self.output.get().ok_or_else(|| self.not_running())?.take(stream)
    }

    /// Sends a signal to its first process, or to all.
    pub fn signal(&self, request: SignalRequest) -> Result<(), ApiError> {
        let SignalRequest { signal, all } = request;
        if !(1..=64).contains(&signal) {
            return Err(ApiError::invalid(format!("signal: {signal} is not between 1 and 64")));
        }
        let signal = i32::from(signal);
        let cgroup = match self.cgroup.get() {
            Some(cgroup) if *self.state.borrow() == InstanceState::Running => cgroup,
            _ => return Err(self.not_running()),
        };
        let sent = match (all, signal) {
            (false, _) => crate::cgroup::signal(self.start.get().pid, signal),
            (true, libc::SIGKILL) => cgroup.kill(),
            (true, _) => cgroup.signal(signal),
        };
        sent.map_err(|error| {
            ApiError::internal(&format!("sending signal {signal} to instance {}", self.id), error)
        })
    }

    /// What it uses outside of its partition.
    pub fn usage(&self) -> Result<Usage, ApiError> {
        let cgroup = self.cgroup.get().filter(|_| self.is_alive());
        cgroup
            .ok_or_else(|| self.not_running())?
            .usage()
            .map_err(|error| ApiError::internal(&format!("measuring instance {}", self.id), error))
    }

    fn not_running(&self) -> ApiError {
        ApiError::new(ErrorCode::Unavailable, format!("{}: it is not running", self.id))
    }

    /// Freezes it until the next request.
    pub async fn freeze(&self) -> Result<Instance, ApiError> {
        let refuse = |why| ApiError::new(ErrorCode::Unavailable, format!("{}: {why}", self.id));
        if self.requests.get() > 0 {
            return Err(refuse("it has a request to answer"));
        }
        let cgroup = match self.cgroup.get() {
            Some(cgroup) if *self.state.borrow() == InstanceState::Running => cgroup,
            _ => return Err(refuse("it is not running")),
        };
        let internal = |e| ApiError::internal(&format!("freezing instance {}", self.id), e);
        self.frozen.set(true);
        cgroup.freeze(true).map_err(internal)?;
        let deadline = Instant::now() + FREEZE_TIMEOUT;
        while !cgroup.is_frozen() {
            if !self.frozen.get() || !self.is_alive() {
                return Err(refuse("a request or its end came first"));
            }
            if Instant::now() > deadline {
                self.thaw()?;
                let why = "its processes are still running after 10 s";
                return Err(internal(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            tokio::time::sleep(FREEZE_PAUSE).await;
        }
        Ok(self.description())
    }

    /// Thaws it for a request. It can be neither frozen nor doomed again until the guard is dropped. Refused if it
    /// was doomed and its memory is gone; then it is killed.
    pub async fn request(self: &Rc<Self>) -> Result<UnderWay, ApiError> {
        self.requests.set(self.requests.get() + 1);
        let under_way = UnderWay(Rc::clone(self));
        self.spare().await?;
        self.thaw()?;
        Ok(under_way)
    }

    /// Thaws it for something other than a request. It cannot be frozen again until the guard is dropped.
    /// Refused while a request is under way.
    pub async fn wake(self: &Rc<Self>) -> Result<UnderWay, ApiError> {
        let running = *self.state.borrow() == InstanceState::Running;
        if self.requests.get() > 0 || !running {
            let why = if running { "it has a request to answer" } else { "it is not running" };
            return Err(ApiError::new(ErrorCode::Unavailable, format!("{}: {why}", self.id)));
        }
        self.request().await
    }

    fn thaw(&self) -> Result<(), ApiError> {
        match self.cgroup.get() {
            // An ended instance has nothing to thaw.
            Some(cgroup) if self.frozen.replace(false) && self.is_alive() => cgroup
                .freeze(false)
                .map_err(|e| ApiError::internal(&format!("thawing instance {}", self.id), e)),
            _ => Ok(()),
        }
    }

    /// Runs `action` in the instance's network namespace. The agent has one thread and `action` does not
    /// await, so no other code sees the change.
    pub fn in_network<T>(&self, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let networks = self.networks.borrow();
        let [its, own] = networks.as_ref().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, "the instance is not running")
        })?;
        enter_network(its)?;
        let result = action();
        enter_network(own).expect("the agent can go back to its own network");
        result
    }

    fn is_alive(&self) -> bool {
        !matches!(*self.state.borrow(), InstanceState::Ended(_))
    }

    /// Sends SIGTERM to the first process; `false` if there is none.
    fn ask_to_end(&self) -> bool {
        Pid::from_raw(self.start.get().pid as i32)
            .is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
    }

    fn kill(&self) -> Result<(), ApiError> {
        match self.cgroup.get() {
            Some(cgroup) => cgroup
                .kill()
                .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
                .map_err(|e| ApiError::internal(&format!("killing instance {}", self.id), e)),
            None => Ok(()),
        }
    }

    fn remember_networks(&self, pid: u32) -> io::Result<()> {
        let its = File::open(format!("/proc/{pid}/ns/net"))?;
        *self.networks.borrow_mut() = Some([its, File::open("/proc/self/ns/net")?]);
        Ok(())
    }

    /// Cleans up after its first process has ended.
    async fn finish(&self, status: ExitStatus) {
        self.networks.take();
        let mut oom_kills = 0;
        if let Some(cgroup) = self.cgroup.get() {
            // Kills the processes it left behind, and process 1 of its PID namespace.
            let _ = cgroup.kill();
            if let Some(Output::Log(log)) = self.output.get() {
                log.drained().await;
            }
            oom_kills = cgroup.oom_kills();
            if let Err(error) = cgroup.remove().await {
                console!("instance {}: {error}", self.id);
            }
        }
        let start = self.start.get();
        if let Some(now) = start.partition.and_then(crate::sysfs::oom_kills) {
            oom_kills += now.saturating_sub(start.partition_oom_kills);
        }
        let reason = end::reason(status, self.stopping.get(), oom_kills);
        self.state.send_replace(InstanceState::Ended(reason));
    }
}

/// A request under way; while it exists, the instance is not frozen.
#[derive(Debug)]
pub struct UnderWay(Rc<Entry>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
    }
}

fn enter_network(namespace: &File) -> io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(io::Error::from)
}
