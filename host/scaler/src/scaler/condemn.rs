//! Frozen instances of paused VMs that lose their memory, without their VM. Until the VM runs again they keep their
//! slots, and take no request.

use super::{Scaler, deadlines::Subject, expire::RETRY};
use crate::{
    Command, InstanceNumber, InstanceState, Moment, StopReason, VmIndex, instance::Instance,
};

impl Scaler {
    /// What may be condemned while this VM is paused, if it is doomed before: all its idle instances but the one that
    /// was used last, least recently used first.
    pub fn worth_dooming(&self, vm: VmIndex) -> Vec<InstanceNumber> {
        let mut idle: Vec<_> = self.pool.idle_in(vm).map(|(_, number)| number).collect();
        idle.pop();
        idle
    }

    /// Notes that an instance of a VM that is being paused can be condemned.
    pub(super) fn doomed(&mut self, number: InstanceNumber) {
        if let Some(Instance { vm, state: InstanceState::Idle { frozen: true, .. }, .. }) =
            self.pool.get(number)
            && self.pausing.contains(&vm)
        {
            self.doomed.insert(number);
        }
    }

    /// Whether an instance of this VM, which is paused if it is doomed, can be condemned. The one that was used last
    /// cannot: when its turn has come, the VM ends with it, and what the VM holds besides.
    pub(super) fn is_condemnable(&self, number: InstanceNumber, vm: VmIndex) -> bool {
        self.doomed.contains(&number)
            && !self.pausing.contains(&vm)
            && self.pool.idle_in(vm).next_back().is_some_and(|(_, last)| last != number)
    }

    pub(super) fn condemn(&mut self, number: InstanceNumber, commands: &mut Vec<Command>) {
        if let Some(InstanceState::Idle { since, .. }) = self.state(number) {
            self.set(number, InstanceState::Condemned { since, done: false });
            commands.push(Command::Condemn(number));
        }
    }

    /// Releases what a condemned instance held.
    pub(super) fn condemned(&mut self, now: Moment, number: InstanceNumber, freed_bytes: u64) {
        if let Some(Instance { state, charged_bytes, .. }) = self.pool.get(number)
            && let InstanceState::Condemned { since, done: false } = state
        {
            let freed_bytes = charged_bytes.min(freed_bytes);
            self.budget.release(freed_bytes);
            self.charge(number, charged_bytes - freed_bytes);
            self.set(number, InstanceState::Condemned { since, done: true });
            if self.is_retired(number) {
                self.deadlines.set(Subject::Instance(number), Some(now + RETRY));
            }
        }
    }

    /// An instance lives on that was to be condemned. It can still end with its VM, and be squeezed as before.
    pub(super) fn condemn_failed(&mut self, now: Moment, number: InstanceNumber) {
        if let Some(instance) = self.pool.get(number)
            && let InstanceState::Condemned { since, done: false } = instance.state
        {
            self.set(number, InstanceState::Idle { since, frozen: true });
            self.note_resident(now, number, instance.charged_bytes);
        }
    }

    /// Ends a condemned instance of a retired function, which would stay listed until something else runs in its VM.
    /// That takes memory; if there is not enough, it is tried again.
    pub(super) fn end_retired(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        commands: &mut Vec<Command>,
    ) {
        if let Some(instance) = self.pool.get(number)
            && !self.resume(instance.vm, commands)
        {
            self.deadlines.set(Subject::Instance(number), Some(now + RETRY));
        }
    }

    /// Stops the condemned instances of a VM that runs again.
    pub(super) fn end_condemned(&mut self, vm: VmIndex, commands: &mut Vec<Command>) {
        for number in self.pool.condemned(vm).collect::<Vec<_>>() {
            self.stop(number, StopReason::Evicted, commands);
        }
    }
}
