//! Removing functions and VMs that are retired or no longer needed.

use super::Scaler;
use crate::{Command, FunctionIndex, Moment, RejectReason, StopReason, VmIndex, VmState};
use std::collections::BTreeSet;

impl Scaler {
    pub(super) fn retire(
        &mut self,
        now: Moment,
        index: FunctionIndex,
        commands: &mut Vec<Command>,
    ) {
        let Some(function) = self.functions.get_mut(&index) else { return };
        function.retired = true;
        let index_of_vm = function.policy.vm;
        self.set_minimum(index);
        self.reject_all(index, RejectReason::Retired, commands);
        if let Some(vm) = self.vms.get_mut(&index_of_vm) {
            vm.retired = self.functions.values().all(|f| f.retired || f.policy.vm != index_of_vm);
        }
        self.touched.insert((index_of_vm, index));
        for (_, number) in self.pool.idle_of(index).collect::<Vec<_>>() {
            self.take_away(number, StopReason::Retired, commands);
        }
        for number in self.pool.condemned(index_of_vm).collect::<Vec<_>>() {
            if self.pool.get(number).is_some_and(|instance| instance.function == index) {
                self.end_retired(now, number, commands);
            }
        }
    }

    pub(super) fn drain(&mut self, commands: &mut Vec<Command>) {
        self.draining = true;
        for function in self.waiting.clone() {
            self.reject_all(function, RejectReason::Draining, commands);
        }
        self.touched.extend(self.functions.iter().map(|(&index, f)| (f.policy.vm, index)));
    }

    /// Notes which VMs are empty, shuts down those no longer needed, and drops retired functions and VMs that
    /// are gone.
    pub(super) fn clear_away(
        &mut self,
        now: Moment,
        left: &mut BTreeSet<VmIndex>,
        commands: &mut Vec<Command>,
    ) {
        for (index, function) in std::mem::take(&mut self.touched) {
            left.insert(index);
            if self.function(function).is_some_and(|f| f.retired) && !self.pool.has_any(function) {
                if let Some(gone) = self.functions.remove(&function) {
                    self.lose_part(gone.tenant);
                }
                if let Some(squeeze_manager) = &mut self.squeeze_manager {
                    squeeze_manager.forget_function(function);
                }
            }
            let Some(vm) = self.vms.get(&index) else { continue };
            match vm.state {
                VmState::Absent if vm.retired => {
                    if let Some(tenant) = self.vms.remove(&index).and_then(|vm| vm.tenant) {
                        self.lose_part(tenant);
                    }
                }
                VmState::Up { .. } if self.pool.alive(index) > 0 => {
                    self.set_vm(index, VmState::Up { empty_since: None });
                }
                VmState::Up { .. } | VmState::Paused { .. }
                    if (self.draining || vm.retired || vm.unfit) && self.pool.alive(index) == 0 =>
                {
                    let reason = match vm {
                        vm if vm.retired => StopReason::Retired,
                        vm if vm.unfit => StopReason::Broken,
                        _ => StopReason::Draining,
                    };
                    self.end_vm(index, reason, commands);
                }
                VmState::Up { empty_since } => {
                    let empty_since = Some(empty_since.unwrap_or(now));
                    self.set_vm(index, VmState::Up { empty_since });
                }
                _ => {}
            }
        }
    }
}
