//! Guests that lack memory while the host keeps some of it, and ask for it.

use super::{actor::Actor, message::Completion};
use squeezy_scaler::{Event, VmIndex};
use squeezy_vmm::VmError;

impl Actor {
    /// Waits until a VM's guest asks, or the VM ends.
    pub(super) fn watch_starving(&mut self, vm: VmIndex) {
        let Some(entry) = self.vms.get(&vm) else { return };
        let Some(machine) = entry.machine.clone() else { return };
        let boot = entry.boot;
        self.begin(async move {
            tokio::select! {
                () = machine.wait() => Completion::Nothing,
                wanted_bytes = machine.starved() => Completion::Starved { vm, boot, wanted_bytes },
            }
        });
    }

    /// The scaler decides as it does for all memory. Whoever is refused is not told: it waits for a moment only.
    pub(super) fn starved(&mut self, vm: VmIndex, boot: u64, wanted_bytes: u64) {
        if self.vms.get(&vm).is_some_and(|entry| entry.boot == boot) {
            self.event(Event::Starved { vm, wanted_bytes });
            self.watch_starving(vm);
        }
    }

    pub(super) fn lend(&mut self, vm: VmIndex, bytes: u64) {
        let Some(entry) = self.vms.get(&vm) else { return };
        let Some(machine) = entry.machine.clone() else { return };
        let boot = entry.boot;
        self.begin(async move {
            Completion::Lent { vm, boot, bytes, result: machine.lend(bytes).await }
        });
    }

    /// Tells the scaler how much a guest has got: it may have asked too long ago, or the host may lack memory itself.
    pub(super) fn lent(
        &mut self,
        vm: VmIndex,
        boot: u64,
        bytes: u64,
        result: Result<u64, VmError>,
    ) {
        let is_of_this = self.vms.get(&vm).is_some_and(|entry| entry.boot == boot);
        if !is_of_this || result.is_err() && self.has_ended(vm) {
            return;
        }
        if let Err(error) = &result {
            self.note(&format!("VM {vm} lacks memory and could not be lent any: {error}"));
        }
        self.event(Event::Lent { vm, bytes, given_bytes: result.unwrap_or(0) });
    }
}
