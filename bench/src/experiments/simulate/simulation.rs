//! A discrete-event simulation of a host and its functions: the node's scaler decides, and each
//! step takes the time that was measured.

use super::{costs::Costs, workload::Workload};
use crate::error::{BenchError, Result};
use squeezy_load::Random;
use squeezy_scaler::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, Moment, RequestNumber,
    Scaler, SqueezePolicy, StopReason, TenantIndex, VmIndex, VmPolicy, VmState,
};
use squeezy_vmm::MemoryBackend;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
    num::NonZeroU16,
    time::Duration,
};

/// Time to end a VM.
const END: Duration = Duration::from_millis(500);

/// Time to freeze an instance, including counting its memory.
const FREEZE: Duration = Duration::from_millis(10);

/// Time that an agent takes if it finds no garbage.
const SQUEEZE: Duration = Duration::from_millis(50);

/// Time to stop a VM's processors, including counting its memory.
const PAUSE: Duration = Duration::from_millis(20);

/// Time to take the memory of an instance of a paused VM.
const CONDEMN: Duration = Duration::from_millis(1);

/// What a paused VM holds besides its instances, and what each instance leaves behind in addition
/// to the memory map of its partition. For `html` on Linux 6.12: 100 MiB after one instance of 768
/// MiB, 128 after three.
const PAUSED_BYTES: u64 = 86 << 20;
/// How much less that is where the host takes what is free, as recorded in bench/results/backend.
const TAKEN_BYTES: u64 = 22 << 20;
const TRACE_BYTES: u64 = 2 << 20;

/// Number of events between checks for an interrupt.
const EVENTS_AT_A_TIME: u64 = 1000;

/// The results of a workload.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Seconds from each answered call to its answer.
    pub(super) latencies: Vec<f64>,
    /// The part of them before an instance took the call.
    pub(super) waits: Vec<f64>,
    pub(super) rejected: u64,
    /// Instances started.
    pub(super) started: u64,
    /// Instances ended to make room, by themselves or with their VM.
    pub(super) evicted: u64,
    /// Those of them whose memory was taken while their VM was paused.
    pub(super) condemned: u64,
    pub(super) booted: u64,
    /// VMs ended to make room.
    pub(super) evicted_vms: u64,
    pub(super) byte_seconds: f64,
    /// The part taken by VMs themselves, without instances.
    pub(super) base_byte_seconds: f64,
    pub(super) peak_bytes: u64,
    /// Peak number of instances of each application.
    pub(super) peak_instances: Vec<u16>,
    /// Number of the scaler's commands and events.
    pub(super) events: u64,
    /// Instances started and ended, by member.
    pub(super) turnover: HashMap<u32, u64>,
}

/// Settings of a simulation.
pub(super) struct Rules {
    pub(super) budget: Budget,
    /// When frozen instances are squeezed; `None` if they are not charged by what they hold.
    pub(super) squeezing: Option<SqueezePolicy>,
    pub(super) freeze_after: Duration,
    pub(super) keep_alive: Duration,
    pub(super) queue: usize,
    pub(super) vm_idle: Duration,
    pub(super) memory_backend: MemoryBackend,
}

/// Plays a workload.
pub(super) async fn play(
    workload: &Workload,
    rules: &Rules,
    costs: &Costs,
    seed: u64,
    policy_of: impl Fn(usize, u64) -> Result<VmPolicy>,
) -> Result<Outcome> {
    let mut scaler = Scaler::new(rules.budget);
    if let Some(squeezing) = rules.squeezing {
        scaler = scaler.with_squeezing(squeezing);
    }
    let refused = |error: squeezy_scaler::PolicyError| BenchError::Arguments(error.to_string());
    let (mut vms, mut places) = (Vec::new(), Vec::new());
    for (app, bytes) in workload.apps() {
        let idle_time = Some(rules.vm_idle);
        // Processors are not simulated: concurrent starts take as long as a single one.
        let policy = VmPolicy { max_starting: u32::MAX, idle_time, ..policy_of(app, bytes)? };
        let vm = scaler.add_vm(policy).map_err(refused)?;
        places.push(Place::new(&policy, rules.memory_backend));
        vms.push(vm);
    }
    for member in &workload.members {
        let policy = FunctionPolicy {
            vm: vms[member.app],
            max_instances: u32::MAX,
            requests_per_instance: NonZeroU16::MIN,
            min_instances: 0,
            keep_alive: rules.keep_alive,
            freeze_after: Some(rules.freeze_after),
            queue_limit: rules.queue,
            wait_limit: None,
        };
        scaler.add_function(TenantIndex::FIRST, policy).map_err(refused)?;
    }
    let mut simulation = Simulation {
        workload,
        costs,
        scaler,
        random: Random::new(seed),
        coming: BinaryHeap::new(),
        sequence: 0,
        now: Moment::START,
        came: HashMap::new(),
        of: HashMap::new(),
        places,
        can_condemn: rules.memory_backend == MemoryBackend::Memfd,
        bases_bytes: 0,
        outcome: Outcome { peak_instances: vec![0; vms.len()], ..Outcome::default() },
    };
    simulation.play().await?;
    Ok(simulation.outcome)
}

