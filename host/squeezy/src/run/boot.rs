//! Boots a VM for a method and has a first instance answer a request.

use super::{
    args::{Args, Method},
    error::RunError,
    input::FunctionInput,
    interrupt::Interrupt,
    machine::Machine,
    view::View,
};
use squeezy_vmm::{
    Accelerator, AcceleratorKind, Artifacts, BootStep, GRANULE_BYTES, MEMORY_BLOCK_BYTES, Vm,
    VmConfig, VmError,
    method::{Sizing, configure},
    round_up,
};
use std::{
    thread::available_parallelism,
    time::{Duration, Instant},
};

/// Base memory for the kernel and the agent, in bytes, with the twentieth of it that Linux keeps free
/// for huge pages.
const BASE_BYTES: u64 = 208 << 20;

/// Base memory for what an instance has beside its own: page tables, stacks, sockets, its overlay.
const BASE_BYTES_PER_INSTANCE: u64 = 16 << 20;

/// How long a reclaim may take before it counts as failed. The guest goes on with it.
const RESIZE_LIMIT: Duration = Duration::from_secs(20);

/// What VMs are made from.
pub struct Parts<'a> {
    /// The command line.
    pub args: &'a Args,
    /// Kernels and initramfs.
    pub files: &'a Artifacts,
    /// The function and its image.
    pub input: &'a FunctionInput,
    /// The sizes of instances and what they share.
    pub sizing: Sizing,
}

/// A VM that has been shown to work.
pub struct Booted {
    /// The VM.
    pub machine: Machine,
    /// What runs its code, and why.
    pub accelerator: Accelerator,
    /// The VMM's name and version.
    pub qemu: String,
    /// The guest's kernel.
    pub kernel: String,
    /// From the start of the VMM until the agent answered.
    pub boot: Duration,
    /// From there until a first instance had answered a request.
    pub first_answer: Duration,
}

impl Parts<'_> {
    /// Boots a VM; nothing when that was interrupted.
    pub async fn boot(
        &self,
        method: Method,
        view: &dyn View,
        interrupt: &Interrupt,
    ) -> Result<Option<Booted>, RunError> {
        tokio::select! {
            // Whatever is dropped half-way ends its VM.
            booted = self.boot_undisturbed(method, view) => booted.map(Some),
            () = interrupt.raised(1) => Ok(None),
        }
    }

    async fn boot_undisturbed(&self, method: Method, view: &dyn View) -> Result<Booted, RunError> {
        let (method, config) = self.plan(method)?;
        let function = self.input.function.clone();
        let begin = Instant::now();
        let vm = Vm::start_with(config, |step| tell(view, &step)).await?;
        let boot = begin.elapsed();
        let accelerator = vm.accelerator().clone();
        let qemu = vm.vmm_version().to_owned();
        let kernel = vm.agent()?.info().await?.kernel_release;
        let emulated = accelerator.kind == AcceleratorKind::Tcg;
        let instance_bytes = self.sizing.instance_bytes;
        let cpu_millis = (!emulated).then_some(function.cpu_millis);
        let machine = Machine { vm, method, function, instance_bytes, cpu_millis };
        let failed =
            |reason| RunError::FirstInstance { function: machine.function.name.clone(), reason };
        let first_answer = machine.warm_up().await.map_err(failed)?;
        view.note(&format!(
            "a first instance has answered after {:.1} s",
            first_answer.as_secs_f64()
        ));
        Ok(Booted { machine, accelerator, qemu, kernel, boot, first_answer })
    }

    /// Checks all that can be checked before a VM is started.
    pub fn check(&self, method: Method) -> Result<(), RunError> {
        let (_, config) = self.plan(method)?;
        Ok(config.check()?)
    }

    fn plan(
        &self,
        method: Method,
    ) -> Result<(Box<dyn squeezy_vmm::method::Method>, VmConfig), RunError> {
        let method =
            method.name().method(self.sizing).ok_or(VmError::NotResizable("there is no VM"))?;
        let function = self.input.function.name.chars().take(40).collect::<String>();
        let name = format!("squeezy-{function}");
        let config = self.configure(configure(&*method, &name, self.files));
        Ok((method, config))
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        let Sizing { instance_bytes, instances, shared_bytes } = self.sizing;
        // The memory map of all that can be plugged, 64 bytes a page, comes out of the base.
        let region = round_up(shared_bytes, MEMORY_BLOCK_BYTES)
            + u64::from(instances) * round_up(instance_bytes, MEMORY_BLOCK_BYTES);
        let base = BASE_BYTES + u64::from(instances) * BASE_BYTES_PER_INSTANCE + region / 64;
        config.base_bytes = round_up(base, GRANULE_BYTES);
        config.image = Some(self.input.image.clone());
        config.vcpus = self.args.vcpus.unwrap_or_else(|| self.default_vcpus());
        config.accelerator = self.args.accelerator;
        config.memory_backend = self.args.memory_backend;
        config.timeouts.resize = RESIZE_LIMIT;
        config
    }

    fn default_vcpus(&self) -> u32 {
        let shares = u32::from(self.sizing.instances) * self.input.function.cpu_millis;
        let host = available_parallelism().map_or(1, |count| count.get() as u32);
        shares.div_ceil(1000).clamp(1, host.min(64))
    }
}

fn tell(view: &dyn View, step: &BootStep) {
    let text = match step {
        BootStep::Accelerator(accelerator) => {
            format!("accelerator {}: {}", accelerator.kind, accelerator.reason)
        }
        BootStep::Started(version) => format!("{version} runs"),
        BootStep::Kernel => "the guest's kernel boots".to_owned(),
        BootStep::AgentUp => "the agent is up".to_owned(),
        BootStep::Ready(time) => format!("the VM is ready after {:.1} s", time.as_secs_f64()),
    };
    view.note(&text);
}
