//! Frozen instances of VMs that run: only their guest's kernel keeps them from taking memory, so the host measures them again.

use super::{actor::Actor, message::Completion};
use crate::instance::Instance;
use squeezy_scaler::{Event, InstanceNumber, VmIndex};
use squeezy_vmm::VmError;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long to wait before a VM's frozen instances are measured again.
///
/// Counting 256 MiB costs 14 µs in huge pages of a file, 3 ms in its pages of 4 KiB, and 0.5 ms in such pages of QEMU's own:
/// for 16 instances, at most a two-hundredth of a processor, and less by as much as the frozen ones hold less. For so long
/// can a guest have what it is not charged for.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// An instance, of which generation it was when it was looked at, and what it held then, in bytes.
pub(super) type Found = (InstanceNumber, u64, u64);

impl Actor {
    /// Waits until a VM's frozen instances are to be measured again, or it ends.
    pub(super) fn watch_frozen(&mut self, vm: VmIndex) {
        let Some(entry) = self.vms.get(&vm).filter(|_| self.measures_frozen) else { return };
        let Some(machine) = entry.machine.clone() else { return };
        let boot = entry.boot;
        self.begin(async move {
            tokio::select! {
                () = machine.wait() => Completion::Nothing,
                () = sleep(LOOK_EVERY) => Completion::LookDue { vm, boot },
            }
        });
    }

    /// Measures those that are charged for less than they could take. The guest has no part in it: it has said once which
    /// partition each is in.
    pub(super) fn look(&mut self, vm: VmIndex, boot: u64) {
        let resting = |number: InstanceNumber| {
            let entry = self.instances.get(&number)?;
            let (Instance { guest, .. }, seen) = entry.instance().zip(entry.seen_frozen.clone())?;
            Some((number, *entry.generation.borrow(), guest, seen))
        };
        let resting = self.scaler.worth_measuring(vm).into_iter().filter_map(resting);
        let resting: Vec<_> = resting.collect();
        self.begin(async move {
            let mut found = Vec::new();
            for (instance, generation, guest, seen) in resting {
                // What cannot be measured, or not in this time, was measured before: its VM has ended, or the host lacks
                // something for now.
                let measured = timeout(LOOK_EVERY, guest.resident(&seen)).await;
                if let Ok(Some(resident_bytes)) = measured {
                    found.push((instance, generation, resident_bytes));
                }
            }
            Completion::Looked { vm, boot, found }
        });
    }

    /// Reports what those hold that have been neither thawed nor squeezed meanwhile.
    pub(super) fn looked(&mut self, vm: VmIndex, boot: u64, found: Vec<Found>) {
        for (instance, generation, resident_bytes) in found {
            if self.is_of(instance, generation) {
                self.event(Event::Measured { instance, resident_bytes });
            }
        }
        if self.vms.get(&vm).is_some_and(|entry| entry.boot == boot) {
            self.watch_frozen(vm);
        }
    }

    /// Ends a VM in which a frozen instance has taken memory, as if it ended by itself.
    pub(super) fn kill_vm(
        &mut self,
        vm: VmIndex,
        InstanceNumber(instance): InstanceNumber,
        taken_bytes: u64,
        resident_bytes: u64,
    ) {
        let machine = self.vms.get(&vm).and_then(|entry| entry.machine.as_ref());
        if let Some(machine) = machine {
            machine.kill(VmError::FrozenGrew { instance, taken_bytes, resident_bytes });
        }
    }
}
