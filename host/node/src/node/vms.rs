//! VMs: boot, status, pause, resume, replacement and end.

use super::{
    NodeStatus,
    actor::Actor,
    condemn::{Doomed, doom},
    message::{Completion, PartitionsOfVms},
    table::VmEntry,
};
use crate::{InstanceError, Machine, NodeEvent, VmEnd};
use futures_util::future::join_all;
use squeezy_scaler::{Event, Moment, StopReason, VmIndex};
use squeezy_vmm::VmError;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

/// How long a VM may take to report its memory, so that one that hangs does not delay a status.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// How long a guest may take to drop its page cache before it is paused.
const DROP_LIMIT: Duration = Duration::from_secs(1);

impl Actor {
    /// Collects the status. Reading the VMs' memory takes a moment, so that is done in a task.
    pub(super) fn status(&mut self, reply: oneshot::Sender<NodeStatus>) {
        let functions =
            self.functions.keys().map(|&index| (index, self.scaler.counts(index))).collect();
        let tenants =
            self.scaler.tenants().map(|index| (index, self.scaler.tenant_counts(index))).collect();
        let vm_of = self.functions.iter().map(|(&index, entry)| (index, entry.vm)).collect();
        let committed_bytes = self.scaler.budget().committed_bytes();
        let networks = self
            .vms
            .iter()
            .filter_map(|(&index, entry)| Some((index, entry.blueprint.network_counts()?)));
        let networks = networks.collect();
        let vms: Vec<_> = self
            .vms
            .iter()
            .filter_map(|(&index, entry)| {
                Some((index, self.scaler.vm_state(index)?, entry.machine.clone()))
            })
            .collect();
        self.begin(async move {
            let look = |(index, state, machine): (_, _, Option<Arc<dyn Machine>>)| async move {
                let memory = match machine {
                    Some(machine) => timeout(LOOK_LIMIT, machine.memory()).await.ok(),
                    None => None,
                };
                (index, state, memory.and_then(Result::ok))
            };
            let vms = join_all(vms.into_iter().map(look)).await;
            let _ = reply.send(NodeStatus {
                committed_bytes,
                tenants,
                functions,
                vm_of,
                vms,
                networks,
            });
            Completion::Nothing
        });
    }

    /// Asks every guest for its partitions.
    pub(super) fn partitions(&mut self, reply: oneshot::Sender<PartitionsOfVms>) {
        let running = |(&index, entry): (&VmIndex, &VmEntry)| Some((index, entry.machine.clone()?));
        let machines: Vec<_> = self.vms.iter().filter_map(running).collect();
        self.begin(async move {
            let look = |(index, machine): (_, Arc<dyn Machine>)| async move {
                let partitions = timeout(LOOK_LIMIT, machine.partitions()).await;
                (index, partitions.ok().and_then(Result::ok))
            };
            let _ = reply.send(join_all(machines.into_iter().map(look)).await);
            Completion::Nothing
        });
    }

    pub(super) fn boot(&mut self, vm: VmIndex) {
        let Some(entry) = self.vms.get_mut(&vm) else { return };
        entry.boot += 1;
        let (blueprint, observer, begin) =
            (entry.blueprint.clone(), self.observer.clone(), self.begin);
        self.begin(async move {
            let start = Instant::now();
            let tell = |step| {
                observer.observe(Moment(begin.elapsed()), NodeEvent::Booting { vm, step });
            };
            let result = blueprint.boot(Box::new(tell)).await;
            Completion::Booted { vm, result, took: start.elapsed() }
        });
    }

    pub(super) fn booted(
        &mut self,
        vm: VmIndex,
        result: Result<Arc<dyn Machine>, VmError>,
        took: Duration,
    ) {
        let now = self.now();
        let Some(entry) = self.vms.get_mut(&vm) else { return };
        match result {
            Ok(machine) => {
                let boot = entry.boot;
                entry.machine = Some(machine.clone());
                entry.booted = Some(now);
                self.tell(NodeEvent::Booted { vm, machine: machine.details(), took });
                self.begin(async move {
                    machine.wait().await;
                    Completion::VmGone { vm, boot }
                });
                self.watch_starving(vm);
                self.watch_frozen(vm);
                self.event(Event::VmBooted(vm));
            }
            Err(error) => {
                self.tell(NodeEvent::Ended { vm, reason: &VmEnd::Failed(error) });
                self.event(Event::VmFailed(vm));
            }
        }
    }

    pub(super) fn pause(&mut self, vm: VmIndex, keeps_page_cache: bool) {
        let to_doom = self.to_doom(vm);
        let Some((machine, now, generation)) = self.want_paused(vm, true) else { return };
        self.begin(async move {
            // Before the pause begins, which a request would have to wait for.
            let wanted = || now.load(Relaxed) == generation;
            let doomed = doom(to_doom, wanted).await;
            if !keeps_page_cache && wanted() {
                // A failure costs nothing but memory, and the next call will say what is wrong.
                let _ = timeout(DROP_LIMIT, machine.drop_page_cache()).await;
            }
            // Otherwise this would pause it before a later pause has doomed anybody.
            if !wanted() {
                return Completion::Nothing;
            }
            let result = match machine.settle().await {
                Ok(()) => machine.occupied().await,
                Err(error) => Err(error),
            };
            Completion::Paused { vm, generation, doomed, result }
        });
    }

