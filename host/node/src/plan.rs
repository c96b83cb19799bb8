//! How a VM for instances of functions is made.

use crate::{FunctionImage, PolicyName};
use squeezy_scaler::VmPolicy;
use squeezy_vmm::{
    AcceleratorChoice, Artifacts, BootStep, GRANULE_BYTES, MEMORY_BLOCK_BYTES, MemoryBackend, Vm,
    VmConfig, VmError, Vmm,
    mechanism::{Mechanism, Sizing},
    round_up,
};
use std::{path::PathBuf, thread::available_parallelism, time::Duration};

/// Base memory for the kernel and the agent, in bytes, with the twentieth of it that Linux keeps free
/// for huge pages; docs/design.md has what was measured.
const BASE_BYTES: u64 = 128 << 20;

/// Base memory for what an instance has outside of its partition, whatever its size, in bytes: kernel
/// stacks, inodes, pipes and the buffers of sockets.
const OUTSIDE_BYTES: u64 = 8 << 20;

/// The part of its partition that an instance has outside of it besides: page tables take a 512th,
/// the index of its files a 455th, and what is mapped by several processes has several of the former.
const OUTSIDE_PART: u64 = 128;

/// How long a reclaim may take before it counts as failed. The guest goes on with it.
const RESIZE_LIMIT: Duration = Duration::from_secs(20);

/// The most that an instance with a partition of this size may have outside of it, in bytes: its share
/// of base memory. A VM has so much for each of its instances, beside what the kernel and the agent
/// need, so that no instance can bring about a shortage for anybody else.
pub(crate) fn outside_bytes(partition_bytes: u64) -> u64 {
    round_up(OUTSIDE_BYTES + partition_bytes / OUTSIDE_PART, 4 << 10)
}

/// Everything that is needed to boot a VM for functions.
#[derive(Clone, Debug)]
pub struct VmPlan {
    /// Kernels and initramfs.
    pub files: Artifacts,
    /// What the VM is called.
    pub name: String,
    /// The read-only roots of its instances, by their [`ImageNumber`](squeezy_protocol::ImageNumber).
    pub images: Vec<PathBuf>,
    /// The way instances get their memory.
    pub policy: PolicyName,
    /// What it has to have room for.
    pub sizing: Sizing,
    /// Its processors.
    pub vcpus: u32,
    /// The largest share of them that an instance has, in thousandths of one.
    pub cpu_millis: u32,
    /// What runs its code.
    pub accelerator: AcceleratorChoice,
    /// What its memory is.
    pub memory_backend: MemoryBackend,
}

impl VmPlan {
    /// A VM for instances of these functions, as many of each as its definition says and all as large
    /// as the largest, with as many processors as their shares add up to, at most the host's.
    pub fn new(
        name: &str,
        functions: &[FunctionImage],
        files: &Artifacts,
        policy: PolicyName,
        shared_bytes: u64,
    ) -> Self {
        let all = || functions.iter().map(|image| &image.function);
        let shares: u32 = all().map(|f| u32::from(f.concurrency) * f.cpu_millis).sum();
        let host = available_parallelism().map_or(1, |count| count.get() as u32);
        let memory_bytes = all().map(|f| f.memory_bytes).max().unwrap_or(0);
        let mut images: Vec<PathBuf> = Vec::new();
        for FunctionImage { image, .. } in functions {
            if !images.contains(image) {
                images.push(image.clone());
            }
        }
        Self {
            files: files.clone(),
            // A function's name may be as long as the VM's.
            name: format!("squeezy-{name:.40}"),
            images,
            policy,
            sizing: Sizing {
                instance_bytes: round_up(memory_bytes, GRANULE_BYTES),
                instances: all().map(|f| f.concurrency).fold(0, u16::saturating_add),
                shared_bytes,
            },
            vcpus: shares.div_ceil(1000).clamp(1, host.min(64)),
            cpu_millis: all().map(|f| f.cpu_millis).max().unwrap_or(1000),
            accelerator: AcceleratorChoice::default(),
            memory_backend: MemoryBackend::default(),
        }
    }

    /// Checks all that can be checked before a VM is started.
    pub fn check(&self) -> Result<(), VmError> {
        self.config(&*self.new_mechanism()?).check()
    }

    /// What the scaler has to know of it. May try KVM, which takes up to a second the first time.
    pub fn vm_policy(&self, idle_time: Option<Duration>) -> Result<VmPolicy, VmError> {
        let max_instances = self.sizing.instances.into();
        // An instance may use its share of a processor, and under emulation all of it.
        let emulates = Vmm::default().accelerator(self.accelerator)?.kind.emulates();
        let share_millis = if emulates { 1000 } else { self.cpu_millis.clamp(1, 1000) };
        let max_starting = self.vcpus.saturating_mul(1000) / share_millis;
        if self.policy == PolicyName::Microvm {
            let instance_bytes =
                self.for_one().config(&*self.for_one().new_mechanism()?).layout().boot_bytes;
            let base_bytes = 0;
            return Ok(VmPolicy {
                base_bytes,
                instance_bytes,
                max_instances,
                max_starting,
                idle_time,
            });
        }
        let layout = self.config(&*self.new_mechanism()?).layout();
        let base_bytes = layout.ready_bytes();
        // It may have the memory of all instances from its boot on.
        let instance_bytes = if layout.can_grow() { self.sizing.instance_bytes } else { 0 };
        Ok(VmPolicy { base_bytes, instance_bytes, max_instances, max_starting, idle_time })
    }

