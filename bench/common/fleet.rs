//! Functions on one node, called as a load says: what every experiment with the runtime measures with.

use super::{
    cases::Case,
    error::{BenchError, Result},
    lab::Lab,
    record::Record,
};
use squeezy_node::{
    Call, CallError, FunctionImage, FunctionLimits, MachineDetails, Node, NodeEvent, Observer,
    PolicyName, SqueezeReport, StartTimes, VmPlan, openwhisk,
};
use squeezy_runtime::{Budget, Counts, FunctionIndex, Moment, SqueezePolicy};
use squeezy_vmm::MemoryUse;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::MissedTickBehavior};

/// How often memory is looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// How long everything may take to end after the load.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks whether all instances are gone.
const QUIET_PAUSE: Duration = Duration::from_millis(50);
/// How long an instance is idle before it is frozen, where that makes a difference to the others.
const FREEZE_AFTER: Duration = Duration::from_millis(500);
/// Calls of one function that may wait.
const QUEUE: usize = 10_000;

/// What a fleet is started with.
pub(crate) struct FleetPlan {
    /// How instances get their memory.
    pub(crate) policy: PolicyName,
    /// Memory for all VMs and instances together.
    pub(crate) budget_bytes: u64,
    /// When frozen instances are squeezed; nothing where they are left as they are.
    pub(crate) squeezing: Option<SqueezePolicy>,
    /// How long an idle instance is kept.
    pub(crate) keep_alive: Duration,
    /// Whether the functions run in one VM.
    pub(crate) one_vm: bool,
}

impl FleetPlan {
    /// With as much memory as anybody asks for, and each function in VMs of its own.
    pub(crate) fn abundant(policy: PolicyName, keep_alive: Duration) -> Self {
        Self::new(policy, u64::MAX, keep_alive)
    }

    /// With so much memory, and each function in VMs of its own.
    pub(crate) fn new(policy: PolicyName, budget_bytes: u64, keep_alive: Duration) -> Self {
        let squeezing = policy.squeezing(budget_bytes);
        Self { policy, budget_bytes, squeezing, keep_alive, one_vm: false }
    }
}

/// Memory of each VM for what its instances share, such as the page cache.
const SHARED_BYTES: u64 = 128 << 20;

/// One call of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    /// When, from the load's begin on.
    pub(crate) at: Duration,
    /// Of which of the fleet's functions.
    pub(crate) member: usize,
}

/// What came of one.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) arrival: Arrival,
    /// From the call to its answer.
    pub(crate) latency: Duration,
    /// Of that, until an instance took it.
    pub(crate) waited: Duration,
    /// How long `/init` took of the instance that was started for it, if one was.
    pub(crate) cold: Option<Duration>,
    /// What is wrong with the answer, or why there is none.
    pub(crate) problem: Option<String>,
}

/// The whole fleet at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// From the load's begin on.
    pub(crate) at: Duration,
    /// What is promised to VMs and instances.
    pub(crate) committed_bytes: u64,
    /// All VMs together.
    pub(crate) memory: MemoryUse,
    /// By function.
    pub(crate) counts: Vec<Counts>,
}

/// Something that happened to an instance or to its VM.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// A VM takes instances after so long.
    Booted(Duration),
    /// An instance's memory is there, or is not, after so long: what its resize took, as [`Seen::Reclaimed`]
    /// has it, or the boot of a VM of its own. That the guest is asked whether it has what its device has
    /// goes on beside the start, and is part of that.
    Plugged(Duration),
    /// An instance takes calls.
    Started(StartTimes),
    /// The memory of a function's instance was asked back when it was stopped, and came or did not.
    Reclaimed { member: usize, stop: Duration, latency: Option<Duration>, failed: bool },
    /// A frozen instance was squeezed, or could not be.
    Squeezed(std::result::Result<Box<SqueezeReport>, String>),
}

#[derive(Default)]
struct Watch {
    seen: Mutex<Seeing>,
}

