//! Which instance gets a request, and which VM and instance get memory.

use super::{Function, Scaler};
use crate::{
    Command, FunctionIndex, InstanceNumber, InstanceState, Moment, VmIndex, VmState,
    instance::Instance,
};
use std::collections::{BTreeMap, BTreeSet};

/// What is lacking to serve all queued requests.
#[derive(Default)]
pub(super) struct Shortage {
    /// Bytes that the budget lacks.
    pub(super) bytes: u64,
    /// The VM that gets them first: the first one in line.
    pub(super) first: Option<VmIndex>,
    /// The frozen instance that gets them first, to serve a request.
    pub(super) thawing: Option<InstanceNumber>,
    /// How many instances to end in each full VM.
    pub(super) room: BTreeMap<VmIndex, usize>,
    /// VMs whose missing base memory is already counted in `bytes`.
    resuming: BTreeSet<VmIndex>,
}

impl Scaler {
    /// Gives queued requests to idle instances, most recently used first, so that the others reach the end of
    /// their keep-alive time. Since a frozen instance that gave up memory first has to get it back, functions
    /// take turns by their oldest request.
    pub(super) fn dispatch(
        &mut self,
        now: Moment,
        shortage: &mut Shortage,
        commands: &mut Vec<Command>,
    ) {
        for index in self.in_turn() {
            while self.waiting.contains(&index)
                && let Some(instance) = self.pool.last_used(index)
            {
                if !self.charge_in_full(instance, shortage, commands) {
                    break;
                }
                let Some(function) = self.functions.get_mut(&index) else { break };
                function.taken = now;
                let Some(request) = self.next_waiting(index) else { break };
                let thaw =
                    matches!(self.state(instance), Some(InstanceState::Idle { frozen: true, .. }));
                self.set(instance, InstanceState::Busy { request, dying: false });
                commands.push(Command::Dispatch { instance, request, thaw });
            }
        }
    }

    /// The functions with queued requests, oldest request first.
    fn in_turn(&self) -> Vec<FunctionIndex> {
        let first = |&index: &FunctionIndex| {
            let waiting = self.functions[&index].queue.front()?;
            Some((waiting.since, waiting.request, index))
        };
        let mut first: Vec<_> = self.waiting.iter().filter_map(first).collect();
        first.sort_unstable();
        first.into_iter().map(|(_, _, index)| index).collect()
    }

    /// Charges an idle instance with all the memory it may use and resumes its VM, or notes what is lacking.
    fn charge_in_full(
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
        if shortage.bytes == 0 {
            shortage.first = Some(instance.vm);
            shortage.thawing = Some(number);
        }
        self.lacks(instance.vm, missing, shortage);
        false
    }

    /// Whether something in this VM may get `bytes` now: nothing ahead of it in line lacks memory, or it
    /// needs none.
    fn comes_next(&self, vm: VmIndex, bytes: u64, shortage: &Shortage) -> bool {
        shortage.bytes == 0 || (bytes == 0 && self.missing_base_bytes(vm) == 0)
    }

    /// Adds `bytes` to the shortage and, once per VM, what the VM lacks to run.
    fn lacks(&self, vm: VmIndex, bytes: u64, shortage: &mut Shortage) {
        let base = if shortage.resuming.insert(vm) { self.missing_base_bytes(vm) } else { 0 };
        shortage.bytes = shortage.bytes.saturating_add(bytes).saturating_add(base);
    }

    /// Starts an instance for every queued request that has none coming, oldest first, up to the VM's limit
    /// on concurrent starts. Behind the first one that does not fit the budget nothing gets memory, or small
    /// instances would starve a large one; the missing memory is taken from the least recently used.
    pub(super) fn scale_up(&mut self, mut shortage: Shortage, commands: &mut Vec<Command>) {
        for function in self.wanted() {
            let Some(index) = self.function(function).map(|f| f.policy.vm) else { continue };
            match self.vm_state(index) {
                Some(VmState::Absent) => self.boot(index, &mut shortage, commands),
                Some(VmState::Up { .. } | VmState::Paused { .. }) => {
                    self.start(function, index, &mut shortage, commands);
                }
                Some(VmState::Booting | VmState::Ending) | None => {}
            }
        }
        if shortage.bytes == 0 {
            self.lend(commands);
        }
        self.make_room(&shortage, commands);
        let wanted = shortage.bytes.saturating_add(self.budget.reserve_bytes());
        if wanted > 0 {
            self.evict(wanted, &shortage, commands);
        } else {
            self.awaited = None;
        }
    }

    fn boot(&mut self, index: VmIndex, shortage: &mut Shortage, commands: &mut Vec<Command>) {
        let Some(vm) = self.vms.get(&index) else { return };
        // A VM is of no use without memory for an instance.
        let needed = vm.policy.base_bytes + vm.policy.instance_bytes;
        if shortage.bytes == 0
            && needed <= self.budget.free_bytes()
            && self.charge_vm(index, vm.policy.base_bytes)
        {
            self.set_vm(index, VmState::Booting);
            commands.push(Command::BootVm(index));
        } else if shortage.first != Some(index) {
            shortage.first.get_or_insert(index);
            shortage.bytes = shortage.bytes.saturating_add(needed);
        }
    }

    fn start(
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
        let most = self.function(function).map_or(0, |f| f.policy.max_instances as usize);
        if self.pool.alive(vm) >= policy.max_instances as usize
            || self.pool.counts(function).alive() >= most
        {
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
        let kept_bytes = stranded.and_then(|n| self.pool.get(n)).map_or(0, |i| i.charged_bytes);
        let needed_bytes = policy.instance_bytes.saturating_sub(kept_bytes);
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
            self.put(instance, Some(Instance { function, vm, state, charged_bytes }));
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

    /// The function of each instance to start, oldest request first.
    fn wanted(&self) -> Vec<FunctionIndex> {
        let mut wanted = Vec::new();
        for (&index, function) in self.waiting.iter().map(|i| (i, &self.functions[i])) {
            let counts = self.pool.counts(index);
            // Idle instances get a request as soon as there is memory for it.
            let coming = counts.starting + counts.idle;
            let waiting = function.queue.iter().skip(coming).take(self.may_start(index, function));
            wanted.extend(waiting.map(|w| (w.since, w.request, index)));
        }
        wanted.sort_unstable();
        wanted.into_iter().map(|(_, _, function)| function).collect()
    }
}
