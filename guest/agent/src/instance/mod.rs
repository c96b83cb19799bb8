//! Instances: start, status and end.

mod companion;
mod doom;
mod end;
pub mod input;
mod launch;
mod limits;
mod log;
mod looks;
pub mod output;
mod process;
mod reaper;
mod spawn;
mod terminal;
mod to_the_end;
mod validate;

use crate::{
    cgroup::Cgroup, console, error::ApiError, file_system::FileSystem, layers::Layers,
    networks::Networks, processes, volumes::Volumes,
};
use companion::Companion;
use input::{Input, Writer};
use looks::Looks;
use output::{Output, Stream, StreamBody};
use process::Process;
use reaper::{ExitStatus, Reaper};
use squeezy_netlink::Namespace;
use squeezy_protocol::{
    Company, ErrorCode, ExitReason, Instance, InstanceId, InstanceSpec, InstanceState, Layer,
    NetworkAccess, PartitionNumber, SignalRequest, TerminalSize, Usage, network,
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    io,
    net::Ipv4Addr,
    path::Path,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};
use terminal::Terminal;
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
    /// Files in memory that instances have in their roots.
    pub volumes: Volumes,
    /// Networks that they are in together.
    pub networks: Networks,
    reaper: Rc<Reaper>,
    looks: Rc<Looks>,
}

/// One instance.
#[derive(Debug)]
pub struct Entry {
    id: InstanceId,
    /// Number that sets its users apart from those of all others, except those that it shares them with.
    user: u32,
    /// Whether it is one more process in another instance, and has no cgroup of its own.
    is_inside: bool,
    /// Whether it executes nothing, and only keeps what others share.
    keeps: bool,
    /// Its address in the VM's network, if it has one.
    address: Option<Ipv4Addr>,
    port: Option<u16>,
    /// The layers of its root, by their offsets.
    layers: Vec<u64>,
    /// The network that it is in, if it is not its own.
    network: Option<u8>,
    state: watch::Sender<InstanceState>,
    /// Whether the host asked for its end.
    stopping: Cell<bool>,
    /// Whether it is frozen, or being frozen.
    frozen: Cell<bool>,
    /// Whether its limits can change still, which they cannot once it ends. Locked while they do.
    limits_can_change: Arc<Mutex<bool>>,
    /// The most private memory that its processes may have, in bytes.
    private_limit: watch::Sender<Option<u64>>,
    /// The looks at all that have such a limit.
    looks: Rc<Looks>,
    /// Whether it was killed because they had more.
    exceeded: Cell<bool>,
    /// Whether it can only be killed. Locked while the kernel is being told.
    doomed: Mutex<bool>,
    /// Number of requests under way; 0 while it is frozen.
    requests: Cell<usize>,
    cgroup: OnceCell<Cgroup>,
    input: OnceCell<Input>,
    output: OnceCell<Output>,
    terminal: OnceCell<Rc<Terminal>>,
    /// What has its files, while it runs, if their limit can change.
    file_system: RefCell<Option<FileSystem>>,
    /// Its first process.
    process: OnceCell<Process>,
    start: Cell<Start>,
    /// Its network namespace and the agent's own.
    networks: RefCell<Option<[Namespace; 2]>>,
}

/// What is known about an instance once it runs.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    pid: u32,
    partition: Option<PartitionNumber>,
    start_ns: u64,
    partition_wait_ns: u64,
}

impl Instances {
    /// Creates an empty list of instances, and starts to reap orphans.
    pub fn start() -> io::Result<Rc<Self>> {
        let (entries, next_address) = (RefCell::default(), Cell::new(0));
        let (layers, reaper) = (Layers::default(), Reaper::start()?);
        let (volumes, networks) = (Volumes::default(), Networks::default());
        let looks = Rc::default();
        Ok(Rc::new(Self { entries, next_address, layers, volumes, networks, reaper, looks }))
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
        let other = spec.company.id().map(|id| self.get(id)).transpose()?;
        if let Some(other) = &other {
            Companion::check(other, &spec)?;
        }
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
            let user = match &other {
                Some(other) => other.user,
                None => (0..).find(|user| !taken.contains(user)).unwrap_or_default(),
            };
            let address = match spec.network {
                NetworkAccess::None => None,
                NetworkAccess::Outbound => Some(self.address(&entries)),
            };
            let network = other.as_ref().map_or(spec.in_network, |other| other.network);
            let entry = Rc::new(Entry::new(&spec, user, address, network, &self.looks));
            entries.insert(spec.id.clone(), Rc::clone(&entry));
            entry
        };
        let (report, reported) = oneshot::channel();
        tokio::task::spawn_local(Rc::clone(self).live(entry, spec, other, begin, report));
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

