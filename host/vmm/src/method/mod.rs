//! Ways to give an instance its memory and to take it back: one file each, used by `squeezy run`
//! and by every experiment.

mod balloon;
mod fixed;
mod floor;
mod node;
mod squeezy;
mod virtio_mem;

use crate::{BoxFuture, Kernel, MemoryUse, Resize, Result, Vm, VmConfig, VmError, config::names};
use serde::{Deserialize, Serialize};
use squeezy_protocol::{InstanceSpec, PartitionChoice};
use std::{fmt, str::FromStr, sync::Mutex, time::Duration};

pub use floor::Floor;

/// A way to resize, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodName {
    /// Partitions.
    Squeezy,
    /// Stock virtio-mem: one device, memory shared by all instances.
    VirtioMem,
    /// Stock virtio-balloon.
    Balloon,
    /// Nothing is given back.
    Static,
    /// A stock kernel with one virtio-mem device and NUMA node for each instance.
    Node,
    /// No guest at all: the host discards as much memory of the same kind. See [`Floor`].
    Floor,
}

names!(MethodName {
    MethodName::Squeezy = "squeezy",
    MethodName::VirtioMem = "virtio-mem",
    MethodName::Balloon = "balloon",
    MethodName::Static = "static",
    MethodName::Node = "node",
    MethodName::Floor = "floor",
});

impl MethodName {
    /// Every method.
    pub const ALL: [Self; 6] =
        [Self::Squeezy, Self::VirtioMem, Self::Balloon, Self::Static, Self::Node, Self::Floor];

    /// The method for instances of that size, or nothing for [`MethodName::Floor`], which has no VM.
    pub fn method(self, sizing: Sizing) -> Option<Box<dyn Method>> {
        Some(match self {
            Self::Squeezy => Box::new(squeezy::Squeezy::new(sizing)),
            Self::VirtioMem => Box::new(virtio_mem::VirtioMem::new(sizing)),
            Self::Balloon => Box::new(balloon::Balloon::new(sizing)),
            Self::Static => Box::new(fixed::Fixed::new(sizing)),
            Self::Node => Box::new(node::Node::new(sizing)),
            Self::Floor => return None,
        })
    }
}

/// What a VM has to have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizing {
    /// Bytes of memory of one instance; rounded up to 4 MiB.
    pub instance_bytes: u64,
    /// Most instances at a time.
    pub instances: u16,
    /// Bytes for what instances share, such as the page cache; there from the start on.
    pub shared_bytes: u64,
}

/// Which of a VM's slots for instances is meant, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot(pub u16);

/// One VM's way to give instances their memory and to take it back.
///
/// Which slots are in use is said first ([`Slots::take`], [`Slots::free`]), and then the VM is made to
/// follow. So instances that start or end at once are said all together, and the first resize is for
/// all of them.
pub trait Method: Send + Sync {
    /// Its name.
    fn name(&self) -> MethodName;
    /// The kernel it needs.
    fn kernel(&self) -> Kernel {
        Kernel::Release
    }
    /// Fills in the memory of a VM's configuration (and, with `files`, its kernel).
    fn configure(&self, config: VmConfig) -> VmConfig;
    /// Which slots are in use.
    fn slots(&self) -> &Slots;
    /// Gives the guest the memory of a slot that was taken; what that took, where anything is
    /// plugged. When it fails the slot is free again.
    fn plug<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>>;
    /// Takes the memory of a slot that was freed back. When the guest does not follow in time, the
    /// error says why; the request stands and the guest goes on with it.
    fn reclaim<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>>;
    /// Whether what could not be taken back in time has come back by now, for one slot; an error, if
    /// not.
    fn settle<'a>(&'a self, vm: &'a Vm) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let MemoryUse { asked_bytes, plugged_bytes, .. } = vm.memory().await?;
            if plugged_bytes <= asked_bytes {
                return Ok(());
            }
            Err(VmError::Resize {
                requested: asked_bytes,
                plugged: plugged_bytes,
                after: Duration::ZERO,
                reason: "it has still not given it back".to_owned(),
            })
        })
    }
    /// Whether an instance may be started before its memory is plugged: it waits for it in the guest.
    fn waits_in_guest(&self) -> bool {
        false
    }
    /// Sets where an instance in that slot gets its memory from. A wait for a partition is bounded
    /// by `wait_ms`, which the caller sets.
    fn place(&self, slot: Slot, spec: &mut InstanceSpec) {
        let _ = slot;
        spec.partition = PartitionChoice::None;
    }
}

/// Which slots of a VM are in use.
pub struct Slots {
    used: Mutex<Vec<bool>>,
}

impl Slots {
    /// So many, all free.
    pub fn new(count: u16) -> Self {
        Self { used: Mutex::new(vec![false; count.into()]) }
    }

    /// Takes the first free slot.
    pub fn take(&self) -> Result<Slot> {
        let mut used = self.lock();
        let Some(index) = used.iter().position(|used| !used) else {
            return Err(VmError::Config(format!(
                "all {} instances that the VM has room for are there",
                used.len()
            )));
        };
        used[index] = true;
        Ok(Slot(index as u16))
    }

    /// Frees a slot that is in use.
    pub fn free(&self, slot: Slot) -> Result<()> {
        match self.lock().get_mut(usize::from(slot.0)) {
            Some(used @ true) => *used = false,
            _ => return Err(VmError::Config(format!("slot {} is not in use", slot.0))),
        }
        Ok(())
    }

    /// How many are in use.
    fn count(&self) -> u16 {
        self.lock().iter().map(|used| u16::from(*used)).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Makes the memory what `target` says for the number of slots in use, or frees this one.
async fn plug_by_count(
    slots: &Slots,
    vm: &Vm,
    slot: Slot,
    target: impl Fn(u16) -> u64,
) -> Result<Option<Resize>> {
    let device = vm.device()?;
    match vm.resize_by(device, || target(slots.count())).await {
        Ok(resize) => Ok(Some(resize)),
        Err(error) => {
            // What was not given must not stay asked for.
            slots.free(slot)?;
            vm.withdraw(device, || target(slots.count())).await;
            Err(error)
        }
    }
}

/// Makes the memory what `target` says for the slots that are left in use.
async fn reclaim_by_count(
    slots: &Slots,
    vm: &Vm,
    target: impl Fn(u16) -> u64,
) -> Result<Option<Resize>> {
    vm.resize_by(vm.device()?, || target(slots.count())).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_once() {
        let slots = Slots::new(2);
        assert_eq!(slots.take().unwrap(), Slot(0));
        assert_eq!(slots.take().unwrap(), Slot(1));
        assert_eq!(slots.count(), 2);
        assert!(slots.take().unwrap_err().to_string().contains("all 2 instances"));
        slots.free(Slot(0)).unwrap();
        assert_eq!(slots.count(), 1);
        assert!(slots.free(Slot(0)).is_err());
        assert!(slots.free(Slot(9)).is_err());
        assert_eq!(slots.take().unwrap(), Slot(0));
    }

    #[test]
    fn every_method_reads_back_by_its_name() {
        let sizing = Sizing { instance_bytes: 128 << 20, instances: 2, shared_bytes: 64 << 20 };
        for name in MethodName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
            assert_eq!(
                name.method(sizing).map(|m| m.name()),
                (name != MethodName::Floor).then_some(name)
            );
        }
    }
}
