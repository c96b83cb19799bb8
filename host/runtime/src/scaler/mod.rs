//! Decides which VMs and instances start and stop, and which request goes where.
//!
//! What an [`Event`] changes is here. Who then gets a request, memory or neither is in `scale`, what
//! time changes in `expire`.

mod expire;
mod policy;
mod scale;
#[cfg(test)]
mod tests;

use crate::{
    Budget, Command, Event, FunctionIndex, InstanceNumber, InstanceState, Moment, RejectReason,
    RequestNumber, StopReason, Unexpected, VmIndex, VmState, instance::Instance,
};
use std::collections::{BTreeMap, VecDeque};

pub use policy::{FunctionPolicy, PolicyError, VmPolicy};

/// Instances and requests of one function at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances whose memory is being plugged or whose processes start.
    pub starting: usize,
    /// Instances that wait for a request, frozen ones included.
    pub idle: usize,
    /// Of these, the frozen ones.
    pub frozen: usize,
    /// Instances that work on one.
    pub busy: usize,
    /// Instances whose processes are being stopped.
    pub stopping: usize,
    /// Ended instances whose memory is on its way back to the host.
    pub reclaiming: usize,
    /// Ended instances whose memory the guest kept.
    pub stranded: usize,
    /// Requests that wait for an instance.
    pub queued: usize,
}

struct Waiting {
    request: RequestNumber,
    since: Moment,
}

struct Function {
    policy: FunctionPolicy,
    queue: VecDeque<Waiting>,
    retired: bool,
}

struct Vm {
    policy: VmPolicy,
    state: VmState,
    /// Whether the last of its functions is gone.
    retired: bool,
}

/// Events in, commands out. See the crate's documentation.
pub struct Scaler {
    functions: BTreeMap<FunctionIndex, Function>,
    vms: BTreeMap<VmIndex, Vm>,
    instances: BTreeMap<InstanceNumber, Instance>,
    budget: Budget,
    next_function: u32,
    next_vm: u32,
    next_instance: u64,
    draining: bool,
}

impl Scaler {
    /// A scaler without VMs and functions.
    pub fn new(budget: Budget) -> Self {
        Self {
            functions: BTreeMap::new(),
            vms: BTreeMap::new(),
            instances: BTreeMap::new(),
            budget,
            next_function: 0,
            next_vm: 0,
            next_instance: 0,
            draining: false,
        }
    }

    /// A VM that is booted when it is needed.
    pub fn add_vm(&mut self, policy: VmPolicy) -> Result<VmIndex, PolicyError> {
        policy.check(self.budget.limit_bytes())?;
        let index = VmIndex(self.next_vm);
        self.next_vm += 1;
        self.vms.insert(index, Vm { policy, state: VmState::Absent, retired: false });
        Ok(index)
    }

    /// A function that has no instance yet. Its VM goes with the last of its functions.
    pub fn add_function(&mut self, policy: FunctionPolicy) -> Result<FunctionIndex, PolicyError> {
        if self.vms.get(&policy.vm).is_none_or(|vm| vm.retired) {
            return Err(PolicyError::NoVm(policy.vm));
        }
        if policy.queue_limit == 0 {
            return Err(PolicyError::NoQueue);
        }
        let index = FunctionIndex(self.next_function);
        self.next_function += 1;
        let function = Function { policy, queue: VecDeque::new(), retired: false };
        self.functions.insert(index, function);
        Ok(index)
    }

    /// Changes what holds for a function, but not where it runs. What is idle for too long by that is
    /// stopped at the next [`Event::Tick`].
    pub fn update_function(
        &mut self,
        index: FunctionIndex,
        policy: FunctionPolicy,
    ) -> Result<(), PolicyError> {
        if policy.queue_limit == 0 {
            return Err(PolicyError::NoQueue);
        }
        match self.functions.get_mut(&index) {
            Some(function) if function.policy.vm == policy.vm => {
                function.policy = policy;
                Ok(())
            }
            Some(_) => Err(PolicyError::NoVm(policy.vm)),
            None => Err(PolicyError::NoFunction(index)),
        }
    }

    /// The host's memory and what is promised of it.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// How one instance stands; nothing when it is gone with its memory.
    pub fn state(&self, instance: InstanceNumber) -> Option<InstanceState> {
        self.instances.get(&instance).map(|i| i.state)
    }

