//! Timeouts.

use super::{Scaler, deadlines::Subject};
use crate::{
    Command, FunctionIndex, InstanceNumber, InstanceState, Moment, RejectReason, StopReason,
    VmIndex, VmState, WaitingFor, instance::Instance,
};
use std::time::Duration;

/// How long to wait before asking the guest again for memory that it kept, and before looking again at
/// something that could not be ended: an empty VM for which a request is waiting, or an instance in a paused
/// VM that lacks the memory to run, or at one that is kept up.
pub(super) const RETRY: Duration = Duration::from_secs(5);

impl Scaler {
    /// When the next [`crate::Event::Tick`] is due, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.deadlines.next()
    }

    pub(super) fn expire(&mut self, now: Moment, commands: &mut Vec<Command>) {
        for subject in self.deadlines.take(now) {
            match subject {
                Subject::Instance(number) => self.expire_instance(now, number, commands),
                Subject::Vm(index) => self.expire_vm(now, index, commands),
                Subject::Waiting(index) => self.expire_waiting(now, index, commands),
                // That follows from any event.
                Subject::Keeping(_) | Subject::Squeezing => {}
            }
        }
    }

    fn expire_instance(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        commands: &mut Vec<Command>,
    ) {
        let Some(instance) = self.pool.get(number) else { return };
        match instance.state {
            InstanceState::Idle { frozen, .. } if self.freezes(&instance, frozen) => {
                self.freeze(number, commands);
            }
            InstanceState::Idle { since, frozen } if self.is_kept(number) => {
                let Some(policy) = self.function(instance.function).map(|f| f.policy) else {
                    return;
                };
                let again = match policy.freeze_after.filter(|_| !frozen) {
                    Some(after) if since + after <= now => return self.freeze(number, commands),
                    Some(after) => since + after,
                    // It may be one too many by then.
                    None => now + policy.keep_alive.max(RETRY),
                };
                self.deadlines.set(Subject::Instance(number), Some(again));
            }
            InstanceState::Idle { .. } if self.resume(instance.vm, commands) => {
                self.stop(number, StopReason::KeepAliveOver, commands);
            }
            // Paused, it costs little. There is not enough memory to resume its VM now.
            InstanceState::Idle { .. } => {
                self.deadlines.set(Subject::Instance(number), Some(now + RETRY));
            }
            InstanceState::Condemned { .. } => self.end_retired(now, number, commands),
            // If the VM is ending, the memory comes back with it.
            InstanceState::Stranded { .. }
                if self.vm_state(instance.vm) != Some(VmState::Ending) =>
            {
                self.set(number, InstanceState::Reclaiming);
                commands.push(Command::Reclaim { vm: instance.vm, instance: number });
            }
            _ => {}
        }
    }

    fn expire_vm(&mut self, now: Moment, index: VmIndex, commands: &mut Vec<Command>) {
        // A stranded instance's memory may just have been asked for again.
        if self.pool.alive(index) > 0 {
            return;
        }
        // A request is waiting for it, which would have to boot it again.
        if self.waiting_in(index).next().is_some() {
            self.deadlines.set(Subject::Vm(index), Some(now + RETRY));
        } else {
            self.end_vm(index, StopReason::KeepAliveOver, commands);
        }
    }

    fn expire_waiting(&mut self, now: Moment, index: FunctionIndex, commands: &mut Vec<Command>) {
        while self.waiting_deadline(index).is_some_and(|deadline| deadline <= now) {
            let reason = RejectReason::WaitedTooLong(self.waits_for(index));
            self.give_up_one(index, reason, commands);
        }
    }

    /// When the oldest queued request will have waited too long.
    pub(super) fn waiting_deadline(&self, index: FunctionIndex) -> Option<Moment> {
        let function = self.function(index)?;
        Some(function.queue.front()?.since.max(function.taken) + function.policy.wait_limit?)
    }

    fn waits_for(&self, index: FunctionIndex) -> WaitingFor {
        let counts = self.pool.counts(index);
        let vm = self.function(index).and_then(|function| self.vm_state(function.policy.vm));
        match vm {
            Some(VmState::Booting | VmState::Ending) => WaitingFor::Vm,
            _ if counts.starting > 0 => WaitingFor::Start,
            _ if counts.busy > 0 => WaitingFor::Busy,
            _ if self.lacks_quota(index) => WaitingFor::Quota,
            _ => WaitingFor::Memory,
        }
    }

    /// When an instance next needs attention.
    pub(super) fn deadline(&self, instance: &Instance) -> Option<Moment> {
        match instance.state {
            InstanceState::Idle { since, frozen } => {
                let policy = &self.function(instance.function)?.policy;
                let freeze = policy.freeze_after.filter(|_| self.freezes(instance, frozen));
                Some(since + freeze.unwrap_or(policy.keep_alive))
            }
            InstanceState::Stranded { since } => Some(since + RETRY),
            _ => None,
        }
    }

    /// Whether an idle instance is to be frozen before it is stopped.
    fn freezes(&self, instance: &Instance, frozen: bool) -> bool {
        let policy = self.function(instance.function).map(|function| function.policy);
        !frozen && policy.is_some_and(|p| p.freeze_after.is_some_and(|after| after < p.keep_alive))
    }
}
