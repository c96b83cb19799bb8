//! The node and its handle.

mod actor;
mod calls;
mod condemn;
mod instances;
mod message;
mod prewarm;
mod rest;
mod starving;
mod table;
#[cfg(test)]
mod tests;
mod vms;
mod watch;

use crate::{Answer, Blueprint, Call, CallError, Contract, FunctionImage, Observer, VmPlan};
use actor::Actor;
use message::{Message, PartitionsOfVms};
pub use prewarm::Prewarmed;
use squeezy_scaler::{
    Budget, Counts, FunctionIndex, PolicyError, SqueezePolicy, TenantCounts, TenantIndex,
    TenantPolicy, VmIndex, VmPolicy, VmState,
};
use squeezy_vmm::{MemoryUse, VmError, network::NetworkCounts};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};

/// Limits of a function's instances and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionLimits {
    /// How long an idle instance is kept.
    pub keep_alive: Duration,
    /// How long an instance is idle before it is frozen; never frozen if absent.
    pub freeze_after: Option<Duration>,
    /// How many calls may wait for an instance.
    pub queue: usize,
    /// How many instances are kept up, whether or not the function is called, while calls leave memory for them.
    pub minimum_instances: u32,
}

/// Why something cannot be added to a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its policy would not let any call be answered.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// The VM's configuration is not valid.
    #[error("{0}")]
    Vm(#[from] VmError),
    /// The VM does not have the function's image.
    #[error("{}: the VM was not made with this image", .0.display())]
    NoImage(PathBuf),
    /// The node has ended.
    #[error("the node has ended")]
    Ended,
}

/// The status of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    /// Committed memory, in bytes.
    pub committed_bytes: u64,
    /// All tenants.
    pub tenants: Vec<(TenantIndex, TenantCounts)>,
    /// All functions.
    pub functions: Vec<(FunctionIndex, Counts)>,
    /// The VM of each function's instances.
    pub vm_of: BTreeMap<FunctionIndex, VmIndex>,
    /// All VMs, with the memory of those that run and answer in time.
    pub vms: Vec<(VmIndex, VmState, Option<MemoryUse>)>,
    /// How often the instances of VMs that have a network have tried to reach somebody, in all VMs of this number.
    pub networks: Vec<(VmIndex, NetworkCounts)>,
}

/// A handle to the functions, VMs and instances of one machine. Dropping the last handle ends them all.
#[derive(Clone)]
pub struct Node {
    messages: mpsc::UnboundedSender<Message>,
}

impl Node {
    /// Starts a node without functions, with this memory budget. With a squeeze policy, frozen instances are
    /// measured, charged only for what they hold, and squeezed. Moments count from `begin`.
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

    /// Adds a tenant. There is one from the start, [`TenantIndex::FIRST`].
    pub async fn add_tenant(&self, policy: TenantPolicy) -> Result<TenantIndex, NodeError> {
        let message = |reply| Message::AddTenant { policy, reply };
        Ok(self.ask(message).await.ok_or(NodeError::Ended)??)
    }

    /// Changes what a tenant may have. What it has beyond a quota is given up as soon as it is idle.
    pub async fn update_tenant(
        &self,
        tenant: TenantIndex,
        policy: TenantPolicy,
    ) -> Result<(), NodeError> {
        let message = |reply| Message::UpdateTenant { tenant, policy, reply };
        Ok(self.ask(message).await.ok_or(NodeError::Ended)??)
    }

    /// Removes a tenant, which gets no more functions. It goes with the last of those that it has.
    pub fn remove_tenant(&self, tenant: TenantIndex) {
        let _ = self.messages.send(Message::RemoveTenant(tenant));
    }

    /// Adds a VM, which is booted on demand and kept for `idle_time` without an instance; for ever if that is
    /// absent.
    pub async fn add_vm(
        &self,
        plan: VmPlan,
        idle_time: Option<Duration>,
    ) -> Result<VmIndex, NodeError> {
        plan.check()?;
        let policy = plan.vm_policy(idle_time)?;
        self.add_machine(Arc::new(plan), policy).await
    }

