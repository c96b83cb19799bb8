//! Which instance gets a request, and which VM and instance get memory.

use super::{Function, Scaler};
use crate::{
    Command, FunctionIndex, InstanceNumber, InstanceState, Moment, RequestNumber, VmIndex, VmState,
    instance::Instance,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is lacking to serve the queued requests of one tenant.
#[derive(Clone, Default)]
pub(super) struct Shortage {
    /// Bytes that each request lacks, in line.
    pub(super) needs: Vec<u64>,
    /// The VM that gets them first: the first one in line.
    pub(super) first: Option<VmIndex>,
    /// The frozen instance that gets them first, to serve a request.
    pub(super) thawing: Option<InstanceNumber>,
    /// The function that gets them first, if what it wants is an instance ahead of calls.
    pub(super) prewarming: Option<FunctionIndex>,
    /// How many instances to end in each full VM.
    pub(super) room: BTreeMap<VmIndex, usize>,
    /// VMs whose missing base memory is already counted in `needs`.
    resuming: BTreeSet<VmIndex>,
    /// Whether it is the tenant's quota that does not have them.
    pub(super) is_of_quota: bool,
    /// Whether another tenant gets memory first.
    pub(super) is_behind: bool,
}

impl Shortage {
    /// Whether it is the node that does not have them.
    pub(super) fn is_of_node(&self) -> bool {
        !self.needs.is_empty() && !self.is_of_quota
    }

    fn add(&mut self, bytes: u64, left_bytes: u64) {
        if self.needs.is_empty() {
            self.is_of_quota = bytes > left_bytes;
        }
        let sum = self.needs.iter().fold(bytes, |sum, &need| sum.saturating_add(need));
        // What the quota does not have is of no use to it.
        if bytes > 0 && (self.is_of_quota || sum <= left_bytes) {
            self.needs.push(bytes);
        }
    }
}

impl Scaler {
    /// Gives a function's oldest request to an instance that is idle and has been charged in full, or that is busy and
    /// has room for it.
    pub(super) fn dispatch(
        &mut self,
        now: Moment,
        index: FunctionIndex,
        instance: InstanceNumber,
        commands: &mut Vec<Command>,
    ) {
        let (others, thaw) = match self.state(instance) {
            Some(InstanceState::Idle { frozen, .. }) => (0, frozen),
            Some(InstanceState::Busy { requests, dying: false }) => (requests, false),
            _ => return,
        };
        let Some(function) = self.functions.get_mut(&index) else { return };
        function.taken = now;
        let Some(request) = self.next_waiting(index) else { return };
        self.set(instance, InstanceState::Busy { requests: others + 1, dying: false });
        commands.push(Command::Dispatch { instance, request, thaw });
    }

    /// The busy instance that serves a function's next request beside its own, for which it needs no memory: the
    /// fullest that has room, so that others become idle.
    pub(super) fn with_room(&self, index: FunctionIndex) -> Option<InstanceNumber> {
        let policy = self.function(index)?.policy;
        // An unfit one is replaced when its last request is answered.
        self.vms.get(&policy.vm).filter(|vm| !vm.unfit)?;
        self.pool.fullest(index, policy.requests_per_instance.get())
    }

    /// The idle instance that serves a function's next request: the one that was used last, so that the others reach the
    /// end of their keep-alive time, or, where it would have to wait for memory, one that would not.
    pub(super) fn readiest(
        &self,
        function: FunctionIndex,
        last: InstanceNumber,
        shortage: &Shortage,
    ) -> InstanceNumber {
        let Some(Instance { vm, .. }) = self.pool.get(last) else { return last };
        let missing = self.thaw_bytes(last);
        if self.comes_next(vm, missing, shortage) && missing <= self.free_bytes(vm) {
            return last;
        }
        let mut idle = self.pool.idle_of(function).rev().map(|(_, number)| number);
        idle.find(|&number| self.thaw_bytes(number) == 0).unwrap_or(last)
    }

    /// Charges an idle instance with all the memory it may use and resumes its VM, or notes what is lacking.
    pub(super) fn charge_in_full(
        &mut self,
        number: InstanceNumber,
        shortage: &mut Shortage,
        commands: &mut Vec<Command>,
    ) -> bool {
        let Some(instance) = self.pool.get(number) else { return false };
        let missing = self.missing_bytes(&instance);
        if self.comes_next(instance.vm, missing, shortage)
            && self.commit_within(instance.vm, missing, commands)
        {
            self.charge(number, instance.charged_bytes + missing);
            return true;
        }
        if shortage.needs.is_empty() {
            shortage.first = Some(instance.vm);
            shortage.thawing = Some(number);
        }
        self.lacks(instance.vm, missing, shortage);
        false
    }

    /// Whether something in this VM may get `bytes` now: nothing ahead of it in line lacks memory, or it
    /// needs none, and does not keep a VM that is about to be empty, and to make room.
    fn comes_next(&self, vm: VmIndex, bytes: u64, shortage: &Shortage) -> bool {
        (shortage.needs.is_empty() && !shortage.is_behind)
            || (bytes == 0 && self.missing_base_bytes(vm) == 0 && !self.empties(vm))
    }

    /// Whether all instances of a VM are on their way out.
    fn empties(&self, vm: VmIndex) -> bool {
        let going = self.pool.going().filter(|instance| instance.vm == vm).count();
        going > 0 && going == self.pool.alive(vm)
    }

    /// Adds `bytes` to the shortage and, once per VM, what the VM lacks to run.
    fn lacks(&self, vm: VmIndex, bytes: u64, shortage: &mut Shortage) {
        let base = if shortage.resuming.insert(vm) { self.missing_base_bytes(vm) } else { 0 };
        shortage.add(bytes.saturating_add(base), self.left_in(vm));
    }

    /// Bytes that the quota of a VM's tenant leaves it.
    fn left_in(&self, vm: VmIndex) -> u64 {
        let tenant = self.vms.get(&vm).and_then(|vm| vm.tenant);
        tenant.map_or(0, |tenant| self.left_bytes(tenant))
    }

    /// What an idle instance and its VM lack to serve a request, in bytes.
    pub(super) fn thaw_bytes(&self, number: InstanceNumber) -> u64 {
        let Some(instance) = self.pool.get(number) else { return 0 };
        self.missing_bytes(&instance).saturating_add(self.missing_base_bytes(instance.vm))
    }

    /// What a new instance of a function takes, in bytes.
    pub(super) fn start_bytes(&self, function: FunctionIndex) -> u64 {
        let Some(index) = self.function(function).map(|f| f.policy.vm) else { return 0 };
        let Some(vm) = self.vms.get(&index) else { return 0 };
        match vm.state {
            VmState::Absent => vm.policy.base_bytes + vm.policy.instance_bytes,
            VmState::Up { .. } | VmState::Paused { .. } => {
                let room = if self.is_full(function, index) { 0 } else { self.fresh_bytes(index) };
                room.saturating_add(self.missing_base_bytes(index))
            }
            VmState::Booting | VmState::Ending => 0,
        }
    }

    /// Whether the tenant's quota does not have the memory for the function's next request.
    pub(super) fn lacks_quota(&self, function: FunctionIndex) -> bool {
        let needed = match self.pool.last_used(function) {
            Some(instance) => self.thaw_bytes(instance),
            None => self.start_bytes(function),
        };
        self.function(function).is_some_and(|f| needed > self.left_bytes(f.tenant))
    }

    /// What an instance takes beyond what the guest has kept of another, in bytes.
    fn fresh_bytes(&self, vm: VmIndex) -> u64 {
        let kept = self.pool.stranded(vm).and_then(|number| self.pool.get(number));
        self.instance_bytes(vm).saturating_sub(kept.map_or(0, |kept| kept.charged_bytes))
    }

    /// Whether a function or its VM has all the instances that it may have.
    pub(super) fn is_full(&self, function: FunctionIndex, vm: VmIndex) -> bool {
        let most = self.vms.get(&vm).map_or(0, |vm| vm.policy.max_instances as usize);
        let own = self.function(function).map_or(0, |f| f.policy.max_instances as usize);
        self.pool.alive(vm) >= most || self.pool.counts(function).alive() >= own
    }

    /// How many of a function's queued requests an instance was meant for that could not be started: those that the ones
    /// that are idle or still starting will not take, as many as it would have served.
    pub(super) fn meant_for(&self, index: FunctionIndex) -> usize {
        let Some(function) = self.function(index) else { return 0 };
        let each = usize::from(function.policy.requests_per_instance.get());
        function.queue.len().saturating_sub(self.taken_by_idle(index, each)).clamp(1, each)
    }

    /// How many of a function's queued requests its instances that are idle or starting will take, each so many: they get
    /// them as soon as there is memory for it.
    fn taken_by_idle(&self, index: FunctionIndex, each: usize) -> usize {
        let counts = self.pool.counts(index);
        (counts.starting + counts.idle).saturating_mul(each)
    }

    pub(super) fn boot(
        &mut self,
        index: VmIndex,
        shortage: &mut Shortage,
        commands: &mut Vec<Command>,
    ) {
        let Some(vm) = self.vms.get(&index) else { return };
        // A VM is of no use without memory for an instance.
        let needed = vm.policy.base_bytes + vm.policy.instance_bytes;
        if shortage.needs.is_empty()
            && !shortage.is_behind
            && needed <= self.free_bytes(index)
            && self.charge_vm(index, vm.policy.base_bytes)
        {
            self.set_vm(index, VmState::Booting);
            commands.push(Command::BootVm(index));
        } else if shortage.first != Some(index) {
            shortage.first.get_or_insert(index);
            shortage.add(needed, self.left_in(index));
        }
    }

    pub(super) fn start(
        &mut self,
        function: FunctionIndex,
        vm: VmIndex,
        shortage: &mut Shortage,
        commands: &mut Vec<Command>,
    ) {
        let Some(policy) = self.vms.get(&vm).map(|vm| vm.policy) else { return };
        // Another function of this VM may have taken the last start.
        if self.pool.starting(vm) >= policy.max_starting as usize {
            return;
        }
        let Some(tenant) = self.function(function).map(|f| f.tenant) else { return };
        if self.is_full(function, vm) {
            // Its idle instances can be ended only while it runs, and its condemned ones are ended then.
            if self.comes_next(vm, 0, shortage) && self.resume(vm, commands) {
                *shortage.room.entry(vm).or_default() += 1;
            } else {
                shortage.first.get_or_insert(vm);
                self.lacks(vm, 0, shortage);
            }
            return;
        }
        let stranded = self.pool.stranded(vm);
        let needed_bytes = self.fresh_bytes(vm);
        if self.comes_next(vm, needed_bytes, shortage)
            && self.commit_within(vm, needed_bytes, commands)
        {
            // The new instance takes over its memory.
            if let Some(number) = stranded {
                self.put(number, None);
            }
            let instance = InstanceNumber(self.next_instance);
            self.next_instance += 1;
            let state = InstanceState::Starting;
            let charged_bytes = policy.instance_bytes;
            self.put(instance, Some(Instance { tenant, function, vm, state, charged_bytes }));
            commands.push(Command::Start { function, vm, instance });
        } else {
            shortage.first.get_or_insert(vm);
            self.lacks(vm, needed_bytes, shortage);
        }
    }

    /// How many more instances of a function may start now.
    fn may_start(&self, index: FunctionIndex, function: &Function) -> usize {
        let Some(vm) = self.vms.get(&function.policy.vm) else { return 0 };
        let left = |most: u32, there: usize| (most as usize).saturating_sub(there);
        let counts = self.pool.counts(index);
        // Condemned ones are ended as soon as the VM runs.
        let of_function = left(function.policy.max_instances, counts.alive() - counts.condemned);
        let in_vm = left(vm.policy.max_starting, self.pool.starting(function.policy.vm));
        match vm.state {
            // One request is enough to boot it.
            VmState::Absent => 1,
            VmState::Up { .. } | VmState::Paused { .. } if vm.unfit => 0,
            VmState::Up { .. } | VmState::Paused { .. } => of_function.min(in_vm),
            // Its turn comes once the VM is up.
            VmState::Booting | VmState::Ending => 0,
        }
    }

    /// The function of each instance to start for these functions, oldest request first.
    pub(super) fn wanted(
        &self,
        functions: &[FunctionIndex],
    ) -> VecDeque<((Moment, RequestNumber), FunctionIndex)> {
        let mut wanted = Vec::new();
        for &index in functions {
            let Some(function) = self.function(index) else { continue };
            let each = usize::from(function.policy.requests_per_instance.get());
            let taken = self.taken_by_idle(index, each);
            let lacking = function.queue.iter().skip(taken).step_by(each);
            let waiting = lacking.take(self.may_start(index, function));
            wanted.extend(waiting.map(|w| ((w.since, w.request), index)));
        }
        wanted.sort_unstable();
        wanted.into()
    }
}
