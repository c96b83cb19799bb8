//! The interface to the guest in which an instance runs.

use bytes::Bytes;
use http::{Request, Response};
use squeezy_protocol::{Instance, InstanceId, InstanceSpec, PartitionNumber, Squeezed};
use squeezy_vmm::{BoxFuture, Grain, Result, Taken, Vm, VmError};
use std::{sync::Arc, time::Duration};

/// Whether what takes a while is still wanted; asked again and again meanwhile, on another thread.
pub type GoesOn = Box<dyn Fn() -> bool + Send>;

/// Operations on instances in a guest. Outside tests the only one is `VmGuest`; [`squeezy_vmm::AgentClient`]
/// documents its calls.
pub trait Guest: Send + Sync {
    /// Starts an instance; returns once its command has been executed.
    fn start<'a>(&'a self, spec: &'a InstanceSpec) -> BoxFuture<'a, Result<Instance>>;
    /// The state of an instance.
    fn instance<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>>;
    /// Waits, without a limit, until an instance has ended.
    fn wait<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>>;
    /// Passes a request to an instance's own server, to be answered within `limit`.
    fn http<'a>(
        &'a self,
        id: &'a InstanceId,
        request: Request<Bytes>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Response<Bytes>>>;
    /// An instance's output from byte `from` on, and the offset after its last byte.
    fn log_from<'a>(
        &'a self,
        id: &'a InstanceId,
        from: u64,
    ) -> BoxFuture<'a, Result<(String, u64)>>;
    /// Freezes an instance until the next request to its server.
    fn freeze<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>>;
    /// Makes a frozen instance give back memory that it does not use.
    fn squeeze<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Squeezed>>;
    /// Has the host take the free memory of an instance's partition by itself, single pages only as long as `goes_on`;
    /// `None` if it cannot.
    fn take_free<'a>(
        &'a self,
        instance: &'a Instance,
        grain: Grain,
        goes_on: GoesOn,
    ) -> BoxFuture<'a, Option<Result<Taken>>>;
    /// Has the host take all that is free there, single pages, too, on nobody's account, as long as `goes_on`.
    fn sweep<'a>(&'a self, instance: &'a Instance, goes_on: GoesOn) -> BoxFuture<'a, ()>;
    /// Whether its VM is paused.
    fn is_paused(&self) -> bool;
    /// Makes a frozen instance one that can be condemned, until its next request or squeeze, and returns its partition;
    /// `None` if that is not possible in its VM.
    fn doom<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Option<Result<PartitionNumber>>>;
    /// Takes all memory of a doomed instance of a paused VM, and returns how many bytes the host had behind it. The
    /// instance is killed when the VM runs again. After [`VmError::NotCondemned`] it has all its memory.
    fn condemn(&self, partition: PartitionNumber) -> BoxFuture<'_, Result<u64>>;
    /// Stops an instance; it has `grace` to end by itself.
    fn stop<'a>(&'a self, id: &'a InstanceId, grace: Duration) -> BoxFuture<'a, Result<Instance>>;
    /// Bytes that the host has for this instance alone, as the guest last described it, with what is swapped out; `None`
    /// if unknown.
    fn resident<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Option<u64>>;
    /// Why its VM has ended, if it has.
    fn ended(&self) -> Option<VmError>;
}

/// Which part of a VM's memory belongs to one instance alone.
#[derive(Clone, Copy)]
pub(crate) enum Share {
    /// Its partition, if it has one.
    Partition,
    /// All of it.
    Whole,
}

/// The guest of a VM, reached through its agent.
pub(crate) struct VmGuest {
    pub(crate) vm: Arc<Vm>,
    /// The part of it that each instance has.
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

    fn take_free<'a>(
        &'a self,
        instance: &'a Instance,
        grain: Grain,
        goes_on: GoesOn,
    ) -> BoxFuture<'a, Option<Result<Taken>>> {
        Box::pin(async move {
            let partition = instance.partition.filter(|_| self.vm.can_take_free())?;
            Some(self.vm.take_free_while(partition, grain, goes_on).await)
        })
    }

    fn sweep<'a>(&'a self, instance: &'a Instance, goes_on: GoesOn) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let partition = instance.partition.filter(|_| self.vm.can_take_free());
            if let Some(partition) = partition {
                // A failure has been logged, and costs nothing but memory.
                let _ = self.vm.sweep_partition(partition, goes_on).await;
            }
        })
    }

    fn is_paused(&self) -> bool {
        self.vm.is_paused()
    }

    fn doom<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Option<Result<PartitionNumber>>> {
        Box::pin(async move {
            let agent = self.vm.agent().ok().filter(|_| self.vm.can_take_free())?;
            let nowhere = || VmError::AgentAnswer(format!("doomed {id}, which is in no partition"));
            Some(agent.doom(id).await.and_then(|seen| seen.partition.ok_or_else(nowhere)))
        })
    }

    fn condemn(&self, partition: PartitionNumber) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.vm.condemn(partition))
    }

    fn stop<'a>(&'a self, id: &'a InstanceId, grace: Duration) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async move { self.vm.agent()?.stop(id, grace).await })
    }

    fn resident<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async {
            match self.share {
                Share::Partition => self.vm.partition_occupied(instance.partition?).await.ok(),
                Share::Whole => self.vm.occupied().await.ok(),
            }
        })
    }

    fn ended(&self) -> Option<VmError> {
        self.vm.ended()
    }
}
