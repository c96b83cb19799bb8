//! Who gets a request, a VM, memory, and who has to give it up.

use super::{Scaler, Waiting, is_alive};
use crate::{
    Command, FunctionIndex, InstanceNumber, InstanceState, Moment, StopReason, VmIndex, VmState,
    instance::Instance,
};
use std::collections::BTreeMap;

/// Something that could be ended to make room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Spare {
    Instance(InstanceNumber),
    Vm(VmIndex),
}

/// What cannot be had as things stand.
#[derive(Default)]
struct Short {
    /// Bytes that the budget lacks.
    bytes: u64,
    /// The VM that gets them first.
    first: Option<VmIndex>,
    /// Instances that VMs have no room for.
    room: BTreeMap<VmIndex, usize>,
}

impl Scaler {
    /// Gives waiting requests to idle instances, the one used last first: so the others get to
    /// the end of their keep-alive.
    pub(super) fn dispatch(&mut self, commands: &mut Vec<Command>) {
        let waiting: Vec<_> =
            self.functions.iter().filter(|(_, f)| !f.queue.is_empty()).map(|(&i, _)| i).collect();
        for index in waiting {
            while let Some((_, instance)) = self.idle(|i| i.function == index).max() {
                let next = self.functions.get_mut(&index).and_then(|f| f.queue.pop_front());
                let Some(Waiting { request, .. }) = next else { break };
                let thaw =
                    matches!(self.state(instance), Some(InstanceState::Idle { frozen: true, .. }));
                self.set(instance, InstanceState::Busy { request, dying: false });
                commands.push(Command::Dispatch { instance, request, thaw });
            }
        }
    }

    /// Starts an instance for every request that waits and has none on its way, oldest first. From
    /// the first one on that does not fit the budget nobody gets memory, or small instances would
    /// starve a large one; what is short is taken from what was used least recently.
    pub(super) fn scale_up(&mut self, commands: &mut Vec<Command>) {
        let mut short = Short::default();
        for function in self.wanted() {
            let Some(index) = self.functions.get(&function).map(|f| f.policy.vm) else { continue };
            match self.vms.get(&index).map(|vm| vm.state) {
                Some(VmState::Absent) => self.boot(index, &mut short, commands),
                Some(VmState::Up { .. }) => self.start(function, index, &mut short, commands),
                // It comes when its VM has.
                Some(VmState::Booting | VmState::Ending) | None => {}
            }
        }
        self.make_room(&short, commands);
        if short.bytes > 0 {
            self.evict(&short, commands);
        }
    }

    fn boot(&mut self, index: VmIndex, short: &mut Short, commands: &mut Vec<Command>) {
        let Some(vm) = self.vms.get_mut(&index) else { return };
        // A VM without room for an instance would be of no use.
        let needed = vm.policy.base_bytes + vm.policy.instance_bytes;
        if short.bytes == 0
            && needed <= self.budget.free_bytes()
            && self.budget.commit(vm.policy.base_bytes)
        {
            vm.state = VmState::Booting;
            commands.push(Command::BootVm(index));
        } else if short.first != Some(index) {
            short.first.get_or_insert(index);
            short.bytes = short.bytes.saturating_add(needed);
        }
    }

    fn start(
        &mut self,
        function: FunctionIndex,
        vm: VmIndex,
        short: &mut Short,
        commands: &mut Vec<Command>,
    ) {
        let Some(policy) = self.vms.get(&vm).map(|vm| vm.policy) else { return };
        let within = |i: &&Instance| i.vm == vm;
        let alive = self.instances.values().filter(within).filter(|i| is_alive(i.state)).count();
        if alive >= policy.max_instances as usize {
            *short.room.entry(vm).or_default() += 1;
            return;
        }
        let stranded = self.instances.iter().find(|(_, i)| within(i) && !is_alive(i.state));
        let stranded = stranded.map(|(&number, _)| number);
        if let Some(number) = stranded {
            self.forget(number);
        }
        if (short.bytes == 0 || stranded.is_some()) && self.budget.commit(policy.instance_bytes) {
            let instance = InstanceNumber(self.next_instance);
            self.next_instance += 1;
            let state = InstanceState::Starting;
            self.instances.insert(instance, Instance { function, vm, state });
            commands.push(Command::Start { function, vm, instance });
        } else {
            short.first.get_or_insert(vm);
            short.bytes = short.bytes.saturating_add(policy.instance_bytes);
        }
    }

