//! Where instances run and how their memory is resized: one file per kind of machine.

mod blueprint;
mod micro;
mod paused;
mod shared;

use crate::Guest;
use squeezy_protocol::{InstanceSpec, Partition, PartitionNumber};
use squeezy_vmm::{
    AcceleratorKind, BootStep, BoxFuture, MemoryUse, Resize, Taken, Vm, VmError,
    mechanism::{Slot, Slots},
    network::NetworkCounts,
};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// How to make a machine: outside tests, a [`VmPlan`](crate::VmPlan).
pub trait Blueprint: Send + Sync {
    /// The read-only file systems that the roots of its instances are made of, by
    /// [`ImageNumber`](squeezy_protocol::ImageNumber).
    fn images(&self) -> &[PathBuf];
    /// How often its instances have tried to reach somebody, if they have a network.
    fn network_counts(&self) -> Option<NetworkCounts> {
        None
    }
    /// Boots it; `tell` is called at each step. Dropping the future ends it.
    fn boot<'a>(
        &'a self,
        tell: Box<dyn FnMut(BootStep) + Send + 'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn Machine>, VmError>>;
}

/// One VM for all instances, or what stands in for one.
///
/// A slot is taken or freed first, and its memory plugged or reclaimed after that; see
/// [`squeezy_vmm::mechanism::Mechanism`].
pub trait Machine: Send + Sync {
    /// What it is made of.
    fn details(&self) -> &MachineDetails;
    /// Which slots for instances are in use.
    fn slots(&self) -> &Slots;
    /// Plugs the memory of a taken slot. If that fails, the slot is free again.
    fn plug(&self, slot: Slot) -> BoxFuture<'_, ResizeOutcome>;
    /// Reclaims the memory of a freed slot, and first what is free of the partition that its instance has left, if that
    /// is known.
    fn reclaim(&self, slot: Slot, left: Option<PartitionNumber>) -> BoxFuture<'_, ResizeOutcome>;
    /// Whether all memory being reclaimed has come back by now.
    fn has_settled(&self) -> BoxFuture<'_, ResizeOutcome>;
    /// The guest for an instance in this slot; `None` while there is no VM for it.
    fn guest(&self, slot: Slot) -> Option<Arc<dyn Guest>>;
    /// Sets where an instance in this slot gets its memory from.
    fn place(&self, slot: Slot, spec: &mut InstanceSpec);
    /// Whether, after a resize has failed with this error, the machine cannot give memory to any more
    /// instances.
    fn is_unfit_after(&self, error: &VmError) -> bool;
    /// Whether an instance may be started while its memory is being plugged.
    fn starts_beside_plug(&self) -> bool;
    /// The memory that is requested, plugged and resident now.
    fn memory(&self) -> BoxFuture<'_, Result<MemoryUse, VmError>>;
    /// What the host has behind it, in bytes, with what is swapped out: what it costs while it is paused.
    fn occupied(&self) -> BoxFuture<'_, Result<u64, VmError>>;
    /// Waits until its guest asks for memory that it lacks; returns how many bytes. The answer is [`Self::lend`], or
    /// none.
    fn starved(&self) -> BoxFuture<'_, u64> {
        Box::pin(std::future::pending())
    }
    /// Gives its guest what it has asked for, at most this many bytes.
    fn lend(&self, most_bytes: u64) -> BoxFuture<'_, Result<u64, VmError>> {
        let _ = most_bytes;
        Box::pin(async { Ok(0) })
    }
    /// Gives up what its guest has read of its drives and no process has mapped, if the host can take that. The next start
    /// reads it again.
    fn drop_page_cache(&self) -> BoxFuture<'_, Result<(), VmError>> {
        Box::pin(async { Ok(()) })
    }
    /// Sets whether it should be paused or running; [`Self::settle`] makes it so.
    fn want_paused(&self, paused: bool);
    /// Pauses or resumes it, whichever was wanted last. Wait for this before doing anything in it, because a
    /// resume wanted by someone else may not have happened yet.
    fn settle(&self) -> BoxFuture<'_, Result<(), VmError>>;
    /// The guest's partitions; empty if it has none. While paused, those it had before the pause.
    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, VmError>>;
    /// Why it has ended as a whole, if it has.
    fn ended(&self) -> Option<VmError>;
    /// Waits until it has ended as a whole.
    fn wait(&self) -> BoxFuture<'_, ()>;
    /// Ends it at once: it then has ended by itself, for this reason.
    fn kill(&self, reason: VmError);
    /// Shuts it down.
    fn end(&self) -> BoxFuture<'_, Result<(), VmError>>;
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct MachineDetails {
    /// The accelerator: KVM or emulation.
    pub accelerator: AcceleratorKind,
    /// Why this accelerator.
    pub accelerator_reason: String,
    /// The VMM's name and version.
    pub vmm_version: String,
    /// The guest kernel's release.
    pub kernel: String,
    /// An instance's memory, in bytes.
    pub instance_bytes: u64,
}

impl MachineDetails {
    pub(crate) async fn of(vm: &Vm, instance_bytes: u64) -> Result<Self, VmError> {
        Ok(Self {
            accelerator: vm.accelerator().kind,
            accelerator_reason: vm.accelerator().reason.clone(),
            vmm_version: vm.vmm_version().to_owned(),
            kernel: vm.agent()?.info().await?.kernel_release,
            instance_bytes,
        })
    }
}

/// The result of a resize.
#[derive(Debug)]
pub struct ResizeOutcome {
    /// From the request until it was done or given up; absent if there was nothing to resize.
    pub latency: Option<Duration>,
    /// By how much resident memory on the host dropped, in bytes.
    pub resident_drop_bytes: u64,
    /// Free memory of the instance's partition that the host had taken by itself before it asked, if it can.
    pub taken: Option<Taken>,
    /// Why it failed, if it did.
    pub error: Option<VmError>,
}

impl ResizeOutcome {
    pub(crate) fn new(result: Result<Option<Resize>, VmError>) -> Self {
        let (latency, error) = match result {
            Ok(resize) => (resize.map(|resize| resize.latency), None),
            Err(VmError::Resize { after, .. } | VmError::Held { after, .. }) => {
                ((!after.is_zero()).then_some(after), result.err())
            }
            Err(error) => (None, Some(error)),
        };
        Self { latency, resident_drop_bytes: 0, taken: None, error }
    }
}
