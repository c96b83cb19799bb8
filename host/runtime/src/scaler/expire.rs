//! What time changes.

use super::{Scaler, is_alive};
use crate::{
    Command, InstanceNumber, InstanceState, Moment, StopReason, VmIndex, VmState,
    instance::Instance,
};
use std::time::Duration;

/// How long memory that the guest would not give back is left alone before it is asked for again.
const STRANDED_RETRY: Duration = Duration::from_secs(5);

/// What a deadline is about.
#[derive(Clone, Copy)]
enum Due {
    Freeze(InstanceNumber),
    Stop(InstanceNumber),
    Reclaim(InstanceNumber, VmIndex),
    EndVm(VmIndex),
}

impl Scaler {
    /// When the next [`crate::Event::Tick`] has something to do, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.deadlines().map(|(moment, _)| moment).min()
    }

    pub(super) fn expire(&mut self, now: Moment, commands: &mut Vec<Command>) {
        let due: Vec<_> =
            self.deadlines().filter(|(at, _)| *at <= now).map(|(_, due)| due).collect();
        for due in due {
            match due {
                Due::Freeze(number) => {
                    if let Some(InstanceState::Idle { since, .. }) = self.state(number) {
                        self.set(number, InstanceState::Idle { since, frozen: true });
                        commands.push(Command::Freeze(number));
                    }
                }
                Due::Stop(number) => self.stop(number, StopReason::KeepAliveOver, commands),
                Due::Reclaim(instance, vm) => {
                    self.set(instance, InstanceState::Reclaiming);
                    commands.push(Command::Reclaim { vm, instance });
                }
                // What it holds may be asked for again since a moment ago.
                Due::EndVm(index) if self.has_living(index) => {}
                Due::EndVm(index) => self.end_vm(index, commands),
            }
        }
    }

    /// Ends a VM in which nothing lives.
    pub(super) fn end_vm(&mut self, index: VmIndex, commands: &mut Vec<Command>) {
        if let Some(vm) = self.vms.get_mut(&index) {
            vm.state = VmState::Ending;
            commands.push(Command::EndVm(index));
        }
    }

    fn deadlines(&self) -> impl Iterator<Item = (Moment, Due)> {
        let instances = self.instances.iter().filter_map(|(&n, i)| self.deadline(n, i));
        let vms = self.vms.iter().filter_map(|(&index, vm)| match vm.state {
            // Whoever waits for memory in it would have to boot it again.
            VmState::Up { empty_since: Some(since) } if !self.has_waiting(index) => {
                Some((since + vm.policy.idle_time?, Due::EndVm(index)))
            }
            _ => None,
        });
        instances.chain(vms)
    }

    fn deadline(&self, number: InstanceNumber, instance: &Instance) -> Option<(Moment, Due)> {
        match instance.state {
            InstanceState::Idle { since, frozen } => {
                let policy = &self.functions.get(&instance.function)?.policy;
                let stop = (since + policy.keep_alive, Due::Stop(number));
                let freeze =
                    policy.freeze_after.filter(|after| !frozen && *after < policy.keep_alive);
                Some(freeze.map_or(stop, |after| (since + after, Due::Freeze(number))))
            }
            // With its VM it comes back by itself.
            InstanceState::Stranded { since }
                if self.vm_state(instance.vm) != Some(VmState::Ending) =>
            {
                Some((since + STRANDED_RETRY, Due::Reclaim(number, instance.vm)))
            }
            _ => None,
        }
    }

    /// Whether an instance lives in the VM.
    pub(super) fn has_living(&self, vm: VmIndex) -> bool {
        self.instances.values().any(|i| i.vm == vm && is_alive(i.state))
    }

    fn has_waiting(&self, vm: VmIndex) -> bool {
        self.functions.values().any(|f| f.policy.vm == vm && !f.queue.is_empty())
    }
}
