//! Functions on one node, called according to a load: the rig of every experiment with a node.

mod functions;
mod memory_backends;
mod options;
mod plan;
mod policies;
mod replay;
mod trial;
mod watch;

pub(crate) use functions::{Functions, Usual};
pub(crate) use memory_backends::{memory_backends, method};
pub(crate) use options::NodeRigOptions;
pub(crate) use plan::NodeRigPlan;
pub(crate) use policies::Policies;
pub(crate) use replay::{Replayed, replay};
pub(crate) use trial::{Trial, trials};
pub(crate) use watch::Seen;

use super::load::Arrival;
use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::{Guest, Recorded},
};
use squeezy_node::{Call, CallError, FunctionImage, FunctionLimits, MachineDetails, Node, VmPlan};
use squeezy_openwhisk::contract;
use squeezy_protocol::PartitionState;
use squeezy_scaler::{Budget, Counts, FunctionIndex, TenantIndex};
use squeezy_vmm::MemoryUse;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use watch::Watch;

/// How long instances and VMs may take to end after the load.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);
/// Interval of checks whether all instances are gone.
const QUIET_PAUSE: Duration = Duration::from_millis(50);
/// How long an instance is idle before it is frozen, for policies where that matters to others.
const FREEZE_AFTER: Duration = Duration::from_millis(500);
/// How many calls of one function may wait.
const QUEUE: usize = 10_000;

/// Shared memory of each VM, for the page cache and the like.
const SHARED_BYTES: u64 = 128 << 20;

/// The result of a call.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) arrival: Arrival,
    /// From the call to its response.
    pub(crate) latency: Duration,
    /// The part of it before an instance took the call.
    pub(crate) waited: Duration,
    /// How long `/init` took, if an instance was started for the call.
    pub(crate) cold: Option<Duration>,
    /// What is wrong with the response, or why there is none.
    pub(crate) problem: Option<String>,
}

/// The state of the whole rig at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Time since the load began.
    pub(crate) at: Duration,
    /// Memory committed to VMs and instances.
    pub(crate) committed_bytes: u64,
    /// Memory of all VMs together.
    pub(crate) memory: MemoryUse,
    /// Instances, by function.
    pub(crate) counts: Vec<Counts>,
}

/// Functions on a node.
pub(crate) struct NodeRig {
    node: Node,
    begin: Instant,
    members: Vec<(FunctionIndex, FunctionImage)>,
    watch: Arc<Watch>,
}

impl NodeRig {
    /// A node with these functions; no VM is booted yet.
    pub(crate) async fn start<F: Recorded>(
        session: &Session<F>,
        functions: &[FunctionImage],
        plan: &NodeRigPlan,
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
            let mut vm = VmPlan::new(name, images, &session.files, plan.policy, SHARED_BYTES);
            let options = &session.options;
            vm.accelerator = options.accelerator;
            vm.memory_backend = options.memory_backend.into();
            vm.vcpus = options.vcpus;
            let vm = node.add_vm(vm, None).await.map_err(node_error)?;
            for image in images {
                let keep_alive = plan.keep_alive;
                let queue = QUEUE;
                let limits =
                    FunctionLimits { keep_alive, freeze_after, queue, minimum_instances: 0 };
                let contract = plan.contract.clone();
                let index = node
                    .add_function(vm, TenantIndex::FIRST, image.clone(), contract, limits)
                    .await;
                members.push((index.map_err(node_error)?, image.clone()));
            }
        }
        Ok(Self { node, begin, members, watch })
    }

    /// Calls each function once and ends its instance, so that its VM is running and its files are
    /// in the page cache.
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

    /// Ends all idle instances, and waits until they and their memory are gone.
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

    /// Calls a function until this many of its instances are idle.
    pub(crate) async fn have(&self, member: usize, instances: u16) -> Result {
        loop {
            let sample = self.sample(Instant::now()).await?;
            let counts = sample.counts.get(member).copied().unwrap_or_default();
            if counts.idle >= usize::from(instances) {
                return Ok(());
            }
            if counts.starting + counts.idle < usize::from(instances) {
                // One instance may take several of the calls while others are still starting.
                self.call_at_once(member, instances).await?;
            } else {
                tokio::time::sleep(QUIET_PAUSE).await;
            }
        }
    }

    /// Calls a function `count` times at once, and waits for all responses.
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

    /// The state of the rig; `load` is when the load began.
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

    /// How much of their partitions instances use, all together, as their guests see it, in bytes.
    pub(crate) async fn used_bytes(&self) -> Result<u64> {
        let mut used_bytes = 0;
        for (_, partitions) in self.node.partitions().await.ok_or_else(ended)? {
            let silent = || BenchError::function("its VM does not say what it uses".to_owned());
            let partitions = partitions.ok_or_else(silent)?;
            let assigned = partitions.iter().filter(|it| it.state == PartitionState::Assigned);
            used_bytes +=
                assigned.map(|it| it.managed_bytes.saturating_sub(it.free_bytes)).sum::<u64>();
        }
        Ok(used_bytes)
    }

    /// The guests' kernel and the VMM, once one has run.
    pub(crate) fn guest(&self) -> Option<Guest> {
        self.details().as_ref().map(trial::guest)
    }

    /// What runs the guests, once one has run.
    pub(crate) fn details(&self) -> Option<MachineDetails> {
        self.watch.lock().details.clone()
    }

    /// Problems so far, for notes.
    pub(crate) fn trouble(&self) -> Vec<String> {
        self.watch.lock().trouble.clone()
    }

    /// Everything that was observed.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.watch.lock().seen.iter().map(|(_, seen)| seen.clone()).collect()
    }

    /// Shuts the node down.
    pub(crate) async fn stop(self) {
        if tokio::time::timeout(DRAIN_LIMIT, self.node.drain()).await.is_err() {
            self.node.kill();
        }
    }
}

async fn call(
    node: &Node,
    (index, image): &(FunctionIndex, FunctionImage),
    arrival: Arrival,
) -> Answered {
    let function = &image.function;
    let value = serde_json::to_value(&function.request).unwrap_or_default();
    let id = format!("{:032x}", arrival.at.as_nanos());
    let start = Instant::now();
    let answer =
        node.call(*index, Call { id, value, logs: false, trace: None, sent_on: false }).await;
    let latency = start.elapsed();
    let (waited, cold, problem) = match answer {
        Ok(answer) => (answer.waited, answer.cold, contract::problem(function, &answer.response)),
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
