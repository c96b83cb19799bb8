//! Who gets a request, a VM, memory, and who has to give it up.

use super::{Function, Scaler, Vm};
use crate::{
    Command, FunctionIndex, InstanceNumber, InstanceState, Moment, StopReason, VmIndex, VmState,
    instance::Instance,
};
use std::collections::{BTreeMap, BTreeSet};

/// Something that could be ended to make room.
#[derive(Clone, Copy)]
enum Evictable {
    Instance(InstanceNumber),
    /// A VM in which nothing runs.
    Vm(VmIndex),
    /// All that is idle in a VM that has its memory from its boot on: when they are gone, so can it.
    AllOf(VmIndex),
}

/// What cannot be had as things stand.
#[derive(Default)]
pub(super) struct Shortage {
    /// Bytes that the budget lacks.
    bytes: u64,
    /// The VM that gets them first.
    first: Option<VmIndex>,
    /// The frozen instance that gets them first, to take a request.
    thawing: Option<InstanceNumber>,
    /// Instances that VMs have no room for.
    room: BTreeMap<VmIndex, usize>,
    /// Paused VMs whose part of the bytes is counted.
    resuming: BTreeSet<VmIndex>,
}

impl Scaler {
    /// Gives waiting requests to idle instances, the one used last first: so the others get to the end
    /// of their keep-alive. A frozen one that has given up memory has to get that first, and so the
    /// request that has waited longest comes before the others.
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

    /// The functions with requests that wait, the longest first.
    fn in_turn(&self) -> Vec<FunctionIndex> {
        let first = |&index: &FunctionIndex| {
            let waiting = self.functions[&index].queue.front()?;
            Some((waiting.since, waiting.request, index))
        };
        let mut first: Vec<_> = self.waiting.iter().filter_map(first).collect();
        first.sort_unstable();
        first.into_iter().map(|(_, _, index)| index).collect()
    }

    /// Gives an idle instance all the memory it may take and has its VM run, or notes what is short of
    /// it.
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

    /// Whether nobody is to get memory before something in a VM does that needs so much, if it needs any.
    fn comes_next(&self, vm: VmIndex, bytes: u64, shortage: &Shortage) -> bool {
        shortage.bytes == 0 || (bytes == 0 && self.missing_base_bytes(vm) == 0)
    }

    /// Notes that so much memory is short, and once what its VM lacks to run.
    fn lacks(&self, vm: VmIndex, bytes: u64, shortage: &mut Shortage) {
        let base = if shortage.resuming.insert(vm) { self.missing_base_bytes(vm) } else { 0 };
        shortage.bytes = shortage.bytes.saturating_add(bytes).saturating_add(base);
    }

