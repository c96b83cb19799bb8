//! Turns the node's events into metrics.

use super::{
    Metrics, Names,
    labels::{Direction, Name, Of, OfReason, OfResize, OfStart, OfWait, Start},
    names::Known,
    reason,
    recent::{Recent, Reclaim, Times},
};
use crate::{mutex::lock, serve::failure_reasons::FailureReasons};
use squeezy_node::{Answer, CallError, NodeEvent, NodeStatus, Observer, ResizeOutcome};
use squeezy_openwhisk::now_ms;
use squeezy_scaler::{FunctionIndex, InstanceNumber, Moment, VmIndex};
use squeezy_vmm::{Taken, network::NetworkCounts};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// The maximum number of instances remembered after their reclaim was late.
const MOST_LATE: usize = 1000;

/// Observes all events and counts them.
pub struct Watch {
    /// The metrics it updates.
    pub metrics: Metrics,
    /// The functions' names.
    pub names: Names,
    /// Why calls of functions are refused.
    pub failure_reasons: Arc<FailureReasons>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    instances: BTreeMap<InstanceNumber, InstanceRecord>,
    /// Ended instances whose memory has not come back yet.
    late: BTreeMap<InstanceNumber, Known>,
    /// Functions that have had an instance end.
    ended: BTreeSet<Name>,
    recent: Recent,
    /// What sweeps had taken of each VM when it was last looked at.
    swept: BTreeMap<VmIndex, Swept>,
    /// How often the instances of VMs had tried to reach somebody when this was last asked for.
    networks: BTreeMap<VmIndex, NetworkCounts>,
}

/// What sweeps have taken of a VM since it was booted.
#[derive(Clone, Copy, Default)]
struct Swept {
    bytes: u64,
    took: Duration,
}

impl Swept {
    /// What has been added since `before`.
    fn since(self, before: Self) -> Self {
        match (self.bytes.checked_sub(before.bytes), self.took.checked_sub(before.took)) {
            (Some(bytes), Some(took)) => Self { bytes, took },
            // Another VM with the same number has begun at 0.
            _ => self,
        }
    }
}

/// What is remembered of an instance while it lives.
struct InstanceRecord {
    of: Known,
    recreated: bool,
    /// Why it is being stopped, if it is.
    stopping: Option<&'static str>,
}

