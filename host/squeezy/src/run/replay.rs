//! Replays a load on one VM: turns what happens into events and decisions into tasks.

use super::{
    interrupt::Interrupt,
    machine::{Machine, StartTimes, Tried},
    record::{Direction, MethodRecord, Outcome, RequestRecord, ResizeRecord, Sample, StartRecord},
    view::View,
};
use squeezy_protocol::ExitReason;
use squeezy_runtime::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, Moment, PolicyError,
    RejectReason, RequestNumber, Scaler, StopReason,
};
use squeezy_vmm::{MemoryUse, VmError, method::Slot};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

/// There is one function.
const FUNCTION: FunctionIndex = FunctionIndex(0);

/// How often the memory is looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// How long is still recorded when everything is over.
const TAIL: Duration = Duration::from_secs(2);

/// How long instances may take to end after Ctrl-C.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// A command that has been carried out.
enum Done {
    Plugged { instance: InstanceNumber, at: Moment, slot: Option<Slot>, tried: Tried },
    Started { instance: InstanceNumber, result: Result<StartTimes, String> },
    Answered { instance: InstanceNumber, request: RequestNumber, outcome: Outcome, healthy: bool },
    Ended { instance: InstanceNumber, reason: Option<ExitReason> },
    Stopped { instance: InstanceNumber, result: Result<(), String> },
    Reclaimed { instance: InstanceNumber, at: Moment, again: bool, tried: Tried },
    Sampled(Result<MemoryUse, VmError>),
}

/// A request that is not answered yet.
struct Open {
    came: Moment,
    taken: Option<Moment>,
    cold: bool,
}

/// An instance, beside what the scaler knows of it.
#[derive(Default)]
struct Body {
    slot: Option<Slot>,
    ready: Option<Moment>,
    /// Where in the record its start is.
    start: usize,
}

/// One replay under way.
pub struct Replay<'a> {
    machine: Arc<Machine>,
    view: &'a dyn View,
    scaler: Scaler,
    begin: Instant,
    tasks: JoinSet<Done>,
    bodies: BTreeMap<InstanceNumber, Body>,
    open: BTreeMap<RequestNumber, Open>,
    sampling: bool,
    record: MethodRecord,
}

impl<'a> Replay<'a> {
    /// A replay on a VM that has just booted.
    pub fn new(
        machine: Machine,
        policy: FunctionPolicy,
        record: MethodRecord,
        view: &'a dyn View,
    ) -> Result<Self, PolicyError> {
        let scaler = Scaler::new(Budget::new(u64::MAX), &[policy])?;
        Ok(Self {
            machine: Arc::new(machine),
            view,
            scaler,
            begin: Instant::now(),
            tasks: JoinSet::new(),
            bodies: BTreeMap::new(),
            open: BTreeMap::new(),
            sampling: false,
            record,
        })
    }

    /// Sends the requests when they are due and waits until everything is over.
    pub async fn run(mut self, arrivals: &[Duration], interrupt: &Interrupt) -> MethodRecord {
        self.begin = Instant::now();
        let machine = self.machine.clone();
        let mut arrivals = (0..).map(RequestNumber).zip(arrivals.iter().copied()).peekable();
        let mut sampler = interval(SAMPLE_INTERVAL);
        sampler.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut drain_until = None;
        let mut over_since = None;
        loop {
            let next =
                arrivals.peek().filter(|_| drain_until.is_none()).map(|(_, at)| self.begin + *at);
            let deadline = self.scaler.next_deadline().map(|at| self.begin + at.0);
            if next.is_none() && self.is_over() {
                let since = *over_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= TAIL || drain_until.is_some() {
                    break;
                }
            } else {
                over_since = None;
            }
            tokio::select! {
                reason = machine.vm.wait() => {
                    self.end_early(reason.to_string());
                    break;
                }
                () = interrupt.raised(2) => {
                    self.end_early("interrupted twice".to_owned());
                    break;
                }
                () = interrupt.raised(1), if drain_until.is_none() => {
                    self.end_early("interrupted".to_owned());
                    drain_until = Some(Instant::now() + DRAIN_LIMIT);
                    self.event(Event::Drain);
                }
                () = at(drain_until), if drain_until.is_some() => {
                    self.view.note("instances did not end in time; the VM is killed");
                    break;
                }
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.done(done),
                () = at(next), if next.is_some() => {
                    if let Some((request, _)) = arrivals.next() {
                        let open = Open { came: self.now(), taken: None, cold: false };
                        self.open.insert(request, open);
                        self.event(Event::Request { function: FUNCTION, request });
                    }
                }
                () = at(deadline), if deadline.is_some() => self.event(Event::Tick),
                _ = sampler.tick() => self.sample(),
            }
        }
        self.finish().await
    }

