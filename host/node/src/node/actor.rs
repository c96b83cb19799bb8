//! Turns what happens into events, and decisions into tasks.

use super::{Answer, Call, CallError, FunctionLimits, NodeError, NodeStatus, WaitedFor};
use crate::{
    FunctionImage, Happening, Machine, Observer, Reply, StartTimes, Tried, VmPlan,
    instance::{Instance, LogPosition, SqueezeReport},
    openwhisk,
};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use squeezy_protocol::{ExitReason, ImageNumber, InstanceId, Partition};
use squeezy_runtime::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, Moment, PolicyError,
    RequestNumber, Scaler, SqueezePolicy, StopReason, VmIndex, VmPolicy, function::Function,
};
use squeezy_vmm::{
    BoxFuture, Timeouts, VmError,
    mechanism::{MechanismName, Slot},
};
use std::{
    collections::BTreeMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinError, JoinSet},
    time::{sleep_until, timeout, timeout_at},
};

/// Of instances that are stopped at once, how long the first that has ended waits for the others, so
/// that their memory goes back in one request.
const STOP_TOGETHER: Duration = Duration::from_millis(100);

/// How long a VM may take to say how its memory stands: whoever looks is not kept by one that hangs.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// What the handle wants.
pub(super) enum Ask {
    AddVm {
        plan: VmPlan,
        policy: VmPolicy,
        reply: oneshot::Sender<Result<VmIndex, PolicyError>>,
    },
    AddFunction {
        vm: VmIndex,
        function: Box<FunctionImage>,
        limits: FunctionLimits,
        reply: oneshot::Sender<Result<FunctionIndex, NodeError>>,
    },
    UpdateFunction {
        function: FunctionIndex,
        limits: FunctionLimits,
        reply: oneshot::Sender<Result<(), PolicyError>>,
    },
    RemoveFunction(FunctionIndex),
    Call {
        function: FunctionIndex,
        call: Call,
        reply: oneshot::Sender<Result<oneshot::Receiver<Result<Answer, CallError>>, CallError>>,
    },
    EvictIdle,
    Status(oneshot::Sender<NodeStatus>),
    Partitions(oneshot::Sender<Vec<(VmIndex, Option<Vec<Partition>>)>>),
    Drain,
    Kill,
}

/// A command that has been carried out, or something that has happened by itself.
enum Done {
    Booted {
        vm: VmIndex,
        result: Result<Arc<dyn Machine>, VmError>,
        took: Duration,
    },
    Plugged {
        instance: InstanceNumber,
        at: Moment,
        tried: Tried,
    },
    Started {
        instance: InstanceNumber,
        result: Result<StartTimes, String>,
    },
    Paused {
        vm: VmIndex,
        rest: u64,
        result: Result<u64, VmError>,
    },
    Resumed {
        vm: VmIndex,
        result: Result<(), VmError>,
    },
    Called {
        instance: InstanceNumber,
        request: RequestNumber,
        reply: Reply,
        took: Duration,
        logs: Vec<String>,
        position: LogPosition,
    },
    Frozen {
        instance: InstanceNumber,
        rest: u64,
        result: Result<u64, String>,
    },
    Squeezed {
        instance: InstanceNumber,
        rest: u64,
        result: Result<SqueezeReport, String>,
    },
    InstanceEnded {
        instance: InstanceNumber,
        reason: Option<ExitReason>,
    },
    Stopped {
        stopped: Vec<(InstanceNumber, Result<(), String>)>,
        others: Stopping,
    },
    Reclaimed {
        instance: InstanceNumber,
        vm: VmIndex,
        at: Moment,
        again: bool,
        tried: Tried,
    },
    VmStopped {
        vm: VmIndex,
        result: Result<(), VmError>,
    },
    VmGone {
        vm: VmIndex,
        boot: u64,
    },
    /// Nothing that matters any more.
    Nothing,
}

/// Instances that are being stopped.
type Stopping = FuturesUnordered<BoxFuture<'static, (InstanceNumber, Result<(), String>)>>;

/// A VM, beside what the scaler knows of it.
struct VmEntry {
    plan: Arc<VmPlan>,
    /// While it takes instances.
    machine: Option<Arc<dyn Machine>>,
    /// When it was booted last.
    booted: Option<Moment>,
    /// Counts its boots, so that the end of an earlier one is not taken for this one's.
    boot: u64,
    /// Counts how often it was told to stand still or to run: what was found out before says nothing now.
    rest: u64,
}

