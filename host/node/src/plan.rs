//! How a VM for instances of functions is made.

use crate::Machine;
use squeezy_vmm::{
    AcceleratorChoice, AcceleratorKind, Artifacts, BootStep, GRANULE_BYTES, MEMORY_BLOCK_BYTES,
    MemoryBackend, Vm, VmConfig, VmError,
    method::{Method, MethodName, Sizing, configure},
    round_up,
};
use std::{path::PathBuf, time::Duration};

/// Base memory for the kernel and the agent, in bytes, with the twentieth of it that Linux keeps free
/// for huge pages.
const BASE_BYTES: u64 = 208 << 20;

/// Base memory for what an instance has beside its own: page tables, stacks, sockets, its overlay.
const BASE_BYTES_PER_INSTANCE: u64 = 16 << 20;

/// How long a reclaim may take before it counts as failed. The guest goes on with it.
const RESIZE_LIMIT: Duration = Duration::from_secs(20);

/// Everything that is needed to boot a VM for functions.
#[derive(Clone, Debug)]
pub struct VmPlan {
    /// Kernels and initramfs.
    pub files: Artifacts,
    /// What the VM is called.
    pub name: String,
    /// The read-only root of its instances.
    pub image: PathBuf,
    /// The way its memory is changed.
    pub method: MethodName,
    /// What it has to have room for.
    pub sizing: Sizing,
    /// Its processors.
    pub vcpus: u32,
    /// What runs its code.
    pub accelerator: AcceleratorChoice,
    /// What its memory is.
    pub memory_backend: MemoryBackend,
}

impl VmPlan {
    /// Checks all that can be checked before a VM is started.
    pub fn check(&self) -> Result<(), VmError> {
        self.config(&*self.new_method()?).check()
    }

    /// Bytes the VM has while it has no instance.
    pub fn boot_bytes(&self) -> Result<u64, VmError> {
        let config = self.config(&*self.new_method()?);
        Ok(config.boot_bytes() + config.devices().iter().map(|d| d.initial_bytes).sum::<u64>())
    }

    /// Boots it; `tell` hears how far it is. Dropping the future ends it.
    pub async fn boot(&self, tell: impl FnMut(BootStep)) -> Result<Machine, VmError> {
        let method = self.new_method()?;
        let config = self.config(&*method);
        let vm = Vm::start_with(config, tell).await?;
        let limits_cpu = vm.accelerator().kind != AcceleratorKind::Tcg;
        let kernel = vm.agent()?.info().await?.kernel_release;
        let instance_bytes = self.sizing.instance_bytes;
        Ok(Machine { vm, method, kernel, instance_bytes, limits_cpu })
    }

    fn new_method(&self) -> Result<Box<dyn Method>, VmError> {
        self.method.method(self.sizing).ok_or(VmError::NotResizable("there is no VM"))
    }

    fn config(&self, method: &dyn Method) -> VmConfig {
        let mut config = configure(method, &self.name, &self.files);
        let Sizing { instance_bytes, instances, shared_bytes } = self.sizing;
        // The memory map of all that can be plugged, 64 bytes a page, comes out of the base.
        let region = round_up(shared_bytes, MEMORY_BLOCK_BYTES)
            + u64::from(instances) * round_up(instance_bytes, MEMORY_BLOCK_BYTES);
        let base = BASE_BYTES + u64::from(instances) * BASE_BYTES_PER_INSTANCE + region / 64;
        config.base_bytes = round_up(base, GRANULE_BYTES);
        config.image = Some(self.image.clone());
        config.vcpus = self.vcpus;
        config.accelerator = self.accelerator;
        config.memory_backend = self.memory_backend;
        config.timeouts.resize = RESIZE_LIMIT;
        config
    }
}