    /// Whether no request is open and no instance lives. What the guest keeps is not waited for.
    fn is_over(&self) -> bool {
        let counts = self.scaler.counts(FUNCTION);
        let there =
            counts.starting + counts.idle + counts.busy + counts.stopping + counts.reclaiming;
        self.open.is_empty() && there == 0
    }

    fn now(&self) -> Moment {
        Moment(self.begin.elapsed())
    }

    fn end_early(&mut self, reason: String) {
        self.view.note(&reason);
        self.record.ended_early.get_or_insert(reason);
    }

    /// Tells the scaler, and starts what it decides.
    fn event(&mut self, event: Event) {
        let now = self.now();
        match self.scaler.handle(now, event) {
            Ok(commands) => commands.into_iter().for_each(|command| self.command(now, command)),
            // Only a mistake in here can lead to this; the run goes on without the event.
            Err(error) => self.view.note(&format!("internal error: {error}")),
        }
    }

    fn command(&mut self, now: Moment, command: Command) {
        let machine = self.machine.clone();
        match command {
            Command::Plug { instance, .. } => {
                self.begin_start(now, instance);
                self.tasks.spawn(async move {
                    let (slot, tried) = machine.plug().await;
                    Done::Plugged { instance, at: now, slot, tried }
                });
            }
            Command::Start { instance, .. } => {
                let slot = self.bodies.get(&instance).and_then(|body| body.slot);
                self.tasks.spawn(async move {
                    let result = match slot {
                        Some(slot) => machine.start(&machine.id(instance), slot).await,
                        None => Err("it has no memory".to_owned()),
                    };
                    Done::Started { instance, result }
                });
            }
            Command::Dispatch { instance, request } => {
                let ready = self.bodies.get(&instance).and_then(|body| body.ready);
                if let Some(open) = self.open.get_mut(&request) {
                    open.taken = Some(now);
                    open.cold = ready.is_none_or(|ready| ready > open.came);
                }
                self.tasks.spawn(async move {
                    let (outcome, healthy) = machine.run(&machine.id(instance), request).await;
                    Done::Answered { instance, request, outcome, healthy }
                });
            }
            Command::Stop { instance, reason } => {
                if reason == StopReason::Broken {
                    self.view.note(&format!("instance {instance} cannot go on and is stopped"));
                }
                self.tasks.spawn(async move {
                    Done::Stopped { instance, result: machine.stop(&machine.id(instance)).await }
                });
            }
            Command::Reclaim { instance, .. } => {
                let body = self.bodies.remove(&instance);
                // Memory that could not be plugged is not there to be taken back.
                let again = body.is_none();
                let slot = body.and_then(|body| body.slot);
                self.tasks.spawn(async move {
                    let tried = machine.reclaim(slot).await;
                    Done::Reclaimed { instance, at: now, again, tried }
                });
            }
            Command::Reject { request, reason } => {
                let reason = match reason {
                    RejectReason::QueueFull => "too many requests wait",
                    RejectReason::StartFailed => "the instance for it could not be started",
                    RejectReason::Draining => "the run ends",
                };
                self.close(request, Outcome::Rejected(reason.to_owned()));
            }
        }
    }

    fn begin_start(&mut self, now: Moment, instance: InstanceNumber) {
        let start = self.record.starts.len();
        self.bodies.insert(instance, Body { start, ..Body::default() });
        self.record.starts.push(StartRecord {
            at_seconds: now.0.as_secs_f64(),
            instance: instance.0,
            plug_seconds: 0.0,
            spawn_seconds: 0.0,
            init_seconds: 0.0,
            error: None,
        });
    }

