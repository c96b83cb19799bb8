//! Turns what happens into events, and decisions into tasks.

use super::{Answer, Call, CallError, FunctionLimits, NodeStatus};
use crate::{Happening, Machine, Observer, Reply, StartTimes, Tried, VmPlan, openwhisk};
use squeezy_protocol::{ExitReason, InstanceId};
use squeezy_runtime::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, Moment, PolicyError,
    RequestNumber, Scaler, VmIndex, VmPolicy, function::Function,
};
use squeezy_vmm::{VmError, method::Slot};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinError, JoinSet},
};

/// What the handle wants.
pub(super) enum Ask {
    AddVm {
        plan: VmPlan,
        policy: VmPolicy,
        reply: oneshot::Sender<Result<VmIndex, PolicyError>>,
    },
    AddFunction {
        vm: VmIndex,
        function: Arc<Function>,
        limits: FunctionLimits,
        reply: oneshot::Sender<Result<FunctionIndex, PolicyError>>,
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
        reply: oneshot::Sender<Result<Answer, CallError>>,
    },
    EvictIdle,
    Status(oneshot::Sender<NodeStatus>),
    Drain,
    Kill,
}

/// A command that has been carried out, or something that has happened by itself.
enum Done {
    Booted {
        vm: VmIndex,
        result: Result<Machine, VmError>,
        took: Duration,
    },
    Plugged {
        instance: InstanceNumber,
        at: Moment,
        slot: Option<Slot>,
        tried: Tried,
    },
    Started {
        instance: InstanceNumber,
        result: Result<StartTimes, String>,
    },
    Called {
        instance: InstanceNumber,
        request: RequestNumber,
        reply: Reply,
        took: Duration,
    },
    InstanceEnded {
        instance: InstanceNumber,
        reason: Option<ExitReason>,
    },
    Stopped {
        instance: InstanceNumber,
        result: Result<(), String>,
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

/// A VM, beside what the scaler knows of it.
struct VmEntry {
    plan: Arc<VmPlan>,
    /// While it takes instances.
    machine: Option<Arc<Machine>>,
    /// Counts its boots, so that the end of an earlier one is not taken for this one's.
    boot: u64,
}

/// An instance, beside what the scaler knows of it.
struct Body {
    vm: VmIndex,
    machine: Arc<Machine>,
    function: Arc<Function>,
    id: InstanceId,
    slot: Option<Slot>,
    /// When it took calls first, and how long its `/init` took.
    ready: Option<(Moment, Duration)>,
    request: Option<RequestNumber>,
}

/// A call that has no answer yet.
struct Open {
    call: Call,
    reply: oneshot::Sender<Result<Answer, CallError>>,
    came: Moment,
    taken: Option<Taken>,
}

/// When an instance took a call, and whether it was started for it.
#[derive(Clone, Copy)]
struct Taken {
    waited: Duration,
    cold: Option<Duration>,
}

/// Everything there is.
pub(super) struct Actor {
    scaler: Scaler,
    observer: Arc<dyn Observer>,
    begin: Instant,
    tasks: JoinSet<Done>,
    vms: BTreeMap<VmIndex, VmEntry>,
    functions: BTreeMap<FunctionIndex, (VmIndex, Arc<Function>)>,
    bodies: BTreeMap<InstanceNumber, Body>,
    open: BTreeMap<RequestNumber, Open>,
    next_request: u64,
    draining: bool,
}

impl Actor {
    pub(super) fn new(budget: Budget, begin: Instant, observer: Arc<dyn Observer>) -> Self {
        Self {
            scaler: Scaler::new(budget),
            observer,
            begin,
            tasks: JoinSet::new(),
            vms: BTreeMap::new(),
            functions: BTreeMap::new(),
            bodies: BTreeMap::new(),
            open: BTreeMap::new(),
            next_request: 0,
            draining: false,
        }
    }

    /// Works until it is told to drain and everything has ended, or nobody is left to ask anything;
    /// then what still runs is killed.
    pub(super) async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) {
        while !(self.draining && self.scaler.is_empty()) {
            let deadline = self.scaler.next_deadline().map(|at| self.begin + at.0);
            tokio::select! {
                ask = asks.recv() => match ask {
                    Some(Ask::Kill) | None => return,
                    Some(ask) => self.ask(ask),
                },
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.done(done),
                () = at(deadline), if deadline.is_some() => self.event(Event::Tick),
            }
        }
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
                    let entry = VmEntry { plan: Arc::new(plan), machine: None, boot: 0 };
                    self.vms.insert(index, entry);
                }
                let _ = reply.send(index);
            }
            Ask::AddFunction { vm, function, limits, reply } => {
                let index = self.scaler.add_function(policy(vm, limits));
                if let Ok(index) = index {
                    self.functions.insert(index, (vm, function));
                }
                let _ = reply.send(index);
            }
            Ask::UpdateFunction { function, limits, reply } => {
                let result = match self.functions.get(&function) {
                    Some(&(vm, _)) => self.scaler.update_function(function, policy(vm, limits)),
                    None => Err(PolicyError::NoFunction(function)),
                };
                let _ = reply.send(result);
            }
            Ask::RemoveFunction(function) => self.event(Event::Retire(function)),
            Ask::Call { function, call, reply } => {
                let request = RequestNumber(self.next_request);
                self.next_request += 1;
                self.open.insert(request, Open { call, reply, came: self.now(), taken: None });
                self.event(Event::Request { function, request });
            }
            Ask::EvictIdle => self.event(Event::EvictIdle),
            Ask::Status(reply) => self.status(reply),
            // The loop has returned.
            Ask::Kill => {}
            Ask::Drain => {
                self.draining = true;
                self.event(Event::Drain);
            }
        }
    }

    /// Looks at everything; the memory of VMs takes a moment, and is looked at beside.
    fn status(&mut self, reply: oneshot::Sender<NodeStatus>) {
        let functions =
            self.functions.keys().map(|&index| (index, self.scaler.counts(index))).collect();
        let committed_bytes = self.scaler.budget().committed_bytes();
        let vms: Vec<_> = self
            .vms
            .iter()
            .filter_map(|(&index, entry)| {
                Some((index, self.scaler.vm_state(index)?, entry.machine.clone()))
            })
            .collect();
        self.tasks.spawn(async move {
            let mut status = NodeStatus { committed_bytes, functions, vms: Vec::new() };
            for (index, state, machine) in vms {
                let memory = match machine {
                    Some(machine) => machine.vm.memory().await.ok(),
                    None => None,
                };
                status.vms.push((index, state, memory));
            }
            let _ = reply.send(status);
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
    }

    fn command(&mut self, now: Moment, command: Command) {
        match command {
            Command::BootVm(vm) => self.boot(vm),
            Command::EndVm(vm) => self.end(vm),
            Command::Start { function, vm, instance } => self.plug(now, instance, function, vm),
            Command::Dispatch { instance, request, .. } => self.dispatch(now, instance, request),
            // Nothing is frozen without a time after which it is.
            Command::Freeze(_) => {}
            Command::Stop { instance, reason } => {
                self.tell(Happening::Stopping(instance, reason));
                let Some(body) = self.bodies.get(&instance) else { return };
                let (machine, id) = (body.machine.clone(), body.id.clone());
                self.tasks.spawn(async move {
                    Done::Stopped { instance, result: machine.stop(&id).await }
                });
            }
            Command::Reclaim { vm, instance } => {
                let body = self.bodies.remove(&instance);
                // Memory that could not be plugged is not there to be taken back.
                let again = body.is_none();
                let slot = body.and_then(|body| body.slot);
                let Some(machine) = self.vms.get(&vm).and_then(|vm| vm.machine.clone()) else {
                    return;
                };
                self.tasks.spawn(async move {
                    let tried = machine.reclaim(slot).await;
                    Done::Reclaimed { instance, vm, at: now, again, tried }
                });
            }
            Command::Reject { request, reason } => {
                self.close(request, Err(CallError::Rejected(reason)));
            }
        }
    }

    fn boot(&mut self, vm: VmIndex) {
        let Some(entry) = self.vms.get_mut(&vm) else { return };
        entry.boot += 1;
        let (plan, observer, begin) = (entry.plan.clone(), self.observer.clone(), self.begin);
        self.tasks.spawn(async move {
            let start = Instant::now();
            let tell =
                |step| observer.observe(Moment(begin.elapsed()), Happening::Booting(vm, step));
            let result = plan.boot(tell).await;
            Done::Booted { vm, result, took: start.elapsed() }
        });
    }

    fn end(&mut self, vm: VmIndex) {
        let Some(machine) = self.vms.get_mut(&vm).and_then(|entry| entry.machine.take()) else {
            return;
        };
        self.tasks.spawn(async move { Done::VmStopped { vm, result: machine.vm.stop().await } });
    }

    fn plug(
        &mut self,
        now: Moment,
        instance: InstanceNumber,
        function: FunctionIndex,
        vm: VmIndex,
    ) {
        self.tell(Happening::Starting(instance, function));
        let machine = self.vms.get(&vm).and_then(|entry| entry.machine.clone());
        let (Some(machine), Some((_, function))) = (machine, self.functions.get(&function)) else {
            return;
        };
        let body = Body {
            vm,
            machine: machine.clone(),
            id: id(&function.name, instance),
            function: function.clone(),
            slot: None,
            ready: None,
            request: None,
        };
        self.bodies.insert(instance, body);
        self.tasks.spawn(async move {
            let (slot, tried) = machine.plug().await;
            Done::Plugged { instance, at: now, slot, tried }
        });
    }

    fn dispatch(&mut self, now: Moment, instance: InstanceNumber, request: RequestNumber) {
        let (Some(body), Some(open)) =
            (self.bodies.get_mut(&instance), self.open.get_mut(&request))
        else {
            return;
        };
        body.request = Some(request);
        let started = body.ready.filter(|(ready, _)| *ready > open.came);
        open.taken =
            Some(Taken { waited: now.since(open.came), cold: started.map(|(_, init)| init) });
        let limit = body.function.run_timeout;
        let call = &open.call;
        let message = openwhisk::run(&body.function.name, &call.activation, &call.value, limit);
        let (machine, id) = (body.machine.clone(), body.id.clone());
        self.tasks.spawn(async move {
            let start = Instant::now();
            let reply = machine.call(&id, message, limit).await;
            Done::Called { instance, request, reply, took: start.elapsed() }
        });
    }

    /// Takes note of a task's end.
    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Booted { vm, result, took }) => self.booted(vm, result, took),
            Ok(Done::Plugged { instance, at, slot, tried }) => {
                self.plugged(instance, at, slot, &tried);
            }
            Ok(Done::Started { instance, result }) => self.started(instance, result),
            Ok(Done::Called { instance, request, reply, took }) => {
                self.called(instance, request, reply, took);
            }
            Ok(Done::InstanceEnded { instance, reason }) => {
                // Most were stopped; those have no body any more, or are being stopped.
                let reason = reason.filter(|reason| *reason != ExitReason::Stopped);
                if let Some(reason) = reason.filter(|_| self.bodies.contains_key(&instance)) {
                    self.tell(Happening::Died(instance, reason));
                    self.event(Event::Died(instance));
                }
            }
            Ok(Done::Stopped { instance, result }) => {
                if let Err(error) = result {
                    let note = format!("instance {instance} cannot be stopped: {error}");
                    self.tell(Happening::Note(&note));
                }
                if self.bodies.contains_key(&instance) {
                    self.event(Event::Stopped(instance));
                }
            }
            Ok(Done::Reclaimed { instance, vm, at, again, tried }) => {
                self.tell(Happening::Reclaimed(instance, at, (!again).then_some(&tried)));
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
                let reason = result.err().map_or("it is not needed".to_owned(), |e| e.to_string());
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

    fn booted(&mut self, vm: VmIndex, result: Result<Machine, VmError>, took: Duration) {
        let Some(entry) = self.vms.get_mut(&vm) else { return };
        match result {
            Ok(machine) => {
                let (machine, boot) = (Arc::new(machine), entry.boot);
                entry.machine = Some(machine.clone());
                self.tell(Happening::Booted(vm, &machine, took));
                self.tasks.spawn(async move {
                    machine.vm.wait().await;
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
        let Some(reason) = entry.machine.as_ref().and_then(|machine| machine.vm.ended()) else {
            return false;
        };
        entry.machine = None;
        self.vm_ended(vm, &reason.to_string());
        true
    }

    /// A VM is gone with all that was in it.
    fn vm_ended(&mut self, vm: VmIndex, reason: &str) {
        self.tell(Happening::Ended(vm, reason));
        let gone: Vec<_> =
            self.bodies.iter().filter(|(_, body)| body.vm == vm).map(|(&n, _)| n).collect();
        for instance in gone {
            let request = self.bodies.remove(&instance).and_then(|body| body.request);
            if let Some(request) = request {
                self.fail(request, reason);
            }
        }
        self.event(Event::VmEnded(vm));
        self.vms.retain(|&index, _| self.scaler.vm_state(index).is_some());
    }

    fn plugged(&mut self, instance: InstanceNumber, at: Moment, slot: Option<Slot>, tried: &Tried) {
        self.tell(Happening::Plugged(instance, self.now().since(at), tried));
        let Some(body) = self.bodies.get_mut(&instance) else { return };
        body.slot = slot;
        let vm = body.vm;
        let Some(slot) = slot else {
            if !self.has_ended(vm) {
                self.event(Event::StartFailed(instance));
            }
            return;
        };
        let Some(body) = self.bodies.get(&instance) else { return };
        let (machine, function, id) =
            (body.machine.clone(), body.function.clone(), body.id.clone());
        self.tasks.spawn(async move {
            Done::Started { instance, result: machine.start(&id, &function, slot).await }
        });
    }

    fn started(&mut self, instance: InstanceNumber, result: Result<StartTimes, String>) {
        let now = self.now();
        let Some(body) = self.bodies.get_mut(&instance) else { return };
        match result {
            Ok(times) => {
                body.ready = Some((now, times.init));
                let (machine, id) = (body.machine.clone(), body.id.clone());
                self.tasks.spawn(async move {
                    Done::InstanceEnded { instance, reason: machine.ended(&id).await }
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
    ) {
        let Some(vm) = self.bodies.get(&instance).map(|body| body.vm) else { return };
        if matches!(reply, Reply::Failed(_)) && self.has_ended(vm) {
            return;
        }
        if let Some(body) = self.bodies.get_mut(&instance) {
            body.request = None;
        }
        let event = match reply {
            Reply::Answered(response) => {
                let taken = self.open.get(&request).and_then(|open| open.taken);
                if let Some(Taken { waited, cold }) = taken {
                    self.close(request, Ok(Answer { response, waited, took, cold }));
                }
                Event::Answered(instance)
            }
            Reply::Failed(reason) => {
                self.fail(request, &reason);
                Event::Broken(instance)
            }
        };
        self.event(event);
    }

    /// A call that an instance had taken will get no answer.
    fn fail(&mut self, request: RequestNumber, reason: &str) {
        let taken = self.open.get(&request).and_then(|open| open.taken);
        let waited = taken.map_or(Duration::ZERO, |taken| taken.waited);
        let cold = taken.is_some_and(|taken| taken.cold.is_some());
        self.close(request, Err(CallError::Failed { reason: reason.to_owned(), waited, cold }));
    }

    fn close(&mut self, request: RequestNumber, result: Result<Answer, CallError>) {
        if let Some(open) = self.open.remove(&request) {
            // Whoever asked may have gone.
            let _ = open.reply.send(result);
        }
    }
}

fn policy(vm: VmIndex, limits: FunctionLimits) -> FunctionPolicy {
    let FunctionLimits { keep_alive, queue } = limits;
    FunctionPolicy { vm, keep_alive, freeze_after: None, queue_limit: queue }
}

/// What an instance is called in its VM.
fn id(function: &str, instance: InstanceNumber) -> InstanceId {
    // A function's name is made of the same characters; its start is enough here.
    let name: String = function.chars().take(40).collect();
    let id = format!("{name}-{instance}");
    id.parse().unwrap_or_else(|_| unreachable!("{id} is a valid instance id"))
}

async fn at(instant: Option<Instant>) {
    if let Some(instant) = instant {
        tokio::time::sleep_until(instant.into()).await;
    }
}
