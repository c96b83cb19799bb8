//! Mechanisms: ways to give an instance its memory and to take it back, one file each, used by
//! `squeezy run`, `squeezy serve` and every experiment. Policies decide elsewhere which instance
//! gets how much.

mod balloon;
mod by_count;
mod fixed;
mod floor;
mod hyperalloc;
mod numa;
mod partitions;
mod sizing;
mod slots;
mod virtio_mem;

use crate::{
    BoxFuture, Kernel, MemoryUse, Result, Vm, VmConfig, VmError, memory::Resize, names::names,
};
use serde::{Deserialize, Serialize};
use squeezy_protocol::{InstanceSpec, PartitionChoice};
use std::time::Duration;

pub use floor::Floor;
pub use sizing::{Sizing, outside_bytes};
pub use slots::{Slot, Slots};

/// Lists mechanisms by name, with their constructors.
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

            /// Its constructor.
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
    /// The host takes and gives back memory by itself.
    HyperAlloc = "hyperalloc": Some(hyperalloc::new),
    /// Never gives memory back.
    Static = "static": Some(fixed::new),
    /// A stock kernel with a virtio-mem device and a NUMA node for each instance.
    Numa = "numa": Some(numa::new),
    /// No guest at all: the host discards the same amount and kind of memory. See [`Floor`].
    Floor = "floor": None,
}

impl MechanismName {
    /// Makes the mechanism for instances of this size; `None` if it does not use a VM.
    pub fn mechanism(self, sizing: Sizing) -> Option<Box<dyn Mechanism>> {
        self.constructor().map(|new| new(sizing))
    }

    /// Whether its VMs work with [`MemoryBackend::Memfd`](crate::MemoryBackend::Memfd) only, because the host works on
    /// the guest's page allocator.
    pub fn needs_memfd(self) -> bool {
        self == Self::HyperAlloc
    }
}

/// How one VM gives instances their memory and takes it back.
///
/// The caller first takes or frees slots ([`Slots::take`], [`Slots::free`]), then has the VM
/// follow. So if several instances start or end at once and all slots are updated first, the first
/// resize covers all of them.
pub trait Mechanism: Send + Sync {
    /// Its name.
    fn name(&self) -> MechanismName;
    /// The kernel it needs.
    fn kernel(&self) -> Kernel {
        Kernel::Release
    }
    /// Sets the memory in a VM's configuration, but not what backs it on the host.
    fn configure(&self, config: VmConfig) -> VmConfig;
    /// Which slots are in use.
    fn slots(&self) -> &Slots;
    /// Plugs the memory of a slot that was taken; returns the resize, if there was one. On failure
    /// the slot is freed again.
    fn plug<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>>;
    /// Reclaims the memory of a slot that was freed. If the guest does not follow in time, the
    /// error says why; the request stands and the guest continues with it.
    fn reclaim<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>>;
    /// Checks whether memory of one slot that was not reclaimed in time is back now; an error if
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
                reason: "it has still not given back the memory".to_owned(),
            })
        })
    }
    /// Whether an instance may start before its memory is plugged, and waits for it in the guest.
    fn waits_in_guest(&self) -> bool {
        false
    }
    /// Whether a resize that failed like this means that no instance can be given memory any more.
    /// It does not where instances share memory: another instance may give back what one cannot
    /// have now.
    fn is_unfit_after(&self, error: &VmError) -> bool {
        let _ = error;
        false
    }
    /// Sets where an instance in this slot gets its memory. A wait for a partition is limited by
    /// `wait_ms`, which the caller sets.
    fn place(&self, slot: Slot, spec: &mut InstanceSpec) {
        let _ = slot;
        spec.partition = PartitionChoice::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBackend;

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
    fn what_the_host_works_on_is_not_private_to_the_vmm() {
        for mechanism in MechanismName::ALL.iter().filter_map(|name| name.mechanism(SIZING)) {
            let name = mechanism.name();
            for memory_backend in [MemoryBackend::Ram, MemoryBackend::Memfd] {
                let config = VmConfig::new("a", "/dev/null", "/dev/null");
                let config = mechanism.configure(VmConfig { memory_backend, ..config });
                assert_eq!(
                    config.memory_backend, memory_backend,
                    "{name}: it is the caller's choice"
                );
                let problem = config.check().unwrap_err().to_string();
                let is_refused = memory_backend == MemoryBackend::Ram && name.needs_memfd();
                assert_eq!(problem.contains("private memory"), is_refused, "{name}: {problem}");
            }
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