    /// Takes note of a task's end.
    fn done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let now = self.now();
        match done {
            Ok(Done::Plugged { instance, at, slot, tried }) => {
                let error = tried.error.as_ref().map(ToString::to_string);
                if let Some(body) = self.bodies.get_mut(&instance) {
                    body.slot = slot;
                    let start = &mut self.record.starts[body.start];
                    start.plug_seconds = now.since(at).as_secs_f64();
                    start.error = error;
                }
                self.resized(Direction::Plug, instance, at, tried);
                self.event(match slot {
                    Some(_) => Event::Plugged(instance),
                    None => Event::PlugFailed(instance),
                });
            }
            Ok(Done::Started { instance, result }) => self.started(now, instance, result),
            Ok(Done::Answered { instance, request, outcome, healthy }) => {
                self.close(request, outcome);
                self.event(if healthy {
                    Event::Answered(instance)
                } else {
                    Event::Broken(instance)
                });
            }
            Ok(Done::Ended { instance, reason }) => {
                // Most were stopped; those have no body any more, or are being stopped.
                if let Some(reason) = reason.filter(|reason| *reason != ExitReason::Stopped) {
                    self.view.note(&format!("instance {instance} {reason}"));
                    self.event(Event::Died(instance));
                }
            }
            Ok(Done::Stopped { instance, result }) => {
                if let Err(error) = result {
                    self.view.note(&format!("instance {instance} cannot be stopped: {error}"));
                }
                self.event(Event::Stopped(instance));
            }
            Ok(Done::Reclaimed { instance, at, again, tried }) => {
                let event = match tried.error {
                    None => Event::Reclaimed(instance),
                    Some(_) => Event::ReclaimFailed(instance),
                };
                if !again {
                    self.resized(Direction::Reclaim, instance, at, tried);
                }
                self.event(event);
            }
            Ok(Done::Sampled(memory)) => {
                self.sampling = false;
                if let Ok(memory) = memory {
                    self.sampled(now, &memory);
                }
            }
            // A task that panics has said so itself.
            Err(error) => self.view.note(&format!("internal error: {error}")),
        }
    }

    fn started(
        &mut self,
        now: Moment,
        instance: InstanceNumber,
        result: Result<StartTimes, String>,
    ) {
        let Some(body) = self.bodies.get_mut(&instance) else { return };
        let start = &mut self.record.starts[body.start];
        match result {
            Ok(times) => {
                body.ready = Some(now);
                start.spawn_seconds = times.spawn.as_secs_f64();
                start.init_seconds = times.init.as_secs_f64();
                let machine = self.machine.clone();
                self.tasks.spawn(async move {
                    Done::Ended { instance, reason: machine.ended(&machine.id(instance)).await }
                });
                self.event(Event::Started(instance));
            }
            Err(error) => {
                self.view.note(&format!("instance {instance} cannot be started: {error}"));
                start.error = Some(error);
                self.event(Event::StartFailed(instance));
            }
        }
    }

    fn resized(
        &mut self,
        direction: Direction,
        instance: InstanceNumber,
        at: Moment,
        tried: Tried,
    ) {
        let Tried { latency, resident_drop_bytes, error } = tried;
        if latency.is_none() && error.is_none() {
            return;
        }
        let resize = ResizeRecord {
            at_seconds: at.0.as_secs_f64(),
            direction,
            instance: instance.0,
            size_bytes: self.machine.instance_bytes,
            latency_ns: latency.unwrap_or_default().as_nanos().try_into().unwrap_or(u64::MAX),
            resident_drop_bytes,
            error: error.map(|error| error.to_string()),
        };
        self.view.resize(&resize);
        self.record.resizes.push(resize);
    }

    /// A request has its answer, or will never get one.
    fn close(&mut self, request: RequestNumber, outcome: Outcome) {
        let now = self.now();
        let Some(open) = self.open.remove(&request) else { return };
        let record = RequestRecord {
            at_seconds: open.came.0.as_secs_f64(),
            latency_seconds: now.since(open.came).as_secs_f64(),
            wait_seconds: open.taken.unwrap_or(now).since(open.came).as_secs_f64(),
            cold: open.cold,
            outcome,
        };
        self.view.request(&record);
        self.record.requests.push(record);
    }

    /// Looks at the memory, unless that is still under way from the last time.
    fn sample(&mut self) {
        if !std::mem::replace(&mut self.sampling, true) {
            let machine = self.machine.clone();
            self.tasks.spawn(async move { Done::Sampled(machine.vm.memory().await) });
        }
    }

    fn sampled(&mut self, now: Moment, memory: &MemoryUse) {
        let counts = self.scaler.counts(FUNCTION);
        let sample = Sample {
            at_seconds: now.0.as_secs_f64(),
            starting: counts.starting,
            idle: counts.idle,
            busy: counts.busy,
            stopping: counts.stopping,
            reclaiming: counts.reclaiming,
            stranded: counts.stranded,
            queued: counts.queued,
            asked_bytes: memory.asked_bytes,
            plugged_bytes: memory.plugged_bytes,
            resident_bytes: memory.resident.resident_bytes,
        };
        self.view.sample(&sample);
        self.record.samples.push(sample);
    }

    /// Ends the VM, and accounts for every request that came.
    async fn finish(mut self) -> MethodRecord {
        let reason = self.record.ended_early.clone().unwrap_or_else(|| "the run ended".to_owned());
        for request in self.open.keys().copied().collect::<Vec<_>>() {
            self.close(request, Outcome::Failed(reason.clone()));
        }
        self.record.length_seconds = self.begin.elapsed().as_secs_f64();
        self.tasks.shutdown().await;
        match Arc::try_unwrap(self.machine) {
            Ok(machine) => {
                if let Err(error) = machine.vm.stop().await {
                    self.view.note(&error.to_string());
                }
            }
            // The last one to let go of it kills the VM.
            Err(machine) => drop(machine),
        }
        self.record
    }
}

async fn at(instant: Option<Instant>) {
    if let Some(instant) = instant {
        sleep_until(instant).await;
    }
}
