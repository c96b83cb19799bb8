//! How to build a VM for instances of functions.

use crate::{FunctionImage, PolicyName};
use squeezy_protocol::NetworkAccess;
use squeezy_scaler::VmPolicy;
use squeezy_vmm::{
    AcceleratorChoice, Artifacts, BootStep, CpuShare, GRANULE_BYTES, Llfree, MemoryBackendChoice,
    Vm, VmConfig, VmError, Vmm,
    mechanism::{Mechanism, Sizing},
    network::{NetworkCounters, Openable, Uplink},
    round_up,
};
use std::{path::PathBuf, sync::Arc, thread::available_parallelism, time::Duration};

/// The most requests that the instances of a VM may cause at a time: their calls, and two more for each of them, one that
/// waits for its end and one that stops it. Its agent answers 1,024 at a time.
const MAX_REQUESTS: usize = 1000;

/// How long a reclaim may take before it counts as failed. The guest continues with it.
const RESIZE_LIMIT: Duration = Duration::from_secs(20);

/// Everything that is needed to boot a VM for functions.
#[derive(Clone, Debug)]
pub struct VmPlan {
    /// Kernels and initramfs.
    pub files: Artifacts,
    /// The VM's name.
    pub name: String,
    /// The read-only file systems that the roots of its instances are made of, by
    /// [`ImageNumber`](squeezy_protocol::ImageNumber).
    pub images: Vec<PathBuf>,
    /// How instances get their memory.
    pub policy: PolicyName,
    /// How many instances it has room for, and of what size.
    pub sizing: Sizing,
    /// How many calls its instances serve at a time, all together.
    pub calls: usize,
    /// Number of processors.
    pub vcpus: u32,
    /// The largest CPU share of any instance, in thousandths of a processor.
    pub cpu_millis: u32,
    /// Whose share of the host's processors it uses; it competes by itself if absent.
    pub cpu_share: Option<Arc<CpuShare>>,
    /// The accelerator: KVM or emulation.
    pub accelerator: AcceleratorChoice,
    /// The memory backend.
    pub memory_backend: MemoryBackendChoice,
    /// What its network device leads to, as each function that has a network says. A VM has only one.
    pub networks: Vec<Uplink>,
    /// What their owner may open of what is private, for each that lists it. It may change while VMs run.
    pub openable: Arc<Openable>,
    /// What counts how often they try to reach somebody, in all VMs of this plan.
    pub network_counters: Arc<NetworkCounters>,
}

