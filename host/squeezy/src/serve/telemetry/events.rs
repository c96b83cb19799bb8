//! The node's events as spans.
//!
//! A call's wait and run are parts of the call's span. The start of an instance, its squeezes and its reclaim, and the
//! boot of a VM are traces of their own, because calls share them; those of an instance are linked with its start, and
//! so is the wait of a call that it was started for.

use super::{
    Telemetry,
    span::{Span, SpanKind},
};
use crate::{
    mutex::lock,
    serve::metrics::{Name, Watch, reason},
};
use squeezy_node::{
    Answer, CallError, CallTrace, InstanceError, NodeEvent, Observer, ResizeOutcome, SpanId,
    SqueezeReport, StartTimes, TraceId, WaitedFor,
};
use squeezy_scaler::{FunctionIndex, InstanceNumber, Moment, VmIndex};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// Sends spans of each event, and passes it on.
pub struct Traced<O> {
    telemetry: Arc<Telemetry>,
    watch: Arc<Watch>,
    state: Mutex<State>,
    next: O,
}

#[derive(Default)]
struct State {
    /// The instances that there are.
    instances: BTreeMap<InstanceNumber, Life>,
    /// When the boots in progress began.
    boots: BTreeMap<VmIndex, Moment>,
}

/// An instance.
#[derive(Clone)]
struct Life {
    function: Name,
    /// The trace and the span of its start, and in it that of its plug.
    trace: TraceId,
    start: SpanId,
    plug: SpanId,
    began: Moment,
    /// Whether the span of its start has been sent.
    is_told: bool,
    /// Why it ends, if it does.
    ends: Option<&'static str>,
}