    /// Starts an instance for every request that waits and has none on its way, oldest first, as far
    /// as VMs start so many at a time. From the first one on that does not fit the budget nobody gets
    /// memory, or small instances would starve a large one; what is short is taken from what was used
    /// least recently.
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
        self.make_room(&shortage, commands);
        let wanted = shortage.bytes.saturating_add(self.budget.reserve_bytes());
        if wanted > 0 {
            self.evict(wanted, &shortage, commands);
        }
    }

    fn boot(&mut self, index: VmIndex, shortage: &mut Shortage, commands: &mut Vec<Command>) {
        let Some(vm) = self.vms.get(&index) else { return };
        // A VM without room for an instance would be of no use.
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
        // Another function of the VM may have come first.
        if self.pool.starting(vm) >= policy.max_starting as usize {
            return;
        }
        if self.pool.alive(vm) >= policy.max_instances as usize {
            // What is idle in it can only be ended while it runs.
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
            // Its memory goes on as the new one's.
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
        let of_function = left(function.policy.max_instances, self.pool.counts(index).alive());
        let in_vm = left(vm.policy.max_starting, self.pool.starting(function.policy.vm));
        match vm.state {
            // One that waits is enough for it to be booted.
            VmState::Absent => 1,
            VmState::Up { .. } | VmState::Paused { .. } if vm.unfit => 0,
            VmState::Up { .. } | VmState::Paused { .. } => of_function.min(in_vm),
            // It comes when its VM has.
            VmState::Booting | VmState::Ending => 0,
        }
    }

    /// The function of each instance that should be started, the longest waiting request first.
    fn wanted(&self) -> Vec<FunctionIndex> {
        let mut wanted = Vec::new();
        for (&index, function) in self.waiting.iter().map(|i| (i, &self.functions[i])) {
            let counts = self.pool.counts(index);
            // Idle ones get theirs as soon as there is memory for them.
            let coming = counts.starting + counts.idle;
            let waiting = function.queue.iter().skip(coming).take(self.may_start(index, function));
            wanted.extend(waiting.map(|w| (w.since, w.request, index)));
        }
        wanted.sort_unstable();
        wanted.into_iter().map(|(_, _, function)| function).collect()
    }

    /// Stops idle instances of other functions in VMs that are full, least recently used first.
    fn make_room(&mut self, shortage: &Shortage, commands: &mut Vec<Command>) {
        for (&vm, &wanted) in &shortage.room {
            let coming = self.pool.going().filter(|i| i.vm == vm).count();
            let idle = self.pool.idle_in(vm).map(|(_, number)| number);
            let evictable = idle.filter(|&number| Some(number) != shortage.thawing);
            for number in evictable.take(wanted.saturating_sub(coming)).collect::<Vec<_>>() {
                self.stop(number, StopReason::Evicted, commands);
            }
        }
    }

    /// Ends as many idle instances and unused VMs as make room for `wanted` bytes, least recently used
    /// first, counting the memory that is on its way back already; not what is to get it.
    fn evict(&mut self, wanted: u64, shortage: &Shortage, commands: &mut Vec<Command>) {
        let mut room = self.budget.free_bytes().saturating_add(self.coming_bytes(shortage));
        if room >= wanted
            || self.freeze_evictables(shortage.thawing, commands)
            || !self.pausing.is_empty()
        {
            return;
        }
        let mut going = self.going_in();
        let mut evictables = Vec::new();
        for (evictable, bytes) in self.evictables(shortage) {
            if room >= wanted {
                break;
            }
            room += bytes;
            if let Evictable::Instance(number) = evictable
                && let Some(Instance { vm, .. }) = self.pool.get(number)
            {
                let count = going.entry(vm).or_default();
                *count += 1;
                room += self.left_empty_bytes(vm, *count, shortage);
            }
            evictables.push(evictable);
        }
        for evictable in evictables {
            match evictable {
                Evictable::Instance(number) => self.stop(number, StopReason::Evicted, commands),
                Evictable::Vm(index) => self.end_vm(index, StopReason::Evicted, commands),
                Evictable::AllOf(index) => {
                    for (_, number) in self.pool.idle_in(index).collect::<Vec<_>>() {
                        self.stop(number, StopReason::Evicted, commands);
                    }
                }
            }
        }
        if room < wanted {
            self.evict_within(wanted, shortage, commands);
        }
    }

    /// What is on its way back, with the VMs that are left empty when the instances that are being stopped
    /// are gone.
    fn coming_bytes(&self, shortage: &Shortage) -> u64 {
        let ending = self.ending.iter().map(|&index| self.vm_bytes(index));
        // Instances that end with their VM are counted with it.
        let going = self.pool.going().filter(|i| !self.ending.contains(&i.vm));
        let empty = self.going_in();
        let empty =
            empty.iter().map(|(&index, &count)| self.left_empty_bytes(index, count, shortage));
        ending.chain(going.map(|i| i.charged_bytes)).chain(empty).sum()
    }

    /// How many instances of each VM that stays are on their way out.
    fn going_in(&self) -> BTreeMap<VmIndex, usize> {
        let mut going = BTreeMap::new();
        for instance in self.pool.going().filter(|i| !self.ending.contains(&i.vm)) {
            *going.entry(instance.vm).or_default() += 1;
        }
        going
    }

    /// What a VM has beside its instances if so many of them are all that live in it: empty it is ended for
    /// whoever lacks memory, unless it is to get some.
    fn left_empty_bytes(&self, index: VmIndex, count: usize, shortage: &Shortage) -> u64 {
        let stays = Some(index) == shortage.first || self.pool.alive(index) > count;
        self.vms.get(&index).filter(|_| !stays).map_or(0, |vm| vm.charged_bytes)
    }

    /// When what is left to be ended is in the very VM that lacks memory: if it is paused, has it run, for
    /// that to be ended in it. If that does not do and nothing is on its way, the instance that lacks memory
    /// is ended where a new one can have what the guest has kept of another, or the VM as a whole where
    /// nobody works in it and it can be booted again with what that brings.
    fn evict_within(&mut self, wanted: u64, shortage: &Shortage, commands: &mut Vec<Command>) {
        let Some(index) = shortage.first else { return };
        let Some(&Vm { policy, state, .. }) = self.vms.get(&index) else { return };
        let paused = matches!(state, VmState::Paused { .. });
        let evictable =
            self.pool.idle_in(index).any(|(_, number)| Some(number) != shortage.thawing);
        let missing = self.missing_base_bytes(index);
        if paused && evictable && self.resume(index, commands) {
            return self.evict(wanted.saturating_sub(missing), shortage, commands);
        }
        if self.coming_bytes(shortage) > 0 {
            return;
        }
        let free = self.budget.free_bytes();
        let had = |number| self.pool.get(number).map_or(0, |instance| instance.charged_bytes);
        let kept = self.pool.stranded(index).map(had);
        let anew = |&n: &InstanceNumber| {
            kept.is_some_and(|kept| policy.instance_bytes <= free.saturating_add(kept + had(n)))
        };
        if let Some(number) = shortage.thawing.filter(anew) {
            return self.stop(number, StopReason::Evicted, commands);
        }
        let idle: Vec<_> = self.pool.idle_in(index).map(|(_, number)| number).collect();
        let needed = policy.base_bytes.saturating_add(policy.instance_bytes);
        if idle.len() < self.pool.alive(index) || needed > free.saturating_add(self.vm_bytes(index))
        {
            return;
        }
        match state {
            VmState::Up { .. } if !idle.is_empty() => {
                idle.into_iter().for_each(|n| self.stop(n, StopReason::Evicted, commands));
            }
            VmState::Up { .. } | VmState::Paused { .. } => {
                self.end_vm(index, StopReason::Evicted, commands);
            }
            VmState::Absent | VmState::Booting | VmState::Ending => {}
        }
    }

    /// What gives memory back when it is ended, and how much, least recently used first; not what is
    /// to get it.
    fn evictables(&self, shortage: &Shortage) -> impl Iterator<Item = (Evictable, u64)> {
        let &Shortage { first: needed, thawing, .. } = shortage;
        let runs = move |vm| matches!(self.vm_state(vm), Some(VmState::Up { .. }));
        let instances = self.pool.idle().filter(move |&(_, number)| Some(number) != thawing);
        let instances = instances.filter_map(move |(at, number)| {
            let instance = self.pool.get(number).filter(|instance| runs(instance.vm))?;
            match instance.charged_bytes {
                0 => {
                    let index = instance.vm;
                    let brings = Some(index) != needed && self.is_last_idle(number, index);
                    brings.then(|| (at, Evictable::AllOf(index), self.vms[&index].charged_bytes))
                }
                bytes => Some((at, Evictable::Instance(number), bytes)),
            }
        });
        // Between this moment and the last look an instance may have come.
        let free = move |index| {
            let paused = matches!(self.vm_state(index), Some(VmState::Paused { .. }));
            Some(index) != needed && (paused || self.pool.alive(index) == 0)
        };
        let vms = self.evictable_vms.iter().filter(move |(_, index)| free(*index));
        let vms = vms.map(|&(at, index)| (at, Evictable::Vm(index), self.vm_bytes(index)));
        let (mut instances, mut vms) = (instances.peekable(), vms.peekable());
        let merged = std::iter::from_fn(move || match (instances.peek(), vms.peek()) {
            (Some((idle, ..)), Some((empty, ..))) if empty < idle => vms.next(),
            (None, _) => vms.next(),
            _ => instances.next(),
        });
        merged.filter(|&(_, _, bytes)| bytes > 0).map(|(_, evictable, bytes)| (evictable, bytes))
    }

    /// Whether nobody in a VM works, and of those who are idle this one was used last.
    fn is_last_idle(&self, number: InstanceNumber, vm: VmIndex) -> bool {
        self.pool.idle_in(vm).next_back().is_some_and(|(_, last)| last == number)
            && self.pool.idle_in(vm).count() == self.pool.alive(vm)
    }

    /// What comes back when a VM in which nothing runs is ended.
    fn vm_bytes(&self, index: VmIndex) -> u64 {
        let Some(vm) = self.vms.get(&index) else { return 0 };
        let instances = self.pool.within(index).filter_map(|number| self.pool.get(number));
        vm.charged_bytes + instances.map(|instance| instance.charged_bytes).sum::<u64>()
    }
}