    /// The function of each instance that should be started, the longest waiting request first.
    fn wanted(&self) -> Vec<FunctionIndex> {
        let mut wanted = Vec::new();
        for (&index, function) in self.functions.iter().filter(|(_, f)| !f.queue.is_empty()) {
            let starting = self.counts(index).starting;
            let most = self.vms.get(&function.policy.vm).map_or(0, |vm| vm.policy.max_instances);
            let waiting = function.queue.iter().skip(starting).take(most as usize);
            wanted.extend(waiting.map(|w| (w.since, w.request, index)));
        }
        wanted.sort_unstable();
        wanted.into_iter().map(|(_, _, function)| function).collect()
    }

    /// Stops idle instances of other functions in VMs that are full, least recently used first.
    fn make_room(&mut self, short: &Short, commands: &mut Vec<Command>) {
        for (&vm, &wanted) in &short.room {
            let going = |i: &&Instance| i.vm == vm && is_going(i.state);
            let coming = self.instances.values().filter(going).count();
            let mut idle: Vec<_> = self.idle(|i| i.vm == vm).collect();
            idle.sort_unstable();
            for (_, number) in idle.into_iter().take(wanted.saturating_sub(coming)) {
                self.stop(number, StopReason::Evicted, commands);
            }
        }
    }

    /// Ends as many idle instances and empty VMs as make room for what is short, least recently used
    /// first, counting the memory that is on its way back already.
    fn evict(&mut self, short: &Short, commands: &mut Vec<Command>) {
        let instances = self.instances.values().filter(|i| is_going(i.state));
        let vms = self.vms.iter().filter(|(_, vm)| vm.state == VmState::Ending);
        let coming = instances.map(|i| self.instance_bytes(i.vm)).sum::<u64>()
            + vms.map(|(&index, _)| self.vm_bytes(index)).sum::<u64>();
        let mut room = self.budget.free_bytes().saturating_add(coming);
        for (_, spare) in self.spares(short.first) {
            if room >= short.bytes {
                break;
            }
            match spare {
                Spare::Instance(number) => {
                    let vm = self.instances.get(&number).map(|i| i.vm);
                    room += vm.map_or(0, |vm| self.instance_bytes(vm));
                    self.stop(number, StopReason::Evicted, commands);
                }
                Spare::Vm(index) => {
                    room += self.vm_bytes(index);
                    self.end_vm(index, commands);
                }
            }
        }
    }

    /// What gives memory back when it is ended, least recently used first; not the VM `needed`.
    fn spares(&self, needed: Option<VmIndex>) -> Vec<(Moment, Spare)> {
        let idle = self.idle(|i| self.instance_bytes(i.vm) > 0);
        let mut spares: Vec<_> =
            idle.map(|(since, number)| (since, Spare::Instance(number))).collect();
        spares.extend(self.vms.iter().filter_map(|(&index, vm)| match vm.state {
            VmState::Up { empty_since: Some(since) } if Some(index) != needed => {
                // Between this moment and the last look an instance may have come.
                let spare = !self.has_living(index) && self.vm_bytes(index) > 0;
                spare.then_some((since, Spare::Vm(index)))
            }
            _ => None,
        }));
        spares.sort_unstable();
        spares
    }

    /// What comes back when a VM in which nothing lives is ended.
    fn vm_bytes(&self, index: VmIndex) -> u64 {
        let Some(vm) = self.vms.get(&index) else { return 0 };
        let stranded = self.instances.values().filter(|i| i.vm == index).count() as u64;
        vm.policy.base_bytes + stranded * vm.policy.instance_bytes
    }
}

/// Whether it is on its way out.
fn is_going(state: InstanceState) -> bool {
    matches!(state, InstanceState::Stopping | InstanceState::Reclaiming)
}