/// A function, beside what the scaler knows of it.
#[derive(Clone)]
struct FunctionEntry {
    vm: VmIndex,
    function: Arc<Function>,
    /// Its image among those of the VM.
    image: ImageNumber,
}

impl FunctionEntry {
    /// A call waits in vain when none of its function's is taken for as long as the longest one may take
    /// after which there is room, with the boot of a VM and the start of an instance.
    fn policy(&self, limits: FunctionLimits) -> FunctionPolicy {
        let FunctionLimits { keep_alive, freeze_after, queue } = limits;
        FunctionPolicy {
            vm: self.vm,
            max_instances: self.function.concurrency.into(),
            keep_alive,
            freeze_after,
            queue_limit: queue,
            wait_limit: Some(
                self.function.run_timeout + Timeouts::default().boot + self.function.init_timeout,
            ),
        }
    }
}

/// An instance, beside what the scaler knows of it.
struct Body {
    vm: VmIndex,
    machine: Arc<dyn Machine>,
    function: Arc<Function>,
    id: InstanceId,
    /// Where it starts; none when every slot was taken.
    slot: Option<Slot>,
    /// Whether the slot is its own, and not free again because its memory could not be plugged.
    has_slot: bool,
    stopping: bool,
    log: LogPosition,
    /// When it took calls first, and how long its `/init` took.
    ready: Option<(Moment, Duration)>,
    request: Option<RequestNumber>,
    /// Counts how often it was frozen or thawed: what was found out before says nothing now.
    rest: u64,
}

impl Body {
    /// The instance itself; none while it has no VM.
    fn instance(&self) -> Option<Instance> {
        Some(Instance { vm: self.machine.vm(self.slot?)?, id: self.id.clone() })
    }
}

/// A call that has no answer yet.
struct Open {
    function: FunctionIndex,
    call: Call,
    reply: oneshot::Sender<Result<Answer, CallError>>,
    came: Moment,
    /// Whether nobody could take it when it came.
    waits: bool,
    taken: Option<Taken>,
}

/// When an instance took a call, and whether it was started for it.
#[derive(Clone, Copy)]
struct Taken {
    instance: InstanceNumber,
    at: Moment,
    waited: Duration,
    waited_for: WaitedFor,
    cold: Option<Duration>,
}

/// Everything there is.
pub(super) struct Actor {
    scaler: Scaler,
    /// Whether the scaler is told what frozen instances hold.
    measures_frozen: bool,
    observer: Arc<dyn Observer>,
    begin: Instant,
    tasks: JoinSet<Done>,
    /// What is to be done for the last event: all of it is begun at once, when every slot that is
    /// taken or freed by it is known.
    begun: Vec<BoxFuture<'static, Done>>,
    stopping: BTreeMap<VmIndex, Stopping>,
    vms: BTreeMap<VmIndex, VmEntry>,
    functions: BTreeMap<FunctionIndex, FunctionEntry>,
    bodies: BTreeMap<InstanceNumber, Body>,
    open: BTreeMap<RequestNumber, Open>,
    next_request: u64,
}