    /// Removes a network, unless an instance is in it.
    pub fn remove_network(&self, number: u8) -> Result<(), ApiError> {
        let is_in = |entry: &&Rc<Entry>| entry.network == Some(number) && entry.is_alive();
        if let Some(entry) = self.entries.borrow().values().find(is_in) {
            let message = format!("instance {} is in network {number}", entry.id);
            return Err(ApiError::new(ErrorCode::Unavailable, message));
        }
        self.networks.remove(number)
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
        other: Option<Rc<Entry>>,
        begin: Instant,
        report: oneshot::Sender<Result<Instance, ApiError>>,
    ) {
        match launch::launch(&self, &entry, &spec, other, begin).await {
            Ok(mut exited) => {
                entry.state.send_replace(InstanceState::Running);
                let _ = report.send(Ok(entry.description()));
                let exited = tokio::select! {
                    exited = &mut exited => exited,
                    () = entry.until_it_exceeds_its_limit() => exited.await,
                };
                let status = exited.unwrap_or(ExitStatus::Exited(-1));
                entry.finish(status).await;
            }
            Err(error) => {
                let _ = entry.kill();
                entry.leave_file_system().await;
                if let Some(cgroup) = entry.cgroup.get()
                    && let Err(error) = cgroup.remove().await
                {
                    console!("instance {}: {error}", entry.id);
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
    fn new(
        spec: &InstanceSpec,
        user: u32,
        address: Option<Ipv4Addr>,
        network: Option<u8>,
        looks: &Rc<Looks>,
    ) -> Self {
        Self {
            id: spec.id.clone(),
            user,
            is_inside: matches!(spec.company, Company::Inside(_)),
            keeps: spec.command.is_empty(),
            address,
            port: spec.port,
            layers: spec.layers.clone(),
            network,
            state: watch::Sender::new(InstanceState::Starting),
            stopping: Cell::new(false),
            frozen: Cell::new(false),
            limits_can_change: Arc::new(Mutex::new(true)),
            private_limit: watch::Sender::new(spec.private_limit_bytes),
            looks: Rc::clone(looks),
            exceeded: Cell::new(false),
            doomed: Mutex::default(),
            requests: Cell::new(0),
            cgroup: OnceCell::new(),
            input: OnceCell::new(),
            output: OnceCell::new(),
            terminal: OnceCell::new(),
            file_system: RefCell::default(),
            process: OnceCell::new(),
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

    /// The writing end of its standard input, for whoever asks first.
    pub fn take_input(&self) -> Result<Writer, ApiError> {
        if !self.is_alive() {
            return Err(self.not_running());
        }
        let without = || ApiError::invalid(format!("{} was started without input", self.id));
        self.input.get().ok_or_else(without)?.take()
    }

    /// Sets the size of its terminal.
    pub fn resize(&self, size: TerminalSize) -> Result<(), ApiError> {
        let without = || ApiError::invalid(format!("{} was started without a terminal", self.id));
        let terminal = self.terminal.get().ok_or_else(without)?;
        terminal.resize(size).map_err(|e| ApiError::internal("resizing the terminal", e))
    }

    /// Sends a signal to its first process, or to all.
    pub fn signal(&self, request: SignalRequest) -> Result<(), ApiError> {
        let SignalRequest { signal, all } = request;
        if !(1..=64).contains(&signal) {
            return Err(ApiError::invalid(format!("signal: {signal} is not between 1 and 64")));
        }
        let signal = i32::from(signal);
        let process = match self.process.get() {
            Some(process) if *self.state.borrow() == InstanceState::Running => process,
            _ => return Err(self.not_running()),
        };
        let sent = match self.cgroup.get().filter(|_| all) {
            Some(cgroup) if signal == libc::SIGKILL => cgroup.kill(),
            Some(cgroup) => cgroup.signal(signal),
            None => process.signal(signal),
        };
        sent.map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => self.not_running(),
            _ => ApiError::internal(
                &format!("sending signal {signal} to instance {}", self.id),
                error,
            ),
        })
    }

    /// What it uses.
    pub async fn usage(&self) -> Result<Usage, ApiError> {
        let measured = self.own_cgroup()?.usage().map_err(|error| self.unmeasured(error))?;
        let private_bytes = self.look_at(|all| processes::private_bytes(&all)).await?;
        Ok(Usage { private_bytes, ..measured })
    }

    /// For how long its processes have run, or waited for a processor or a drive, in microseconds.
    pub fn busy_us(&self) -> Result<u64, ApiError> {
        self.own_cgroup()?.busy_us().map_err(|error| self.unmeasured(error))
    }

    /// Its processes, without process 1 of its namespace.
    pub async fn processes(&self) -> Result<Vec<u32>, ApiError> {
        self.look_at(processes::without_first).await
    }

    /// Looks at all of its processes, which may take a while.
    async fn look_at<T: Send + 'static>(
        &self,
        look: impl FnOnce(Vec<u32>) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let all = self.own_cgroup()?.processes().map_err(|error| self.unmeasured(error))?;
        let looked = tokio::task::spawn_blocking(move || look(all)).await;
        looked.map_err(|error| self.unmeasured(io::Error::other(error)))
    }

    /// Its cgroup, while it is there.
    fn own_cgroup(&self) -> Result<&Cgroup, ApiError> {
        self.cgroup.get().filter(|_| self.is_alive()).ok_or_else(|| self.not_running())
    }

    fn unmeasured(&self, error: io::Error) -> ApiError {
        ApiError::internal(&format!("measuring instance {}", self.id), error)
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
        its.enter()?;
        let result = action();
        own.enter().expect("the agent can go back to its own network");
        result
    }

    fn is_alive(&self) -> bool {
        !matches!(*self.state.borrow(), InstanceState::Ended(_))
    }

    /// Sends SIGTERM to the first process; `false` if there is none.
    fn ask_to_end(&self) -> bool {
        self.process.get().is_some_and(|process| process.signal(libc::SIGTERM).is_ok())
    }

    /// Kills all its processes; of an instance inside another one, only the first.
    fn kill(&self) -> Result<(), ApiError> {
        let killed = match (self.cgroup.get(), self.process.get()) {
            (Some(cgroup), _) => cgroup.kill(),
            (None, Some(process)) => process.signal(libc::SIGKILL),
            (None, None) => Ok(()),
        };
        killed.or_else(|error| match error.raw_os_error() {
            // It is gone already.
            Some(libc::ENOENT | libc::ESRCH) => Ok(()),
            _ => Err(ApiError::internal(&format!("killing instance {}", self.id), error)),
        })
    }

    fn remember_networks(&self, pid: u32) -> io::Result<()> {
        let its = Namespace::open(Path::new(&format!("/proc/{pid}/ns/net")))?;
        *self.networks.borrow_mut() = Some([its, Namespace::own()?]);
        Ok(())
    }

    /// Lets go of its files, when no change of its limits has them any more. They are gone then, unless processes that
    /// are being killed have them. A partition in which files stay is not used again.
    async fn leave_file_system(&self) {
        self.keep_limits().await;
        let file_system = self.file_system.take();
        if let Some(file_system) = file_system {
            file_system.leave().await;
        }
    }

    /// Cleans up after its first process has ended.
    async fn finish(&self, status: ExitStatus) {
        self.networks.take();
        if let Some(input) = self.input.get() {
            input.close();
        }
        if let Some(cgroup) = self.cgroup.get() {
            // Kills the processes it left behind, and process 1 of its PID namespace.
            let _ = cgroup.kill();
        }
        self.leave_file_system().await;
        if let Some(Output::Log(log)) = self.output.get() {
            log.drained().await;
        }
        let mut oom_kills = u64::from(self.exceeded.get());
        if let Some(cgroup) = self.cgroup.get() {
            oom_kills += cgroup.oom_kills();
            if let Err(error) = cgroup.remove().await {
                console!("instance {}: {error}", self.id);
            }
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