#[derive(Default)]
struct Seeing {
    details: Option<MachineDetails>,
    seen: Vec<(Moment, Seen)>,
    trouble: Vec<String>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Seeing> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watch {
    fn observe(&self, at: Moment, event: NodeEvent<'_>) {
        let mut seeing = self.lock();
        let seen = match event {
            NodeEvent::Booted { machine: details, took, .. } => {
                seeing.details.get_or_insert_with(|| details.clone());
                Seen::Booted(took)
            }
            NodeEvent::Plugged { took, outcome, .. } => {
                Seen::Plugged(outcome.latency.unwrap_or(took))
            }
            NodeEvent::Started { result: Ok(times), .. } => Seen::Started(times),
            NodeEvent::Started { instance, result: Err(error), .. } => {
                return seeing.trouble.push(format!("instance {instance}: {error}"));
            }
            NodeEvent::Reclaimed { function: FunctionIndex(member), stop, outcome, .. } => {
                Seen::Reclaimed {
                    stop: stop.unwrap_or_default(),
                    member: member as usize,
                    latency: outcome.latency,
                    failed: outcome.error.is_some(),
                }
            }
            NodeEvent::Squeezed { result, .. } => {
                Seen::Squeezed(result.cloned().map(Box::new).map_err(ToString::to_string))
            }
            NodeEvent::Died { instance, .. } => {
                return seeing.trouble.push(format!("instance {instance} has ended by itself"));
            }
            NodeEvent::Note(note) => return seeing.trouble.push(note.to_owned()),
            _ => return,
        };
        seeing.seen.push((at, seen));
    }
}

/// Functions on a node.
pub(crate) struct Fleet {
    node: Node,
    begin: Instant,
    members: Vec<(FunctionIndex, FunctionImage)>,
    watch: Arc<Watch>,
}

/// What a load came to.
pub(crate) struct Replayed {
    /// What ran the guests.
    pub(crate) details: Option<MachineDetails>,
    pub(crate) answered: Vec<Answered>,
    pub(crate) samples: Vec<Sample>,
    /// What happened, from the load's begin on.
    pub(crate) seen: Vec<(Duration, Seen)>,
}

impl Replayed {
    /// How long each reclaim of a function's instances took that was measured, and whether it failed.
    pub(crate) fn reclaims(&self, function: usize) -> Vec<(Duration, bool)> {
        let reclaim = |(_, seen): &(Duration, Seen)| match *seen {
            Seen::Reclaimed { member, latency, failed, .. } if member == function => {
                Some((latency?, failed))
            }
            _ => None,
        };
        self.seen.iter().filter_map(reclaim).collect()
    }
}

impl Fleet {
    /// A node with these functions, and nothing booted yet.
    pub(crate) async fn start<R: Record>(
        lab: &Lab<R>,
        functions: &[FunctionImage],
        plan: &FleetPlan,
    ) -> Result<Self> {
        let begin = Instant::now();
        let watch = Arc::new(Watch::default());
        let reserve_bytes = plan.policy.reserve_bytes(plan.budget_bytes);
        let freeze_after = plan.squeezing.map(|_| FREEZE_AFTER);
        let budget = Budget::new(plan.budget_bytes).with_reserve(reserve_bytes);
        let node = Node::start(budget, plan.squeezing, begin, watch.clone());
        let mut members = Vec::new();
        let together = if plan.one_vm { functions.len() } else { 1 };
        for images in functions.chunks(together.max(1)) {
            let name = &images[0].function.name;
            let mut vm = VmPlan::new(name, images, &lab.files, plan.policy, SHARED_BYTES);
            lab.configure_plan(&mut vm);
            let vm = node.add_vm(vm, None).await.map_err(node_error)?;
            for image in images {
                let keep_alive = plan.keep_alive;
                let limits = FunctionLimits { keep_alive, freeze_after, queue: QUEUE };
                let contract = Arc::new(openwhisk::OpenWhisk);
                let index = node.add_function(vm, image.clone(), contract, limits).await;
                members.push((index.map_err(node_error)?, image.clone()));
            }
        }
        Ok(Self { node, begin, members, watch })
    }

    /// Calls each function once and ends its instance, so that its VM is there and its files are in
    /// the page cache.
    pub(crate) async fn warm_up(&self) -> Result {
        for member in 0..self.members.len() {
            let answered = self.call(Arrival { at: Duration::ZERO, member }).await;
            if let Some(problem) = answered.problem {
                let name = &self.members[member].1.function.name;
                let reason = format!("the first call of {name}: {problem}");
                return Err(BenchError::function(reason));
            }
        }
        self.evict().await
    }

    /// Ends all idle instances and waits until they and their memory are gone.
    pub(crate) async fn evict(&self) -> Result {
        self.node.evict_idle();
        let deadline = Instant::now() + DRAIN_LIMIT;
        while Instant::now() < deadline {
            let status = self.node.status().await.ok_or_else(ended)?;
            if status.functions.iter().all(|(_, counts)| counts.is_quiet()) {
                return Ok(());
            }
            tokio::time::sleep(QUIET_PAUSE).await;
        }
        Err(BenchError::Arguments("instances did not end in time".to_owned()))
    }

    /// Calls a function until so many of its instances are there and wait for the next call.
    pub(crate) async fn have(&self, member: usize, instances: u16) -> Result {
        loop {
            let sample = self.sample(Instant::now()).await?;
            let counts = sample.counts.get(member).copied().unwrap_or_default();
            if counts.idle >= usize::from(instances) {
                return Ok(());
            }
            if counts.starting + counts.idle < usize::from(instances) {
                // One that is there may take several, while others still start.
                self.call_at_once(member, instances).await?;
            } else {
                tokio::time::sleep(QUIET_PAUSE).await;
            }
        }
    }

    /// Calls a function so many times at once, and waits for all answers.
    async fn call_at_once(&self, member: usize, count: u16) -> Result {
        let arrival = Arrival { at: Duration::ZERO, member };
        let mut calls = JoinSet::new();
        for _ in 0..count {
            let (node, member) = (self.node.clone(), self.members[member].clone());
            calls.spawn(async move { call(&node, &member, arrival).await });
        }
        for answered in calls.join_all().await {
            if let Some(problem) = answered.problem {
                return Err(BenchError::function(problem));
            }
        }
        Ok(())
    }