impl VmPlan {
    /// A VM for instances of these functions: as many of each as its definition says, all as large as the
    /// largest, with enough processors for all their shares, but no more than the host has.
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
        let mut networks = Vec::new();
        for FunctionImage { image, code, function } in functions {
            for file in [image].into_iter().chain(code) {
                if !images.contains(file) {
                    images.push(file.clone());
                }
            }
            let has_network = function.network == Some(NetworkAccess::Outbound);
            let uplink = match &function.tap {
                Some(tap) => Uplink::Tap(tap.clone()),
                None => Uplink::Judged(function.reach.clone()),
            };
            if has_network && !networks.contains(&uplink) {
                networks.push(uplink);
            }
        }
        Self {
            files: files.clone(),
            // A function's name may be as long as a VM's name, so shorten it.
            name: format!("squeezy-{name:.40}"),
            images,
            policy,
            sizing: Sizing {
                instance_bytes: round_up(memory_bytes, GRANULE_BYTES),
                instances: all().map(|f| f.concurrency).fold(0, u16::saturating_add),
                shared_bytes,
            },
            calls: all()
                .map(|f| usize::from(f.concurrency) * usize::from(f.calls_per_instance.get()))
                .sum(),
            vcpus: shares.div_ceil(1000).clamp(1, host.min(64)),
            cpu_millis: all().map(|f| f.cpu_millis).max().unwrap_or(1000),
            cpu_share: None,
            accelerator: AcceleratorChoice::default(),
            memory_backend: MemoryBackendChoice::default(),
            networks,
            openable: Arc::default(),
            network_counters: Arc::default(),
        }
    }

    /// Checks everything that can be checked before the VM is started.
    pub fn check(&self) -> Result<(), VmError> {
        if self.networks.len() > 1 {
            let problem = "functions that share a VM must say the same of what they reach over the network: give them \
                           the same keys that begin with network_, or another VM each";
            return Err(VmError::Config(problem.to_owned()));
        }
        let most = MAX_REQUESTS.saturating_sub(2 * usize::from(self.sizing.instances));
        if self.calls > most {
            return Err(VmError::Config(format!(
                "its {} instances would serve {} calls at a time, and together they can serve {most}: lower \
                 calls_per_instance (limits.concurrency of an action), or concurrency, the number of instances",
                self.sizing.instances, self.calls
            )));
        }
        if let [Uplink::Tap(tap)] = &self.networks[..]
            && self.policy == PolicyName::Microvm
        {
            return Err(VmError::Config(format!(
                "the tap device {tap} serves one VM, and with the policy microvm each instance has its own: leave out \
                 network_tap, or choose another policy"
            )));
        }
        if let Some(problem) = self.policy.problem_with(self.memory_backend) {
            return Err(VmError::Config(problem));
        }
        self.config(&*self.new_mechanism()?).check()
    }

    /// The VM's policy for the scaler. May probe KVM, which takes up to a second the first time.
    pub fn vm_policy(&self, idle_time: Option<Duration>) -> Result<VmPolicy, VmError> {
        let max_instances = self.sizing.instances.into();
        // An instance is limited to its share of a processor, but not under emulation.
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
        // A VM that cannot grow has the memory of all instances from boot on.
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

    /// The same plan with room for only one instance.
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
        config.base_bytes = self.sizing.base_bytes();
        config.images = self.images.clone();
        config.network = self.networks.first().cloned();
        config.openable = self.openable.clone();
        config.network_counters = self.network_counters.clone();
        config.vcpus = self.vcpus;
        config.cpu_share = self.cpu_share.clone();
        config.accelerator = self.accelerator;
        config.memory_backend = self.memory_backend.resolve(mechanism.name());
        config.timeouts.resize = RESIZE_LIMIT;
        // The mechanism may need more.
        let mut config = mechanism.configure(config);
        // Of all that is the guest's: what it frees of base memory is nobody's either.
        config.give_back_free(Llfree::All, self.policy == PolicyName::Overcommit);
        config
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::function::Function;
    use squeezy_vmm::{mechanism::MechanismName, network::Network};
    use std::num::NonZeroU16;

    /// A plan that passes all checks, but cannot be booted.
    pub(crate) fn plan(directory: &tempfile::TempDir, name: &str) -> (FunctionImage, VmPlan) {
        let definition = include_str!("../../../functions/html/function.toml");
        let definition = definition.replace("name = \"html\"", &format!("name = {name:?}"));
        let function = Function::parse(&definition).unwrap();
        let files = Artifacts::find(Some(directory.path())).unwrap();
        let image = files.image(&function.name);
        let input = FunctionImage { function, image, code: None };
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
    fn the_host_takes_free_memory_by_itself_where_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = plan(&directory, "free").1;
        plan.policy = PolicyName::Overcommit;
        let config = |plan: &VmPlan| plan.config(&*plan.new_mechanism().unwrap());
        plan.memory_backend = MemoryBackendChoice::Ram;
        let private = config(&plan);
        assert_eq!((private.llfree, private.free_page_reporting), (Llfree::Off, true));
        plan.memory_backend = MemoryBackendChoice::Memfd;
        let shared = config(&plan);
        assert_eq!((shared.llfree, shared.free_page_reporting), (Llfree::All, false));
    }

    #[test]
    fn the_host_takes_all_that_is_free_with_every_policy_that_lets_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = plan(&directory, "free").1;
        plan.memory_backend = MemoryBackendChoice::Memfd;
        for policy in PolicyName::ALL {
            plan.policy = policy;
            let config = plan.config(&*plan.new_mechanism().unwrap());
            let expected = match policy.mechanism() {
                MechanismName::Squeezy | MechanismName::HyperAlloc => (Llfree::All, true),
                _ => (Llfree::Off, false),
            };
            let found = (config.llfree, config.take_free_every.is_some());
            assert_eq!(found, expected, "{policy}");
        }
    }

    #[test]
    fn private_memory_is_refused_where_the_host_works_on_it_and_is_nobodys_default_there() {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = plan(&directory, "private").1;
        plan.policy = PolicyName::Mechanism(MechanismName::HyperAlloc);
        assert_eq!(plan.memory_backend, MemoryBackendChoice::Auto);
        assert_eq!(plan.check(), Ok(()));
        plan.memory_backend = MemoryBackendChoice::Memfd;
        assert_eq!(plan.check(), Ok(()));
        plan.memory_backend = MemoryBackendChoice::Ram;
        let error = plan.check().unwrap_err().to_string();
        assert!(error.contains("with the policy hyperalloc") && error.contains("memfd"), "{error}");
        plan.policy = PolicyName::Mechanism(MechanismName::Squeezy);
        assert_eq!(plan.check(), Ok(()));
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
        let mut large = FunctionImage {
            image: directory.path().join("large.erofs"),
            code: Some(directory.path().join("code.erofs")),
            ..small.clone()
        };
        large.function.memory_bytes *= 2;
        let functions = [small.clone(), large.clone(), small.clone()];
        let shared = VmPlan::new("both", &functions, &one.files, one.policy, 0);
        assert_eq!(shared.sizing.instance_bytes, 2 * one.sizing.instance_bytes);
        assert_eq!(shared.sizing.instances, 3 * one.sizing.instances);
        assert_eq!(shared.images, [small.image, large.image, large.code.unwrap()]);
    }

    #[test]
    fn a_vm_serves_only_so_many_calls_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let (mut image, one) = plan(&directory, "several");
        let mut with = |instances, calls| {
            image.function.concurrency = instances;
            image.function.calls_per_instance = NonZeroU16::new(calls).unwrap();
            VmPlan::new("several", std::slice::from_ref(&image), &one.files, one.policy, 0)
        };
        assert_eq!(with(8, 100).check(), Ok(()));
        let error = with(10, 99).check().unwrap_err().to_string();
        assert!(error.contains("10 instances would serve 990 calls"), "{error}");
        assert!(error.contains("together they can serve 980: "), "{error}");
    }

    #[test]
    fn a_vm_has_one_network_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let (closed, one) = plan(&directory, "closed");
        let plan =
            |functions: &[FunctionImage]| VmPlan::new("both", functions, &one.files, one.policy, 0);
        let network = |plan: &VmPlan| plan.config(&*plan.new_mechanism().unwrap()).network;
        assert_eq!(network(&one), None);
        let mut open = closed.clone();
        open.function.network = Some(NetworkAccess::Outbound);
        let both = plan(&[closed, open.clone()]);
        assert_eq!(network(&both), Some(Uplink::Judged(Network::default())));
        assert_eq!(both.check(), Ok(()));
        let mut other = open.clone();
        other.function.reach.connections += 1;
        let mut tapped = open.clone();
        tapped.function.tap = Some("tap0".parse().unwrap());
        let alone = plan(std::slice::from_ref(&tapped));
        assert_eq!(network(&alone), Some(Uplink::Tap("tap0".parse().unwrap())));
        let each = VmPlan { policy: PolicyName::Microvm, ..alone };
        let error = each.check().unwrap_err().to_string();
        assert!(error.contains("the tap device tap0 serves one VM"), "{error}");
        assert!(plan(&[open.clone(), tapped]).check().is_err());
        let error = plan(&[open, other]).check().unwrap_err().to_string();
        assert!(error.contains("functions that share a VM must say the same"), "{error}");
        assert!(error.ends_with("network_, or another VM each"), "{error}");
    }

    /// Base memory and instances add up to about the same total under every policy.
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
