//! The node at work, and its handle.

mod actor;

use crate::{FunctionImage, Observer, VmPlan};
use actor::{Actor, Ask};
use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde_json::Value;
use squeezy_protocol::Partition;
use squeezy_runtime::{
    Budget, Counts, FunctionIndex, PolicyError, RejectReason, SqueezePolicy, VmIndex, VmState,
    WaitingFor,
};
use squeezy_vmm::{MemoryUse, VmError};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};

/// What the calls of a function are limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionLimits {
    /// How long an instance without a call is kept.
    pub keep_alive: Duration,
    /// How long it may run without one before it is frozen; for ever when absent.
    pub freeze_after: Option<Duration>,
    /// Calls that may wait for an instance.
    pub queue: usize,
}

/// A call of a function.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name; nobody else's.
    pub activation: String,
    /// What the function is given.
    pub value: Value,
    /// Whether what the instance writes meanwhile is wanted.
    pub logs: bool,
}

/// What a call waited for until an instance took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitedFor {
    /// An instance was idle, and ran.
    Nothing,
    /// An instance was there, but frozen, or its VM paused.
    Thaw,
    /// All instances were at work, and one of them took it when it was done.
    Busy,
    /// The instance that took it was started meanwhile.
    Start,
    /// So was its VM.
    Boot,
}

impl WaitedFor {
    /// Every one, from the shortest to the longest.
    pub const ALL: [Self; 5] = [Self::Nothing, Self::Thaw, Self::Busy, Self::Start, Self::Boot];

    /// Its name, as it is exported.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Thaw => "thaw",
            Self::Busy => "busy",
            Self::Start => "start",
            Self::Boot => "boot",
        }
    }
}

/// What came of a call.
#[derive(Debug)]
pub struct Answer {
    /// What the instance answered.
    pub response: Response<Bytes>,
    /// How long the call waited for an instance.
    pub waited: Duration,
    /// What for.
    pub waited_for: WaitedFor,
    /// How long the instance took for it.
    pub took: Duration,
    /// Whether the instance was started while it waited; how long its `/init` took.
    pub cold: Option<Duration>,
    /// What the instance has written meanwhile, line by line, if it was wanted.
    pub logs: Vec<String>,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nobody takes it.
    #[error("{}", reason(*.0))]
    Rejected(RejectReason),
    /// Somebody has taken it and failed.
    #[error("{reason}")]
    Failed {
        /// Why.
        reason: String,
        /// How long it had waited for an instance.
        waited: Duration,
        /// What for.
        waited_for: WaitedFor,
        /// How long that instance had it.
        took: Duration,
        /// Whether that instance was started meanwhile.
        cold: bool,
        /// Whether its VM has ended, which is not the function's doing.
        vm_ended: bool,
        /// What the instance has written meanwhile, line by line, if it was wanted.
        logs: Vec<String>,
    },
    /// The node has ended.
    #[error("the node has ended")]
    Ended,
}

fn reason(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::QueueFull => "too many calls of this function wait",
        RejectReason::WaitedTooLong(WaitingFor::Vm) => {
            "no instance took it in time: the VM was still booted or ended"
        }
        RejectReason::WaitedTooLong(WaitingFor::Start) => {
            "no instance took it in time: one was still being started"
        }
        RejectReason::WaitedTooLong(WaitingFor::Busy) => {
            "no instance took it in time: all of its function worked on other calls"
        }
        RejectReason::WaitedTooLong(WaitingFor::Memory) => {
            "no instance took it in time: other functions had the memory or the room for one"
        }
        RejectReason::StartFailed => "the instance for it could not be started",
        RejectReason::VmFailed => "the VM for it could not be booted, or has ended",
        RejectReason::Retired => "the function is not there any more",
        RejectReason::Draining => "everything ends",
    }
}

/// Why something cannot be added to a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// No call could ever be answered.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// The VM makes no sense.
    #[error("{0}")]
    Vm(#[from] VmError),
    /// The VM does not have the function's image.
    #[error("{}: the VM is not made with this image", .0.display())]
    NoImage(PathBuf),
    /// The node has ended.
    #[error("the node has ended")]
    Ended,
}

/// How things stand.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    /// The memory that is promised, in bytes.
    pub committed_bytes: u64,
    /// The functions there are.
    pub functions: Vec<(FunctionIndex, Counts)>,
    /// The VM that the instances of each function run in.
    pub vm_of: BTreeMap<FunctionIndex, VmIndex>,
    /// The VMs there are; their memory while they run and say it in time.
    pub vms: Vec<(VmIndex, VmState, Option<MemoryUse>)>,
}

/// Functions, their VMs and instances on one machine. Dropping the last handle ends them all.
#[derive(Clone)]
pub struct Node {
    asks: mpsc::UnboundedSender<Ask>,
}

