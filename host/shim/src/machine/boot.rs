//! Boots the VM.

use super::{Booted, needs::Needs, reads::Reads, volumes::COPIES_BYTES};
use crate::{
    cgroup::{Bound, Cgroup},
    error::{Error, Result},
    group::room,
    layers::{Cache, Pool},
    network::Networks,
    settings::Settings,
};
use squeezy_vmm::{
    Artifacts, BootStep, Llfree, MemoryBackend, MemoryBackendChoice, Vm, VmConfig,
    mechanism::{Mechanism, MechanismName, Sizing},
};
use std::{
    sync::{Arc, atomic::AtomicU32},
    time::Instant,
};

/// What a network device of the guest takes, in bytes: 256 buffers of a page, and its queues.
const NETWORK_BYTES: u64 = 2 << 20;

/// Boots a VM in this control group, with room for pods with partitions of this size, in bytes.
pub(super) async fn boot(
    name: &str,
    partition_bytes: u64,
    settings: &Settings,
    cache: Cache,
    cgroup: Option<&Cgroup>,
) -> Result<Booted> {
    let begin = Instant::now();
    // It takes only what is in it.
    let pool = cache.unnamed_file().and_then(|file| Pool::new(file, settings.layers_bytes));
    let pool =
        pool.map_err(|error| Error::failed(format_args!("cannot make the VM's pool: {error}")))?;
    let sizing = Sizing {
        instance_bytes: partition_bytes,
        instances: room(partition_bytes, settings.pods),
        shared_bytes: settings.shared_bytes,
    };
    let mechanism = MechanismName::Squeezy.mechanism(sizing).expect("partitions are of a VM");
    let count = u8::try_from(sizing.instances).expect("a VM has few pods");
    let (networks, taps) = Networks::make(count).map_err(|error| {
        Error::failed(format_args!("cannot make tap devices for the VM's pods: {error}"))
    })?;
    let files = Artifacts::find(None)?;
    let mut config = VmConfig::new(name, files.kernel(mechanism.kernel()), files.initramfs());
    // Copies of volumes are the host's, and what a network device receives is nobody's yet: both are in no limit.
    let of_pod = COPIES_BYTES + NETWORK_BYTES;
    config.base_bytes = sizing.base_bytes() + u64::from(sizing.instances) * of_pod;
    config.vcpus = settings.processors;
    config.pool = Some(pool.file());
    config.taps = taps.into_iter().map(Arc::new).collect();
    let memory_backend = MemoryBackendChoice::default().resolve(mechanism.name());
    let config = with_partitions(config, &*mechanism, memory_backend);
    let say_why = |step: BootStep| {
        if step.is_trouble() {
            tracing::warn!("{step}");
        } else if matches!(step, BootStep::Memory { .. }) {
            tracing::info!("{step}");
        }
    };
    let vm = Vm::start_with(config, say_why).await?;
    let (kind, vmm) = (vm.accelerator().kind, vm.vmm_version());
    let kernel = vm.agent()?.info().await?.kernel_release;
    tracing::info!(
        after = ?begin.elapsed(), accelerator = %kind, %memory_backend, vmm, kernel, "the VM has booted"
    );
    let layout = vm.config().layout();
    let needs = Needs {
        boot_bytes: layout.start_bytes(),
        region_bytes: layout.region_bytes(),
        emulated_processors: if kind.emulates() { settings.processors } else { 0 },
        layers_bytes: settings.layers_bytes,
        in_memory_bytes: pool.in_memory_bytes(),
    };
    let besides_bytes = needs.besides_partitions_bytes();
    let bound = Arc::new(Bound::new(cgroup, besides_bytes, partition_bytes, sizing.instances));
    let (networks, volumes) = (Arc::new(networks), AtomicU32::default());
    let reads = Reads::default();
    Ok(Booted { vm, mechanism, bound, pool, cache, networks, reads, volumes, partition_bytes })
}

/// The same VM with partitions whose free memory goes back to the host. Of its base memory nothing does: what pods have
/// used there others use next, and no VM of the shim is paused.
fn with_partitions(
    mut config: VmConfig,
    mechanism: &dyn Mechanism,
    memory_backend: MemoryBackend,
) -> VmConfig {
    config.memory_backend = memory_backend;
    let mut config = mechanism.configure(config);
    config.give_back_free(Llfree::Partitions, true);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_of_pods_goes_back_whatever_backs_it() {
        let sizing = Sizing { instance_bytes: 256 << 20, instances: 4, shared_bytes: 128 << 20 };
        let mechanism = MechanismName::Squeezy.mechanism(sizing).unwrap();
        let with = |memory_backend| {
            let config = VmConfig::new("a", "/dev/null", "/dev/null");
            let config = with_partitions(config, &*mechanism, memory_backend);
            (config.llfree, config.take_free_every.is_some(), config.free_page_reporting)
        };
        assert_eq!(with(MemoryBackend::Ram), (Llfree::Off, false, true));
        assert_eq!(with(MemoryBackend::Memfd), (Llfree::Partitions, true, false));
    }
}