    /// Adds a VM, or what stands in for one, which is made from `blueprint` on demand.
    pub async fn add_machine(
        &self,
        blueprint: Arc<dyn Blueprint>,
        policy: VmPolicy,
    ) -> Result<VmIndex, NodeError> {
        let message = |reply| Message::AddVm { blueprint, policy, reply };
        Ok(self.ask(message).await.ok_or(NodeError::Ended)??)
    }

    /// Adds a function of `tenant`. Its instances run in `vm`, which must have its image and no function of another
    /// tenant, and their servers follow `contract`.
    pub async fn add_function(
        &self,
        vm: VmIndex,
        tenant: TenantIndex,
        function: FunctionImage,
        contract: Arc<dyn Contract>,
        limits: FunctionLimits,
    ) -> Result<FunctionIndex, NodeError> {
        let function = Box::new(function);
        let message =
            |reply| Message::AddFunction { vm, tenant, function, contract, limits, reply };
        self.ask(message).await.ok_or(NodeError::Ended)?
    }

    /// Changes a function's limits.
    pub async fn update_function(
        &self,
        function: FunctionIndex,
        limits: FunctionLimits,
    ) -> Result<(), NodeError> {
        let message = |reply| Message::UpdateFunction { function, limits, reply };
        Ok(self.ask(message).await.ok_or(NodeError::Ended)??)
    }

    /// Has an instance of `function` started ahead of its calls, to take the place of those of `relieves`, which serve
    /// until then; `None` if it has none. Otherwise, returns a future that resolves once the instance is up, or `relieves`
    /// has none left. The instance gets memory as for a call, and may take as long; but if there is not enough for it
    /// beside what runs, even without everything idle, it is refused, and nothing is ended for it.
    pub async fn prewarm(
        &self,
        function: FunctionIndex,
        relieves: FunctionIndex,
    ) -> Option<impl Future<Output = Result<Prewarmed, CallError>> + use<>> {
        let message = |reply| Message::Prewarm { function, relieves, reply };
        let ended = self.ask(message).await??;
        Some(async { ended.await.unwrap_or(Err(CallError::Ended)) })
    }

    /// Changes how long VMs without an instance are kept, for all VMs that there are; for ever if absent.
    pub fn keep_empty_vms(&self, idle_time: Option<Duration>) {
        let _ = self.messages.send(Message::KeepEmptyVms(idle_time));
    }

    /// Removes a function: waiting calls are rejected, running ones are answered.
    pub fn remove_function(&self, function: FunctionIndex) {
        let _ = self.messages.send(Message::RemoveFunction(function));
    }

    /// Has the calls that a tenant's instances have fail with [`InstanceError::Removed`](crate::InstanceError), and these
    /// instances end. Also those of functions that have been removed.
    pub fn end_calls(&self, tenant: TenantIndex) {
        let _ = self.messages.send(Message::EndCalls(tenant));
    }

    /// Calls a function.
    pub async fn call(&self, function: FunctionIndex, call: Call) -> Result<Answer, CallError> {
        self.submit(function, call).await?.await
    }

    /// Submits a call of a function. Unless it is rejected at once, returns a future of its result.
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

    /// The node's status; `None` if the node has ended.
    pub async fn status(&self) -> Option<NodeStatus> {
        self.ask(Message::Status).await
    }

    /// The partitions of each running VM, as its guest sees them; absent for a guest that does not answer in
    /// time. `None` if the node has ended.
    pub async fn partitions(&self) -> Option<PartitionsOfVms> {
        self.ask(Message::Partitions).await
    }

    /// Stops taking calls, and returns once every instance and VM has ended.
    pub async fn drain(&self) {
        let _ = self.messages.send(Message::Drain);
        self.messages.closed().await;
    }

    /// Ends the node at once: VMs are killed, and calls fail with [`CallError::Ended`].
    pub fn kill(&self) {
        let _ = self.messages.send(Message::Kill);
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(message(reply)).ok()?;
        answer.await.ok()
    }
}
