//! Mechanisms: ways to give an instance its memory and to take it back, one file each, used by
//! `squeezy run`, `squeezy serve` and every experiment. Which instance has how much is decided elsewhere,
//! by policies.

mod balloon;
mod by_count;
mod fixed;
mod floor;
mod numa;
mod partitions;
mod slots;
mod virtio_mem;

use crate::{
    BoxFuture, Kernel, MemoryUse, Result, Vm, VmConfig, VmError, memory::Resize, names::names,
};
use serde::{Deserialize, Serialize};
use squeezy_protocol::{InstanceSpec, PartitionChoice};
use std::time::Duration;

pub use floor::Floor;
pub use slots::{Slot, Slots};

/// Lists mechanisms by name, with what makes one for instances of a size.
macro_rules! mechanisms {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal: $new:expr,)+) => {
        /// A mechanism, by name.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        pub enum MechanismName {
            $($(#[$doc])+ #[serde(rename = $name)] $variant,)+
        }

        names!(MechanismName { $(MechanismName::$variant = $name,)+ });

        impl MechanismName {
            /// Every mechanism.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// What makes it.
            fn constructor(self) -> Option<fn(Sizing) -> Box<dyn Mechanism>> {
                match self { $(Self::$variant => $new,)+ }
            }
        }
    };
}

mechanisms! {
    /// Partitions.
    Squeezy = "squeezy": Some(partitions::new),
    /// Stock virtio-mem: one device, memory shared by all instances.
    VirtioMem = "virtio-mem": Some(virtio_mem::new),
    /// Stock virtio-balloon.
    Balloon = "balloon": Some(balloon::new),
    /// Nothing is given back.
    Static = "static": Some(fixed::new),
    /// A stock kernel with one virtio-mem device and NUMA node for each instance.
    Numa = "numa": Some(numa::new),
    /// No guest at all: the host discards as much memory of the same kind. See [`Floor`].
    Floor = "floor": None,
}

impl MechanismName {
    /// The mechanism for instances of that size; nothing for one that has no VM.
    pub fn mechanism(self, sizing: Sizing) -> Option<Box<dyn Mechanism>> {
        self.constructor().map(|new| new(sizing))
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

/// One VM's way to give instances their memory and to take it back.
///
/// Which slots are in use is said first ([`Slots::take`], [`Slots::free`]), and then the VM is made to
/// follow. So instances that start or end at once are said all together, and the first resize is for
/// all of them.
pub trait Mechanism: Send + Sync {
    /// Its name.
    fn name(&self) -> MechanismName;
    /// The kernel it needs.
    fn kernel(&self) -> Kernel {
        Kernel::Release
    }
    /// Fills in the memory of a VM's configuration.
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
    /// Whether no instance can be given memory any more once a resize has failed like this. Where instances
    /// share what memory there is, another one may give back what one cannot have now.
    fn is_unfit_after(&self, error: &VmError) -> bool {
        let _ = error;
        false
    }
    /// Sets where an instance in that slot gets its memory from. A wait for a partition is bounded
    /// by `wait_ms`, which the caller sets.
    fn place(&self, slot: Slot, spec: &mut InstanceSpec) {
        let _ = slot;
        spec.partition = PartitionChoice::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZING: Sizing =
        Sizing { instance_bytes: 128 << 20, instances: 2, shared_bytes: 64 << 20 };

    #[test]
    fn every_mechanism_reads_back_by_its_name() {
        for &name in MechanismName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
            assert_eq!(serde_json::to_value(name).unwrap(), name.to_string());
            assert_eq!(
                name.mechanism(SIZING).map(|mechanism| mechanism.name()),
                (name != MechanismName::Floor).then_some(name)
            );
        }
    }

    #[test]
    fn every_vm_has_room_for_its_instances() {
        for mechanism in MechanismName::ALL.iter().filter_map(|name| name.mechanism(SIZING)) {
            let mut config = VmConfig::new("a", "/dev/null", "/dev/null");
            config.base_bytes = 128 << 20;
            let layout = mechanism.configure(config).layout();
            let most = layout.boot_bytes + layout.region_bytes();
            let needed = (128 << 20) + 2 * SIZING.instance_bytes + SIZING.shared_bytes;
            assert!(most >= needed, "{}: {layout:?}", mechanism.name());
        }
    }
}
