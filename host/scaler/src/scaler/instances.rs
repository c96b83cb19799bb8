//! Events about instances, and their state.

use super::{Scaler, deadlines::Subject, squeeze::is_frozen};
use crate::{
    Command, Event, InstanceNumber, InstanceState, Moment, RejectReason, StopReason, Unexpected,
    VmIndex, instance::Instance,
};

impl Scaler {
    pub(super) fn started(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let idle = InstanceState::Idle { since: now, frozen: false };
        let instance =
            self.change(number, event, idle, |s| matches!(s, InstanceState::Starting))?;
        if let Some(vm) = self.vms.get_mut(&instance.vm) {
            vm.proven = true;
        }
        if self.is_retired(number) {
            self.stop(number, StopReason::Retired, commands);
        } else if self.ends_with_vm(number) {
            self.stop(number, StopReason::Broken, commands);
        }
        Ok(())
    }

    pub(super) fn start_failed(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let starting = |s| matches!(s, InstanceState::Starting);
        let instance = self.change(number, event, InstanceState::Stopping, starting)?;
        self.stop(number, StopReason::Broken, commands);
        self.has_failed(now, instance.function);
        // It may start in the replacement VM. But if nothing has ever started in this one, replacing it would
        // not help.
        if !self.vms.get(&instance.vm).is_some_and(|vm| vm.unfit && vm.proven) {
            for _ in 0..self.meant_for(instance.function) {
                self.give_up_one(instance.function, RejectReason::StartFailed, commands);
            }
        }
        Ok(())
    }

    pub(super) fn answered(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        broken: bool,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let state = self.state(number);
        let Some(InstanceState::Busy { requests, dying }) = state else {
            return Err(Unexpected::Instance { event, state });
        };
        let dying = dying || broken;
        if let Some(Instance { vm, .. }) = self.pool.get(number) {
            self.used(now, vm);
        }
        if requests > 1 {
            // The others may well be answered.
            self.set(number, InstanceState::Busy { requests: requests - 1, dying });
        } else if dying || self.ends_with_vm(number) {
            self.stop(number, StopReason::Broken, commands);
        } else if self.is_retired(number) {
            self.stop(number, StopReason::Retired, commands);
        } else {
            self.set(number, InstanceState::Idle { since: now, frozen: false });
        }
        Ok(())
    }

    pub(super) fn died(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let state = self.state(number);
        if let Some(InstanceState::Idle { .. } | InstanceState::Busy { .. }) = state
            && let Some(Instance { function, .. }) = self.pool.get(number)
        {
            self.has_failed(now, function);
        }
        match state {
            None => return Err(Unexpected::Instance { event, state: None }),
            Some(InstanceState::Idle { .. }) => {
                self.take_away(number, StopReason::Broken, commands)
            }
            Some(InstanceState::Busy { requests, .. }) => {
                self.set(number, InstanceState::Busy { requests, dying: true });
            }
            // The death of a stopped instance may be seen before or after `Stopped`.
            Some(_) => {}
        }
        Ok(())
    }

    pub(super) fn stopped(
        &mut self,
        number: InstanceNumber,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let stopping = |s| matches!(s, InstanceState::Stopping);
        let instance = self.change(number, event, InstanceState::Reclaiming, stopping)?;
        commands.push(Command::Reclaim { vm: instance.vm, instance: number });
        Ok(())
    }

    pub(super) fn reclaimed(
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

    pub(super) fn stop_idle(&mut self, reason: StopReason, commands: &mut Vec<Command>) {
        for (_, number) in self.pool.idle().collect::<Vec<_>>() {
            self.take_away(number, reason, commands);
        }
    }

    /// Stops an idle instance, or ends its whole VM if there is no memory to resume it.
    pub(super) fn take_away(
        &mut self,
        number: InstanceNumber,
        reason: StopReason,
        commands: &mut Vec<Command>,
    ) {
        // Otherwise it has already gone with its VM, ended for another instance.
        if let Some(Instance { vm, state: InstanceState::Idle { .. }, .. }) = self.pool.get(number)
        {
            if self.resume(vm, commands) {
                self.stop(number, reason, commands);
            } else {
                self.end_vm(vm, reason, commands);
            }
        }
    }

    /// Stops an instance of a running VM. If the VM is ending, the instance ends with it.
    pub(super) fn stop(
        &mut self,
        number: InstanceNumber,
        reason: StopReason,
        commands: &mut Vec<Command>,
    ) {
        self.set(number, InstanceState::Stopping);
        if !self.ends_with_vm(number) {
            commands.push(Command::Stop { instance: number, reason });
        }
    }

    fn ends_with_vm(&self, number: InstanceNumber) -> bool {
        self.pool.get(number).is_some_and(|instance| self.ending.contains(&instance.vm))
    }

    pub(super) fn is_retired(&self, number: InstanceNumber) -> bool {
        let function = self.pool.get(number).and_then(|i| self.function(i.function));
        function.is_none_or(|function| function.retired)
    }

    pub(super) fn instance_bytes(&self, vm: VmIndex) -> u64 {
        self.vms.get(&vm).map_or(0, |vm| vm.policy.instance_bytes)
    }

    pub(super) fn forget(&mut self, number: InstanceNumber) -> Option<Instance> {
        let instance = self.put(number, None)?;
        self.budget.release(instance.charged_bytes);
        Some(instance)
    }

    pub(super) fn set(&mut self, number: InstanceNumber, state: InstanceState) {
        if let Some(instance) = self.pool.get(number) {
            self.put(number, Some(Instance { state, ..instance }));
        }
    }

    /// Records an instance, and with its tenant.
    pub(super) fn place(
        &mut self,
        number: InstanceNumber,
        instance: Option<Instance>,
    ) -> Option<Instance> {
        let vm = self.pool.get(number).or(instance).map(|instance| instance.vm);
        self.count_working_vm(vm, false);
        let before = self.pool.put(number, instance);
        self.count_working_vm(vm, true);
        self.count(before, false);
        self.count(instance, true);
        before
    }

    /// The only place where instances are added, changed and removed. Returns what the instance was before.
    pub(super) fn put(
        &mut self,
        number: InstanceNumber,
        instance: Option<Instance>,
    ) -> Option<Instance> {
        let before = self.place(number, instance);
        self.set_deadline(number);
        if !instance.is_some_and(|instance| is_frozen(&instance)) {
            self.thawed(number, instance.is_none());
            self.doomed.remove(&number);
        }
        self.touched.extend(before.or(instance).map(|i| (i.vm, i.function)));
        before
    }

    pub(super) fn set_deadline(&mut self, number: InstanceNumber) {
        let at = self.pool.get(number).and_then(|instance| self.deadline(&instance));
        self.deadlines.set(Subject::Instance(number), at);
    }

    /// Moves an instance to a new state, if the event is valid in its current one.
    pub(super) fn change(
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
}
