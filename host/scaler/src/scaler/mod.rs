//! Decides which VMs and instances start and stop, and which instance gets which request.
//!
//! An [`Event`] is handled to a fixed point. Its immediate effect is in `vms`, `instances` and `queue`. What
//! follows from it: whose turn it is (`turns`, by the rules of `tenants`), who gets a request or memory (`scale`, and
//! `lend` for guests that lack it) and who gives it up (`evict`, to what is entitled to it, `claim`), timeouts (`expire`),
//! instances that are wanted ahead of calls (`prewarm`) or kept up without any (`keep`), frozen instances (`squeeze`), those that are measured again (`watch`), VMs in which all instances are frozen (`pause`), instances that lose their memory
//! while their VM is paused (`condemn`), and the removal of what is no longer needed (`leave`). `pool` holds the
//! instances, `deadlines` the times at which they need attention.

mod claim;
mod condemn;
mod counts;
mod deadlines;
mod evict;
mod expire;
mod instances;
mod keep;
mod leave;
mod lend;
mod pause;
mod policy;
mod pool;
mod prewarm;
mod queue;
mod scale;
mod squeeze;
mod tenant;
mod tenants;
#[cfg(test)]
mod tests;
mod turns;
mod vms;
mod watch;

use crate::{
    Budget, Command, Event, FunctionIndex, InstanceNumber, InstanceState, Moment, RequestNumber,
    StopReason, TenantIndex, Unexpected, VmIndex, VmState, squeeze::SqueezeManager,
};
use deadlines::Deadlines;
use evict::Awaited;
use keep::Failures;
use pool::Pool;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tenant::Tenant;

pub use counts::Counts;
pub use policy::{FunctionPolicy, PolicyError, TenantPolicy, VmPolicy};
pub use tenant::TenantCounts;

struct Waiting {
    request: RequestNumber,
    since: Moment,
    /// Whether it is a call, and not an instance wanted ahead of calls.
    is_call: bool,
}

struct Function {
    tenant: TenantIndex,
    policy: FunctionPolicy,
    /// Calls, and instances wanted ahead of calls.
    queue: VecDeque<Waiting>,
    /// When an instance last took one of its requests.
    taken: Moment,
    /// Of its instances, or its VM, if some of them are kept up.
    failures: Option<Failures>,
    retired: bool,
}

struct Vm {
    policy: VmPolicy,
    /// Whose functions it has; absent before it has any.
    tenant: Option<TenantIndex>,
    state: VmState,
    /// Bytes of the budget charged to it, apart from its instances: its base memory, or what it holds while
    /// it is paused, which may be more.
    charged_bytes: u64,
    /// What it was lent since it booted, in bytes.
    lent_bytes: u64,
    /// When an instance in it last answered; before the first answer, when it booted.
    last_used: Moment,
    /// Its key in `evictable_vms`, if it is there.
    evictable_since: Option<Moment>,
    /// Whether all its functions are retired.
    retired: bool,
    /// Whether it is to be replaced.
    unfit: bool,
    /// Whether an instance has started in it since it booted.
    proven: bool,
}

/// Turns events into commands. See the crate's documentation.
pub struct Scaler {
    tenants: BTreeMap<TenantIndex, Tenant>,
    /// Tenants that may hold more memory than they may have by now.
    shrunk: BTreeSet<TenantIndex>,
    functions: BTreeMap<FunctionIndex, Function>,
    /// Functions with queued requests.
    waiting: BTreeSet<FunctionIndex>,
    /// Those among them of which an instance is wanted ahead of calls.
    prewarming: BTreeSet<FunctionIndex>,
    /// Functions of which instances are kept up.
    keeping: BTreeSet<FunctionIndex>,
    vms: BTreeMap<VmIndex, Vm>,
    /// What VMs in which something starts or serves requests are charged together, apart from their instances.
    working_vms_bytes: u64,
    /// VMs of each tenant that can be ended as a whole because they are empty or paused, least recently used first.
    evictable_vms: BTreeSet<(TenantIndex, (Moment, VmIndex))>,
    /// VMs being paused; what they hold is known once they are.
    pausing: BTreeSet<VmIndex>,
    /// What was under way when memory became short for a tenant, or for the reserve.
    awaited: BTreeMap<Option<TenantIndex>, Awaited>,
    /// VMs whose guests lack memory, and how much, until this event is handled.
    starving: BTreeMap<VmIndex, u64>,
    /// VMs shutting down.
    ending: BTreeSet<VmIndex>,
    pool: Pool,
    deadlines: Deadlines,
    /// VMs and functions that this event may have left empty and that have not been checked since.
    touched: BTreeSet<(VmIndex, FunctionIndex)>,
    budget: Budget,
    /// Absent if frozen instances are not squeezed.
    squeeze_manager: Option<SqueezeManager>,
    /// Instances being frozen; what they hold is known once they are.
    freezing: BTreeSet<InstanceNumber>,
    /// Frozen instances that can be condemned. Their VMs are paused, or about to be.
    doomed: BTreeSet<InstanceNumber>,
    next_tenant: u32,
    next_function: u32,
    next_vm: u32,
    next_instance: u64,
    draining: bool,
}

