//! What a VM's memory consists of, and which parts of it can grow and shrink.
//!
//! A kind of memory is a file with two sides. Before the VM starts it is a [`GuestMemory`], a value
//! in the [`VmConfig`](crate::VmConfig) that says what the VMM has to provide. While the VM runs,
//! each resizable part of it is an [`Elastic`], made by [`GuestMemory::start`]. No other code
//! depends on the kind of a VM's memory.
//!
//! This module deals in bytes. Which instance they are for is up to the
//! [`mechanism`](crate::mechanism).

mod balloon;
mod elastic;
mod fixed;
mod guest_driven;
mod hyperalloc;
mod numa;
mod partitions;
mod short_timer;
mod virtio_mem;

use crate::{
    AgentClient, BoxFuture, Console, Result, VmError, backend::Devices, hyperalloc::Reclaimer,
};
use bytesize::ByteSize;
use guest_driven::GuestDriven;
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

pub use balloon::Balloon;
pub use elastic::{Elastic, Resize, Target};
pub use fixed::Fixed;
pub use hyperalloc::HyperAlloc;
pub use numa::Nodes;
pub use partitions::PartitionLayout;
pub use virtio_mem::VirtioMem;

/// Size of a memory block of Linux on x86-64, in bytes. Each slot of a partition starts at one.
pub const MEMORY_BLOCK_BYTES: u64 = 128 << 20;

/// Partitions and plugged sizes are rounded up to this, in bytes: the largest block of Linux's page
/// allocator, and a multiple of virtio-mem's block size.
pub const GRANULE_BYTES: u64 = 4 << 20;

/// The maximum number of partitions or nodes in a VM.
pub const MAX_INSTANCES: u16 = 255;

/// The maximum memory of an instance, in bytes.
const MAX_INSTANCE_BYTES: u64 = 1 << 40;

/// A kind of memory: what a VM has besides its base, and how it grows and shrinks.
///
/// A mechanism makes one for each VM
/// ([`Mechanism::configure`](crate::mechanism::Mechanism::configure)).
pub trait GuestMemory: fmt::Debug + Send + Sync {
    /// Checks what can be checked before anything starts; `vcpus` is the VM's number of processors.
    fn check(&self, vcpus: u32) -> Result<()>;

    /// What the VMM has to provide for a VM with this much base memory.
    fn layout(&self, base_bytes: u64) -> Layout;

    /// What the guest's kernel has to be told on its command line.
    fn kernel_parameters(&self) -> Option<String> {
        None
    }

    /// How its first region is divided into partitions, if it is.
    fn partitions(&self) -> Option<PartitionLayout> {
        None
    }

    /// Makes the resizable parts of a VM's memory, by number.
    ///
    /// Called once the VMM has started and before its guest is waited for. The result is dropped
    /// after the VMM's process has exited.
    fn start(&self, vm: &Running) -> Vec<Box<dyn Elastic>>;

    /// Checks that the guest's kernel has understood its parameters, before anything is resized.
    fn check_guest<'a>(
        &'a self,
        agent: &'a AgentClient,
        console: &'a Console,
    ) -> BoxFuture<'a, Result<()>> {
        let _ = (agent, console);
        Box::pin(async { Ok(()) })
    }
}

/// A VM whose VMM has started, as passed to [`GuestMemory::start`].
pub struct Running {
    /// Its devices.
    pub(crate) devices: Arc<dyn Devices>,
    /// Takes free memory out of its guest, once the guest has said how.
    pub(crate) reclaimer: Arc<OnceLock<Arc<Reclaimer>>>,
}

/// What a VMM has to provide for a VM's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Ordinary RAM that the guest boots with, in bytes.
    pub boot_bytes: u64,
    /// The part of it that the guest always keeps; a balloon may take the rest.
    pub kept_bytes: u64,
    /// The virtio-mem devices, by number.
    pub regions: Vec<Region>,
    /// Whether there is a balloon.
    pub balloon: bool,
    /// Whether each region is a NUMA node of its own; node 0 is the base.
    pub nodes: bool,
}

impl Layout {
    /// Ordinary RAM that is never taken back.
    fn ram(bytes: u64) -> Self {
        Self { boot_bytes: bytes, kept_bytes: bytes, ..Default::default() }
    }

    /// The maximum number of bytes that can be plugged.
    pub fn region_bytes(&self) -> u64 {
        self.regions.iter().fold(0, |sum, region| sum.saturating_add(region.region_bytes))
    }

    /// Bytes that the host must have for the guest to boot.
    pub fn start_bytes(&self) -> u64 {
        self.boot_bytes.saturating_add(self.initial_bytes())
    }

    /// Bytes that the guest has once the VM is ready.
    pub fn ready_bytes(&self) -> u64 {
        self.kept_bytes.saturating_add(self.initial_bytes())
    }

    /// Whether the guest can get more memory than it has once the VM is ready.
    pub fn can_grow(&self) -> bool {
        self.boot_bytes.saturating_add(self.region_bytes()) > self.ready_bytes()
    }

    fn initial_bytes(&self) -> u64 {
        self.regions.iter().fold(0, |sum, region| sum.saturating_add(region.initial_bytes))
    }
}

/// One virtio-mem device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The maximum number of bytes that can be plugged.
    pub region_bytes: u64,
    /// Bytes plugged at start.
    pub initial_bytes: u64,
    /// Whether the guest may plug any part of it at any time, rather than in order from its
    /// beginning.
    pub any_order: bool,
}

/// `bytes` rounded up to a multiple of `unit`.
pub fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes.div_ceil(unit).saturating_mul(unit)
}

/// Checks that `count` instances of this size are possible.
fn check_instances(bytes: u64, count: u16) -> Result<()> {
    if !(1..=MAX_INSTANCE_BYTES).contains(&bytes) {
        return Err(VmError::Config(format!("an instance of {} is not possible", ByteSize(bytes))));
    }
    if !(1..=MAX_INSTANCES).contains(&count) {
        return Err(VmError::Config(format!(
            "{count} instances were requested; 1 to {MAX_INSTANCES} are possible"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