impl<O> Traced<O> {
    /// An observer that comes before `next`.
    pub fn new(telemetry: Arc<Telemetry>, watch: Arc<Watch>, next: O) -> Self {
        Self { telemetry, watch, state: Mutex::default(), next }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn life(&self, instance: InstanceNumber) -> Option<Life> {
        self.lock().instances.get(&instance).cloned()
    }

    /// A span of a new trace.
    fn root(&self, name: &'static str, start: Moment, end: Moment) -> Span {
        let ids = &self.telemetry.ids;
        Span::root(ids.trace(), ids.span(), name, start, end)
    }

    /// A span within another one's, of the same trace.
    fn part(&self, whole: &Span, name: &'static str, start: Moment, end: Moment) -> Span {
        let within = |moment: Moment| moment.max(whole.start).min(whole.end);
        let id = self.telemetry.ids.span();
        Span::root(whole.trace, id, name, within(start), within(end)).within(whole.id)
    }

    /// A span of something that happened to an instance that has started.
    fn of(&self, instance: InstanceNumber, name: &'static str, start: Moment, end: Moment) -> Span {
        let span = self.root(name, start, end);
        match self.life(instance) {
            Some(life) => {
                Span { links: vec![(life.trace, life.start)], ..about(span, &life, instance) }
            }
            None => span.with("squeezy.instance", instance.0),
        }
    }

    fn starting(&self, at: Moment, instance: InstanceNumber, function: FunctionIndex) {
        let (function, ids) = (self.watch.names.of(function).name, &self.telemetry.ids);
        let (trace, start, plug) = (ids.trace(), ids.span(), ids.span());
        let life = Life { function, trace, start, plug, began: at, is_told: false, ends: None };
        self.lock().instances.insert(instance, life);
    }

    fn plugged(&self, at: Moment, instance: InstanceNumber, took: Duration, out: &ResizeOutcome) {
        let Some(life) = self.life(instance) else { return };
        let start = before(at, took).max(life.began);
        let span = Span::root(life.trace, life.plug, "plug", start, at).within(life.start);
        self.telemetry.send([about(span, &life, instance).failed(out.error.as_ref())]);
    }

    fn started(
        &self,
        at: Moment,
        instance: InstanceNumber,
        result: Result<StartTimes, &InstanceError>,
    ) {
        let mut state = self.lock();
        let Some(life) = state.instances.get_mut(&instance) else { return };
        life.is_told = true;
        let life = life.clone();
        drop(state);
        let start = start(&life, instance, at).failed(result.err());
        let Ok(StartTimes { spawn, init }) = result else { return self.telemetry.send([start]) };
        let executed = before(at, init);
        let spawn = self.part(&start, "spawn", before(executed, spawn), executed);
        let init = self.part(&start, "init", executed, at);
        self.telemetry.send([start, spawn, init]);
    }

    /// An instance is gone.
    fn gone(&self, at: Moment, instance: InstanceNumber) {
        let Some(life) = self.lock().instances.remove(&instance) else { return };
        if !life.is_told {
            let start = start(&life, instance, at);
            self.telemetry.send([start.failed(Some("it was ended before it had started"))]);
        }
    }

    fn squeezed(
        &self,
        at: Moment,
        instance: InstanceNumber,
        result: Result<&SqueezeReport, &InstanceError>,
    ) {
        let took = result.map_or(Duration::ZERO, |report| report.took);
        let mut span = self.of(instance, "squeeze", before(at, took), at).failed(result.err());
        if let Ok(report) = result {
            let bytes = report.before_bytes.saturating_sub(report.resident_bytes);
            span = span.with("squeezy.freed_bytes", bytes);
        }
        self.telemetry.send([span]);
    }

    fn reclaimed(
        &self,
        at: Moment,
        instance: InstanceNumber,
        asked: Moment,
        stop: Option<Duration>,
        outcome: &ResizeOutcome,
    ) {
        let began = before(asked, stop.unwrap_or_default());
        let reclaim = self.of(instance, "reclaim", began, at);
        let reclaim = reclaim
            .with("squeezy.freed_bytes", outcome.resident_drop_bytes)
            .failed(outcome.error.as_ref());
        let stop = stop.map(|_| self.part(&reclaim, "stop", began, asked));
        let unplug = outcome.latency.map(|_| {
            let unplug = self.part(&reclaim, "unplug", asked, at);
            unplug.failed(outcome.error.as_ref())
        });
        self.telemetry.send([Some(reclaim), stop, unplug].into_iter().flatten());
        self.gone(at, instance);
    }

    fn called(
        &self,
        at: Moment,
        instance: Option<InstanceNumber>,
        came: Moment,
        trace: &CallTrace,
        result: &Result<Answer, CallError>,
    ) {
        let CallTrace { context, call: Some(call) } = trace else { return };
        let (waited, waited_for, took) = match result {
            Ok(Answer { waited, waited_for, took, .. })
            | Err(CallError::Failed { waited, waited_for, took, .. }) => {
                (*waited, Some(*waited_for), *took)
            }
            Err(CallError::Rejected(_) | CallError::Ended) => {
                (at.since(came), None, Duration::ZERO)
            }
        };
        let taken = (came + waited).min(at);
        let id = self.telemetry.ids.span();
        let mut wait = Span::root(context.trace, id, "wait", came, taken).within(*call);
        let Some(waited_for) = waited_for else {
            let wait = wait.failed(result.as_ref().err());
            return self.telemetry.send([wait]);
        };
        wait = wait.with("squeezy.waited_for", waited_for.name());
        let life = instance.and_then(|instance| self.life(instance));
        if let (Some(life), WaitedFor::Start | WaitedFor::Boot) = (&life, waited_for) {
            wait.links.extend([(life.trace, life.start), (life.trace, life.plug)]);
        }
        let ran = (taken + took).min(at);
        let mut run = Span::root(context.trace, context.span, "run", taken, ran).within(*call);
        run.kind = SpanKind::Client;
        if let Some(instance) = instance {
            run = run.with("squeezy.instance", instance.0);
        }
        self.telemetry.send([wait, run.failed(result.as_ref().err())]);
    }

    fn see(&self, at: Moment, event: &NodeEvent<'_>) {
        match *event {
            NodeEvent::Booting { vm, .. } => {
                self.lock().boots.entry(vm).or_insert(at);
            }
            NodeEvent::Booted { vm, took, .. } => {
                self.lock().boots.remove(&vm);
                let boot = self.root("boot", before(at, took), at);
                self.telemetry.send([boot.with("squeezy.vm", u64::from(vm.0))]);
            }
            NodeEvent::Ended { vm, reason } => {
                let Some(began) = self.lock().boots.remove(&vm) else { return };
                let boot = self.root("boot", began, at).with("squeezy.vm", u64::from(vm.0));
                self.telemetry.send([boot.failed(Some(reason))]);
            }
            NodeEvent::Starting { instance, function } => self.starting(at, instance, function),
            NodeEvent::Plugged { instance, took, outcome, .. } => {
                self.plugged(at, instance, took, outcome);
            }
            NodeEvent::Started { instance, result, .. } => self.started(at, instance, result),
            NodeEvent::Squeezed { instance, result, .. } => self.squeezed(at, instance, result),
            NodeEvent::Condemned { instance, freed_bytes, took, .. } => {
                let span = self.of(instance, "condemn", before(at, took), at);
                self.telemetry.send([span.with("squeezy.freed_bytes", freed_bytes)]);
            }
            NodeEvent::Stopping { instance, reason, .. } => {
                self.ends(instance, reason::stopped(reason))
            }
            NodeEvent::Died { instance, .. } => self.ends(instance, reason::DIED),
            NodeEvent::Lost { instance, .. } => self.gone(at, instance),
            NodeEvent::Reclaimed { instance, asked, stop, outcome, .. } => {
                self.reclaimed(at, instance, asked, stop, outcome);
            }
            NodeEvent::Called { instance, came, trace: Some(trace), result, .. } => {
                self.called(at, instance, came, trace, result);
            }
            NodeEvent::Called { .. }
            | NodeEvent::Frozen { .. }
            | NodeEvent::Paused { .. }
            | NodeEvent::Resumed { .. }
            | NodeEvent::Settled { .. }
            | NodeEvent::NotPrewarmed { .. }
            | NodeEvent::Note(_) => {}
        }
    }

    fn ends(&self, instance: InstanceNumber, reason: &'static str) {
        if let Some(life) = self.lock().instances.get_mut(&instance) {
            life.ends.get_or_insert(reason);
        }
    }
}

impl<O: Observer> Observer for Traced<O> {
    fn observe(&self, at: Moment, event: NodeEvent<'_>) {
        self.see(at, &event);
        self.next.observe(at, event);
    }
}

/// The span of an instance's start.
fn start(life: &Life, instance: InstanceNumber, end: Moment) -> Span {
    about(Span::root(life.trace, life.start, "start", life.began, end), life, instance)
}

fn about(span: Span, life: &Life, instance: InstanceNumber) -> Span {
    let span = span.with("faas.name", life.function.0.clone());
    let span = span.with("squeezy.instance", instance.0);
    match life.ends {
        Some(reason) => span.with("squeezy.reason", reason),
        None => span,
    }
}

fn before(at: Moment, time: Duration) -> Moment {
    Moment(at.0.saturating_sub(time))
}
