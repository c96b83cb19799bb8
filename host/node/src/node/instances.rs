//! Instances: plug, start, stop and reclaim.

use super::{
    actor::Actor,
    message::{Completion, FirstReclaim},
    table::{FunctionEntry, InstanceEntry},
};
use crate::{InstanceError, NodeEvent, ResizeOutcome, StartTimes, instance::Instance};
use squeezy_protocol::{ExitReason, InstanceId, PartitionNumber};
use squeezy_scaler::{Event, FunctionIndex, InstanceNumber, Moment, StopReason, VmIndex};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::sync::{oneshot, watch};

impl Actor {
    /// The instances of a VM.
    pub(super) fn within(&self, vm: VmIndex) -> Vec<InstanceNumber> {
        self.instances.iter().filter(|(_, entry)| entry.vm == vm).map(|(&n, _)| n).collect()
    }

    /// Plugs an instance's memory and starts it, in parallel if the guest can wait for the plug.
    pub(super) fn start(
        &mut self,
        now: Moment,
        instance: InstanceNumber,
        function: FunctionIndex,
        vm: VmIndex,
    ) {
        self.tell(NodeEvent::Starting { instance, function });
        let machine = self.vms.get(&vm).and_then(|entry| entry.machine.clone());
        let (Some(machine), Some(entry)) = (machine, self.functions.get(&function)) else {
            return;
        };
        let FunctionEntry { function: definition, contract, image, code, .. } = entry.clone();
        let taken = machine.slots().take();
        let entry = InstanceEntry {
            vm,
            machine: machine.clone(),
            function,
            definition: definition.clone(),
            contract: contract.clone(),
            id: id(&definition.name, instance),
            slot: taken.as_ref().ok().copied(),
            has_slot: taken.is_ok(),
            plugging: taken.is_ok(),
            reclaim_waits: false,
            ending: None,
            stopping: Arc::default(),
            log: Arc::default(),
            ready: None,
            requests: BTreeSet::new(),
            generation: watch::Sender::new(0),
            seen_frozen: None,
            doomed: None,
            left: None,
        };
        let id = entry.id.clone();
        self.instances.insert(instance, entry);
        let slot = match taken {
            Ok(slot) => slot,
            Err(error) => {
                let result = Err(error.into());
                return self.begin(async move { Completion::Started { instance, result } });
            }
        };
        // If the plug fails, nothing is sent here, and `plugged` reports the failure.
        let (has_memory, memory) = oneshot::channel();
        let plugged = machine.clone();
        self.begin_in(machine.clone(), async move {
            let outcome = plugged.plug(slot).await;
            if outcome.error.is_none() {
                let _ = has_memory.send(());
            }
            Completion::Plugged { instance, function, asked: now, outcome }
        });
        self.begin_in(machine.clone(), async move {
            let memory = async { memory.await.map_err(|_| InstanceError::NotPlugged) };
            let start = async {
                let guest = machine.guest(slot).ok_or(InstanceError::NoVm)?;
                let starting = Instance { guest, id, contract };
                starting.start(&*machine, slot, &definition, image, code).await
            };
            let result = if machine.starts_beside_plug() {
                tokio::try_join!(memory, start).map(|((), times)| times)
            } else {
                match memory.await {
                    Ok(()) => start.await,
                    Err(error) => Err(error),
                }
            };
            match result {
                Err(InstanceError::NotPlugged) => Completion::Nothing,
                result => Completion::Started { instance, result },
            }
        });
    }

    pub(super) fn plugged(
        &mut self,
        instance: InstanceNumber,
        function: FunctionIndex,
        asked: Moment,
        outcome: &ResizeOutcome,
    ) {
        let took = self.now().since(asked);
        self.tell(NodeEvent::Plugged { instance, function, took, outcome });
        let Some(entry) = self.instances.get_mut(&instance) else { return };
        entry.plugging = false;
        entry.has_slot = outcome.error.is_none();
        // Its start may have failed on its own before this.
        let fails = outcome.error.is_some() && !entry.stopping.load(Relaxed);
        let (vm, reclaim_waits) = (entry.vm, entry.reclaim_waits);
        self.replace_if_unfit(vm, outcome.error.as_ref());
        if fails {
            self.started(instance, Err(InstanceError::NotPlugged));
        }
        if reclaim_waits {
            self.reclaim(self.now(), vm, instance);
        }
    }

    pub(super) fn started(
        &mut self,
        instance: InstanceNumber,
        result: Result<StartTimes, InstanceError>,
    ) {
        let now = self.now();
        let Some(entry) = self.instances.get_mut(&instance) else { return };
        let (vm, function) = (entry.vm, entry.function);
        match result {
            Ok(times) => {
                entry.ready = Some((now, times.init));
                let watched = entry.instance();
                self.begin(async move {
                    let reason = match watched {
                        Some(watched) => watched.ended().await,
                        None => None,
                    };
                    Completion::InstanceEnded { instance, reason }
                });
                self.tell(NodeEvent::Started { instance, function, result: Ok(times) });
                self.event(Event::Started(instance));
            }
            // Its plug failed at the same time, and its failure has been reported with that.
            Err(_) if entry.stopping.load(Relaxed) => {}
            Err(error) => {
                self.tell(NodeEvent::Started { instance, function, result: Err(&error) });
                if !self.has_ended(vm) {
                    self.event(Event::StartFailed(instance));
                }
            }
        }
    }

