//! Records the node's events during a run, and passes them to the view.

use super::{
    record::{Direction, PolicyRecord, RequestRecord, ResizeRecord, Sample, StartRecord},
    view::View,
};
use crate::mutex::lock;
use squeezy_node::{NodeEvent, Observer, ResizeOutcome};
use squeezy_scaler::{Counts, InstanceNumber, Moment, StopReason};
use squeezy_vmm::{AcceleratorKind, MemoryUse};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, Weak},
    time::Duration,
};
use tokio::sync::watch;

/// What is known about the VM once it has booted.
#[derive(Clone, Debug)]
pub struct Booted {
    /// Its accelerator.
    pub accelerator: AcceleratorKind,
    /// Why that was chosen.
    pub accelerator_reason: String,
    /// The VMM's name and version.
    pub vmm: String,
    /// Version of the guest's kernel.
    pub kernel: String,
    /// From the start of the VMM until the agent answered.
    pub took: Duration,
}

/// Records everything.
pub struct Recorder {
    /// Weak, so that the terminal is restored as soon as the run drops the view.
    view: Weak<dyn View>,
    state: Mutex<State>,
    /// Why the VM has ended, once it has.
    ended: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct State {
    record: PolicyRecord,
    instance_bytes: u64,
    booted: Option<Booted>,
    /// When the load began; nothing is recorded before.
    load: Option<Moment>,
    /// Index of each instance's start in the record.
    starts: BTreeMap<InstanceNumber, usize>,
}

impl Recorder {
    /// A recorder for one policy with instances of this size.
    pub fn new(view: Weak<dyn View>, policy: String, instance_bytes: u64) -> Self {
        let record = PolicyRecord { policy, ..PolicyRecord::default() };
        let state = State { record, instance_bytes, ..State::default() };
        Self { view, state: Mutex::new(state), ended: watch::Sender::new(None) }
    }

    /// What is known about the VM; `None` before it has booted.
    pub fn booted(&self) -> Option<Booted> {
        self.lock().booted.clone()
    }

    /// Why the VM has ended, if it has.
    pub fn why_vm_ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Waits until the VM has ended; returns why.
    pub async fn vm_ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        // The sender lives in `self`, so there is always an answer.
        ended.wait_for(Option::is_some).await.ok().and_then(|r| r.clone()).unwrap_or_default()
    }

    /// Starts recording at `now`. The first instance took `first_answer` to answer.
    pub fn begin_load(&self, now: Moment, first_answer: Duration) {
        let mut state = self.lock();
        state.record.boot_seconds =
            state.booted.as_ref().map_or(0.0, |booted| booted.took.as_secs_f64());
        state.record.first_answer_seconds = first_answer.as_secs_f64();
        state.load = Some(now);
    }

    /// Shows a message.
    pub fn note(&self, text: &str) {
        self.show(|view| view.note(text));
    }

    /// Records that the load ended prematurely.
    pub fn end_early(&self, reason: &str) {
        self.note(reason);
        self.lock().record.ended_early.get_or_insert_with(|| reason.to_owned());
    }

    /// Why the load ended prematurely, if it did.
    pub fn ended_early(&self) -> Option<String> {
        self.lock().record.ended_early.clone()
    }

    /// Records a request that has been answered, or never will be.
    pub fn request(&self, request: RequestRecord) {
        self.show(|view| view.request(&request));
        self.lock().record.requests.push(request);
    }

    /// Records the state of the function and its VM at `now`.
    pub fn sample(&self, now: Moment, counts: &Counts, memory: &MemoryUse) {
        let mut state = self.lock();
        let Some(load) = state.load else { return };
        let sample = Sample {
            at_seconds: now.since(load).as_secs_f64(),
            starting: counts.starting,
            idle: counts.idle,
            busy: counts.busy,
            stopping: counts.condemned + counts.stopping,
            reclaiming: counts.reclaiming,
            stranded: counts.stranded,
            queued: counts.queued,
            asked_bytes: memory.asked_bytes,
            plugged_bytes: memory.plugged_bytes,
            resident_bytes: memory.resident.resident_bytes,
        };
        state.record.samples.push(sample);
        drop(state);
        self.show(|view| view.sample(&sample));
    }

