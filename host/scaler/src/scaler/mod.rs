//! Decides which VMs and instances start and stop, and which request goes where.
//!
//! An [`Event`] is handled to a fixed point here. What it changes at first is in `vms`, `instances` and
//! `queue`; who then gets a request, memory or neither in `scale`, what time changes in `expire`, what
//! becomes of frozen instances in `squeeze`, of VMs that have no others in `pause`, and of what nobody
//! needs any more in `leave`. `pool` has the instances, `deadlines` when they have to be looked at.

mod counts;
mod deadlines;
mod expire;
mod instances;
mod leave;
mod pause;
mod policy;
mod pool;
mod queue;
mod scale;
mod squeeze;
#[cfg(test)]
mod tests;
mod vms;

use crate::{
    Budget, Command, Event, FunctionIndex, InstanceNumber, InstanceState, Moment, RequestNumber,
    StopReason, Unexpected, VmIndex, VmState, squeeze::SqueezeManager,
};
use deadlines::Deadlines;
use pool::Pool;
use scale::Shortage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use counts::Counts;
pub use policy::{FunctionPolicy, PolicyError, VmPolicy};

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
    evictable_since: Option<Moment>,
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
    evictable_vms: BTreeSet<(Moment, VmIndex)>,
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
    squeeze_manager: Option<SqueezeManager>,
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
            evictable_vms: BTreeSet::new(),
            pausing: BTreeSet::new(),
            ending: BTreeSet::new(),
            pool: Pool::default(),
            deadlines: Deadlines::default(),
            touched: BTreeSet::new(),
            budget,
            squeeze_manager: None,
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
            evictable_since: None,
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
            Event::Started(number) => self.started(now, number, event, &mut commands)?,
            Event::StartFailed(number) => self.start_failed(number, event, &mut commands)?,
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
            Event::Stopped(number) => self.stopped(number, event, &mut commands)?,
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
            let mut shortage = Shortage::default();
            self.dispatch(now, &mut shortage, commands);
            self.scale_up(shortage, commands);
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
}
