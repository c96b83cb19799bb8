//! How a VM for instances of functions is made.

use crate::{
    FunctionImage, Machine, MachineDetails, PolicyName,
    machine::{MicroVms, SharedVm},
};
use squeezy_runtime::VmPolicy;
use squeezy_vmm::{
    AcceleratorChoice, Artifacts, BootStep, GRANULE_BYTES, GuestMemory, MEMORY_BLOCK_BYTES,
    MemoryBackend, Vm, VmConfig, VmError,
    method::{Method, Sizing, configure},
    round_up,
};
use std::{path::PathBuf, sync::Arc, thread::available_parallelism, time::Duration};

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
    /// The way instances get their memory.
    pub policy: PolicyName,
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
    /// A VM for instances of this function, as many and as large as its definition says, with as
    /// many processors as their shares add up to, at most the host's.
    pub fn new(
        function: &FunctionImage,
        files: &Artifacts,
        policy: PolicyName,
        shared_bytes: u64,
    ) -> Self {
        let FunctionImage { function, image } = function;
        let shares = u32::from(function.concurrency) * function.cpu_millis;
        let host = available_parallelism().map_or(1, |count| count.get() as u32);
        Self {
            files: files.clone(),
            // The function's name may be as long as the VM's.
            name: format!("squeezy-{:.40}", function.name),
            image: image.clone(),
            policy,
            sizing: Sizing {
                instance_bytes: round_up(function.memory_bytes, GRANULE_BYTES),
                instances: function.concurrency,
                shared_bytes,
            },
            vcpus: shares.div_ceil(1000).clamp(1, host.min(64)),
            accelerator: AcceleratorChoice::default(),
            memory_backend: MemoryBackend::default(),
        }
    }

    /// Checks all that can be checked before a VM is started.
    pub fn check(&self) -> Result<(), VmError> {
        self.config(&*self.new_method()?).check()
    }

    /// What the scaler has to know of it.
    pub fn vm_policy(&self, idle_time: Option<Duration>) -> Result<VmPolicy, VmError> {
        let max_instances = self.sizing.instances.into();
        if self.policy == PolicyName::Microvm {
            let instance_bytes = self.for_one().config(&*self.for_one().new_method()?).boot_bytes();
            return Ok(VmPolicy { base_bytes: 0, instance_bytes, max_instances, idle_time });
        }
        let config = self.config(&*self.new_method()?);
        let initial = config.devices().iter().map(|device| device.initial_bytes).sum::<u64>();
        let instance_bytes = self.sizing.instance_bytes;
        let (base_bytes, instance_bytes) = match config.memory {
            // It has the memory of all instances from its boot on.
            GuestMemory::Fixed { .. } => (config.boot_bytes(), 0),
            // It gives that back before it takes any.
            GuestMemory::Balloon { .. } => (config.base_bytes, instance_bytes),
            _ => (config.boot_bytes() + initial, instance_bytes),
        };
        Ok(VmPolicy { base_bytes, instance_bytes, max_instances, idle_time })
    }

    /// Boots it; `tell` hears how far it is. Dropping the future ends it.
    pub async fn boot(&self, tell: impl FnMut(BootStep)) -> Result<Arc<dyn Machine>, VmError> {
        let micro = self.policy == PolicyName::Microvm;
        let plan = if micro { self.for_one() } else { self.clone() };
        let (vm, method) = plan.boot_vm(tell).await?;
        let details = MachineDetails::of(&vm, self.sizing.instance_bytes).await?;
        Ok(if micro {
            Arc::new(MicroVms::new(plan, self.sizing.instances, vm, details))
        } else {
            Arc::new(SharedVm { vm: Arc::new(vm), method, details })
        })
    }

    /// Boots one VM.
    pub(crate) async fn boot_vm(
        &self,
        tell: impl FnMut(BootStep),
    ) -> Result<(Vm, Box<dyn Method>), VmError> {
        let method = self.new_method()?;
        Ok((Vm::start_with(self.config(&*method), tell).await?, method))
    }

    /// The same for one instance only.
    fn for_one(&self) -> Self {
        Self { sizing: Sizing { instances: 1, ..self.sizing }, ..self.clone() }
    }

    fn new_method(&self) -> Result<Box<dyn Method>, VmError> {
        self.policy.method().method(self.sizing).ok_or(VmError::NotResizable("there is no VM"))
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use squeezy_runtime::function::Function;
    use squeezy_vmm::method::MethodName;

    /// A plan that seems to be all right until it is booted.
    pub(crate) fn plan(directory: &tempfile::TempDir, name: &str) -> (Function, VmPlan) {
        let definition = include_str!("../../../functions/html/function.toml");
        let definition = definition.replace("name = \"html\"", &format!("name = {name:?}"));
        let function = Function::parse(&definition).unwrap();
        let files = Artifacts::find(Some(directory.path())).unwrap();
        let input =
            FunctionImage { function: function.clone(), image: files.image(&function.name) };
        let plan = VmPlan::new(&input, &files, PolicyName::Method(MethodName::Squeezy), 128 << 20);
        for file in [files.kernel(squeezy_vmm::Kernel::Release), files.initramfs(), input.image] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        (function, plan)
    }

    #[test]
    fn a_function_of_any_name_has_a_vm_of_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let (function, plan) = plan(&directory, &"f".repeat(63));
        assert_eq!(plan.check(), Ok(()));
        assert_eq!(plan.sizing.instance_bytes, function.memory_bytes);
        assert_eq!(plan.sizing.instances, function.concurrency);
        assert!(plan.vcpus >= 1);
    }

    /// All of it is somewhere, and nothing of it twice.
    #[test]
    fn every_policy_promises_the_memory_that_its_vms_have() {
        let directory = tempfile::tempdir().unwrap();
        let (_, plan) = plan(&directory, "f");
        let policy = |policy| VmPlan { policy, ..plan.clone() }.vm_policy(None).unwrap();
        let all = |policy: VmPolicy| {
            policy.base_bytes + u64::from(policy.max_instances) * policy.instance_bytes
        };
        let squeezy = policy(PolicyName::Method(MethodName::Squeezy));
        for name in PolicyName::ALL {
            let policy = policy(name);
            let ratio = all(policy) as f64 / all(squeezy) as f64;
            let most = if name == PolicyName::Microvm { 2.0 } else { 1.05 };
            assert!((0.95..most).contains(&ratio), "{name}: {policy:?}");
        }
        assert_eq!(policy(PolicyName::Method(MethodName::Static)).instance_bytes, 0);
        assert_eq!(policy(PolicyName::Microvm).base_bytes, 0);
    }
}
