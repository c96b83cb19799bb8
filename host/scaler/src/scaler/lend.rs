//! Guests that lack memory, although their instances have what is theirs: they are lent some.

use super::Scaler;
use crate::{Command, VmIndex, VmState};

impl Scaler {
    /// Lends starving guests what is free, if nobody else waits for memory. Nobody is ended for it: that would take
    /// longer than a guest waits, and a guest may ask for ever. For the same reason it gets no more than one more
    /// instance would have, until its VM ends.
    pub(super) fn lend(&mut self, commands: &mut Vec<Command>) {
        for (index, wanted_bytes) in std::mem::take(&mut self.starving) {
            let Some(vm) = self.vms.get(&index) else { continue };
            let runs = matches!(vm.state, VmState::Up { .. }) && !self.pausing.contains(&index);
            let most = vm.policy.instance_bytes.saturating_sub(vm.lent_bytes);
            let free = self.budget.free_bytes().saturating_sub(self.budget.reserve_bytes());
            let free = free.min(self.free_bytes(index));
            let (bytes, charged_bytes) = (wanted_bytes.min(most).min(free), vm.charged_bytes);
            if runs && bytes > 0 && self.charge_vm(index, charged_bytes + bytes) {
                if let Some(vm) = self.vms.get_mut(&index) {
                    vm.lent_bytes += bytes;
                }
                commands.push(Command::LendVm { vm: index, bytes });
            }
        }
    }

    /// Takes back what a guest was charged for and has not got: it may have asked too long ago, or the host may be short
    /// of memory. It may be lent that much again.
    pub(super) fn lent(&mut self, index: VmIndex, refused_bytes: u64) {
        let Some(vm) = self.vms.get_mut(&index) else { return };
        let refused_bytes = refused_bytes.min(vm.lent_bytes);
        vm.lent_bytes -= refused_bytes;
        let (state, charged_bytes) = (vm.state, vm.charged_bytes);
        // A paused VM is charged for what it holds, and one that ends until it has.
        if matches!(state, VmState::Up { .. }) {
            self.charge_vm(index, charged_bytes - refused_bytes);
        }
    }

    /// What a VM may use when it runs, apart from its instances.
    pub(super) fn base_bytes(&self, index: VmIndex) -> u64 {
        self.vms.get(&index).map_or(0, |vm| vm.policy.base_bytes + vm.lent_bytes)
    }
}