impl Node {
    /// A node without functions, whose memory may be as much as the budget says. With a policy for it,
    /// frozen instances are measured and squeezed, and have no more of the memory than they hold.
    /// Moments count from `begin` on.
    pub fn start(
        budget: Budget,
        squeezing: Option<SqueezePolicy>,
        begin: Instant,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let (asks, receiver) = mpsc::unbounded_channel();
        tokio::spawn(Actor::new(budget, squeezing, begin, observer).run(receiver));
        Self { asks }
    }

    /// Adds a VM that is booted when it is needed, and kept for so long without an instance; for
    /// ever when that is absent.
    pub async fn add_vm(
        &self,
        plan: VmPlan,
        idle_time: Option<Duration>,
    ) -> Result<VmIndex, NodeError> {
        plan.check()?;
        let policy = plan.vm_policy(idle_time)?;
        Ok(self.ask(|reply| Ask::AddVm { plan, policy, reply }).await.ok_or(NodeError::Ended)??)
    }

    /// Adds a function, whose instances run in that VM; its image is one of the VM's.
    pub async fn add_function(
        &self,
        vm: VmIndex,
        function: FunctionImage,
        limits: FunctionLimits,
    ) -> Result<FunctionIndex, NodeError> {
        let function = Box::new(function);
        let ask = |reply| Ask::AddFunction { vm, function, limits, reply };
        self.ask(ask).await.ok_or(NodeError::Ended)?
    }

    /// Changes what a function's calls are limited to.
    pub async fn update_function(
        &self,
        function: FunctionIndex,
        limits: FunctionLimits,
    ) -> Result<(), NodeError> {
        let ask = |reply| Ask::UpdateFunction { function, limits, reply };
        Ok(self.ask(ask).await.ok_or(NodeError::Ended)??)
    }

    /// Removes a function: waiting calls are rejected, others answered.
    pub fn remove_function(&self, function: FunctionIndex) {
        let _ = self.asks.send(Ask::RemoveFunction(function));
    }

    /// Calls a function.
    pub async fn call(&self, function: FunctionIndex, call: Call) -> Result<Answer, CallError> {
        self.submit(function, call).await?.await
    }

    /// Hands in a call of a function. When it is not turned away at once, what this returns waits
    /// for what comes of it.
    pub async fn submit(
        &self,
        function: FunctionIndex,
        call: Call,
    ) -> Result<impl Future<Output = Result<Answer, CallError>> + use<>, CallError> {
        let ask = |reply| Ask::Call { function, call, reply };
        let answer = self.ask(ask).await.unwrap_or(Err(CallError::Ended))?;
        Ok(async { answer.await.unwrap_or(Err(CallError::Ended)) })
    }

    /// Ends all idle instances now.
    pub fn evict_idle(&self) {
        let _ = self.asks.send(Ask::EvictIdle);
    }

    /// How things stand; nothing when the node has ended.
    pub async fn status(&self) -> Option<NodeStatus> {
        self.ask(Ask::Status).await
    }

    /// The partitions of each VM that runs, as its guest sees them; nothing of a guest that does not
    /// answer in time. None at all when the node has ended.
    pub async fn partitions(&self) -> Option<Vec<(VmIndex, Option<Vec<Partition>>)>> {
        self.ask(Ask::Partitions).await
    }

    /// Takes no more calls, and returns when every instance and VM has ended.
    pub async fn drain(&self) {
        let _ = self.asks.send(Ask::Drain);
        self.asks.closed().await;
    }

    /// Ends at once: VMs are killed, and calls get [`CallError::Ended`].
    pub fn kill(&self) {
        let _ = self.asks.send(Ask::Kill);
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(ask(reply)).ok()?;
        answer.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Happening, plan::tests::plan};
    use squeezy_runtime::Moment;

    struct Nobody;

    impl Observer for Nobody {
        fn observe(&self, _: Moment, _: Happening<'_>) {}
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_function_that_was_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (function, plan) = plan(&directory, "f");
        let node = Node::start(Budget::new(u64::MAX), None, Instant::now(), Arc::new(Nobody));
        let vm = node.add_vm(plan, None).await.unwrap();
        let limits = FunctionLimits { keep_alive: Duration::ZERO, freeze_after: None, queue: 1 };
        let index = node.add_function(vm, function, limits).await.unwrap();
        let status = node.status().await.unwrap();
        assert_eq!((status.functions.len(), status.vms.len()), (1, 1));
        assert_eq!(status.vm_of[&index], vm);
        assert!(node.partitions().await.unwrap().is_empty(), "no VM runs");
        node.remove_function(index);
        let status = node.status().await.unwrap();
        assert_eq!((status.functions.len(), status.vms.len()), (0, 0));
        let gone = node.update_function(index, limits).await.unwrap_err().to_string();
        assert_eq!(gone, "there is no function 0");
    }
}