    /// The complete record at `now`. Events that a node reports while it shuts down are not
    /// recorded.
    pub fn finish(&self, now: Moment) -> PolicyRecord {
        let State { mut record, load, .. } = std::mem::take(&mut *self.lock());
        record.length_seconds = now.since(load.unwrap_or(now)).as_secs_f64();
        record
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn show(&self, what: impl FnOnce(&dyn View)) {
        if let Some(view) = self.view.upgrade() {
            what(&*view);
        }
    }

    /// Updates the record of an instance's start, if there is one.
    fn start(&self, instance: InstanceNumber, change: impl FnOnce(&mut StartRecord)) {
        let mut state = self.lock();
        if let Some(&index) = state.starts.get(&instance) {
            change(&mut state.record.starts[index]);
        }
    }

    fn resized(
        &self,
        direction: Direction,
        instance: InstanceNumber,
        at: Moment,
        outcome: &ResizeOutcome,
    ) {
        let ResizeOutcome { latency, resident_drop_bytes, error, .. } = outcome;
        if latency.is_none() && error.is_none() {
            return;
        }
        let mut state = self.lock();
        let Some(load) = state.load else { return };
        let resize = ResizeRecord {
            at_seconds: at.since(load).as_secs_f64(),
            direction,
            instance: instance.0,
            size_bytes: state.instance_bytes,
            latency_ns: latency.unwrap_or_default().as_nanos().try_into().unwrap_or(u64::MAX),
            resident_drop_bytes: *resident_drop_bytes,
            error: error.as_ref().map(ToString::to_string),
        };
        state.record.resizes.push(resize.clone());
        drop(state);
        self.show(|view| view.resize(&resize));
    }
}

impl Observer for Recorder {
    fn observe(&self, at: Moment, event: NodeEvent<'_>) {
        match event {
            NodeEvent::Booting { step, .. } => self.note(&step.to_string()),
            NodeEvent::Booted { machine, took, .. } => {
                self.lock().booted = Some(Booted {
                    accelerator: machine.accelerator,
                    accelerator_reason: machine.accelerator_reason.clone(),
                    vmm: machine.vmm_version.clone(),
                    kernel: machine.kernel.clone(),
                    took,
                });
            }
            NodeEvent::Ended { reason, .. } => {
                self.ended.send_replace(Some(reason.to_string()));
            }
            NodeEvent::Starting { instance, .. } => {
                let mut state = self.lock();
                let Some(load) = state.load else { return };
                let start = StartRecord {
                    at_seconds: at.since(load).as_secs_f64(),
                    instance: instance.0,
                    plug_seconds: 0.0,
                    spawn_seconds: 0.0,
                    init_seconds: 0.0,
                    error: None,
                };
                let index = state.record.starts.len();
                state.record.starts.push(start);
                state.starts.insert(instance, index);
            }
            NodeEvent::Plugged { instance, took, outcome, .. } => {
                self.start(instance, |start| {
                    start.plug_seconds = took.as_secs_f64();
                    start.error = outcome.error.as_ref().map(ToString::to_string);
                });
                let begun = Moment(at.0.saturating_sub(took));
                self.resized(Direction::Plug, instance, begun, outcome);
            }
            NodeEvent::Started { instance, result: Ok(times), .. } => {
                self.start(instance, |start| {
                    start.spawn_seconds = times.spawn.as_secs_f64();
                    start.init_seconds = times.init.as_secs_f64();
                })
            }
            NodeEvent::Started { instance, result: Err(error), .. } => {
                self.note(&format!("instance {instance} cannot be started: {error}"));
                self.start(instance, |start| start.error = Some(error.to_string()));
            }
            NodeEvent::Died { instance, reason: Some(reason), .. } => {
                self.note(&format!("instance {instance} {reason}"));
            }
            NodeEvent::Died { instance, reason: None, .. } => {
                self.note(&format!("the VM of instance {instance} has ended"));
            }
            NodeEvent::Stopping { instance, reason: StopReason::Broken, .. } => {
                self.note(&format!("instance {instance} cannot continue and is stopped"));
            }
            NodeEvent::Reclaimed { instance, asked, outcome, .. } => {
                self.resized(Direction::Reclaim, instance, asked, outcome);
            }
            NodeEvent::Stopping { .. }
            | NodeEvent::Frozen { .. }
            | NodeEvent::Squeezed { .. }
            | NodeEvent::Condemned { .. }
            | NodeEvent::Settled { .. }
            | NodeEvent::Lost { .. }
            | NodeEvent::Paused { .. }
            | NodeEvent::Resumed { .. }
            | NodeEvent::NotPrewarmed { .. }
            | NodeEvent::Called { .. } => {}
            NodeEvent::Note(text) => self.note(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::view::lines::Lines;
    use squeezy_node::StartTimes;
    use squeezy_scaler::FunctionIndex;

    #[test]
    fn what_happens_after_the_end_is_not_recorded() {
        let recorder = Recorder::new(Weak::<Lines>::new(), "squeezy".to_owned(), 1);
        recorder.begin_load(Moment::START, Duration::ZERO);
        let (instance, other) = (InstanceNumber(0), InstanceNumber(1));
        let function = FunctionIndex(0);
        let starting = |instance| NodeEvent::Starting { instance, function };
        recorder.observe(Moment::START, starting(instance));
        assert_eq!(recorder.finish(Moment::START).starts.len(), 1);
        let result = Ok(StartTimes::default());
        let started = NodeEvent::Started { instance, function, result };
        recorder.observe(Moment::START, started);
        recorder.observe(Moment::START, starting(other));
        assert!(recorder.finish(Moment::START).starts.is_empty());
    }
}
