//! Hosts and functions that exist in time only: the runtime's own scaler decides, and each step takes
//! what it took when it was measured.

use super::{costs::Costs, day::Day};
use crate::common::error::{BenchError, Result};
use squeezy_runtime::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, Moment, RequestNumber,
    Scaler, StopReason, VmIndex, VmPolicy, load::Random,
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Duration,
};

/// How long ending a VM takes.
const END: Duration = Duration::from_millis(500);

/// What a day came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// From each call to its answer, in seconds; of those that were answered.
    pub(super) latencies: Vec<f64>,
    /// Of these, how long before an instance took it.
    pub(super) waits: Vec<f64>,
    pub(super) rejected: u64,
    /// Instances that were started.
    pub(super) started: u64,
    /// Instances that were ended to make room.
    pub(super) evicted: u64,
    pub(super) booted: u64,
    pub(super) byte_seconds: f64,
    pub(super) peak_bytes: u64,
    /// Commands and events of the scaler.
    pub(super) events: u64,
    /// Instances started and ended, by member.
    pub(super) turnover: HashMap<u32, u64>,
}

/// How functions are kept.
pub(super) struct Rules {
    pub(super) budget: Budget,
    pub(super) keep_alive: Duration,
    pub(super) vm_idle: Duration,
}

/// Plays a day.
pub(super) fn play(
    day: &Day,
    rules: &Rules,
    costs: &Costs,
    seed: u64,
    policy_of: impl Fn(u64) -> Result<VmPolicy>,
) -> Result<Outcome> {
    let mut scaler = Scaler::new(rules.budget);
    let refused = |error: squeezy_runtime::PolicyError| BenchError::Arguments(error.to_string());
    let mut vms = Vec::new();
    for bytes in day.apps().into_values() {
        let idle_time = Some(rules.vm_idle);
        // Processors are not simulated: a start takes as long beside others as alone.
        let policy = VmPolicy { max_starting: u32::MAX, idle_time, ..policy_of(bytes)? };
        vms.push(scaler.add_vm(policy).map_err(refused)?);
    }
    for member in &day.members {
        let policy = FunctionPolicy {
            vm: vms[member.app],
            max_instances: u32::MAX,
            keep_alive: rules.keep_alive,
            freeze_after: None,
            queue_limit: usize::MAX,
        };
        scaler.add_function(policy).map_err(refused)?;
    }
    let mut world = World {
        day,
        costs,
        scaler,
        random: Random::new(seed),
        coming: BinaryHeap::new(),
        sequence: 0,
        now: Moment::START,
        came: HashMap::new(),
        of: HashMap::new(),
        outcome: Outcome::default(),
    };
    world.play()?;
    Ok(world.outcome)
}

/// Something to come, in order of time and then of its decision.
type Coming = Reverse<(Moment, u64, What)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Booted(VmIndex),
    Ended(VmIndex),
    Started(InstanceNumber),
    Answered(InstanceNumber),
    Stopped(InstanceNumber),
    Reclaimed(InstanceNumber),
}

struct World<'a> {
    day: &'a Day,
    costs: &'a Costs,
    scaler: Scaler,
    random: Random,
    coming: BinaryHeap<Coming>,
    sequence: u64,
    now: Moment,
    came: HashMap<RequestNumber, (Moment, u32)>,
    of: HashMap<InstanceNumber, u32>,
    outcome: Outcome,
}

impl World<'_> {
    fn play(&mut self) -> Result {
        let mut arrivals = (0..).zip(&self.day.arrivals).peekable();
        loop {
            let arrival = arrivals.peek().map(|(_, (at, _))| Moment(*at));
            let coming = self.coming.peek().map(|Reverse((at, ..))| *at);
            let tick = self.scaler.next_deadline();
            let Some(next) = [arrival, coming, tick].into_iter().flatten().min() else { break };
            // What is left after the day's end concerns nobody.
            if next.0 > self.day.length && arrival.is_none() && self.came.is_empty() {
                break;
            }
            self.pass(next);
            if coming == Some(next) {
                if let Some(Reverse((_, _, what))) = self.coming.pop() {
                    self.happen(what)?;
                }
            } else if arrival == Some(next) {
                if let Some((number, &(_, member))) = arrivals.next() {
                    let request = RequestNumber(number);
                    self.came.insert(request, (self.now, member));
                    let function = FunctionIndex(member);
                    self.tell(Event::Request { function, request })?;
                }
            } else {
                self.tell(Event::Tick)?;
            }
        }
        Ok(())
    }

    fn pass(&mut self, to: Moment) {
        let committed = self.scaler.budget().committed_bytes();
        self.outcome.byte_seconds += committed as f64 * to.since(self.now).as_secs_f64();
        self.outcome.peak_bytes = self.outcome.peak_bytes.max(committed);
        self.now = to;
    }

    fn happen(&mut self, what: What) -> Result {
        self.tell(match what {
            What::Booted(vm) => Event::VmBooted(vm),
            What::Ended(vm) => Event::VmEnded(vm),
            What::Started(instance) => Event::Started(instance),
            What::Answered(instance) => Event::Answered(instance),
            What::Stopped(instance) => Event::Stopped(instance),
            What::Reclaimed(instance) => Event::Reclaimed(instance),
        })
    }

    fn tell(&mut self, event: Event) -> Result {
        let commands = self.scaler.handle(self.now, event);
        let commands = commands.map_err(|e| BenchError::Arguments(format!("a mistake: {e}")))?;
        self.outcome.events += 1;
        commands.into_iter().for_each(|command| self.carry_out(command));
        Ok(())
    }

    fn carry_out(&mut self, command: Command) {
        let Costs { boot, start, stop, reclaim } = *self.costs;
        match command {
            Command::BootVm(vm) => {
                self.outcome.booted += 1;
                self.later(boot, What::Booted(vm));
            }
            Command::EndVm(vm) => self.later(END, What::Ended(vm)),
            Command::Start { function, instance, .. } => {
                self.outcome.started += 1;
                self.of.insert(instance, function.0);
                *self.outcome.turnover.entry(function.0).or_default() += 1;
                self.later(start, What::Started(instance));
            }
            Command::Dispatch { instance, request, .. } => {
                let Some((came, member)) = self.came.remove(&request) else { return };
                let unit = self.random.unit();
                let took = self.day.members[member as usize].duration(unit);
                let waited = self.now.since(came);
                self.outcome.waits.push(waited.as_secs_f64());
                self.outcome.latencies.push((waited + took).as_secs_f64());
                self.later(took, What::Answered(instance));
            }
            Command::Stop { instance, reason } => {
                self.outcome.evicted += u64::from(reason == StopReason::Evicted);
                if let Some(member) = self.of.remove(&instance) {
                    *self.outcome.turnover.entry(member).or_default() += 1;
                }
                self.later(stop, What::Stopped(instance));
            }
            Command::Reclaim { instance, .. } => self.later(reclaim, What::Reclaimed(instance)),
            Command::Reject { request, .. } => {
                self.came.remove(&request);
                self.outcome.rejected += 1;
            }
            // It costs no more than it may take, and gives nothing back.
            Command::Freeze(_) | Command::Squeeze(_) => {}
        }
    }

    fn later(&mut self, after: Duration, what: What) {
        self.sequence += 1;
        self.coming.push(Reverse((self.now + after, self.sequence, what)));
    }
}
