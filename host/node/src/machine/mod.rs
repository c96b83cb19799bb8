//! Where instances run, and how their memory is changed: one file each.

mod blueprint;
mod micro;
mod paused;
mod shared;

use crate::Guest;
use squeezy_protocol::{InstanceSpec, Partition};
use squeezy_vmm::{
    AcceleratorKind, BootStep, BoxFuture, MemoryUse, Resize, Vm, VmError,
    mechanism::{Slot, Slots},
};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// How a machine is made: outside of tests, a [`VmPlan`](crate::VmPlan).
pub trait Blueprint: Send + Sync {
    /// The read-only roots of its instances, by their [`ImageNumber`](squeezy_protocol::ImageNumber).
    fn images(&self) -> &[PathBuf];
    /// Boots it; `tell` hears how far it is. Dropping the future ends it.
    fn boot<'a>(
        &'a self,
        tell: Box<dyn FnMut(BootStep) + Send + 'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn Machine>, VmError>>;
}

/// A VM for all instances, or whatever stands for it.
///
/// Slots are taken and freed first, and then memory is made to follow; see
/// [`squeezy_vmm::mechanism::Mechanism`].
pub trait Machine: Send + Sync {
    /// What it is made of.
    fn details(&self) -> &MachineDetails;
    /// Which slots for instances are in use.
    fn slots(&self) -> &Slots;
    /// Gives a slot that was taken its memory. When it fails the slot is free again.
    fn plug(&self, slot: Slot) -> BoxFuture<'_, ResizeOutcome>;
    /// Takes the memory of a slot that was freed back.
    fn reclaim(&self, slot: Slot) -> BoxFuture<'_, ResizeOutcome>;
    /// Whether everything that was asked back has come back by now.
    fn has_settled(&self) -> BoxFuture<'_, ResizeOutcome>;
    /// The guest that an instance in this slot runs in; none while its memory is not there.
    fn guest(&self, slot: Slot) -> Option<Arc<dyn Guest>>;
    /// Sets where an instance in this slot gets its memory from.
    fn place(&self, slot: Slot, spec: &mut InstanceSpec);
    /// Whether no instance can be given memory in it any more once a resize has failed like this.
    fn is_unfit_after(&self, error: &VmError) -> bool;
    /// Whether an instance may be started while its memory is being plugged.
    fn starts_beside_plug(&self) -> bool;
    /// What is asked for, plugged and resident now.
    fn memory(&self) -> BoxFuture<'_, Result<MemoryUse, VmError>>;
    /// From now on all of it is to stand still, or to run. [`Self::settle`] makes it so.
    fn want_paused(&self, paused: bool);
    /// Makes it stand still or run, whatever was wanted last. To be waited for before anything is done in
    /// it, for somebody else may not have come to it yet.
    fn settle(&self) -> BoxFuture<'_, Result<(), VmError>>;
    /// The guest's partitions; empty where it has none. While it stands still those that it had before.
    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, VmError>>;
    /// Why all of it has ended, if it has.
    fn ended(&self) -> Option<VmError>;
    /// Waits until all of it has ended.
    fn wait(&self) -> BoxFuture<'_, ()>;
    /// Ends all of it.
    fn end(&self) -> BoxFuture<'_, Result<(), VmError>>;
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct MachineDetails {
    /// What runs the guests' code.
    pub accelerator: AcceleratorKind,
    /// Why that.
    pub accelerator_reason: String,
    /// The VMM's name and version.
    pub vmm_version: String,
    /// The guest's kernel.
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

/// A resize that was tried.
#[derive(Debug)]
pub struct ResizeOutcome {
    /// From the request until it was done or given up; nothing where there is nothing to resize.
    pub latency: Option<Duration>,
    /// How much less was resident on the host after than before, in bytes.
    pub resident_drop_bytes: u64,
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
        Self { latency, resident_drop_bytes: 0, error }
    }
}