    pub(super) fn resume(&mut self, vm: VmIndex) {
        let Some((machine, ..)) = self.want_paused(vm, false) else { return };
        self.begin(async move { Completion::Resumed { vm, result: machine.settle().await } });
    }

    /// Sets whether a VM should be paused, and returns where its generation is and the new one.
    fn want_paused(
        &mut self,
        vm: VmIndex,
        paused: bool,
    ) -> Option<(Arc<dyn Machine>, Arc<AtomicU64>, u64)> {
        let entry = self.vms.get_mut(&vm)?;
        let machine = entry.machine.clone()?;
        let generation = entry.generation.fetch_add(1, Relaxed) + 1;
        machine.want_paused(paused);
        Some((machine, entry.generation.clone(), generation))
    }

    pub(super) fn paused(
        &mut self,
        vm: VmIndex,
        generation: u64,
        doomed: Doomed,
        result: Result<u64, VmError>,
    ) {
        if self.vms.get(&vm).is_none_or(|entry| entry.generation.load(Relaxed) != generation)
            || result.is_err() && self.has_ended(vm)
        {
            return;
        }
        match &result {
            Ok(bytes) => {
                self.tell(NodeEvent::Paused { vm, resident_bytes: *bytes });
                self.doomed(doomed);
            }
            Err(error) => self.note(&format!("VM {vm} could not be paused: {error}")),
        }
        let resident_bytes = result.unwrap_or(u64::MAX);
        self.event(Event::VmPaused { vm, resident_bytes });
    }

    pub(super) fn resumed(&mut self, vm: VmIndex, result: Result<(), VmError>) {
        match result {
            Ok(()) => self.tell(NodeEvent::Resumed { vm }),
            Err(error) if !self.has_ended(vm) => {
                self.note(&format!("VM {vm} could not be resumed: {error}"));
            }
            Err(_) => {}
        }
    }

    pub(super) fn end_vm(&mut self, vm: VmIndex, reason: StopReason) {
        for instance in self.within(vm) {
            self.is_to_end(instance, reason);
        }
        let Some(machine) = self.vms.get_mut(&vm).and_then(|entry| entry.machine.take()) else {
            return;
        };
        self.begin(
            async move { Completion::VmStopped { vm, reason, result: machine.end().await } },
        );
    }

    pub(super) fn vm_stopped(
        &mut self,
        vm: VmIndex,
        reason: StopReason,
        result: Result<(), VmError>,
    ) {
        let reason = match result {
            Ok(()) if reason == StopReason::Overdrawn => VmEnd::Overdrawn,
            Ok(()) if self.scaler.is_unfit(vm) => VmEnd::Replaced,
            Ok(()) => VmEnd::Unneeded,
            Err(error) => VmEnd::Failed(error),
        };
        self.vm_ended(vm, &reason);
    }

    pub(super) fn vm_gone(&mut self, vm: VmIndex, boot: u64) {
        if self.vms.get(&vm).is_some_and(|entry| entry.boot == boot) {
            self.has_ended(vm);
        }
    }

    /// Whether a VM has ended by itself; if so, handles that. Checked before any failure in the VM is
    /// reported, because the VM's end is then the reason for it.
    pub(super) fn has_ended(&mut self, vm: VmIndex) -> bool {
        let Some(entry) = self.vms.get_mut(&vm) else { return false };
        let Some(reason) = entry.machine.as_ref().and_then(|machine| machine.ended()) else {
            return false;
        };
        entry.machine = None;
        self.vm_ended(vm, &VmEnd::Failed(reason));
        true
    }

    /// Has a VM replaced if a failed resize means that it cannot take any more instances.
    pub(super) fn replace_if_unfit(&mut self, vm: VmIndex, error: Option<&VmError>) {
        let Some(error) = error else { return };
        let machine = self.vms.get(&vm).and_then(|entry| entry.machine.as_ref());
        if machine.is_some_and(|machine| machine.is_unfit_after(error)) && !self.scaler.is_unfit(vm)
        {
            self.note(&format!(
                "vm {vm}: takes no more instances, and is replaced after its last call: {error}"
            ));
            self.event(Event::VmUnfit(vm));
        }
    }

    /// Handles the end of a VM and of everything in it.
    fn vm_ended(&mut self, vm: VmIndex, reason: &VmEnd) {
        self.tell(NodeEvent::Ended { vm, reason });
        for instance in self.within(vm) {
            let Some(entry) = self.instances.remove(&instance) else { continue };
            for request in entry.requests {
                let reason = InstanceError::VmEnded(reason.clone());
                self.fail(request, reason, true, Vec::new());
            }
            self.tell(NodeEvent::Lost { instance, function: entry.function });
        }
        self.event(Event::VmEnded(vm));
    }
}
