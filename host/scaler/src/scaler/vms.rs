//! Events about VMs, and their state.

use super::{Scaler, deadlines::Subject};
use crate::{
    Command, Event, FunctionIndex, InstanceState, Moment, RejectReason, StopReason, TenantIndex,
    Unexpected, VmIndex, VmState, instance::Instance,
};
use std::time::Duration;

impl Scaler {
    pub(super) fn booted(
        &mut self,
        now: Moment,
        vm: VmIndex,
        event: Event,
    ) -> Result<(), Unexpected> {
        let up = VmState::Up { empty_since: Some(now) };
        self.used(now, vm);
        self.change_vm(vm, event, up, |state| state == VmState::Booting)
    }

    pub(super) fn boot_failed(
        &mut self,
        now: Moment,
        vm: VmIndex,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        self.change_vm(vm, event, VmState::Absent, |state| state == VmState::Booting)?;
        self.release_vm(vm);
        self.vm_has_failed(now, vm);
        // Otherwise it would be booted again for ever.
        for function in self.waiting_in(vm).collect::<Vec<_>>() {
            self.reject_all(function, RejectReason::VmFailed, commands);
        }
        Ok(())
    }

    pub(super) fn ended(
        &mut self,
        now: Moment,
        vm: VmIndex,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let there =
            |state| matches!(state, VmState::Up { .. } | VmState::Paused { .. } | VmState::Ending);
        let was_told = self.vm_state(vm) == Some(VmState::Ending);
        self.change_vm(vm, event, VmState::Absent, there)?;
        self.release_vm(vm);
        if !was_told {
            self.vm_has_failed(now, vm);
        }
        for number in self.pool.within(vm).collect::<Vec<_>>() {
            // An instance that crashes its VM whenever it starts must not be started for ever.
            if let Some(Instance { function, state: InstanceState::Starting, .. }) =
                self.forget(number)
            {
                self.give_up_one(function, RejectReason::VmFailed, commands);
            }
        }
        Ok(())
    }

    pub(super) fn unfit(&mut self, index: VmIndex) {
        if let Some(vm) = self.vms.get_mut(&index)
            && matches!(vm.state, VmState::Up { .. } | VmState::Paused { .. })
        {
            vm.unfit = true;
            self.touched.insert((index, FunctionIndex(u32::MAX)));
        }
    }

    /// Stops idle instances in unfit VMs. Queued requests wait for the replacement.
    pub(super) fn leave_unfit(&mut self, commands: &mut Vec<Command>) {
        let unfit: Vec<_> = self.vms.iter().filter(|(_, vm)| vm.unfit).map(|(&i, _)| i).collect();
        for index in unfit {
            for (_, number) in self.pool.idle_in(index).collect::<Vec<_>>() {
                self.take_away(number, StopReason::Broken, commands);
            }
        }
    }

    /// Sets what a VM is charged apart from its instances; `false` if the budget does not have it.
    pub(super) fn charge_vm(&mut self, index: VmIndex, bytes: u64) -> bool {
        let Some(vm) = self.vms.get(&index) else { return false };
        let more = bytes.saturating_sub(vm.charged_bytes);
        let less = vm.charged_bytes.saturating_sub(bytes);
        if more > self.free_bytes(index) || !self.budget.commit(more) {
            return false;
        }
        self.budget.release(less);
        self.alter_vm(index, |vm| vm.charged_bytes = bytes);
        true
    }

    pub(super) fn release_vm(&mut self, vm: VmIndex) {
        self.charge_vm(vm, 0);
    }

    pub(super) fn used(&mut self, now: Moment, index: VmIndex) {
        if let Some(vm) = self.vms.get_mut(&index) {
            vm.last_used = now;
        }
    }

    /// The only place where a VM's state changes.
    pub(super) fn set_vm(&mut self, index: VmIndex, state: VmState) {
        if self.vm_state(index) == Some(state) {
            return;
        }
        self.alter_vm(index, |vm| vm.state = state);
        let Some(vm) = self.vms.get_mut(&index) else { return };
        if state == VmState::Absent {
            (vm.unfit, vm.proven, vm.lent_bytes) = (false, false, 0);
        }
        // Ordered by last use, like instances: ordered by the time it became empty, it would come after all
        // of them, and they would be ended in its place.
        let last_used = evictable(state).map(|_| vm.last_used);
        let evictable_before = std::mem::replace(&mut vm.evictable_since, last_used);
        let tenant = vm.tenant.unwrap_or(TenantIndex::FIRST);
        self.evictable_vms.extend(last_used.map(|since| (tenant, (since, index))));
        if let Some(since) = evictable_before.filter(|_| evictable_before != last_used) {
            self.evictable_vms.remove(&(tenant, (since, index)));
        }
        self.pausing.remove(&index);
        if state == VmState::Ending {
            self.ending.insert(index);
        } else {
            self.ending.remove(&index);
        }
        self.set_vm_deadline(index);
    }

    /// Changes how long empty VMs are kept, for all VMs that there are; for ever if absent. Those that have been
    /// empty for longer are ended at the next [`Event::Tick`].
    pub fn keep_empty_vms(&mut self, idle_time: Option<Duration>) {
        for index in self.vms.keys().copied().collect::<Vec<_>>() {
            if let Some(vm) = self.vms.get_mut(&index) {
                vm.policy.idle_time = idle_time;
            }
            self.set_vm_deadline(index);
        }
    }

    fn set_vm_deadline(&mut self, index: VmIndex) {
        let Some(vm) = self.vms.get(&index) else { return };
        let is_empty = self.pool.alive(index) == 0;
        let since = evictable(vm.state).filter(|_| is_empty);
        let deadline = since.and_then(|since| Some(since + vm.policy.idle_time?));
        self.deadlines.set(Subject::Vm(index), deadline);
    }

    /// Moves a VM to a new state, if the event is valid in its current one.
    pub(super) fn change_vm(
        &mut self,
        index: VmIndex,
        event: Event,
        to: VmState,
        from: impl Fn(VmState) -> bool,
    ) -> Result<(), Unexpected> {
        match self.vm_state(index) {
            Some(state) if from(state) => {
                self.set_vm(index, to);
                // Its functions may be gone by now, and it may have to go too.
                self.touched.insert((index, FunctionIndex(u32::MAX)));
                Ok(())
            }
            state => Err(Unexpected::Vm { event, state }),
        }
    }

    /// The functions of a VM that have queued requests.
    pub(super) fn waiting_in(&self, vm: VmIndex) -> impl Iterator<Item = FunctionIndex> {
        let of_vm = move |index: &FunctionIndex| self.functions[index].policy.vm == vm;
        self.waiting.iter().copied().filter(of_vm)
    }
}

/// Since when a VM can be ended as a whole, if it can.
fn evictable(state: VmState) -> Option<Moment> {
    match state {
        VmState::Up { empty_since } => empty_since,
        VmState::Paused { since } => Some(since),
        VmState::Absent | VmState::Booting | VmState::Ending => None,
    }
}