impl Actor {
    pub(super) fn new(
        budget: Budget,
        squeezing: Option<SqueezePolicy>,
        begin: Instant,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            scaler: match squeezing {
                Some(policy) => Scaler::new(budget).with_squeezing(policy),
                None => Scaler::new(budget),
            },
            measures_frozen: squeezing.is_some(),
            observer,
            begin,
            tasks: JoinSet::new(),
            begun: Vec::new(),
            stopping: BTreeMap::new(),
            vms: BTreeMap::new(),
            functions: BTreeMap::new(),
            bodies: BTreeMap::new(),
            open: BTreeMap::new(),
            next_request: 0,
        }
    }

    /// Works until it is told to drain and everything has ended, or nobody is left to ask anything;
    /// then what still runs is killed.
    pub(super) async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) {
        while !self.scaler.is_drained() {
            let deadline = self.scaler.next_deadline();
            let tick = (self.begin + deadline.unwrap_or_default().0).into();
            tokio::select! {
                ask = asks.recv() => match ask {
                    Some(Ask::Kill) | None => return,
                    Some(ask) => self.ask(ask),
                },
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.done(done),
                () = sleep_until(tick), if deadline.is_some() => self.event(Event::Tick),
            }
            for stopping in mem::take(&mut self.stopping).into_values() {
                self.begin(stop_together(stopping));
            }
            for task in mem::take(&mut self.begun) {
                self.tasks.spawn(task);
            }
        }
    }

    fn begin(&mut self, task: impl Future<Output = Done> + Send + 'static) {
        self.begun.push(Box::pin(task));
    }

    /// Begins something in a VM, which runs by then if it is to run.
    fn begin_in(
        &mut self,
        machine: Arc<dyn Machine>,
        task: impl Future<Output = Done> + Send + 'static,
    ) {
        self.begin(async move {
            // What comes of this is told to whoever wanted it to run.
            let _ = machine.settle().await;
            task.await
        });
    }

    fn now(&self) -> Moment {
        Moment(self.begin.elapsed())
    }

    fn tell(&self, happening: Happening<'_>) {
        self.observer.observe(self.now(), happening);
    }

    fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::AddVm { plan, policy, reply } => {
                let index = self.scaler.add_vm(policy);
                if let Ok(index) = index {
                    let plan = Arc::new(plan);
                    let entry = VmEntry { plan, machine: None, booted: None, boot: 0, rest: 0 };
                    self.vms.insert(index, entry);
                }
                let _ = reply.send(index);
            }
            Ask::AddFunction { vm, function, limits, reply } => {
                let _ = reply.send(self.add_function(vm, *function, limits));
            }
            Ask::UpdateFunction { function, limits, reply } => {
                let result = match self.functions.get(&function) {
                    Some(entry) => self.scaler.update_function(function, entry.policy(limits)),
                    None => Err(PolicyError::NoFunction(function)),
                };
                let _ = reply.send(result);
                // Whatever is possible by that is done now.
                self.event(Event::Tick);
            }
            Ask::RemoveFunction(function) => self.event(Event::Retire(function)),
            Ask::Call { function, call, reply } => {
                let request = RequestNumber(self.next_request);
                self.next_request += 1;
                let (sender, mut answer) = oneshot::channel();
                let came = self.now();
                let open = Open { function, call, reply: sender, came, waits: false, taken: None };
                self.open.insert(request, open);
                self.event(Event::Request { function, request });
                if let Some(open) = self.open.get_mut(&request) {
                    open.waits = open.taken.is_none();
                }
                let _ = reply.send(match answer.try_recv() {
                    Ok(Err(rejected)) => Err(rejected),
                    _ => Ok(answer),
                });
            }
            Ask::EvictIdle => self.event(Event::EvictIdle),
            Ask::Status(reply) => self.status(reply),
            Ask::Partitions(reply) => self.partitions(reply),
            // The loop has returned.
            Ask::Kill => {}
            Ask::Drain => self.event(Event::Drain),
        }
    }

    fn add_function(
        &mut self,
        vm: VmIndex,
        FunctionImage { function, image }: FunctionImage,
        limits: FunctionLimits,
    ) -> Result<FunctionIndex, NodeError> {
        let entry = self.vms.get(&vm).ok_or(PolicyError::NoVm(vm))?;
        let number = entry.plan.images.iter().position(|known| *known == image);
        let number = number.and_then(|number| u8::try_from(number).ok());
        let number = ImageNumber(number.ok_or(NodeError::NoImage(image))?);
        let entry = FunctionEntry { vm, function: Arc::new(function), image: number };
        let index = self.scaler.add_function(entry.policy(limits))?;
        self.functions.insert(index, entry);
        Ok(index)
    }

    /// Looks at everything; the memory of VMs takes a moment, and is looked at beside.
    fn status(&mut self, reply: oneshot::Sender<NodeStatus>) {
        let functions =
            self.functions.keys().map(|&index| (index, self.scaler.counts(index))).collect();
        let vm_of = self.functions.iter().map(|(&index, entry)| (index, entry.vm)).collect();
        let committed_bytes = self.scaler.budget().committed_bytes();
        let vms: Vec<_> = self
            .vms
            .iter()
            .filter_map(|(&index, entry)| {
                Some((index, self.scaler.vm_state(index)?, entry.machine.clone()))
            })
            .collect();
        self.begin(async move {
            let look = |(index, state, machine): (_, _, Option<Arc<dyn Machine>>)| async move {
                let memory = match machine {
                    Some(machine) => timeout(LOOK_LIMIT, machine.memory()).await.ok(),
                    None => None,
                };
                (index, state, memory.and_then(Result::ok))
            };
            let vms = join_all(vms.into_iter().map(look)).await;
            let _ = reply.send(NodeStatus { committed_bytes, functions, vm_of, vms });
            Done::Nothing
        });
    }

    /// Asks every guest for its partitions.
    fn partitions(&mut self, reply: oneshot::Sender<Vec<(VmIndex, Option<Vec<Partition>>)>>) {
        let running = |(&index, entry): (&VmIndex, &VmEntry)| Some((index, entry.machine.clone()?));
        let machines: Vec<_> = self.vms.iter().filter_map(running).collect();
        self.begin(async move {
            let look = |(index, machine): (_, Arc<dyn Machine>)| async move {
                let partitions = timeout(LOOK_LIMIT, machine.partitions()).await;
                (index, partitions.ok().and_then(Result::ok))
            };
            let _ = reply.send(join_all(machines.into_iter().map(look)).await);
            Done::Nothing
        });
    }

    /// Tells the scaler, and starts what it decides.
    fn event(&mut self, event: Event) {
        let now = self.now();
        match self.scaler.handle(now, event) {
            Ok(commands) => commands.into_iter().for_each(|command| self.command(now, command)),
            // Only a mistake in here can lead to this; the node goes on without the event.
            Err(error) => self.tell(Happening::Note(&format!("internal error: {error}"))),
        }
        self.functions.retain(|&index, _| self.scaler.has_function(index));
        self.vms.retain(|&index, _| self.scaler.vm_state(index).is_some());
    }

    fn command(&mut self, now: Moment, command: Command) {
        match command {
            Command::BootVm(vm) => self.boot(vm),
            Command::PauseVm(vm) => self.pause(vm),
            Command::ResumeVm(vm) => self.resume(vm),
            Command::EndVm { vm, reason } => self.end(vm, reason),
            Command::Start { function, vm, instance } => self.start(now, instance, function, vm),
            Command::Dispatch { instance, request, thaw } => {
                self.dispatch(now, instance, request, thaw);
            }
            Command::Freeze(instance) => {
                let measures = self.measures_frozen;
                self.rest(instance, async move |frozen, machine, rest| {
                    let result = match frozen.freeze().await {
                        Ok(Some(seen)) if measures => {
                            Ok(machine.resident(&frozen.vm, &seen).await.unwrap_or(u64::MAX))
                        }
                        other => other.map(|_| u64::MAX),
                    };
                    Done::Frozen { instance, rest, result }
                });
            }
            Command::Squeeze(instance) => {
                self.rest(instance, async move |frozen, machine, rest| {
                    let result = frozen.squeeze(&*machine).await;
                    Done::Squeezed { instance, rest, result }
                });
            }
            Command::Stop { instance, reason } => {
                self.tell(Happening::Stopping(instance, reason));
                let Some(body) = self.bodies.get_mut(&instance) else { return };
                body.stopping = true;
                let stopped = body.instance();
                self.stopping.entry(body.vm).or_default().push(Box::pin(async move {
                    let result = match stopped {
                        Some(stopped) => stopped.stop().await,
                        None => Ok(()),
                    };
                    (instance, result)
                }));
            }
            Command::Reclaim { vm, instance } => self.reclaim(now, vm, instance),
            Command::Reject { request, reason } => {
                self.close(request, Err(CallError::Rejected(reason)));
            }
        }
    }

    /// Begins something with an instance that rests.
    fn rest<F: Future<Output = Done> + Send + 'static>(
        &mut self,
        instance: InstanceNumber,
        work: impl FnOnce(Instance, Arc<dyn Machine>, u64) -> F,
    ) {
        let Some(body) = self.bodies.get_mut(&instance) else { return };
        let Some(resting) = body.instance() else { return };
        body.rest += 1;
        let machine = body.machine.clone();
        let work = work(resting, machine.clone(), body.rest);
        self.begin_in(machine, work);
    }

    /// Whether an instance rests as it did then.
    fn still_rests(&self, instance: InstanceNumber, rest: u64) -> bool {
        self.bodies.get(&instance).is_some_and(|body| body.rest == rest)
    }

    fn boot(&mut self, vm: VmIndex) {
        let Some(entry) = self.vms.get_mut(&vm) else { return };
        entry.boot += 1;
        let (plan, observer, begin) = (entry.plan.clone(), self.observer.clone(), self.begin);
        self.begin(async move {
            let start = Instant::now();
            let tell =
                |step| observer.observe(Moment(begin.elapsed()), Happening::Booting(vm, step));
            let result = plan.boot(tell).await;
            Done::Booted { vm, result, took: start.elapsed() }
        });
    }

    /// From now on a VM is to stand still, or to run; which of its rests that is.
    fn want_paused(&mut self, vm: VmIndex, paused: bool) -> Option<(Arc<dyn Machine>, u64)> {
        let entry = self.vms.get_mut(&vm)?;
        let machine = entry.machine.clone()?;
        entry.rest += 1;
        machine.want_paused(paused);
        Some((machine, entry.rest))
    }

    fn pause(&mut self, vm: VmIndex) {
        let Some((machine, rest)) = self.want_paused(vm, true) else { return };
        self.begin(async move {
            let result = match machine.settle().await {
                Ok(()) => machine.memory().await.map(|memory| memory.resident.resident_bytes),
                Err(error) => Err(error),
            };
            Done::Paused { vm, rest, result }
        });
    }

    fn resume(&mut self, vm: VmIndex) {
        let Some((machine, _)) = self.want_paused(vm, false) else { return };
        self.begin(async move { Done::Resumed { vm, result: machine.settle().await } });
    }

    fn end(&mut self, vm: VmIndex, reason: StopReason) {
        for instance in self.within(vm) {
            if let Some(body) = self.bodies.get_mut(&instance) {
                body.stopping = true;
            }
            self.tell(Happening::Stopping(instance, reason));
        }
        let Some(machine) = self.vms.get_mut(&vm).and_then(|entry| entry.machine.take()) else {
            return;
        };
        self.begin(async move { Done::VmStopped { vm, result: machine.end().await } });
    }

    /// Plugs an instance's memory and starts it, side by side where the guest can wait.
    fn start(
        &mut self,
        now: Moment,
        instance: InstanceNumber,
        function: FunctionIndex,
        vm: VmIndex,
    ) {
        self.tell(Happening::Starting(instance, function));
        let machine = self.vms.get(&vm).and_then(|entry| entry.machine.clone());
        let (Some(machine), Some(entry)) = (machine, self.functions.get(&function)) else {
            return;
        };
        let FunctionEntry { function, image, .. } = entry.clone();
        let taken = machine.slots().take();
        let body = Body {
            vm,
            machine: machine.clone(),
            function: function.clone(),
            id: id(&function.name, instance),
            slot: taken.as_ref().ok().copied(),
            has_slot: taken.is_ok(),
            stopping: false,
            log: LogPosition::default(),
            ready: None,
            request: None,
            rest: 0,
        };
        let id = body.id.clone();
        self.bodies.insert(instance, body);
        let slot = match taken {
            Ok(slot) => slot,
            Err(error) => {
                let result = Err(error.to_string());
                return self.begin(async move { Done::Started { instance, result } });
            }
        };
        // Nothing comes when the plug fails, which is told with the plug.
        let (has_memory, memory) = oneshot::channel();
        let plugged = machine.clone();
        self.begin_in(machine.clone(), async move {
            let tried = plugged.plug(slot).await;
            if tried.error.is_none() {
                let _ = has_memory.send(());
            }
            Done::Plugged { instance, at: now, tried }
        });
        self.begin_in(machine.clone(), async move {
            let memory = async { memory.await.map_err(|_| None) };
            let start = async {
                let vm = machine.vm(slot).ok_or_else(|| Some("its VM has ended".to_owned()))?;
                Instance { vm, id }.start(&*machine, slot, &function, image).await.map_err(Some)
            };
            let result = if machine.starts_beside_plug() {
                tokio::try_join!(memory, start).map(|((), times)| times)
            } else {
                match memory.await {
                    Ok(()) => start.await,
                    Err(error) => Err(error),
                }
            };
            match result {
                Ok(times) => Done::Started { instance, result: Ok(times) },
                Err(Some(error)) => Done::Started { instance, result: Err(error) },
                Err(None) => Done::Nothing,
            }
        });
    }

    fn reclaim(&mut self, now: Moment, vm: VmIndex, instance: InstanceNumber) {
        let body = self.bodies.remove(&instance);
        // Without a body it was asked back before; memory that could not be plugged is not there.
        let again = body.is_none();
        let slot = body.filter(|body| body.has_slot).and_then(|body| body.slot);
        let Some(machine) = self.vms.get(&vm).and_then(|vm| vm.machine.clone()) else { return };
        let freed = slot.map_or(Ok(()), |slot| machine.slots().free(slot));
        self.begin(async move {
            let tried = match (freed, slot) {
                (Err(error), _) => Tried::new(Err(error)),
                (Ok(()), Some(slot)) => machine.reclaim(slot).await,
                (Ok(()), None) => machine.has_settled().await,
            };
            Done::Reclaimed { instance, vm, at: now, again, tried }
        });
    }

    fn dispatch(
        &mut self,
        now: Moment,
        instance: InstanceNumber,
        request: RequestNumber,
        thaw: bool,
    ) {
        let (Some(body), Some(open)) =
            (self.bodies.get_mut(&instance), self.open.get_mut(&request))
        else {
            return;
        };
        body.request = Some(request);
        body.rest += 1;
        let started = body.ready.filter(|(ready, _)| *ready > open.came);
        let (waited, cold) = (now.since(open.came), started.map(|(_, init)| init));
        let booted = self.vms.get(&body.vm).and_then(|vm| vm.booted);
        let waited_for = match cold {
            Some(_) if booted.is_some_and(|booted| booted > open.came) => WaitedFor::Boot,
            Some(_) => WaitedFor::Start,
            None if thaw => WaitedFor::Thaw,
            None if open.waits => WaitedFor::Busy,
            None => WaitedFor::Nothing,
        };
        open.taken = Some(Taken { instance, at: now, waited, waited_for, cold });
        let limit = body.function.run_timeout;
        let call = &open.call;
        let message = openwhisk::run(&body.function.name, &call.activation, &call.value, limit);
        let (wants_logs, mut position, called) = (call.logs, body.log, body.instance());
        let machine = body.machine.clone();
        self.begin_in(machine, async move {
            let start = Instant::now();
            let Some(called) = called else {
                let reply = Reply::Failed("its VM has ended".to_owned());
                let (took, logs) = (Duration::ZERO, Vec::new());
                return Done::Called { instance, request, reply, took, logs, position };
            };
            let reply = called.call(message, limit).await;
            let took = start.elapsed();
            let logs = if wants_logs { called.output(&mut position).await } else { Vec::new() };
            Done::Called { instance, request, reply, took, logs, position }
        });
    }

    /// Takes note of a task's end.
    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Booted { vm, result, took }) => self.booted(vm, result, took),
            Ok(Done::Plugged { instance, at, tried }) => {
                self.tell(Happening::Plugged(instance, self.now().since(at), &tried));
                let Some(body) = self.bodies.get_mut(&instance) else { return };
                body.has_slot = tried.error.is_none();
                // Its start may have failed by itself before.
                let fails = tried.error.is_some() && !body.stopping;
                let vm = body.vm;
                self.replace_if_unfit(vm, tried.error.as_ref());
                if fails {
                    let error = "its memory could not be plugged".to_owned();
                    self.started(instance, Err(error));
                }
            }
            Ok(Done::Started { instance, result }) => self.started(instance, result),
            Ok(Done::Called { instance, request, reply, took, logs, position }) => {
                if let Some(body) = self.bodies.get_mut(&instance) {
                    body.log = position;
                }
                self.called(instance, request, reply, took, logs);
            }
            Ok(Done::Frozen { instance, rest, result }) => {
                match &result {
                    Ok(_) => self.tell(Happening::Frozen(instance)),
                    Err(error) => {
                        let note = format!("instance {instance} cannot be frozen: {error}");
                        self.tell(Happening::Note(&note));
                    }
                }
                if self.still_rests(instance, rest) {
                    let resident_bytes = result.unwrap_or(u64::MAX);
                    self.event(Event::Frozen { instance, resident_bytes });
                }
            }
            Ok(Done::Squeezed { instance, rest, result }) => {
                let Some(body) = self.bodies.get(&instance) else { return };
                if result.is_err() && self.has_ended(body.vm) {
                    return;
                }
                self.tell(Happening::Squeezed(instance, result.as_ref().map_err(String::as_str)));
                if self.still_rests(instance, rest) {
                    self.event(match result {
                        Ok(SqueezeReport { resident_bytes, cpu, .. }) => {
                            Event::Squeezed { instance, resident_bytes, cpu }
                        }
                        Err(_) => Event::SqueezeFailed(instance),
                    });
                }
            }
            Ok(Done::Paused { vm, rest, result }) => {
                if self.vms.get(&vm).is_none_or(|entry| entry.rest != rest)
                    || result.is_err() && self.has_ended(vm)
                {
                    return;
                }
                match &result {
                    Ok(bytes) => self.tell(Happening::Paused(vm, *bytes)),
                    Err(error) => {
                        let note = format!("VM {vm} cannot be stopped: {error}");
                        self.tell(Happening::Note(&note));
                    }
                }
                let resident_bytes = result.unwrap_or(u64::MAX);
                self.event(Event::VmPaused { vm, resident_bytes });
            }
            Ok(Done::Resumed { vm, result }) => match result {
                Ok(()) => self.tell(Happening::Resumed(vm)),
                Err(error) if !self.has_ended(vm) => {
                    let note = format!("VM {vm} does not run as it should: {error}");
                    self.tell(Happening::Note(&note));
                }
                Err(_) => {}
            },
            Ok(Done::InstanceEnded { instance, reason }) => {
                // Most were stopped; those have no body any more, or are being stopped.
                let Some(body) = self.bodies.get(&instance) else { return };
                if body.stopping || self.has_ended(body.vm) {
                    return;
                }
                // Without a reason it was its own VM that ended.
                self.tell(Happening::Died(instance, reason));
                self.event(Event::Died(instance));
            }
            Ok(Done::Stopped { stopped, others }) => {
                for (instance, result) in stopped {
                    if let Err(error) = result {
                        let note = format!("instance {instance} cannot be stopped: {error}");
                        self.tell(Happening::Note(&note));
                    }
                    if self.bodies.contains_key(&instance) {
                        self.event(Event::Stopped(instance));
                    }
                }
                if !others.is_empty() {
                    self.begin(stop_together(others));
                }
            }
            Ok(Done::Reclaimed { instance, vm, at, again, tried }) => {
                self.tell(Happening::Reclaimed(instance, at, (!again).then_some(&tried)));
                if again && tried.error.is_none() {
                    self.tell(Happening::Settled(instance));
                }
                self.replace_if_unfit(vm, tried.error.as_ref());
                if self.vms.get(&vm).is_some_and(|entry| entry.machine.is_some())
                    && self.scaler.state(instance).is_some()
                {
                    self.event(match tried.error {
                        None => Event::Reclaimed(instance),
                        Some(_) => Event::ReclaimFailed(instance),
                    });
                }
            }
            Ok(Done::VmStopped { vm, result }) => {
                let reason = match result {
                    Ok(()) if self.scaler.is_unfit(vm) => "it was to be replaced".to_owned(),
                    Ok(()) => "it is not needed".to_owned(),
                    Err(error) => error.to_string(),
                };
                self.vm_ended(vm, &reason);
            }
            Ok(Done::VmGone { vm, boot }) => {
                if self.vms.get(&vm).is_some_and(|entry| entry.boot == boot) {
                    self.has_ended(vm);
                }
            }
            Ok(Done::Nothing) => {}
            // A task that panics has said so itself.
            Err(error) => self.tell(Happening::Note(&format!("internal error: {error}"))),
        }
    }

    fn booted(&mut self, vm: VmIndex, result: Result<Arc<dyn Machine>, VmError>, took: Duration) {
        let Some(entry) = self.vms.get_mut(&vm) else { return };
        match result {
            Ok(machine) => {
                let boot = entry.boot;
                entry.machine = Some(machine.clone());
                entry.booted = Some(Moment(self.begin.elapsed()));
                self.tell(Happening::Booted(vm, machine.details(), took));
                self.begin(async move {
                    machine.wait().await;
                    Done::VmGone { vm, boot }
                });
                self.event(Event::VmBooted(vm));
            }
            Err(error) => {
                self.tell(Happening::Ended(vm, &error.to_string()));
                self.event(Event::VmFailed(vm));
            }
        }
    }

    /// Whether a VM has ended by itself, of which notice is taken then. It is asked before anything
    /// that has failed in it, because that is why.
    fn has_ended(&mut self, vm: VmIndex) -> bool {
        let Some(entry) = self.vms.get_mut(&vm) else { return false };
        let Some(reason) = entry.machine.as_ref().and_then(|machine| machine.ended()) else {
            return false;
        };
        entry.machine = None;
        self.vm_ended(vm, &reason.to_string());
        true
    }

    /// A resize has failed, perhaps so that the VM is of no use to further instances.
    fn replace_if_unfit(&mut self, vm: VmIndex, error: Option<&VmError>) {
        let Some(VmEntry { plan, machine: Some(_), .. }) = self.vms.get(&vm) else { return };
        // Others share what memory there is: what one cannot have now another one may give back.
        let has_partitions = plan.policy.mechanism() == MechanismName::Squeezy;
        let is_new = has_partitions && !self.scaler.is_unfit(vm);
        if let Some(error) = error.filter(|error| error.is_unfit() && is_new) {
            let note = format!(
                "vm {vm}: takes no more instances, and is replaced after its last call: {error}"
            );
            self.tell(Happening::Note(&note));
            self.event(Event::VmUnfit(vm));
        }
    }

    /// The instances of a VM.
    fn within(&self, vm: VmIndex) -> Vec<InstanceNumber> {
        self.bodies.iter().filter(|(_, body)| body.vm == vm).map(|(&n, _)| n).collect()
    }

    /// A VM is gone with all that was in it.
    fn vm_ended(&mut self, vm: VmIndex, reason: &str) {
        self.tell(Happening::Ended(vm, reason));
        for instance in self.within(vm) {
            let request = self.bodies.remove(&instance).and_then(|body| body.request);
            if let Some(request) = request {
                self.fail(request, reason, true, Vec::new());
            }
            self.tell(Happening::Lost(instance));
        }
        self.event(Event::VmEnded(vm));
    }

    fn started(&mut self, instance: InstanceNumber, result: Result<StartTimes, String>) {
        let now = self.now();
        let Some(body) = self.bodies.get_mut(&instance) else { return };
        match result {
            Ok(times) => {
                body.ready = Some((now, times.init));
                let watched = body.instance();
                self.begin(async move {
                    let reason = match watched {
                        Some(watched) => watched.ended().await,
                        None => None,
                    };
                    Done::InstanceEnded { instance, reason }
                });
                self.tell(Happening::Started(instance, Ok(times)));
                self.event(Event::Started(instance));
            }
            Err(error) => {
                let vm = body.vm;
                self.tell(Happening::Started(instance, Err(&error)));
                if !self.has_ended(vm) {
                    self.event(Event::StartFailed(instance));
                }
            }
        }
    }

    fn called(
        &mut self,
        instance: InstanceNumber,
        request: RequestNumber,
        reply: Reply,
        took: Duration,
        logs: Vec<String>,
    ) {
        let Some(vm) = self.bodies.get(&instance).map(|body| body.vm) else { return };
        if matches!(reply, Reply::Failed(_)) && self.has_ended(vm) {
            return;
        }
        // A VM that is one instance's alone.
        let mut vm_ended = false;
        if let Some(body) = self.bodies.get_mut(&instance) {
            body.request = None;
            vm_ended = body.instance().is_none_or(|instance| instance.vm.ended().is_some());
        }
        let event = match reply {
            Reply::Answered(response) => {
                let taken = self.open.get(&request).and_then(|open| open.taken);
                if let Some(Taken { waited, waited_for, cold, .. }) = taken {
                    let answer = Answer { response, waited, waited_for, took, cold, logs };
                    self.close(request, Ok(answer));
                }
                Event::Answered(instance)
            }
            Reply::Failed(reason) => {
                self.fail(request, &reason, vm_ended, logs);
                Event::Broken(instance)
            }
        };
        self.event(event);
    }

    /// A call that an instance had taken will get no answer.
    fn fail(&mut self, request: RequestNumber, reason: &str, vm_ended: bool, logs: Vec<String>) {
        let taken = self.open.get(&request).and_then(|open| open.taken);
        let waited = taken.map_or(Duration::ZERO, |taken| taken.waited);
        let took = taken.map_or(Duration::ZERO, |taken| self.now().since(taken.at));
        let waited_for = taken.map_or(WaitedFor::Nothing, |taken| taken.waited_for);
        let cold = taken.is_some_and(|taken| taken.cold.is_some());
        let reason = reason.to_owned();
        let failed = CallError::Failed { reason, waited, waited_for, took, cold, vm_ended, logs };
        self.close(request, Err(failed));
    }

    fn close(&mut self, request: RequestNumber, result: Result<Answer, CallError>) {
        if let Some(open) = self.open.remove(&request) {
            let instance = open.taken.map(|taken| taken.instance);
            self.tell(Happening::Called(open.function, instance, &result));
            // Whoever asked may have gone.
            let _ = open.reply.send(result);
        }
    }
}

/// Waits for the first that has stopped, and a little for the others.
async fn stop_together(mut stopping: Stopping) -> Done {
    let mut stopped: Vec<_> = stopping.next().await.into_iter().collect();
    let deadline = (Instant::now() + STOP_TOGETHER).into();
    while let Ok(Some(next)) = timeout_at(deadline, stopping.next()).await {
        stopped.push(next);
    }
    Done::Stopped { stopped, others: stopping }
}

/// What an instance is called in its VM.
fn id(function: &str, instance: InstanceNumber) -> InstanceId {
    // A function's name is made of the same characters; its start is enough here.
    let id = format!("{function:.40}-{instance}");
    id.parse().unwrap_or_else(|_| unreachable!("{id} is a valid instance id"))
}
