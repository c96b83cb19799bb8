//! Frozen instances of VMs that run. Only their guest's kernel keeps them from taking more than they are charged for, so
//! they are measured again from time to time.

use super::{Scaler, squeeze::is_frozen};
use crate::{Command, InstanceNumber, Moment, StopReason, VmIndex, VmState, instance::Instance};

impl Scaler {
    /// The instances of a VM that are to be measured again: those that are frozen, and charged for less than they could
    /// take. In a paused VM there are none: it takes nothing, and is charged for all that it holds.
    pub fn worth_measuring(&self, vm: VmIndex) -> Vec<InstanceNumber> {
        let is_watched = |number| self.pool.get(number).is_some_and(|i| self.is_watched(&i));
        self.pool.idle_in(vm).map(|(_, number)| number).filter(|&n| is_watched(n)).collect()
    }

    /// One that is being frozen or squeezed is still, or again, charged in full.
    fn is_watched(&self, instance: &Instance) -> bool {
        let is_up = matches!(self.vm_state(instance.vm), Some(VmState::Up { .. }));
        let runs = is_up && !self.pausing.contains(&instance.vm);
        runs && is_frozen(instance) && self.missing_bytes(instance) > 0
    }

    /// Charges a frozen instance for what it has grown by. Who breaks the rules pays, and who grows where there is no
    /// memory goes: nobody else is to go short for either. Only the budget is asked: the memory is taken already, whatever
    /// is promised to others, or left of a quota.
    pub(super) fn measured(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        resident_bytes: u64,
        commands: &mut Vec<Command>,
    ) {
        let Some(instance) = self.pool.get(number).filter(|i| self.is_watched(i)) else { return };
        let Instance { vm, charged_bytes, .. } = instance;
        let resident_bytes = resident_bytes.min(self.instance_bytes(vm));
        let taken_bytes = resident_bytes.saturating_sub(charged_bytes);
        let Some(squeeze_manager) = &mut self.squeeze_manager else { return };
        if taken_bytes > squeeze_manager.measured(now, number, resident_bytes) {
            self.vm_has_failed(now, vm);
            self.begin_end(vm);
            if let Some(vm) = self.vms.get_mut(&vm) {
                // What is busy takes no more.
                vm.unfit = true;
            }
            commands.push(Command::KillVm { vm, instance: number, taken_bytes, resident_bytes });
        } else if self.budget.commit(taken_bytes) {
            self.charge(number, charged_bytes + taken_bytes);
        } else {
            self.take_away(number, StopReason::Overdrawn, commands);
        }
    }
}
