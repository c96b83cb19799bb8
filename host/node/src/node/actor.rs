//! The node's main task: turns what happens into events for the scaler, and the scaler's commands into tasks.
//!
//! Its tables are in `table`, what it receives in `message`, and what it does with VMs, instances and calls
//! in the files of these names; instances ahead of calls are in `prewarm`, guests that lack memory in `starving`; freezing
//! and squeezing idle instances are in `rest`, measuring them again while their VM runs is in `watch`, and taking their
//! memory while it is paused in `condemn`.

use super::{
    FunctionLimits, NodeError,
    message::{Completion, Message, Stopping},
    prewarm::PendingPrewarm,
    table::{FunctionEntry, InstanceEntry, PendingCall, VmEntry},
};
use crate::{Contract, FunctionImage, Machine, NodeEvent, Observer};
use futures_util::StreamExt;
use squeezy_protocol::ImageNumber;
use squeezy_scaler::{
    Budget, Command, Event, FunctionIndex, InstanceNumber, Moment, PolicyError, RequestNumber,
    Scaler, SqueezePolicy, TenantIndex, VmIndex,
};
use squeezy_vmm::BoxFuture;
use std::{collections::BTreeMap, mem, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout_at},
};

/// When instances are stopped together, how long the first that has ended waits for the others, so that their
/// memory goes back in one request.
const STOP_TOGETHER: Duration = Duration::from_millis(100);