    /// How one VM stands; nothing when it is gone with its functions.
    pub fn vm_state(&self, vm: VmIndex) -> Option<VmState> {
        self.vms.get(&vm).map(|vm| vm.state)
    }

    /// Whether no VM, instance and request is left.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
            && self.functions.values().all(|f| f.queue.is_empty())
            && self.vms.values().all(|vm| vm.state == VmState::Absent)
    }

    /// The instances and requests of one function; none for one that is gone.
    pub fn counts(&self, function: FunctionIndex) -> Counts {
        let queued = self.functions.get(&function).map_or(0, |f| f.queue.len());
        let mut counts = Counts { queued, ..Counts::default() };
        for instance in self.instances.values().filter(|i| i.function == function) {
            *match instance.state {
                InstanceState::Starting => &mut counts.starting,
                InstanceState::Idle { frozen, .. } => {
                    counts.frozen += usize::from(frozen);
                    &mut counts.idle
                }
                InstanceState::Busy { .. } => &mut counts.busy,
                InstanceState::Stopping => &mut counts.stopping,
                InstanceState::Reclaiming => &mut counts.reclaiming,
                InstanceState::Stranded { .. } => &mut counts.stranded,
            } += 1;
        }
        counts
    }

    /// Takes note of what happened at `now` and answers what has to be done, in this order.
    ///
    /// `now` must not run backwards. An event that makes no sense changes nothing.
    pub fn handle(&mut self, now: Moment, event: Event) -> Result<Vec<Command>, Unexpected> {
        let mut commands = Vec::new();
        match event {
            Event::Request { function, request } => {
                self.enqueue(now, function, request, &mut commands);
            }
            Event::VmBooted(vm) => self.booted(now, vm, event)?,
            Event::VmFailed(vm) => self.boot_failed(vm, event, &mut commands)?,
            Event::VmEnded(vm) => self.ended(vm, event, &mut commands)?,
            Event::Started(number) => {
                let idle = InstanceState::Idle { since: now, frozen: false };
                self.change(number, event, idle, |s| matches!(s, InstanceState::Starting))?;
                if self.is_retired(number) {
                    self.stop(number, StopReason::Retired, &mut commands);
                }
            }
            Event::StartFailed(number) => {
                let starting = |s| matches!(s, InstanceState::Starting);
                let instance = self.change(number, event, InstanceState::Stopping, starting)?;
                commands.push(Command::Stop { instance: number, reason: StopReason::Broken });
                self.give_up_one(instance.function, RejectReason::StartFailed, &mut commands);
            }
            Event::Answered(number) => self.answered(now, number, event, false, &mut commands)?,
            Event::Broken(number) => self.answered(now, number, event, true, &mut commands)?,
            Event::Died(number) => self.died(number, event, &mut commands)?,
            Event::Stopped(number) => {
                let stopping = |s| matches!(s, InstanceState::Stopping);
                let instance = self.change(number, event, InstanceState::Reclaiming, stopping)?;
                commands.push(Command::Reclaim { vm: instance.vm, instance: number });
            }
            Event::Reclaimed(number) => self.reclaimed(now, number, event, true)?,
            Event::ReclaimFailed(number) => self.reclaimed(now, number, event, false)?,
            Event::EvictIdle => self.stop_idle(StopReason::Evicted, |_| true, &mut commands),
            Event::Retire(function) => self.retire(function, &mut commands),
            Event::Tick => self.expire(now, &mut commands),
            Event::Drain => self.drain(&mut commands),
        }
        if self.draining {
            self.stop_idle(StopReason::Draining, |_| true, &mut commands);
        } else {
            self.dispatch(&mut commands);
            self.scale_up(&mut commands);
        }
        self.clear_away(now, &mut commands);
        Ok(commands)
    }

    fn enqueue(
        &mut self,
        now: Moment,
        function: FunctionIndex,
        request: RequestNumber,
        commands: &mut Vec<Command>,
    ) {
        let idle = self.counts(function).idle;
        let reason = match self.functions.get_mut(&function) {
            _ if self.draining => RejectReason::Draining,
            None => RejectReason::Retired,
            Some(function) if function.retired => RejectReason::Retired,
            Some(f) if idle == 0 && f.queue.len() >= f.policy.queue_limit => {
                RejectReason::QueueFull
            }
            Some(function) => return function.queue.push_back(Waiting { request, since: now }),
        };
        commands.push(Command::Reject { request, reason });
    }

    fn booted(&mut self, now: Moment, vm: VmIndex, event: Event) -> Result<(), Unexpected> {
        let up = VmState::Up { empty_since: Some(now) };
        self.change_vm(vm, event, up, |state| state == VmState::Booting)
    }

    fn boot_failed(
        &mut self,
        vm: VmIndex,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        self.change_vm(vm, event, VmState::Absent, |state| state == VmState::Booting)?;
        self.release_vm(vm);
        // Or it would be booted for ever.
        for function in self.functions.values_mut().filter(|f| f.policy.vm == vm) {
            reject_all(&mut function.queue, RejectReason::VmFailed, commands);
        }
        Ok(())
    }

    fn ended(
        &mut self,
        vm: VmIndex,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let there = |state| matches!(state, VmState::Up { .. } | VmState::Ending);
        self.change_vm(vm, event, VmState::Absent, there)?;
        let gone = |i: &&Instance| i.vm == vm;
        let instances: Vec<_> = self.instances.iter().filter(|(_, i)| gone(i)).collect();
        let starting: Vec<_> = instances
            .iter()
            .filter(|(_, i)| i.state == InstanceState::Starting)
            .map(|(_, i)| i.function)
            .collect();
        for number in instances.iter().map(|&(&number, _)| number).collect::<Vec<_>>() {
            self.forget(number);
        }
        self.release_vm(vm);
        // What brings its VM down each time it starts must not do so for ever.
        for function in starting {
            self.give_up_one(function, RejectReason::VmFailed, commands);
        }
        Ok(())
    }

    fn answered(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        broken: bool,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let state = self.state(number);
        let Some(InstanceState::Busy { dying, .. }) = state else {
            return Err(Unexpected::Instance { event, state });
        };
        if broken || dying {
            self.stop(number, StopReason::Broken, commands);
        } else if self.is_retired(number) {
            self.stop(number, StopReason::Retired, commands);
        } else {
            self.set(number, InstanceState::Idle { since: now, frozen: false });
        }
        Ok(())
    }

    fn died(
        &mut self,
        number: InstanceNumber,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        match self.state(number) {
            None => return Err(Unexpected::Instance { event, state: None }),
            Some(InstanceState::Idle { .. }) => self.stop(number, StopReason::Broken, commands),
            Some(InstanceState::Busy { request, .. }) => {
                self.set(number, InstanceState::Busy { request, dying: true });
            }
            // Whoever watches the instance may see its end before or after it was stopped.
            Some(_) => {}
        }
        Ok(())
    }

    fn reclaimed(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        all: bool,
    ) -> Result<(), Unexpected> {
        self.change(number, event, InstanceState::Stranded { since: now }, |s| {
            matches!(s, InstanceState::Reclaiming)
        })?;
        if all {
            self.forget(number);
        }
        Ok(())
    }

    fn retire(&mut self, index: FunctionIndex, commands: &mut Vec<Command>) {
        if let Some(function) = self.functions.get_mut(&index) {
            function.retired = true;
            reject_all(&mut function.queue, RejectReason::Retired, commands);
        }
        self.stop_idle(StopReason::Retired, |i| i.function == index, commands);
    }

    fn drain(&mut self, commands: &mut Vec<Command>) {
        self.draining = true;
        for function in self.functions.values_mut() {
            reject_all(&mut function.queue, RejectReason::Draining, commands);
        }
    }

    /// Notes which VMs are empty, ends those that nobody needs any more, and drops what is retired
    /// and gone.
    fn clear_away(&mut self, now: Moment, commands: &mut Vec<Command>) {
        let has_instance = |index| self.instances.values().any(|i| i.function == index);
        let gone: Vec<_> = self
            .functions
            .iter()
            .filter(|(index, function)| function.retired && !has_instance(**index))
            .map(|(&index, function)| (index, function.policy.vm))
            .collect();
        for (index, vm) in gone {
            self.functions.remove(&index);
            let last = self.functions.values().all(|function| function.policy.vm != vm);
            if let Some(vm) = self.vms.get_mut(&vm) {
                vm.retired = last;
            }
        }
        self.vms.retain(|_, vm| !vm.retired || vm.state != VmState::Absent);
        for (index, vm) in &mut self.vms {
            let VmState::Up { empty_since } = vm.state else { continue };
            if self.instances.values().any(|i| i.vm == *index && is_alive(i.state)) {
                vm.state = VmState::Up { empty_since: None };
            } else if self.draining || vm.retired {
                vm.state = VmState::Ending;
                commands.push(Command::EndVm(*index));
            } else {
                vm.state = VmState::Up { empty_since: empty_since.or(Some(now)) };
            }
        }
    }

    fn stop_idle(
        &mut self,
        reason: StopReason,
        which: impl Fn(&Instance) -> bool,
        commands: &mut Vec<Command>,
    ) {
        let idle: Vec<_> = self.idle(which).map(|(_, number)| number).collect();
        for number in idle {
            self.stop(number, reason, commands);
        }
    }

    fn stop(&mut self, number: InstanceNumber, reason: StopReason, commands: &mut Vec<Command>) {
        self.set(number, InstanceState::Stopping);
        commands.push(Command::Stop { instance: number, reason });
    }

    /// Rejects the request that a failed instance was meant for. Without this a function that
    /// cannot start would be started for ever.
    fn give_up_one(
        &mut self,
        function: FunctionIndex,
        reason: RejectReason,
        commands: &mut Vec<Command>,
    ) {
        let waiting = self.functions.get_mut(&function).and_then(|f| f.queue.pop_front());
        if let Some(Waiting { request, .. }) = waiting {
            commands.push(Command::Reject { request, reason });
        }
    }

    /// The idle instances of `which`, with the moment they became idle.
    fn idle(
        &self,
        which: impl Fn(&Instance) -> bool,
    ) -> impl Iterator<Item = (Moment, InstanceNumber)> {
        self.instances.iter().filter_map(move |(&number, i)| match i.state {
            InstanceState::Idle { since, .. } if which(i) => Some((since, number)),
            _ => None,
        })
    }

    fn is_retired(&self, number: InstanceNumber) -> bool {
        let function = self.instances.get(&number).and_then(|i| self.functions.get(&i.function));
        function.is_none_or(|function| function.retired)
    }

    fn instance_bytes(&self, vm: VmIndex) -> u64 {
        self.vms.get(&vm).map_or(0, |vm| vm.policy.instance_bytes)
    }

    fn release_vm(&mut self, vm: VmIndex) {
        self.budget.release(self.vms.get(&vm).map_or(0, |vm| vm.policy.base_bytes));
    }

    fn forget(&mut self, number: InstanceNumber) {
        if let Some(instance) = self.instances.remove(&number) {
            self.budget.release(self.instance_bytes(instance.vm));
        }
    }

    fn set(&mut self, number: InstanceNumber, state: InstanceState) {
        if let Some(instance) = self.instances.get_mut(&number) {
            instance.state = state;
        }
    }

    /// Moves an instance on if it stands where the event says it does.
    fn change(
        &mut self,
        number: InstanceNumber,
        event: Event,
        to: InstanceState,
        from: impl Fn(InstanceState) -> bool,
    ) -> Result<Instance, Unexpected> {
        match self.instances.get_mut(&number) {
            Some(instance) if from(instance.state) => {
                instance.state = to;
                Ok(*instance)
            }
            other => Err(Unexpected::Instance { event, state: other.map(|i| i.state) }),
        }
    }

    /// Moves a VM on if it stands where the event says it does.
    fn change_vm(
        &mut self,
        index: VmIndex,
        event: Event,
        to: VmState,
        from: impl Fn(VmState) -> bool,
    ) -> Result<(), Unexpected> {
        match self.vms.get_mut(&index) {
            Some(vm) if from(vm.state) => {
                vm.state = to;
                Ok(())
            }
            other => Err(Unexpected::Vm { event, state: other.map(|vm| vm.state) }),
        }
    }
}

/// Whether there is, or will be, a process.
fn is_alive(state: InstanceState) -> bool {
    !matches!(state, InstanceState::Stranded { .. })
}

fn reject_all(queue: &mut VecDeque<Waiting>, reason: RejectReason, commands: &mut Vec<Command>) {
    let requests = queue.drain(..).map(|waiting| waiting.request);
    commands.extend(requests.map(|request| Command::Reject { request, reason }));
}