/// A future event, ordered by time, then by when it was decided.
type Coming = Reverse<(Moment, u64, What)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Booted(VmIndex),
    Ended(VmIndex),
    Paused(VmIndex),
    Started(InstanceNumber),
    Answered(InstanceNumber),
    Frozen(InstanceNumber),
    Squeezed(InstanceNumber),
    /// With what it had held, in bytes.
    Condemned(InstanceNumber, u64),
    Stopped(InstanceNumber),
    Reclaimed(InstanceNumber),
}

struct Simulation<'a> {
    workload: &'a Workload,
    costs: &'a Costs,
    scaler: Scaler,
    random: Random,
    coming: BinaryHeap<Coming>,
    sequence: u64,
    now: Moment,
    came: HashMap<RequestNumber, (Moment, u32)>,
    of: HashMap<InstanceNumber, u32>,
    /// The VM of each application, by the application's number.
    places: Vec<Place>,
    /// Whether instances of paused VMs can be condemned.
    can_condemn: bool,
    /// Memory charged for all VMs without their instances.
    bases_bytes: u64,
    outcome: Outcome,
}

/// A VM, or its place.
struct Place {
    base_bytes: u64,
    /// What it holds of that when it is paused and has had no instance.
    paused_bytes: u64,
    /// Memory charged for it without its instances.
    charged_bytes: u64,
    /// What an instance leaves behind in it, mainly the memory map of its partition.
    trace_bytes: u64,
    /// Living instances, and the peak of their number since boot.
    within: BTreeSet<InstanceNumber>,
    most: u64,
}

impl Place {
    fn new(policy: &VmPolicy, memory_backend: MemoryBackend) -> Self {
        Self {
            base_bytes: policy.base_bytes,
            paused_bytes: match memory_backend {
                MemoryBackend::Ram => PAUSED_BYTES,
                MemoryBackend::Memfd => PAUSED_BYTES - TAKEN_BYTES,
            },
            charged_bytes: 0,
            trace_bytes: policy.instance_bytes / 64 + TRACE_BYTES,
            within: BTreeSet::new(),
            most: 0,
        }
    }

    /// What it holds besides its instances when it is paused.
    fn held_bytes(&self) -> u64 {
        (self.paused_bytes + self.most * self.trace_bytes).min(self.base_bytes)
    }
}

