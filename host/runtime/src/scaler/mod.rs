//! Decides which VMs and instances start and stop, and which request goes where.
//!
//! What an [`Event`] changes is here. Who then gets a request, memory or neither is in `scale`, what
//! time changes in `expire`, what becomes of frozen instances in `squeeze`, and of VMs that have no others
//! in `pause`. `pool` has the instances, `deadlines` when they have to be looked at.

mod deadlines;
mod expire;
mod pause;
mod policy;
mod pool;
mod scale;
mod squeeze;
#[cfg(test)]
mod tests;

use crate::{
    Budget, Command, Event, FunctionIndex, InstanceNumber, InstanceState, Moment, RejectReason,
    RequestNumber, StopReason, Unexpected, VmIndex, VmState, instance::Instance, squeeze::Squeezer,
};
use deadlines::{Deadlines, Subject};
use pool::Pool;
use scale::Short;
use squeeze::is_frozen;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use policy::{FunctionPolicy, PolicyError, VmPolicy};

/// Instances and requests of one function at one moment, and their memory.
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
    /// Memory of the budget that all of these have together, in bytes.
    pub promised_bytes: u64,
}

impl Counts {
    /// Whether no instance lives or is on its way out. What a guest keeps does not count.
    pub fn is_quiet(&self) -> bool {
        self.alive() == 0
    }

    /// Instances of which there are, or will be, processes.
    pub fn alive(&self) -> usize {
        self.starting + self.idle + self.busy + self.stopping + self.reclaiming
    }

    /// The count that an instance in this state belongs to.
    fn of(&mut self, state: InstanceState) -> &mut usize {
        match state {
            InstanceState::Starting => &mut self.starting,
            InstanceState::Idle { .. } => &mut self.idle,
            InstanceState::Busy { .. } => &mut self.busy,
            InstanceState::Stopping => &mut self.stopping,
            InstanceState::Reclaiming => &mut self.reclaiming,
            InstanceState::Stranded { .. } => &mut self.stranded,
        }
    }
}

struct Waiting {
    request: RequestNumber,
    since: Moment,
}

struct Function {
    policy: FunctionPolicy,
    queue: VecDeque<Waiting>,
    /// When an instance took a request of it last.
    taken: Moment,
    retired: bool,
}

struct Vm {
    policy: VmPolicy,
    state: VmState,
    /// Bytes of the budget it has beside its instances: all its base, or while it is paused what it holds.
    charged_bytes: u64,
    /// When an instance in it answered last; its boot before that.
    last_used: Moment,
    /// Where it stands among those that can be ended as a whole, if it does.
    spare_since: Option<Moment>,
    /// Whether the last of its functions is retired.
    retired: bool,
    /// Whether it is to be replaced, having given memory to instances or not.
    unfit: bool,
    /// Whether an instance has started in it since its boot.
    proven: bool,
}