impl Scaler {
    /// Creates a scaler with one tenant, [`TenantIndex::FIRST`], and without VMs or functions.
    pub fn new(budget: Budget) -> Self {
        let first = Tenant::new(TenantPolicy::default());
        Self {
            tenants: BTreeMap::from([(TenantIndex::FIRST, first)]),
            shrunk: BTreeSet::new(),
            functions: BTreeMap::new(),
            waiting: BTreeSet::new(),
            prewarming: BTreeSet::new(),
            keeping: BTreeSet::new(),
            vms: BTreeMap::new(),
            working_vms_bytes: 0,
            evictable_vms: BTreeSet::new(),
            pausing: BTreeSet::new(),
            awaited: BTreeMap::new(),
            starving: BTreeMap::new(),
            ending: BTreeSet::new(),
            pool: Pool::default(),
            deadlines: Deadlines::default(),
            touched: BTreeSet::new(),
            budget,
            squeeze_manager: None,
            freezing: BTreeSet::new(),
            doomed: BTreeSet::new(),
            next_tenant: TenantIndex::FIRST.0 + 1,
            next_function: 0,
            next_vm: 0,
            next_instance: 0,
            draining: false,
        }
    }

    /// Adds a VM, which is booted on demand.
    pub fn add_vm(&mut self, policy: VmPolicy) -> Result<VmIndex, PolicyError> {
        policy.check(self.budget.limit_bytes())?;
        let index = VmIndex(self.next_vm);
        self.next_vm += 1;
        let vm = Vm {
            policy,
            tenant: None,
            state: VmState::Absent,
            charged_bytes: 0,
            lent_bytes: 0,
            last_used: Moment::START,
            evictable_since: None,
            retired: false,
            unfit: false,
            proven: false,
        };
        self.vms.insert(index, vm);
        Ok(index)
    }

    /// Adds a function of a tenant. Its VM, which belongs to the tenant from the first of its functions on, goes with
    /// the last of them. Instances that are kept up are started at the next event.
    pub fn add_function(
        &mut self,
        tenant: TenantIndex,
        policy: FunctionPolicy,
    ) -> Result<FunctionIndex, PolicyError> {
        policy.check()?;
        self.check_minimum(tenant, &policy)?;
        self.own(tenant, policy.vm)?;
        let index = FunctionIndex(self.next_function);
        self.next_function += 1;
        let function = Function {
            tenant,
            policy,
            queue: VecDeque::new(),
            taken: Moment::START,
            failures: None,
            retired: false,
        };
        self.functions.insert(index, function);
        self.set_minimum(index);
        Ok(index)
    }

    /// Changes a function's policy, except its VM. Instances that have been idle for too long under the new
    /// policy are stopped at the next [`Event::Tick`].
    pub fn update_function(
        &mut self,
        index: FunctionIndex,
        policy: FunctionPolicy,
    ) -> Result<(), PolicyError> {
        policy.check()?;
        if let Some(tenant) = self.function(index).map(|function| function.tenant) {
            self.check_minimum(tenant, &policy)?;
        }
        match self.functions.get_mut(&index) {
            Some(function) if function.policy.vm == policy.vm => {
                function.policy = policy;
                self.set_minimum(index);
                let idle: Vec<_> = self.pool.idle_of(index).map(|(_, number)| number).collect();
                idle.into_iter().for_each(|number| self.set_deadline(number));
                self.set_waiting_deadline(index);
                Ok(())
            }
            Some(_) => Err(PolicyError::NoVm(policy.vm)),
            None => Err(PolicyError::NoFunction(index)),
        }
    }

    /// The host's memory budget.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// The state of an instance; `None` once it is gone and its memory is reclaimed.
    pub fn state(&self, instance: InstanceNumber) -> Option<InstanceState> {
        self.pool.get(instance).map(|i| i.state)
    }

    /// The state of a VM; `None` once it is gone with its functions.
    pub fn vm_state(&self, vm: VmIndex) -> Option<VmState> {
        self.vms.get(&vm).map(|vm| vm.state)
    }

    /// Whether a VM is to be replaced.
    pub fn is_unfit(&self, vm: VmIndex) -> bool {
        self.vms.get(&vm).is_some_and(|vm| vm.unfit)
    }

    /// Whether a function still exists: it is not retired, or has instances left.
    pub fn has_function(&self, function: FunctionIndex) -> bool {
        self.functions.contains_key(&function)
    }

    /// Whether the scaler was told to drain, and nothing is left.
    pub fn is_drained(&self) -> bool {
        self.draining && self.is_empty()
    }

    /// Whether there are no VMs, instances or requests.
    pub fn is_empty(&self) -> bool {
        self.pool.is_empty()
            && self.waiting.is_empty()
            && self.vms.values().all(|vm| vm.state == VmState::Absent)
    }

    /// A function's instances and requests; all zero if it is gone.
    pub fn counts(&self, function: FunctionIndex) -> Counts {
        let queued = self.queued_calls(function);
        let minimum = self.function(function).map_or(0, |f| f.policy.min_instances as usize);
        Counts { queued, minimum, ..self.pool.counts(function) }
    }

