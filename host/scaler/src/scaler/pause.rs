//! VMs in which nothing runs: they are paused, and charged for what they hold.

use super::{Scaler, squeeze::is_frozen};
use crate::{Command, InstanceState, Moment, StopReason, VmIndex, VmState};

impl Scaler {
    /// Pauses a VM if all its instances are frozen and no request waits for it.
    pub(super) fn pause(&mut self, index: VmIndex, commands: &mut Vec<Command>) {
        let Some(vm) = self.vms.get(&index) else { return };
        let Some(squeeze_manager) = &self.squeeze_manager else { return };
        let runs = matches!(vm.state, VmState::Up { .. }) && !self.pausing.contains(&index);
        let rests = |number| {
            self.pool.get(number).is_some_and(|instance| is_frozen(&instance))
                && !self.freezing.contains(&number)
                && !squeeze_manager.is_running(number)
        };
        if runs
            && vm.policy.base_bytes > 0
            && self.pool.within(index).all(rests)
            && self.waiting_in(index).next().is_none()
        {
            // One without instances is kept for the next start.
            let is_cold = self.pool.within(index).next().is_some()
                && self.pool.within(index).all(|number| squeeze_manager.is_squeezed(number));
            self.pausing.insert(index);
            commands.push(Command::PauseVm { vm: index, keeps_page_cache: !is_cold });
        }
    }

    /// Charges a paused VM for what it holds apart from its instances. That is more than its base memory if the guest has
    /// named wrong partitions for its instances. If the budget does not have that much, the VM is ended: nobody else is
    /// to go short for it.
    pub(super) fn paused(
        &mut self,
        now: Moment,
        index: VmIndex,
        resident_bytes: u64,
        commands: &mut Vec<Command>,
    ) {
        if !self.pausing.remove(&index) {
            return;
        }
        let instances = self.pool.within(index).filter_map(|number| self.pool.get(number));
        let beside = resident_bytes.saturating_sub(instances.map(|i| i.charged_bytes).sum());
        let Some(vm) = self.vms.get(&index) else { return };
        let (state, charged_bytes) = (vm.state, vm.charged_bytes);
        let is_known = resident_bytes < u64::MAX;
        if !self.charge_vm(index, if is_known { beside } else { charged_bytes }) {
            self.vm_has_failed(now, index);
            return self.end_vm(index, StopReason::Overdrawn, commands);
        }
        let empty_since = match state {
            VmState::Up { empty_since } => empty_since,
            _ => None,
        };
        let last_used = self.pool.idle_in(index).next_back().map(|(since, _)| since);
        let since = last_used.or(empty_since).unwrap_or(now);
        self.set_vm(index, VmState::Paused { since });
    }

    /// Makes sure that a VM runs; `false` if there is not enough memory for that.
    pub(super) fn resume(&mut self, index: VmIndex, commands: &mut Vec<Command>) -> bool {
        let Some(vm) = self.vms.get(&index) else { return false };
        let (state, base_bytes) = (vm.state, self.base_bytes(index));
        if let VmState::Paused { since } = state {
            if !self.charge_vm(index, base_bytes) {
                return false;
            }
            let empty_since = Some(since).filter(|_| self.pool.alive(index) == 0);
            self.set_vm(index, VmState::Up { empty_since });
        } else if !self.pausing.remove(&index) {
            return true;
        }
        commands.push(Command::ResumeVm(index));
        self.end_condemned(index, commands);
        for (_, number) in self.pool.idle_in(index).collect::<Vec<_>>() {
            self.doomed.remove(&number);
            // It may have come due while the VM was paused.
            self.set_deadline(number);
        }
        true
    }

    /// Commits memory to something in a VM and makes sure that the VM runs; changes nothing if there is not
    /// enough memory for both.
    pub(super) fn commit_within(
        &mut self,
        index: VmIndex,
        bytes: u64,
        commands: &mut Vec<Command>,
    ) -> bool {
        bytes.saturating_add(self.missing_base_bytes(index)) <= self.free_bytes(index)
            && self.resume(index, commands)
            && self.budget.commit(bytes)
    }

    /// What a paused VM lacks of the base memory that it may use when it runs.
    pub(super) fn missing_base_bytes(&self, index: VmIndex) -> u64 {
        match self.vms.get(&index) {
            Some(vm) if matches!(vm.state, VmState::Paused { .. }) => {
                self.base_bytes(index).saturating_sub(vm.charged_bytes)
            }
            _ => 0,
        }
    }

    /// Shuts down a VM in which nothing runs, with its frozen and condemned instances if it has any.
    pub(super) fn end_vm(
        &mut self,
        index: VmIndex,
        reason: StopReason,
        commands: &mut Vec<Command>,
    ) {
        self.begin_end(index);
        commands.push(Command::EndVm { vm: index, reason });
    }

    /// Notes that a VM is ending, and with it what is frozen, idle or condemned in it.
    pub(super) fn begin_end(&mut self, index: VmIndex) {
        for number in self.pool.within(index).collect::<Vec<_>>() {
            if let Some(InstanceState::Idle { .. } | InstanceState::Condemned { .. }) =
                self.state(number)
            {
                self.set(number, InstanceState::Stopping);
            }
        }
        self.set_vm(index, VmState::Ending);
    }
}