impl Watch {
    /// A new watch, for a memory budget of this size.
    pub fn new(memory_limit_bytes: u64) -> Self {
        let metrics = Metrics::new(memory_limit_bytes);
        Self {
            metrics,
            names: Names::default(),
            failure_reasons: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// Reads recent events.
    pub fn recent<T>(&self, look: impl FnOnce(&mut Recent) -> T) -> T {
        look(&mut self.lock().recent)
    }

    /// Drops a function that no longer exists.
    pub fn forget(&self, function: &Name) {
        let mut state = self.lock();
        state.recent.forget(function);
        state.ended.remove(function);
        drop(state);
        self.metrics.forget(function);
        self.metrics.forget_earlier(function);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// An instance has ended, whether or not its memory is back.
    fn gone(&self, instance: InstanceNumber) -> Option<InstanceRecord> {
        let mut state = self.lock();
        let record = state.instances.remove(&instance)?;
        state.ended.insert(record.of.name.clone());
        Some(record)
    }

    fn ended(&self, function: Name, reason: &'static str) {
        self.metrics.instances_ended.get_or_create(&OfReason { function, reason }).inc();
    }

    fn not_resized(&self, function: Name, direction: Direction, outcome: &ResizeOutcome) {
        let Some(error) = &outcome.error else { return };
        let labels = OfResize { function, direction, reason: reason::not_resized(error) };
        self.metrics.resizes_refused.get_or_create(&labels).inc();
    }

    fn function_of(&self, instance: InstanceNumber) -> Option<Name> {
        self.lock().instances.get(&instance).map(|record| record.of.name.clone())
    }

    fn time(
        &self,
        at: Moment,
        function: &Name,
        what: fn(&mut Times) -> &mut super::recent::Window,
        took: Duration,
    ) {
        what(self.lock().recent.times(function)).push(at, took);
    }

    fn starting(&self, instance: InstanceNumber, function: FunctionIndex) {
        let of = self.names.of(function);
        let mut state = self.lock();
        let recreated = state.ended.contains(&of.name);
        state.instances.insert(instance, InstanceRecord { of, recreated, stopping: None });
    }

    fn plugged(&self, at: Moment, instance: InstanceNumber, outcome: &ResizeOutcome) {
        let Some(function) = self.function_of(instance) else { return };
        self.not_resized(function.clone(), Direction::Plug, outcome);
        if let (Some(latency), None) = (outcome.latency, &outcome.error) {
            self.time(at, &function, |times| &mut times.plug, latency);
            observe(&self.metrics.plug, function, latency);
        }
    }

    /// The host has taken free memory of a function's instance by itself, if it can.
    fn taken(&self, at: Moment, function: &Name, taken: Option<Taken>) {
        let Some(taken) = taken else { return };
        self.time(at, function, |times| &mut times.take, taken.took);
        let of = Of { function: function.clone() };
        self.metrics.taken.get_or_create(&of).inc_by(taken.bytes);
        self.metrics.taking.get_or_create(&of).inc_by(taken.took.as_secs_f64());
        observe(&self.metrics.take, of.function, taken.took);
    }

    /// The host has taken the memory of an instance whose VM is paused.
    fn condemned(&self, at: Moment, instance: InstanceNumber, freed_bytes: u64, took: Duration) {
        let Some(function) = self.function_of(instance) else { return };
        self.time(at, &function, |times| &mut times.condemn, took);
        let of = Of { function };
        self.metrics.condemned.get_or_create(&of).inc_by(freed_bytes);
        self.metrics.taking.get_or_create(&of).inc_by(took.as_secs_f64());
        observe(&self.metrics.condemn, of.function, took);
    }

    /// Counts what sweeps have taken of VMs since the last sample, which has to be older than this one.
    pub fn count_sweeps(&self, status: &NodeStatus) {
        let owners = self.owners(status);
        for (vm, _, memory) in &status.vms {
            let (Some(memory), Some(function)) = (memory, owners.get(vm)) else { continue };
            let swept = Swept { bytes: memory.swept_bytes, took: memory.sweeps_took };
            let before = self.lock().swept.insert(*vm, swept).unwrap_or_default();
            let swept = swept.since(before);
            let of = Of { function: function.clone() };
            self.metrics.taken.get_or_create(&of).inc_by(swept.bytes);
            self.metrics.taking.get_or_create(&of).inc_by(swept.took.as_secs_f64());
        }
        self.lock().swept.retain(|vm, _| status.vms.iter().any(|(there, ..)| there == vm));
    }

    /// Whose VMs are. One that several functions share has their joined names, so that it is counted once.
    pub(super) fn owners(&self, status: &NodeStatus) -> BTreeMap<VmIndex, Name> {
        let mut owners: BTreeMap<VmIndex, Name> = BTreeMap::new();
        for (index, _) in &status.functions {
            let Some(&vm) = status.vm_of.get(index) else { continue };
            let function = self.names.of(*index).name;
            let add = |name: &mut Name| *name = Name(format!("{}+{}", name.0, function.0).into());
            owners.entry(vm).and_modify(add).or_insert_with(|| function.clone());
        }
        owners
    }

    /// How often the instances of a VM have tried to reach somebody since this was last asked for; `counts` is since
    /// the VM was planned.
    pub(super) fn newly_reached(&self, vm: VmIndex, counts: NetworkCounts) -> NetworkCounts {
        counts - self.lock().networks.insert(vm, counts).unwrap_or_default()
    }

    /// Forgets VMs that are not there any more.
    pub(super) fn forget_vms(&self, is_there: impl Fn(VmIndex) -> bool) {
        let mut state = self.lock();
        state.networks.retain(|vm, _| is_there(*vm));
    }

    fn reclaimed(
        &self,
        at: Moment,
        instance: InstanceNumber,
        stop: Option<Duration>,
        outcome: &ResizeOutcome,
    ) {
        let Some(record) = self.gone(instance) else { return };
        let function = record.of.name.clone();
        self.not_resized(function.clone(), Direction::Unplug, outcome);
        self.taken(at, &function, outcome.taken);
        if outcome.latency.is_none() && outcome.error.is_none() {
            // It had no memory of its own, or its policy gives none back.
            return;
        }
        if let (Some(latency), None) = (outcome.latency, &outcome.error) {
            self.came_back(&record.of);
            observe(&self.metrics.unplug, function.clone(), latency);
            self.time(at, &function, |times| &mut times.unplug, latency);
        }
        let reason = record.stopping.unwrap_or(reason::DIED);
        let mut state = self.lock();
        if outcome.error.is_some() && state.late.len() < MOST_LATE {
            state.late.insert(instance, record.of.clone());
        }
        state.recent.reclaim(Reclaim {
            at_ms: now_ms(),
            function,
            instance,
            size_bytes: record.of.instance_bytes,
            reason,
            stop,
            unplug: outcome.latency,
            resident_drop_bytes: outcome.resident_drop_bytes,
            error: outcome.error.clone(),
            settled: false,
        });
    }

    fn settled(&self, instance: InstanceNumber) {
        let mut state = self.lock();
        state.recent.settle(instance);
        let late = state.late.remove(&instance);
        drop(state);
        if let Some(of) = late {
            self.came_back(&of);
        }
    }

    fn came_back(&self, of: &Known) {
        let labels = Of { function: of.name.clone() };
        self.metrics.reclaimed.get_or_create(&labels).inc_by(of.instance_bytes);
    }

    fn called(
        &self,
        at: Moment,
        index: FunctionIndex,
        instance: Option<InstanceNumber>,
        result: &Result<Answer, CallError>,
    ) {
        let function = self.names.of(index).name;
        let (waited, waited_for, cold) = match result {
            Ok(answer) => (answer.waited, answer.waited_for, answer.cold.is_some()),
            Err(CallError::Failed { waited, waited_for, cold, .. }) => {
                (*waited, *waited_for, *cold)
            }
            Err(CallError::Rejected(reason)) => {
                let labels = OfReason { function, reason: reason::refused(*reason) };
                self.metrics.calls_refused.get_or_create(&labels).inc();
                return;
            }
            Err(CallError::Ended) => return,
        };
        let recreated = {
            let state = self.lock();
            match instance.and_then(|instance| state.instances.get(&instance)) {
                Some(record) => record.recreated,
                // The instance's end was reported first.
                None => false,
            }
        };
        let start = match (cold, recreated) {
            (false, _) => Start::Warm,
            (true, false) => Start::Cold,
            (true, true) => Start::Recreated,
        };
        let labels = OfStart { function: function.clone(), start };
        self.metrics.starts.get_or_create(&labels).inc();
        let labels = OfWait { function: function.clone(), waited_for: waited_for.name() };
        self.metrics.calls_taken.get_or_create(&labels).inc();
        observe(&self.metrics.queue, function.clone(), waited);
        self.time(at, &function, |times| &mut times.queue, waited);
        match result {
            Ok(answer) => {
                self.time(at, &function, |times| &mut times.run, answer.took);
                self.time(at, &function, |times| &mut times.total, waited + answer.took);
                observe(&self.metrics.run, function, answer.took);
            }
            Err(_) => {
                self.metrics.calls_failed.get_or_create(&Of { function }).inc();
            }
        }
    }
}

impl Watch {
    /// Counts an event.
    pub fn see(&self, at: Moment, event: &NodeEvent<'_>) {
        self.failure_reasons.see(event);
        match *event {
            NodeEvent::Booted { took, .. } => self.metrics.vm_boot.observe(took.as_secs_f64()),
            NodeEvent::Starting { instance, function } => self.starting(instance, function),
            NodeEvent::Plugged { instance, outcome, .. } => self.plugged(at, instance, outcome),
            NodeEvent::Started { instance, result, .. } => {
                let Some(function) = self.function_of(instance) else { return };
                match result {
                    Ok(times) => {
                        self.time(at, &function, |recent| &mut recent.init, times.init);
                        observe(&self.metrics.init, function, times.init);
                    }
                    Err(_) => {
                        self.metrics.starts_failed.get_or_create(&Of { function }).inc();
                    }
                }
            }
            NodeEvent::Stopping { instance, reason, .. } => {
                let reason = reason::stopped(reason);
                let mut state = self.lock();
                let Some(record) = state.instances.get_mut(&instance) else { return };
                // If it died, that was reported before it is stopped, and is the better reason.
                let died = record.stopping.is_some();
                record.stopping.get_or_insert(reason);
                let function = record.of.name.clone();
                drop(state);
                if !died {
                    self.ended(function, reason);
                }
            }
            NodeEvent::Died { instance, .. } => {
                let mut state = self.lock();
                let Some(record) = state.instances.get_mut(&instance) else { return };
                record.stopping = Some(reason::DIED);
                let function = record.of.name.clone();
                drop(state);
                self.ended(function, reason::DIED);
            }
            NodeEvent::Lost { instance, .. } => {
                // One that was being stopped has been counted already.
                if let Some(record) = self.gone(instance).filter(|record| record.stopping.is_none())
                {
                    self.ended(record.of.name, reason::VM_ENDED);
                }
            }
            NodeEvent::Reclaimed { instance, stop, outcome, .. } => {
                self.reclaimed(at, instance, stop, outcome);
            }
            NodeEvent::Settled { instance } => self.settled(instance),
            NodeEvent::Frozen { instance, taken, .. } => {
                if let Some(function) = self.function_of(instance) {
                    self.taken(at, &function, taken);
                }
            }
            // Its end is counted with `Stopping`.
            NodeEvent::Condemned { instance, freed_bytes, took, .. } => {
                self.condemned(at, instance, freed_bytes, took);
            }
            NodeEvent::Squeezed { instance, result, .. } => {
                let Some(function) = self.function_of(instance) else { return };
                let of = Of { function };
                match result {
                    Ok(report) => {
                        let bytes = report.before_bytes.saturating_sub(report.resident_bytes);
                        self.metrics.squeezed.get_or_create(&of).inc_by(bytes);
                        observe(&self.metrics.squeeze, of.function, report.took);
                    }
                    Err(_) => {
                        self.metrics.squeezes_failed.get_or_create(&of).inc();
                    }
                }
            }
            NodeEvent::Called { function, instance, result, .. } => {
                self.called(at, function, instance, result);
            }
            NodeEvent::Booting { .. }
            | NodeEvent::Ended { .. }
            | NodeEvent::Paused { .. }
            | NodeEvent::Resumed { .. }
            | NodeEvent::NotPrewarmed { .. }
            | NodeEvent::Note(_) => {}
        }
    }
}

/// Passes each event to the watch, then to another observer.
pub struct Seen<O>(pub Arc<Watch>, pub O);

impl<O: Observer> Observer for Seen<O> {
    fn observe(&self, at: Moment, event: NodeEvent<'_>) {
        self.0.see(at, &event);
        self.1.observe(at, event);
    }
}

fn observe(times: &super::families::TimesOf, function: Name, took: Duration) {
    times.get_or_create(&Of { function }).observe(took.as_secs_f64());
}