    fn function(&self, index: FunctionIndex) -> Option<&Function> {
        self.functions.get(&index)
    }

    /// Handles an event that happened at `now` and returns the commands to carry out, in order.
    ///
    /// `now` must not run backwards. An event that does not fit the current state is an error and changes
    /// nothing.
    pub fn handle(&mut self, now: Moment, event: Event) -> Result<Vec<Command>, Unexpected> {
        let mut commands = Vec::new();
        match event {
            Event::Request { function, request } => {
                self.enqueue(now, function, request, true, &mut commands);
            }
            Event::SentOn { function, request } => {
                self.enqueue(now, function, request, false, &mut commands);
            }
            Event::Prewarm { function, request } => {
                self.prewarm(now, function, request, &mut commands);
            }
            Event::VmBooted(vm) => self.booted(now, vm, event)?,
            Event::VmFailed(vm) => self.boot_failed(now, vm, event, &mut commands)?,
            Event::VmEnded(vm) => self.ended(now, vm, event, &mut commands)?,
            Event::VmUnfit(vm) => self.unfit(vm),
            Event::VmPaused { vm, resident_bytes } => {
                self.paused(now, vm, resident_bytes, &mut commands);
            }
            Event::Starved { vm, wanted_bytes } => drop(self.starving.insert(vm, wanted_bytes)),
            Event::Lent { vm, bytes, given_bytes } => {
                self.lent(vm, bytes.saturating_sub(given_bytes));
            }
            Event::Doomed(number) => self.doomed(number),
            Event::Condemned { instance, freed_bytes } => {
                self.condemned(now, instance, freed_bytes)
            }
            Event::CondemnFailed(number) => self.condemn_failed(now, number),
            Event::Started(number) => self.started(now, number, event, &mut commands)?,
            Event::StartFailed(number) => self.start_failed(now, number, event, &mut commands)?,
            Event::Answered(number) => self.answered(now, number, event, false, &mut commands)?,
            Event::Broken(number) => self.answered(now, number, event, true, &mut commands)?,
            Event::Died(number) => self.died(now, number, event, &mut commands)?,
            Event::Frozen { instance, resident_bytes } => {
                self.frozen(now, instance, resident_bytes);
            }
            Event::Squeezed { instance, resident_bytes, cpu } => {
                self.squeezed(now, instance, event, resident_bytes, cpu)?;
            }
            Event::Measured { instance, resident_bytes } => {
                self.measured(now, instance, resident_bytes, &mut commands);
            }
            Event::SqueezeFailed(number) => self.squeeze_failed(number, event)?,
            Event::Stopped(number) => self.stopped(number, event, &mut commands)?,
            Event::Reclaimed(number) => self.reclaimed(now, number, event, true)?,
            Event::ReclaimFailed(number) => self.reclaimed(now, number, event, false)?,
            Event::EvictIdle => self.stop_idle(StopReason::Evicted, &mut commands),
            Event::Retire(function) => self.retire(now, function, &mut commands),
            Event::Tick => self.expire(now, &mut commands),
            Event::Drain => self.drain(&mut commands),
        }
        self.settle(now, &mut commands);
        Ok(commands)
    }

    /// Runs steps to a fixed point: what one step makes possible is done in the next one, not at the next
    /// event, which may be a long time coming.
    ///
    /// It terminates because only a step that sends a command is followed by another, and the number of
    /// commands between two events is bounded: see [`Self::most_steps`].
    fn settle(&mut self, now: Moment, commands: &mut Vec<Command>) {
        // Only an event brings an instance, so this is not part of a step.
        self.end_prewarms(commands);
        let mut left = BTreeSet::new();
        let mut steps = 1;
        while self.step(now, &mut left, commands) && steps < self.most_steps() {
            steps += 1;
        }
        // Whoever has not got anything by now is refused.
        self.starving.clear();
        debug_assert!(self.touched.is_empty(), "not at rest after {steps} steps");
        // Last, because a pause makes nothing possible until it is answered.
        for vm in left {
            self.pause(vm, commands);
        }
    }

    /// Looks at everything once and returns whether it sent a command. Adds VMs that something has left to
    /// `left`.
    fn step(
        &mut self,
        now: Moment,
        left: &mut BTreeSet<VmIndex>,
        commands: &mut Vec<Command>,
    ) -> bool {
        let sent = commands.len();
        // First, because an empty VM is memory for queued requests.
        self.clear_away(now, left, commands);
        if self.draining {
            self.stop_idle(StopReason::Draining, commands);
        } else {
            self.leave_unfit(commands);
            self.serve(now, commands);
            self.squeeze(now, commands);
        }
        commands.len() > sent
    }

    /// One more than the number of commands that the steps of one event can send. Before an answer arrives as
    /// another event, a VM is sent at most a loan, a resume and an end, or a boot; an instance at most a freeze, a
    /// squeeze and a stop, or a condemnation and a stop, or a start, or dispatches, all of which are sent in one step.
    fn most_steps(&self) -> usize {
        1 + 3 * self.vms.len() + 3 * self.pool.len()
    }
}