/// The state of a node.
pub(super) struct Actor {
    pub(super) scaler: Scaler,
    /// Whether to measure what frozen instances hold, for the scaler.
    pub(super) measures_frozen: bool,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) begin: Instant,
    tasks: JoinSet<Completion>,
    /// Tasks for the last event. They are spawned together, once every slot that the event takes or frees is
    /// known.
    begun: Vec<BoxFuture<'static, Completion>>,
    pub(super) stopping: BTreeMap<VmIndex, Stopping>,
    pub(super) vms: BTreeMap<VmIndex, VmEntry>,
    pub(super) functions: BTreeMap<FunctionIndex, FunctionEntry>,
    pub(super) instances: BTreeMap<InstanceNumber, InstanceEntry>,
    pub(super) calls: BTreeMap<RequestNumber, PendingCall>,
    pub(super) prewarms: BTreeMap<RequestNumber, PendingPrewarm>,
    pub(super) next_request: u64,
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
            instances: BTreeMap::new(),
            calls: BTreeMap::new(),
            prewarms: BTreeMap::new(),
            next_request: 0,
        }
    }

    /// Runs until a drain is complete, the node is killed or the last handle is dropped. Whatever still runs
    /// then is killed.
    pub(super) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        while !self.scaler.is_drained() {
            let deadline = self.scaler.next_deadline();
            let tick = self.begin + deadline.unwrap_or_default().0;
            tokio::select! {
                message = messages.recv() => match message {
                    Some(Message::Kill) | None => return,
                    Some(message) => self.message(message),
                },
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    self.completed(done);
                }
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

    pub(super) fn begin(&mut self, task: impl Future<Output = Completion> + Send + 'static) {
        self.begun.push(Box::pin(task));
    }

    /// Begins a task in a VM. If the VM is being resumed, the task waits for that.
    pub(super) fn begin_in(
        &mut self,
        machine: Arc<dyn Machine>,
        task: impl Future<Output = Completion> + Send + 'static,
    ) {
        self.begin(async move {
            // Whoever wanted the VM resumed gets the result.
            let _ = machine.settle().await;
            task.await
        });
    }

    pub(super) fn now(&self) -> Moment {
        Moment(self.begin.elapsed())
    }

    pub(super) fn tell(&self, event: NodeEvent<'_>) {
        self.observer.observe(self.now(), event);
    }

    pub(super) fn note(&self, text: &str) {
        self.tell(NodeEvent::Note(text));
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::AddVm { blueprint, policy, reply } => {
                let index = self.scaler.add_vm(policy);
                if let Ok(index) = index {
                    self.vms.insert(index, VmEntry::new(blueprint));
                }
                let _ = reply.send(index);
            }
            Message::AddTenant { policy, reply } => {
                let _ = reply.send(self.scaler.add_tenant(policy));
            }
            Message::UpdateTenant { tenant, policy, reply } => {
                let _ = reply.send(self.scaler.update_tenant(tenant, policy));
                // The new quotas take effect at once.
                self.event(Event::Tick);
            }
            Message::RemoveTenant(tenant) => self.scaler.remove_tenant(tenant),
            Message::AddFunction { vm, tenant, function, contract, limits, reply } => {
                let _ = reply.send(self.add_function(vm, tenant, *function, contract, limits));
            }
            Message::UpdateFunction { function, limits, reply } => {
                let result = match self.functions.get(&function) {
                    Some(entry) => self.scaler.update_function(function, entry.policy(limits)),
                    None => Err(PolicyError::NoFunction(function)),
                };
                let _ = reply.send(result);
                // The new limits take effect at once.
                self.event(Event::Tick);
            }
            Message::KeepEmptyVms(idle_time) => {
                self.scaler.keep_empty_vms(idle_time);
                self.event(Event::Tick);
            }
            Message::Prewarm { function, relieves, reply } => {
                let _ = reply.send(self.prewarm(function, relieves));
            }
            Message::RemoveFunction(function) => self.event(Event::Retire(function)),
            Message::EndCalls(tenant) => self.end_calls(tenant),
            Message::Call { function, call, reply } => self.call(function, call, reply),
            Message::EvictIdle => self.event(Event::EvictIdle),
            Message::Status(reply) => self.status(reply),
            Message::Partitions(reply) => self.partitions(reply),
            // Handled in `run`.
            Message::Kill => {}
            Message::Drain => self.event(Event::Drain),
        }
    }

    fn add_function(
        &mut self,
        vm: VmIndex,
        tenant: TenantIndex,
        FunctionImage { function, image, code }: FunctionImage,
        contract: Arc<dyn Contract>,
        limits: FunctionLimits,
    ) -> Result<FunctionIndex, NodeError> {
        let entry = self.vms.get(&vm).ok_or(PolicyError::NoVm(vm))?;
        let number = |image: PathBuf| {
            let number = entry.blueprint.images().iter().position(|known| *known == image);
            let number = number.and_then(|number| u8::try_from(number).ok());
            number.map(ImageNumber).ok_or(NodeError::NoImage(image))
        };
        let (image, code) = (number(image)?, code.map(number).transpose()?);
        let function = Arc::new(function);
        let entry = FunctionEntry { vm, tenant, function, contract, image, code };
        let index = self.scaler.add_function(tenant, entry.policy(limits))?;
        self.functions.insert(index, entry);
        if limits.minimum_instances > 0 {
            // They are started at once.
            self.event(Event::Tick);
        }
        Ok(index)
    }

    /// Passes an event to the scaler and carries out its commands.
    pub(super) fn event(&mut self, event: Event) {
        let now = self.now();
        match self.scaler.handle(now, event) {
            Ok(commands) => commands.into_iter().for_each(|command| self.command(now, command)),
            // Only a bug in the node can cause this; it goes on without the event.
            Err(error) => self.note(&format!("internal error: {error}")),
        }
        self.end_prewarms();
        self.functions.retain(|&index, _| self.scaler.has_function(index));
        self.vms.retain(|&index, _| self.scaler.vm_state(index).is_some());
    }

    fn command(&mut self, now: Moment, command: Command) {
        match command {
            Command::BootVm(vm) => self.boot(vm),
            Command::PauseVm { vm, keeps_page_cache } => self.pause(vm, keeps_page_cache),
            Command::ResumeVm(vm) => self.resume(vm),
            Command::EndVm { vm, reason } => self.end_vm(vm, reason),
            Command::LendVm { vm, bytes } => self.lend(vm, bytes),
            Command::KillVm { vm, instance, taken_bytes, resident_bytes } => {
                self.kill_vm(vm, instance, taken_bytes, resident_bytes);
            }
            Command::Start { function, vm, instance } => self.start(now, instance, function, vm),
            Command::Freeze(instance) => self.freeze(instance),
            Command::Squeeze(instance) => self.squeeze(instance),
            Command::Condemn(instance) => self.condemn(instance),
            Command::Stop { instance, reason } => self.stop(instance, reason),
            Command::Reclaim { vm, instance } => self.reclaim(now, vm, instance),
            Command::Dispatch { instance, request, thaw } => {
                self.dispatch(now, instance, request, thaw);
            }
            Command::Prewarmed(request) => self.prewarmed(request),
            Command::Reject { request, reason } => match self.prewarms.remove(&request) {
                Some(prewarm) => self.not_prewarmed(prewarm, reason),
                None => self.reject(request, reason),
            },
        }
    }

    /// Handles the end of a task.
    fn completed(&mut self, completion: Result<Completion, JoinError>) {
        match completion {
            Ok(Completion::Booted { vm, result, took }) => self.booted(vm, result, took),
            Ok(Completion::Paused { vm, generation, doomed, result }) => {
                self.paused(vm, generation, doomed, result);
            }
            Ok(Completion::Resumed { vm, result }) => self.resumed(vm, result),
            Ok(Completion::VmStopped { vm, reason, result }) => {
                self.vm_stopped(vm, reason, result);
            }
            Ok(Completion::Starved { vm, boot, wanted_bytes }) => {
                self.starved(vm, boot, wanted_bytes);
            }
            Ok(Completion::Lent { vm, boot, bytes, result }) => self.lent(vm, boot, bytes, result),
            Ok(Completion::LookDue { vm, boot }) => self.look(vm, boot),
            Ok(Completion::Looked { vm, boot, found }) => self.looked(vm, boot, found),
            Ok(Completion::VmGone { vm, boot }) => self.vm_gone(vm, boot),
            Ok(Completion::Plugged { instance, function, asked, outcome }) => {
                self.plugged(instance, function, asked, &outcome);
            }
            Ok(Completion::Started { instance, result }) => self.started(instance, result),
            Ok(Completion::Frozen { instance, generation, result }) => {
                self.frozen(instance, generation, result);
            }
            Ok(Completion::Squeezed { instance, generation, result }) => {
                self.squeezed(instance, generation, result);
            }
            Ok(Completion::Condemned { instance, result, took }) => {
                self.condemned(instance, result, took);
            }
            Ok(Completion::InstanceEnded { instance, reason }) => {
                self.instance_ended(instance, reason);
            }
            Ok(Completion::Stopped { stopped, others }) => {
                self.stopped(stopped);
                if !others.is_empty() {
                    self.begin(stop_together(others));
                }
            }
            Ok(Completion::Reclaimed { instance, vm, first, outcome }) => {
                self.reclaimed(instance, vm, first, outcome);
            }
            Ok(Completion::Called { instance, request, reply, took, logs }) => {
                self.called(instance, request, reply, took, logs);
            }
            Ok(Completion::Nothing) => {}
            // The panic itself has been printed already.
            Err(error) => self.note(&format!("internal error: {error}")),
        }
    }
}

/// Waits for the first instance to stop, and a little longer for the others.
async fn stop_together(mut stopping: Stopping) -> Completion {
    let mut stopped: Vec<_> = stopping.next().await.into_iter().collect();
    let deadline = Instant::now() + STOP_TOGETHER;
    while let Ok(Some(next)) = timeout_at(deadline, stopping.next()).await {
        stopped.push(next);
    }
    Completion::Stopped { stopped, others: stopping }
}