/// Events in, commands out. See the crate's documentation.
pub struct Scaler {
    functions: BTreeMap<FunctionIndex, Function>,
    /// Those with requests that wait.
    waiting: BTreeSet<FunctionIndex>,
    vms: BTreeMap<VmIndex, Vm>,
    /// Those that can be ended as a whole, because nothing lives in them or they are paused; the one that
    /// was used least recently first.
    spare_vms: BTreeSet<(Moment, VmIndex)>,
    /// Those that are being stopped, and of which it will be known then what they hold.
    pausing: BTreeSet<VmIndex>,
    /// Those that are being ended.
    ending: BTreeSet<VmIndex>,
    pool: Pool,
    deadlines: Deadlines,
    /// VMs and functions that this event may have left with nothing, and that were not looked at since.
    touched: BTreeSet<(VmIndex, FunctionIndex)>,
    budget: Budget,
    /// Absent where frozen instances are left as they are.
    squeezer: Option<Squeezer>,
    /// Those that are being frozen, and of which it will be known then what they hold.
    freezing: BTreeSet<InstanceNumber>,
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
            waiting: BTreeSet::new(),
            vms: BTreeMap::new(),
            spare_vms: BTreeSet::new(),
            pausing: BTreeSet::new(),
            ending: BTreeSet::new(),
            pool: Pool::default(),
            deadlines: Deadlines::default(),
            touched: BTreeSet::new(),
            budget,
            squeezer: None,
            freezing: BTreeSet::new(),
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
        let vm = Vm {
            policy,
            state: VmState::Absent,
            charged_bytes: 0,
            last_used: Moment::START,
            spare_since: None,
            retired: false,
            unfit: false,
            proven: false,
        };
        self.vms.insert(index, vm);
        Ok(index)
    }

    /// A function that has no instance yet. Its VM goes with the last of its functions.
    pub fn add_function(&mut self, policy: FunctionPolicy) -> Result<FunctionIndex, PolicyError> {
        if self.vms.get(&policy.vm).is_none_or(|vm| vm.retired) {
            return Err(PolicyError::NoVm(policy.vm));
        }
        policy.check()?;
        let index = FunctionIndex(self.next_function);
        self.next_function += 1;
        let function =
            Function { policy, queue: VecDeque::new(), taken: Moment::START, retired: false };
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
        policy.check()?;
        match self.functions.get_mut(&index) {
            Some(function) if function.policy.vm == policy.vm => {
                function.policy = policy;
                let idle: Vec<_> = self.pool.idle_of(index).map(|(_, number)| number).collect();
                idle.into_iter().for_each(|number| self.set_deadline(number));
                self.set_waiting_deadline(index);
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
        self.pool.get(instance).map(|i| i.state)
    }

    /// How one VM stands; nothing when it is gone with its functions.
    pub fn vm_state(&self, vm: VmIndex) -> Option<VmState> {
        self.vms.get(&vm).map(|vm| vm.state)
    }

    /// Whether a VM is to be replaced.
    pub fn is_unfit(&self, vm: VmIndex) -> bool {
        self.vms.get(&vm).is_some_and(|vm| vm.unfit)
    }

    /// Whether a function is there still: it is not retired, or has instances left.
    pub fn has_function(&self, function: FunctionIndex) -> bool {
        self.functions.contains_key(&function)
    }

    /// Whether everything was to end, and has.
    pub fn is_drained(&self) -> bool {
        self.draining && self.is_empty()
    }

    /// Whether no VM, instance and request is left.
    pub fn is_empty(&self) -> bool {
        self.pool.is_empty()
            && self.waiting.is_empty()
            && self.vms.values().all(|vm| vm.state == VmState::Absent)
    }

    /// The instances and requests of one function; none for one that is gone.
    pub fn counts(&self, function: FunctionIndex) -> Counts {
        let queued = self.function(function).map_or(0, |f| f.queue.len());
        Counts { queued, ..self.pool.counts(function) }
    }

    fn function(&self, index: FunctionIndex) -> Option<&Function> {
        self.functions.get(&index)
    }

    /// The functions of a VM with requests that wait.
    fn waiting_in(&self, vm: VmIndex) -> impl Iterator<Item = FunctionIndex> {
        let of_vm = move |index: &FunctionIndex| self.functions[index].policy.vm == vm;
        self.waiting.iter().copied().filter(of_vm)
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
            Event::VmUnfit(vm) => self.unfit(vm),
            Event::VmPaused { vm, resident_bytes } => self.paused(now, vm, resident_bytes),
            Event::Started(number) => {
                let idle = InstanceState::Idle { since: now, frozen: false };
                let instance =
                    self.change(number, event, idle, |s| matches!(s, InstanceState::Starting))?;
                if let Some(vm) = self.vms.get_mut(&instance.vm) {
                    vm.proven = true;
                }
                if self.is_retired(number) {
                    self.stop(number, StopReason::Retired, &mut commands);
                }
            }
            Event::StartFailed(number) => {
                let starting = |s| matches!(s, InstanceState::Starting);
                let instance = self.change(number, event, InstanceState::Stopping, starting)?;
                commands.push(Command::Stop { instance: number, reason: StopReason::Broken });
                // In the VM that comes it may start, but not if this one never had any.
                if !self.vms.get(&instance.vm).is_some_and(|vm| vm.unfit && vm.proven) {
                    self.give_up_one(instance.function, RejectReason::StartFailed, &mut commands);
                }
            }
            Event::Answered(number) => self.answered(now, number, event, false, &mut commands)?,
            Event::Broken(number) => self.answered(now, number, event, true, &mut commands)?,
            Event::Died(number) => self.died(number, event, &mut commands)?,
            Event::Frozen { instance, resident_bytes } => {
                self.frozen(now, instance, resident_bytes);
            }
            Event::Squeezed { instance, resident_bytes, cpu } => {
                self.squeezed(instance, event, resident_bytes, cpu)?;
            }
            Event::SqueezeFailed(number) => self.squeeze_failed(number, event)?,
            Event::Stopped(number) => {
                let stopping = |s| matches!(s, InstanceState::Stopping);
                let instance = self.change(number, event, InstanceState::Reclaiming, stopping)?;
                commands.push(Command::Reclaim { vm: instance.vm, instance: number });
            }
            Event::Reclaimed(number) => self.reclaimed(now, number, event, true)?,
            Event::ReclaimFailed(number) => self.reclaimed(now, number, event, false)?,
            Event::EvictIdle => self.stop_idle(StopReason::Evicted, &mut commands),
            Event::Retire(function) => self.retire(function, &mut commands),
            Event::Tick => self.expire(now, &mut commands),
            Event::Drain => self.drain(&mut commands),
        }
        self.settle(now, &mut commands);
        Ok(commands)
    }

    /// Does all that can be done now: what one step makes possible is done in the next, not with the next
    /// event, for which nobody knows how long it takes to come.
    ///
    /// It ends because only a step that sends a command has another one after it, and what can be sent
    /// between two events is bounded, see [`Self::most_steps`].
    fn settle(&mut self, now: Moment, commands: &mut Vec<Command>) {
        let mut left = BTreeSet::new();
        let mut steps = 1;
        while self.step(now, &mut left, commands) && steps < self.most_steps() {
            steps += 1;
        }
        debug_assert!(self.touched.is_empty(), "not at rest after {steps} steps");
        // Last, for it makes nothing possible before it is answered.
        for vm in left {
            self.pause(vm, commands);
        }
    }

    /// Looks at everything once; whether it has sent a command. VMs that something has left are added to
    /// `left`.
    fn step(
        &mut self,
        now: Moment,
        left: &mut BTreeSet<VmIndex>,
        commands: &mut Vec<Command>,
    ) -> bool {
        let sent = commands.len();
        // First, for an empty VM is memory for those who wait.
        self.clear_away(now, left, commands);
        if self.draining {
            self.stop_idle(StopReason::Draining, commands);
        } else {
            self.leave_unfit(commands);
            let mut short = Short::default();
            self.dispatch(now, &mut short, commands);
            self.scale_up(short, commands);
            self.squeeze(now, commands);
        }
        commands.len() > sent
    }

    /// One more than what the steps of an event may send. Until its answer comes as another event, a VM is
    /// sent no more than that it is to run and that it is to end, or to boot; an instance no more than
    /// that it is to freeze, to be squeezed and to stop, or to take a request, or to start.
    fn most_steps(&self) -> usize {
        1 + 2 * self.vms.len() + 3 * self.pool.len()
    }

    fn enqueue(
        &mut self,
        now: Moment,
        function: FunctionIndex,
        request: RequestNumber,
        commands: &mut Vec<Command>,
    ) {
        let idle = self.pool.counts(function).idle;
        let reason = match self.functions.get_mut(&function) {
            _ if self.draining => RejectReason::Draining,
            None => RejectReason::Retired,
            Some(function) if function.retired => RejectReason::Retired,
            Some(f) if idle == 0 && f.queue.len() >= f.policy.queue_limit => {
                RejectReason::QueueFull
            }
            Some(f) => {
                f.queue.push_back(Waiting { request, since: now });
                self.waiting.insert(function);
                self.set_waiting_deadline(function);
                return;
            }
        };
        commands.push(Command::Reject { request, reason });
    }

    fn booted(&mut self, now: Moment, vm: VmIndex, event: Event) -> Result<(), Unexpected> {
        let up = VmState::Up { empty_since: Some(now) };
        self.used(now, vm);
        self.change_vm(vm, event, up, |state| state == VmState::Booting)
    }

    fn unfit(&mut self, index: VmIndex) {
        if let Some(vm) = self.vms.get_mut(&index)
            && matches!(vm.state, VmState::Up { .. } | VmState::Paused { .. })
        {
            vm.unfit = true;
            self.touched.insert((index, FunctionIndex(u32::MAX)));
        }
    }

    /// Stops what is idle in VMs that are to be replaced. Whoever waits does so for the next one.
    fn leave_unfit(&mut self, commands: &mut Vec<Command>) {
        let unfit: Vec<_> = self.vms.iter().filter(|(_, vm)| vm.unfit).map(|(&i, _)| i).collect();
        for index in unfit {
            for (_, number) in self.pool.idle_in(index).collect::<Vec<_>>() {
                self.take_away(number, StopReason::Broken, commands);
            }
        }
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
        for function in self.waiting_in(vm).collect::<Vec<_>>() {
            self.reject_all(function, RejectReason::VmFailed, commands);
        }
        Ok(())
    }

    fn ended(
        &mut self,
        vm: VmIndex,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let there =
            |state| matches!(state, VmState::Up { .. } | VmState::Paused { .. } | VmState::Ending);
        self.change_vm(vm, event, VmState::Absent, there)?;
        self.release_vm(vm);
        for number in self.pool.within(vm).collect::<Vec<_>>() {
            // What brings its VM down each time it starts must not do so for ever.
            if let Some(Instance { function, state: InstanceState::Starting, .. }) =
                self.forget(number)
            {
                self.give_up_one(function, RejectReason::VmFailed, commands);
            }
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
        if let Some(Instance { vm, .. }) = self.pool.get(number) {
            self.used(now, vm);
        }
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
            Some(InstanceState::Idle { .. }) => {
                self.take_away(number, StopReason::Broken, commands)
            }
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
        let Some(function) = self.functions.get_mut(&index) else { return };
        function.retired = true;
        let index_of_vm = function.policy.vm;
        self.reject_all(index, RejectReason::Retired, commands);
        if let Some(vm) = self.vms.get_mut(&index_of_vm) {
            vm.retired = self.functions.values().all(|f| f.retired || f.policy.vm != index_of_vm);
        }
        self.touched.insert((index_of_vm, index));
        for (_, number) in self.pool.idle_of(index).collect::<Vec<_>>() {
            self.take_away(number, StopReason::Retired, commands);
        }
    }

    fn drain(&mut self, commands: &mut Vec<Command>) {
        self.draining = true;
        for function in self.waiting.clone() {
            self.reject_all(function, RejectReason::Draining, commands);
        }
        self.touched.extend(self.functions.iter().map(|(&index, f)| (f.policy.vm, index)));
    }

    /// Notes which VMs are empty, ends those that nobody needs any more, and drops what is retired
    /// and gone.
    fn clear_away(
        &mut self,
        now: Moment,
        left: &mut BTreeSet<VmIndex>,
        commands: &mut Vec<Command>,
    ) {
        for (index, function) in std::mem::take(&mut self.touched) {
            left.insert(index);
            if self.function(function).is_some_and(|f| f.retired) && !self.pool.has_any(function) {
                self.functions.remove(&function);
                if let Some(squeezer) = &mut self.squeezer {
                    squeezer.forget_function(function);
                }
            }
            let Some(vm) = self.vms.get(&index) else { continue };
            match vm.state {
                VmState::Absent if vm.retired => {
                    self.vms.remove(&index);
                }
                VmState::Up { .. } if self.pool.alive(index) > 0 => {
                    self.set_vm(index, VmState::Up { empty_since: None });
                }
                VmState::Up { .. } | VmState::Paused { .. }
                    if (self.draining || vm.retired || vm.unfit) && self.pool.alive(index) == 0 =>
                {
                    let reason = match vm {
                        vm if vm.retired => StopReason::Retired,
                        vm if vm.unfit => StopReason::Broken,
                        _ => StopReason::Draining,
                    };
                    self.end_vm(index, reason, commands);
                }
                VmState::Up { empty_since } => {
                    let empty_since = Some(empty_since.unwrap_or(now));
                    self.set_vm(index, VmState::Up { empty_since });
                }
                _ => {}
            }
        }
    }

    fn stop_idle(&mut self, reason: StopReason, commands: &mut Vec<Command>) {
        for (_, number) in self.pool.idle().collect::<Vec<_>>() {
            self.take_away(number, reason, commands);
        }
    }

    /// Stops an idle instance, if need be with its VM and all that is frozen in it.
    fn take_away(
        &mut self,
        number: InstanceNumber,
        reason: StopReason,
        commands: &mut Vec<Command>,
    ) {
        // Else it has gone with another one's VM.
        if let Some(Instance { vm, state: InstanceState::Idle { .. }, .. }) = self.pool.get(number)
        {
            if self.resume(vm, commands) {
                self.stop(number, reason, commands);
            } else {
                self.end_vm(vm, reason, commands);
            }
        }
    }

    /// Stops an instance of a VM that runs.
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
        if let Some(request) = self.next_waiting(function) {
            commands.push(Command::Reject { request, reason });
        }
    }

    /// Takes the request that has waited longest out of a function's queue.
    fn next_waiting(&mut self, index: FunctionIndex) -> Option<RequestNumber> {
        let queue = &mut self.functions.get_mut(&index)?.queue;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&index);
        }
        self.set_waiting_deadline(index);
        next.map(|waiting| waiting.request)
    }

    fn reject_all(
        &mut self,
        function: FunctionIndex,
        reason: RejectReason,
        commands: &mut Vec<Command>,
    ) {
        while let Some(request) = self.next_waiting(function) {
            commands.push(Command::Reject { request, reason });
        }
    }

    fn is_retired(&self, number: InstanceNumber) -> bool {
        let function = self.pool.get(number).and_then(|i| self.function(i.function));
        function.is_none_or(|function| function.retired)
    }

    fn instance_bytes(&self, vm: VmIndex) -> u64 {
        self.vms.get(&vm).map_or(0, |vm| vm.policy.instance_bytes)
    }

    /// Takes from the budget what a VM has beside its instances, or gives it back.
    fn charge_vm(&mut self, index: VmIndex, bytes: u64) -> bool {
        let Some(vm) = self.vms.get_mut(&index) else { return false };
        let more = bytes.saturating_sub(vm.charged_bytes);
        if !self.budget.commit(more) {
            return false;
        }
        self.budget.release(vm.charged_bytes.saturating_sub(bytes));
        vm.charged_bytes = bytes;
        true
    }

    fn release_vm(&mut self, vm: VmIndex) {
        self.charge_vm(vm, 0);
    }

    fn forget(&mut self, number: InstanceNumber) -> Option<Instance> {
        let instance = self.put(number, None)?;
        self.budget.release(instance.charged_bytes);
        Some(instance)
    }

    fn set(&mut self, number: InstanceNumber, state: InstanceState) {
        if let Some(instance) = self.pool.get(number) {
            self.put(number, Some(Instance { state, ..instance }));
        }
    }

    /// The one way an instance comes, changes and goes; what it was.
    fn put(&mut self, number: InstanceNumber, instance: Option<Instance>) -> Option<Instance> {
        let before = self.pool.put(number, instance);
        self.set_deadline(number);
        if !instance.is_some_and(|instance| is_frozen(&instance)) {
            self.thawed(number, instance.is_none());
        }
        self.touched.extend(before.or(instance).map(|i| (i.vm, i.function)));
        before
    }

    fn set_deadline(&mut self, number: InstanceNumber) {
        let at = self.pool.get(number).and_then(|instance| self.deadline(&instance));
        self.deadlines.set(Subject::Instance(number), at);
    }

    fn set_waiting_deadline(&mut self, index: FunctionIndex) {
        self.deadlines.set(Subject::Waiting(index), self.waiting_deadline(index));
    }

    fn used(&mut self, now: Moment, index: VmIndex) {
        if let Some(vm) = self.vms.get_mut(&index) {
            vm.last_used = now;
        }
    }

    /// The one way a VM changes.
    fn set_vm(&mut self, index: VmIndex, state: VmState) {
        let Some(vm) = self.vms.get_mut(&index) else { return };
        let before = std::mem::replace(&mut vm.state, state);
        if before == state {
            return;
        }
        if state == VmState::Absent {
            (vm.unfit, vm.proven) = (false, false);
        }
        let idle_time = vm.policy.idle_time;
        let spare = |state| match state {
            VmState::Up { empty_since } => empty_since,
            VmState::Paused { since } => Some(since),
            _ => None,
        };
        // In the order of its last use, as instances: else it came after all of them when it is left
        // empty, and they were ended in its place.
        let last_used = spare(state).map(|_| vm.last_used);
        let spare_before = std::mem::replace(&mut vm.spare_since, last_used);
        self.spare_vms.extend(last_used.map(|since| (since, index)));
        if let Some(since) = spare_before.filter(|_| spare_before != last_used) {
            self.spare_vms.remove(&(since, index));
        }
        self.pausing.remove(&index);
        if state == VmState::Ending {
            self.ending.insert(index);
        } else {
            self.ending.remove(&index);
        }
        let is_empty = self.pool.alive(index) == 0;
        let deadline = spare(state).filter(|_| is_empty).and_then(|since| Some(since + idle_time?));
        self.deadlines.set(Subject::Vm(index), deadline);
    }

    /// Moves an instance on if it stands where the event says it does.
    fn change(
        &mut self,
        number: InstanceNumber,
        event: Event,
        to: InstanceState,
        from: impl Fn(InstanceState) -> bool,
    ) -> Result<Instance, Unexpected> {
        match self.pool.get(number) {
            Some(instance) if from(instance.state) => {
                self.set(number, to);
                Ok(Instance { state: to, ..instance })
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
        match self.vm_state(index) {
            Some(state) if from(state) => {
                self.set_vm(index, to);
                // Its functions may be gone by now; so may it.
                self.touched.insert((index, FunctionIndex(u32::MAX)));
                Ok(())
            }
            state => Err(Unexpected::Vm { event, state }),
        }
    }
}
