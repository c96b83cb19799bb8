//! Which instance gets a request, which VM and instance get memory, and which have to give it up.

use super::{Function, Scaler, Vm};
use crate::{
    Command, FunctionIndex, InstanceNumber, InstanceState, Moment, StopReason, VmIndex, VmState,
    instance::Instance,
};
use std::collections::{BTreeMap, BTreeSet};

/// Something that can be ended to make room.
#[derive(Clone, Copy)]
enum Evictable {
    Instance(InstanceNumber),
    /// A VM with no running instance.
    Vm(VmIndex),
    /// All idle instances of a VM that has all its memory from boot on: once they are gone, it can go too.
    AllOf(VmIndex),
}

/// What is lacking to serve all queued requests.
#[derive(Default)]
pub(super) struct Shortage {
    /// Bytes that the budget lacks.
    bytes: u64,
    /// The VM that gets them first: the first one in line.
    first: Option<VmIndex>,
    /// The frozen instance that gets them first, to serve a request.
    thawing: Option<InstanceNumber>,
    /// How many instances to end in each full VM.
    room: BTreeMap<VmIndex, usize>,
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
        self.make_room(&shortage, commands);
        let wanted = shortage.bytes.saturating_add(self.budget.reserve_bytes());
        if wanted > 0 {
            self.evict(wanted, &shortage, commands);
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
        if self.pool.alive(vm) >= policy.max_instances as usize {
            // Its idle instances can be ended only while it runs.
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
        let of_function = left(function.policy.max_instances, self.pool.counts(index).alive());
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

    /// Stops idle instances in full VMs, least recently used first.
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

    /// Ends idle instances and unused VMs, least recently used first, until `wanted` bytes are free or on
    /// their way back. Spares whatever is to get the memory.
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

    /// Bytes on their way back, including those of VMs that will be empty once their stopping instances are
    /// gone.
    fn coming_bytes(&self, shortage: &Shortage) -> u64 {
        let ending = self.ending.iter().map(|&index| self.vm_bytes(index));
        // Instances that end with their VM are counted with it.
        let going = self.pool.going().filter(|i| !self.ending.contains(&i.vm));
        let empty = self.going_in();
        let empty =
            empty.iter().map(|(&index, &count)| self.left_empty_bytes(index, count, shortage));
        ending.chain(going.map(|i| i.charged_bytes)).chain(empty).sum()
    }

    /// How many instances are going, per VM that is not itself ending.
    fn going_in(&self) -> BTreeMap<VmIndex, usize> {
        let mut going = BTreeMap::new();
        for instance in self.pool.going().filter(|i| !self.ending.contains(&i.vm)) {
            *going.entry(instance.vm).or_default() += 1;
        }
        going
    }

    /// What comes back with a VM if `count` instances are all it has: a VM left empty is ended when memory is
    /// short, unless it is the one that is to get memory.
    fn left_empty_bytes(&self, index: VmIndex, count: usize, shortage: &Shortage) -> u64 {
        let stays = Some(index) == shortage.first || self.pool.alive(index) > count;
        self.vms.get(&index).filter(|_| !stays).map_or(0, |vm| vm.charged_bytes)
    }

    /// The last resort, when all that is left to end is in the very VM that lacks memory. If it is paused, it
    /// is resumed so that its idle instances can be ended. If that is not enough and no memory is on its way
    /// back, one of two things is ended: the instance that lacks memory, if a new one fits into what the
    /// guest kept of another; or the whole VM, if nothing in it is busy and it can be booted again with the
    /// memory that this frees.
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

    /// What frees memory when it is ended, and how much, least recently used first. Leaves out whatever is to
    /// get the memory.
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
        // An instance may have been added since the set was last updated.
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

    /// Whether all live instances of a VM are idle and this one is the most recently used.
    fn is_last_idle(&self, number: InstanceNumber, vm: VmIndex) -> bool {
        self.pool.idle_in(vm).next_back().is_some_and(|(_, last)| last == number)
            && self.pool.idle_in(vm).count() == self.pool.alive(vm)
    }

    /// Bytes that come back when a VM with no running instance is ended.
    fn vm_bytes(&self, index: VmIndex) -> u64 {
        let Some(vm) = self.vms.get(&index) else { return 0 };
        let instances = self.pool.within(index).filter_map(|number| self.pool.get(number));
        vm.charged_bytes + instances.map(|instance| instance.charged_bytes).sum::<u64>()
    }
}