    /// Boots one VM.
    pub(crate) async fn boot_vm(
        &self,
        tell: impl FnMut(BootStep),
    ) -> Result<(Vm, Box<dyn Mechanism>), VmError> {
        let mechanism = self.new_mechanism()?;
        Ok((Vm::start_with(self.config(&*mechanism), tell).await?, mechanism))
    }

    /// The same for one instance only.
    pub(crate) fn for_one(&self) -> Self {
        Self { sizing: Sizing { instances: 1, ..self.sizing }, ..self.clone() }
    }

    fn new_mechanism(&self) -> Result<Box<dyn Mechanism>, VmError> {
        let mechanism = self.policy.mechanism().mechanism(self.sizing);
        mechanism.ok_or(VmError::NotResizable("there is no VM"))
    }

    fn config(&self, mechanism: &dyn Mechanism) -> VmConfig {
        let kernel = self.files.kernel(mechanism.kernel());
        let mut config = VmConfig::new(&self.name, kernel, self.files.initramfs());
        let Sizing { instance_bytes, instances, shared_bytes } = self.sizing;
        // The memory map of all that can be plugged, 64 bytes a page, comes out of the base.
        let region = round_up(shared_bytes, MEMORY_BLOCK_BYTES)
            + u64::from(instances) * round_up(instance_bytes, MEMORY_BLOCK_BYTES);
        let base = BASE_BYTES + u64::from(instances) * outside_bytes(instance_bytes) + region / 64;
        config.base_bytes = round_up(base, GRANULE_BYTES);
        config.images = self.images.clone();
        config.vcpus = self.vcpus;
        config.accelerator = self.accelerator;
        config.memory_backend = self.memory_backend;
        config.timeouts.resize = RESIZE_LIMIT;
        // For what frozen instances give back.
        config.free_page_reporting = self.policy == PolicyName::Overcommit;
        // A mechanism may need more than this.
        mechanism.configure(config)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::function::Function;
    use squeezy_vmm::mechanism::MechanismName;

    /// A plan that seems to be all right until it is booted.
    pub(crate) fn plan(directory: &tempfile::TempDir, name: &str) -> (FunctionImage, VmPlan) {
        let definition = include_str!("../../../functions/html/function.toml");
        let definition = definition.replace("name = \"html\"", &format!("name = {name:?}"));
        let function = Function::parse(&definition).unwrap();
        let files = Artifacts::find(Some(directory.path())).unwrap();
        let image = files.image(&function.name);
        let input = FunctionImage { function, image };
        let policy = PolicyName::Mechanism(MechanismName::Squeezy);
        let inputs = std::slice::from_ref(&input);
        let plan = VmPlan::new(&input.function.name, inputs, &files, policy, 128 << 20);
        for file in
            [files.kernel(squeezy_vmm::Kernel::Release), files.initramfs(), input.image.clone()]
        {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        (input, plan)
    }

    #[test]
    fn a_function_of_any_name_has_a_vm_of_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let (FunctionImage { function, .. }, plan) = plan(&directory, &"f".repeat(63));
        assert_eq!(plan.check(), Ok(()));
        assert_eq!(plan.sizing.instance_bytes, function.memory_bytes);
        assert_eq!(plan.sizing.instances, function.concurrency);
        assert!(plan.vcpus >= 1);
    }

    #[test]
    fn functions_that_share_a_vm_have_room_for_all_their_instances() {
        let directory = tempfile::tempdir().unwrap();
        let (small, one) = plan(&directory, "small");
        let mut large =
            FunctionImage { image: directory.path().join("large.erofs"), ..small.clone() };
        large.function.memory_bytes *= 2;
        let functions = [small.clone(), large.clone(), small.clone()];
        let shared = VmPlan::new("both", &functions, &one.files, one.policy, 0);
        assert_eq!(shared.sizing.instance_bytes, 2 * one.sizing.instance_bytes);
        assert_eq!(shared.sizing.instances, 3 * one.sizing.instances);
        assert_eq!(shared.images, [small.image, large.image]);
    }

    /// With all instances at their limits the kernel and the agent have what is theirs.
    #[test]
    fn base_memory_has_the_share_of_every_instance() {
        let directory = tempfile::tempdir().unwrap();
        let (_, plan) = plan(&directory, "f");
        for (instance_mib, instances) in [(64, 1), (768, 8), (4096, 16)] {
            let sizing = Sizing { instance_bytes: instance_mib << 20, instances, ..plan.sizing };
            let plan = VmPlan { sizing, ..plan.clone() };
            let config = plan.config(&*plan.new_mechanism().unwrap());
            let map = config.layout().region_bytes() / 64;
            let shares = u64::from(instances) * outside_bytes(sizing.instance_bytes);
            assert!(config.base_bytes >= BASE_BYTES + map + shares, "{config:?}");
            // Page tables and the index of files of a full partition, and as much again.
            let least = 2 * (sizing.instance_bytes / 512).max(sizing.instance_bytes / 455);
            assert!(outside_bytes(sizing.instance_bytes) > OUTSIDE_BYTES / 2 + least);
        }
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
        let squeezy = policy(PolicyName::Mechanism(MechanismName::Squeezy));
        for name in PolicyName::ALL {
            let policy = policy(name);
            let ratio = all(policy) as f64 / all(squeezy) as f64;
            let most = if name == PolicyName::Microvm { 2.0 } else { 1.05 };
            assert!((0.95..most).contains(&ratio), "{name}: {policy:?}");
        }
        assert_eq!(policy(PolicyName::Mechanism(MechanismName::Static)).instance_bytes, 0);
        assert_eq!(policy(PolicyName::Microvm).base_bytes, 0);
    }
}