    pub(super) fn instance_ended(&mut self, instance: InstanceNumber, reason: Option<ExitReason>) {
        let now = self.now();
        // Most instances end because they were stopped; those are gone or still stopping.
        let Some(entry) = self.instances.get(&instance) else { return };
        let (vm, function) = (entry.vm, entry.function);
        if entry.stopping.load(Relaxed) || self.has_ended(vm) {
            return;
        }
        if let Some(entry) = self.instances.get_mut(&instance) {
            entry.ending = Some(now);
        }
        // Without a reason, its own VM has ended.
        self.tell(NodeEvent::Died { instance, function, reason });
        self.event(Event::Died(instance));
    }

    /// Records that an instance is about to be ended, alone or with its VM, or that it cannot live on.
    pub(super) fn is_to_end(&mut self, instance: InstanceNumber, reason: StopReason) {
        let now = self.now();
        let Some(entry) = self.instances.get_mut(&instance) else { return };
        entry.ending = Some(now);
        let function = entry.function;
        // A condemned one is to end long before it can be stopped.
        if !entry.stopping.swap(true, Relaxed) {
            self.tell(NodeEvent::Stopping { instance, function, reason });
        }
    }

    pub(super) fn stop(&mut self, instance: InstanceNumber, reason: StopReason) {
        self.is_to_end(instance, reason);
        let Some(entry) = self.instances.get(&instance) else { return };
        let (stopped, machine) = (entry.instance(), entry.machine.clone());
        self.stopping.entry(entry.vm).or_default().push(Box::pin(async move {
            // The VM may have to be resumed for that.
            let _ = machine.settle().await;
            let result = match stopped {
                Some(stopped) => stopped.stop().await,
                None => Ok(None),
            };
            (instance, result)
        }));
    }

    pub(super) fn stopped(
        &mut self,
        stopped: Vec<(InstanceNumber, Result<Option<PartitionNumber>, InstanceError>)>,
    ) {
        for (instance, result) in stopped {
            if let Err(error) = &result {
                self.note(&format!("instance {instance} could not be stopped: {error}"));
            }
            if let Some(entry) = self.instances.get_mut(&instance) {
                entry.left = result.ok().flatten();
                self.event(Event::Stopped(instance));
            }
        }
    }

    pub(super) fn reclaim(&mut self, now: Moment, vm: VmIndex, instance: InstanceNumber) {
        // The slot must not be reused while a plug may still fill it.
        if let Some(entry) = self.instances.get_mut(&instance).filter(|entry| entry.plugging) {
            entry.reclaim_waits = true;
            return;
        }
        // There is no entry any more if the memory has been asked back before, and nothing to reclaim if it
        // was never plugged.
        let entry = self.instances.remove(&instance);
        let slot = entry.as_ref().filter(|entry| entry.has_slot).and_then(|entry| entry.slot);
        let left = entry.as_ref().and_then(|entry| entry.left);
        let first = entry.map(|InstanceEntry { function, ending, .. }| FirstReclaim {
            function,
            asked: now,
            stop: ending.map(|ending| now.since(ending)),
        });
        let Some(machine) = self.vms.get(&vm).and_then(|vm| vm.machine.clone()) else { return };
        let freed = slot.map_or(Ok(()), |slot| machine.slots().free(slot));
        self.begin_in(machine.clone(), async move {
            let outcome = match (freed, slot) {
                (Err(error), _) => ResizeOutcome::new(Err(error)),
                (Ok(()), Some(slot)) => machine.reclaim(slot, left).await,
                (Ok(()), None) => machine.has_settled().await,
            };
            Completion::Reclaimed { instance, vm, first, outcome }
        });
    }

    pub(super) fn reclaimed(
        &mut self,
        instance: InstanceNumber,
        vm: VmIndex,
        first: Option<FirstReclaim>,
        outcome: ResizeOutcome,
    ) {
        match first {
            Some(FirstReclaim { function, asked, stop }) => {
                let outcome = &outcome;
                self.tell(NodeEvent::Reclaimed { instance, function, asked, stop, outcome });
            }
            None if outcome.error.is_none() => self.tell(NodeEvent::Settled { instance }),
            None => {}
        }
        self.replace_if_unfit(vm, outcome.error.as_ref());
        if self.vms.get(&vm).is_some_and(|entry| entry.machine.is_some())
            && self.scaler.state(instance).is_some()
        {
            self.event(match outcome.error {
                None => Event::Reclaimed(instance),
                Some(_) => Event::ReclaimFailed(instance),
            });
        }
    }
}

/// An instance's ID in its VM.
fn id(function: &str, instance: InstanceNumber) -> InstanceId {
    // A function's name consists of valid characters, and its beginning is enough here.
    let id = format!("{function:.40}-{instance}");
    id.parse().unwrap_or_else(|_| unreachable!("{id} is a valid instance id"))
}
