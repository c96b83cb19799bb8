//! What is asked of the guest that an instance runs in.

use bytes::Bytes;
use http::{Request, Response};
use squeezy_protocol::{Instance, InstanceId, InstanceSpec, Squeezed};
use squeezy_vmm::{BoxFuture, Result, Vm, VmError};
use std::{sync::Arc, time::Duration};

/// A guest, as instances in it are handled. The one there is outside of tests is `VmGuest`; what its
/// calls mean is said at [`squeezy_vmm::AgentClient`].
pub trait Guest: Send + Sync {
    /// Starts an instance; returns when its command has been executed.
    fn start<'a>(&'a self, spec: &'a InstanceSpec) -> BoxFuture<'a, Result<Instance>>;
    /// How an instance stands.
    fn instance<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>>;
    /// Waits, for ever if need be, until an instance has ended.
    fn wait<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>>;
    /// Passes a request to an instance's own server, to be answered within `limit`.
    fn http<'a>(
        &'a self,
        id: &'a InstanceId,
        request: Request<Bytes>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Response<Bytes>>>;
    /// An instance's output from its byte `from` on, and the byte after the last.
    fn log_from<'a>(
        &'a self,
        id: &'a InstanceId,
        from: u64,
    ) -> BoxFuture<'a, Result<(String, u64)>>;
    /// Keeps an instance from running until the next request to its server.
    fn freeze<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>>;
    /// Makes a frozen instance give back what it does not use.
    fn squeeze<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Squeezed>>;
    /// Stops an instance, which has `grace` to end by itself.
    fn stop<'a>(&'a self, id: &'a InstanceId, grace: Duration) -> BoxFuture<'a, Result<Instance>>;
    /// Bytes that the host has behind an instance alone, as the guest last described it; nothing where
    /// that is not known.
    fn resident<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Option<u64>>;
    /// Why its VM has ended, if it has.
    fn ended(&self) -> Option<VmError>;
}

/// What of a VM's memory is one instance's alone.
#[derive(Clone, Copy)]
pub(crate) enum Share {
    /// Its partition, where it has one.
    Partition,
    /// All of it.
    Whole,
}

/// The guest of a VM, through its agent.
pub(crate) struct VmGuest {
    pub(crate) vm: Arc<Vm>,
    /// What its instances have of it.
    pub(crate) share: Share,
}

impl Guest for VmGuest {
    fn start<'a>(&'a self, spec: &'a InstanceSpec) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async { self.vm.agent()?.start(spec).await })
    }

    fn instance<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async { self.vm.agent()?.instance(id).await })
    }

    fn wait<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async { self.vm.agent()?.wait(id).await })
    }

    fn http<'a>(
        &'a self,
        id: &'a InstanceId,
        request: Request<Bytes>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Response<Bytes>>> {
        Box::pin(async move { self.vm.agent()?.http(id, request, limit).await })
    }

    fn log_from<'a>(
        &'a self,
        id: &'a InstanceId,
        from: u64,
    ) -> BoxFuture<'a, Result<(String, u64)>> {
        Box::pin(async move { self.vm.agent()?.log_from(id, from).await })
    }

    fn freeze<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async { self.vm.agent()?.freeze(id).await })
    }

    fn squeeze<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Squeezed>> {
        Box::pin(async { self.vm.agent()?.squeeze(id).await })
    }

    fn stop<'a>(&'a self, id: &'a InstanceId, grace: Duration) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async move { self.vm.agent()?.stop(id, grace).await })
    }

    fn resident<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async {
            match self.share {
                Share::Partition => self.vm.partition_resident(instance.partition?).await.ok(),
                Share::Whole => Some(self.vm.memory().await.ok()?.resident.resident_bytes),
            }
        })
    }

    fn ended(&self) -> Option<VmError> {
        self.vm.ended()
    }
}