    /// Ends a function and all its instances.
    pub(crate) fn retire(&self, member: usize) {
        self.node.remove_function(self.members[member].0);
    }

    /// Calls one function.
    pub(crate) async fn call(&self, arrival: Arrival) -> Answered {
        call(&self.node, &self.members[arrival.member], arrival).await
    }

    /// Sends all calls when they are due, waits for their answers and samples meanwhile.
    async fn replay(
        &self,
        arrivals: &[Arrival],
        mut tell: impl FnMut(Duration, usize),
    ) -> Result<Replayed> {
        let load = Instant::now();
        let first_seen = self.watch.lock().seen.len();
        let mut answered = Vec::new();
        let mut samples = Vec::new();
        let mut calls = JoinSet::new();
        let mut next = arrivals.iter().peekable();
        let mut sampler = tokio::time::interval(SAMPLE_INTERVAL);
        sampler.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while next.peek().is_some() || !calls.is_empty() {
            let due = next.peek().map(|arrival| load + arrival.at);
            tokio::select! {
                () = tokio::time::sleep_until(due.unwrap_or(load).into()), if due.is_some() => {
                    let Some(&arrival) = next.next() else { continue };
                    let (node, member) = (self.node.clone(), self.members[arrival.member].clone());
                    calls.spawn(async move { call(&node, &member, arrival).await });
                }
                Some(done) = calls.join_next(), if !calls.is_empty() => {
                    answered.extend(done.ok());
                }
                _ = sampler.tick() => {
                    samples.push(self.sample(load).await?);
                    tell(load.elapsed(), answered.len());
                }
            }
        }
        let offset = load.duration_since(self.begin);
        let seen = self.watch.lock().seen[first_seen..].to_vec();
        let seen = seen.into_iter().map(|(at, seen)| (at.0.saturating_sub(offset), seen)).collect();
        Ok(Replayed { details: self.details(), answered, samples, seen })
    }

    /// How things stand, from `load` on.
    pub(crate) async fn sample(&self, load: Instant) -> Result<Sample> {
        let status = self.node.status().await.ok_or_else(ended)?;
        let mut memory = MemoryUse::default();
        for (_, _, vm) in status.vms {
            memory += vm.unwrap_or_default();
        }
        Ok(Sample {
            at: load.elapsed(),
            committed_bytes: status.committed_bytes,
            memory,
            counts: status.functions.into_iter().map(|(_, counts)| counts).collect(),
        })
    }

    /// What runs the guests, once one has run.
    pub(crate) fn details(&self) -> Option<MachineDetails> {
        self.watch.lock().details.clone()
    }

    /// What went wrong until now, for notes.
    pub(crate) fn trouble(&self) -> Vec<String> {
        self.watch.lock().trouble.clone()
    }

    /// Everything that happened.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.watch.lock().seen.iter().map(|(_, seen)| seen.clone()).collect()
    }

    /// Ends everything.
    pub(crate) async fn stop(self) {
        if tokio::time::timeout(DRAIN_LIMIT, self.node.drain()).await.is_err() {
            self.node.kill();
        }
    }
}

/// Starts a fleet for a case, warms it up, replays a load and ends it.
pub(crate) async fn replay<R: Record>(
    lab: &Lab<R>,
    case: &Case<'_>,
    plan: &FleetPlan,
    arrivals: &[Arrival],
) -> Result<Replayed> {
    let fleet = Fleet::start(lab, case.functions, plan).await?;
    fleet.warm_up().await?;
    let calls = arrivals.len();
    let tell = |at: Duration, answered: usize| {
        lab.progress
            .tick(&format!("{case}: {answered} of {calls} answered after {} s", at.as_secs()));
    };
    let replayed = fleet.replay(arrivals, tell).await?;
    for trouble in fleet.trouble() {
        lab.progress.note(&format!("{case}: {trouble}"));
    }
    fleet.stop().await;
    Ok(replayed)
}

async fn call(
    node: &Node,
    (index, image): &(FunctionIndex, FunctionImage),
    arrival: Arrival,
) -> Answered {
    let function = &image.function;
    let value = serde_json::to_value(&function.request).unwrap_or_default();
    let activation = format!("{:032x}", arrival.at.as_nanos());
    let start = Instant::now();
    let answer = node.call(*index, Call { activation, value, logs: false }).await;
    let latency = start.elapsed();
    let (waited, cold, problem) = match answer {
        Ok(answer) => (answer.waited, answer.cold, openwhisk::problem(function, &answer.response)),
        Err(error) => {
            let waited = match &error {
                CallError::Failed { waited, .. } => *waited,
                _ => latency,
            };
            (waited, None, Some(error.to_string()))
        }
    };
    Answered { arrival, latency, waited, cold, problem }
}

fn ended() -> BenchError {
    BenchError::Arguments("the node has ended".to_owned())
}

fn node_error(error: squeezy_node::NodeError) -> BenchError {
    BenchError::Arguments(error.to_string())
}
