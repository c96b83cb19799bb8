//! The node at work, and its handle.

mod actor;
mod calls;
mod instances;
mod message;
mod rest;
mod table;
#[cfg(test)]
mod tests;
mod vms;

use crate::{Answer, Blueprint, Call, CallError, Contract, FunctionImage, Observer, VmPlan};
use actor::Actor;
use message::{Message, PartitionsOfVms};
use squeezy_scaler::{
    Budget, Counts, FunctionIndex, PolicyError, SqueezePolicy, VmIndex, VmPolicy, VmState,
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
    messages: mpsc::UnboundedSender<Message>,
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
        let (messages, receiver) = mpsc::unbounded_channel();
        let actor = Actor::new(budget, squeezing, begin.into(), observer);
        tokio::spawn(actor.run(receiver));
        Self { messages }
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
        self.add_machine(Arc::new(plan), policy).await
    }

    /// Adds a VM, or whatever stands for it, that is made like this when it is needed.
    pub async fn add_machine(
        &self,
        blueprint: Arc<dyn Blueprint>,
        policy: VmPolicy,
    ) -> Result<VmIndex, NodeError> {
        let message = |reply| Message::AddVm { blueprint, policy, reply };
        Ok(self.ask(message).await.ok_or(NodeError::Ended)??)
    }

    /// Adds a function, whose instances run in that VM and whose servers keep to the contract; its image is
    /// one of the VM's.
    pub async fn add_function(
        &self,
        vm: VmIndex,
        function: FunctionImage,
        contract: Arc<dyn Contract>,
        limits: FunctionLimits,
    ) -> Result<FunctionIndex, NodeError> {
        let function = Box::new(function);
        let message = |reply| Message::AddFunction { vm, function, contract, limits, reply };
        self.ask(message).await.ok_or(NodeError::Ended)?
    }

    /// Changes what a function's calls are limited to.
    pub async fn update_function(
        &self,
        function: FunctionIndex,
        limits: FunctionLimits,
    ) -> Result<(), NodeError> {
        let message = |reply| Message::UpdateFunction { function, limits, reply };
        Ok(self.ask(message).await.ok_or(NodeError::Ended)??)
    }

    /// Removes a function: waiting calls are rejected, others answered.
    pub fn remove_function(&self, function: FunctionIndex) {
        let _ = self.messages.send(Message::RemoveFunction(function));
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
        let message = |reply| Message::Call { function, call, reply };
        let answer = self.ask(message).await.unwrap_or(Err(CallError::Ended))?;
        Ok(async { answer.await.unwrap_or(Err(CallError::Ended)) })
    }

    /// Ends all idle instances now.
    pub fn evict_idle(&self) {
        let _ = self.messages.send(Message::EvictIdle);
    }

    /// How things stand; nothing when the node has ended.
    pub async fn status(&self) -> Option<NodeStatus> {
        self.ask(Message::Status).await
    }

    /// The partitions of each VM that runs, as its guest sees them; nothing of a guest that does not
    /// answer in time. None at all when the node has ended.
    pub async fn partitions(&self) -> Option<PartitionsOfVms> {
        self.ask(Message::Partitions).await
    }

    /// Takes no more calls, and returns when every instance and VM has ended.
    pub async fn drain(&self) {
        let _ = self.messages.send(Message::Drain);
        self.messages.closed().await;
    }

    /// Ends at once: VMs are killed, and calls get [`CallError::Ended`].
    pub fn kill(&self) {
        let _ = self.messages.send(Message::Kill);
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(message(reply)).ok()?;
        answer.await.ok()
    }
}