impl Simulation<'_> {
    async fn play(&mut self) -> Result {
        let mut arrivals = (0..).zip(&self.workload.arrivals).peekable();
        loop {
            if self.outcome.events.is_multiple_of(EVENTS_AT_A_TIME) {
                tokio::task::yield_now().await;
            }
            let arrival = arrivals.peek().map(|(_, (at, _))| Moment(*at));
            let coming = self.coming.peek().map(|Reverse((at, ..))| *at);
            let tick = self.scaler.next_deadline();
            let Some(next) = [arrival, coming, tick].into_iter().flatten().min() else { break };
            // What remains after the end of the day does not matter.
            if next.0 > self.workload.length && arrival.is_none() && self.came.is_empty() {
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
        let seconds = to.since(self.now).as_secs_f64();
        self.outcome.byte_seconds += committed as f64 * seconds;
        self.outcome.base_byte_seconds += self.bases_bytes as f64 * seconds;
        self.outcome.peak_bytes = self.outcome.peak_bytes.max(committed);
        self.now = to;
    }

    fn happen(&mut self, what: What) -> Result {
        if let What::Ended(vm) = what {
            self.charge(vm, 0);
            self.places[vm.0 as usize].most = 0;
        }
        if let What::Paused(vm) = what
            && self.can_condemn
        {
            for instance in self.places[vm.0 as usize].within.clone() {
                self.tell(Event::Doomed(instance))?;
            }
        }
        self.tell(match what {
            What::Paused(vm) => Event::VmPaused { vm, resident_bytes: self.held_bytes_of_vm(vm) },
            What::Booted(vm) => Event::VmBooted(vm),
            What::Ended(vm) => Event::VmEnded(vm),
            What::Started(instance) => Event::Started(instance),
            What::Answered(instance) => Event::Answered(instance),
            What::Frozen(instance) => {
                Event::Frozen { instance, resident_bytes: self.held_bytes(instance) }
            }
            What::Squeezed(instance) => {
                // No trace says how much is garbage, so everything is assumed to be in use.
                let resident_bytes = self.held_bytes(instance);
                Event::Squeezed { instance, resident_bytes, cpu: SQUEEZE }
            }
            What::Condemned(instance, freed_bytes) => Event::Condemned { instance, freed_bytes },
            What::Stopped(instance) => Event::Stopped(instance),
            What::Reclaimed(instance) => Event::Reclaimed(instance),
        })?;
        if let What::Paused(vm) = what
            && let Some(VmState::Paused { .. }) = self.scaler.vm_state(vm)
        {
            self.charge(vm, self.places[vm.0 as usize].held_bytes());
        }
        Ok(())
    }

    fn charge(&mut self, vm: VmIndex, bytes: u64) {
        let place = &mut self.places[vm.0 as usize];
        self.bases_bytes = self.bases_bytes - place.charged_bytes + bytes;
        place.charged_bytes = bytes;
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
                self.charge(vm, self.places[vm.0 as usize].base_bytes);
                self.later(boot, What::Booted(vm));
            }
            Command::EndVm { vm, reason } => {
                self.outcome.evicted_vms += u64::from(reason == StopReason::Evicted);
                for instance in self.places[vm.0 as usize].within.clone() {
                    self.end(instance, reason);
                }
                self.later(END, What::Ended(vm));
            }
            Command::PauseVm { vm, .. } => self.later(PAUSE, What::Paused(vm)),
            // No guest asks, and nothing is measured again.
            Command::LendVm { .. } | Command::KillVm { .. } | Command::Prewarmed(_) => {}
            Command::ResumeVm(vm) => self.charge(vm, self.places[vm.0 as usize].base_bytes),
            Command::Start { function, instance, .. } => {
                self.outcome.started += 1;
                self.of.insert(instance, function.0);
                let app = self.workload.members[function.0 as usize].app;
                let Place { within, most, .. } = &mut self.places[app];
                within.insert(instance);
                *most = (within.len() as u64).max(*most);
                let peak = &mut self.outcome.peak_instances[app];
                *peak = u16::try_from(within.len()).unwrap_or(u16::MAX).max(*peak);
                *self.outcome.turnover.entry(function.0).or_default() += 1;
                self.later(start, What::Started(instance));
            }
            Command::Dispatch { instance, request, .. } => {
                let Some((came, member)) = self.came.remove(&request) else { return };
                let unit = self.random.unit();
                let took = self.workload.members[member as usize].duration(unit);
                let waited = self.now.since(came);
                self.outcome.waits.push(waited.as_secs_f64());
                self.outcome.latencies.push((waited + took).as_secs_f64());
                self.later(took, What::Answered(instance));
            }
            Command::Stop { instance, reason } => {
                self.end(instance, reason);
                self.later(stop, What::Stopped(instance));
            }
            Command::Reclaim { instance, .. } => self.later(reclaim, What::Reclaimed(instance)),
            Command::Reject { request, .. } => {
                self.came.remove(&request);
                self.outcome.rejected += 1;
            }
            Command::Freeze(instance) => self.later(FREEZE, What::Frozen(instance)),
            Command::Squeeze(instance) => self.later(SQUEEZE, What::Squeezed(instance)),
            Command::Condemn(instance) => {
                let held_bytes = self.held_bytes(instance);
                self.outcome.condemned += 1;
                self.end(instance, StopReason::Evicted);
                self.later(CONDEMN, What::Condemned(instance, held_bytes));
            }
        }
    }

    /// An instance ends, unless it has been condemned: then it has ended before its VM stops it.
    fn end(&mut self, instance: InstanceNumber, reason: StopReason) {
        if let Some(member) = self.of.remove(&instance) {
            self.outcome.evicted += u64::from(reason == StopReason::Evicted);
            self.places[self.workload.members[member as usize].app].within.remove(&instance);
            *self.outcome.turnover.entry(member).or_default() += 1;
        }
    }

    fn held_bytes_of_vm(&self, vm: VmIndex) -> u64 {
        let place = &self.places[vm.0 as usize];
        let within = place.within.iter().map(|&instance| self.held_bytes(instance));
        place.held_bytes() + within.sum::<u64>()
    }

    fn held_bytes(&self, instance: InstanceNumber) -> u64 {
        let member = self.of.get(&instance).map(|&member| &self.workload.members[member as usize]);
        member.map_or(0, |member| member.held_bytes)
    }

    fn later(&mut self, after: Duration, what: What) {
        self.sequence += 1;
        self.coming.push(Reverse((self.now + after, self.sequence, what)));
    }
}
