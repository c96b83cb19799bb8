//! Everything a run needs, and the VMs it is made of.

use super::{
    args::{Args, Method},
    error::RunError,
    input::{FunctionInput, read_function, read_load},
    interrupt::Interrupt,
    machine::Machine,
    record::{MethodRecord, Report},
    replay::Replay,
    view::{Heading, View},
};
use squeezy_runtime::{FunctionPolicy, load::Load};
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

/// Base memory for the kernel and the agent, in bytes.
const BASE_BYTES: u64 = 192 << 20;

/// Base memory for what an instance has beside its own: page tables, stacks, sockets, its overlay.
const BASE_BYTES_PER_INSTANCE: u64 = 16 << 20;

/// How long a reclaim may take before it counts as failed. The guest goes on with it.
const RESIZE_LIMIT: Duration = Duration::from_secs(20);

/// What is run, on what, with what.
pub struct Setup {
    /// The command line.
    pub args: Args,
    files: Artifacts,
    input: FunctionInput,
    load: Load,
    sizing: Sizing,
}

/// What a VM is made of, for the report.
struct Versions {
    accelerator: Accelerator,
    qemu: String,
    kernel: String,
}

impl Setup {
    /// Reads everything, so that what is wrong is said before a VM is started.
    pub fn read(args: Args) -> Result<Self, RunError> {
        let files = Artifacts::find(args.build.as_deref())?;
        let input = read_function(&args.function, &files)?;
        let sizing = Sizing {
            instance_bytes: round_up(
                args.memory.unwrap_or(input.function.memory_bytes),
                GRANULE_BYTES,
            ),
            instances: args.concurrency.unwrap_or(input.function.concurrency),
            shared_bytes: args.shared_memory,
        };
        let load = read_load(&args, args.burst.unwrap_or(sizing.instances.into()))?;
        Ok(Self { args, files, input, load, sizing })
    }

    /// Runs the methods one after another, until one is interrupted.
    pub async fn run(&self, view: &dyn View, interrupt: &Interrupt) -> Result<Report, RunError> {
        let mut report = self.report();
        for (index, &method) in self.args.methods.iter().enumerate() {
            let name = method.name();
            let turn = format!("{name} ({} of {})", index + 1, self.args.methods.len());
            view.begin(self.heading(turn));
            let mut record = MethodRecord { method: name.to_string(), ..MethodRecord::default() };
            match self.boot(method, view, interrupt).await? {
                Some((machine, boot, versions)) => {
                    record.boot_seconds = boot.as_secs_f64();
                    self.describe(&mut report, versions);
                    let replay = Replay::new(machine, self.policy(), record, view)?;
                    record = replay.run(&self.load.arrivals, interrupt).await;
                }
                None => record.ended_early = Some("interrupted".to_owned()),
            }
            report.methods.push(record);
            if interrupt.is_raised() {
                break;
            }
        }
        Ok(report)
    }

    fn heading(&self, method: String) -> Heading {
        Heading {
            function: self.input.function.name.clone(),
            method,
            load: self.load.source.clone(),
            length: self.args.duration,
            requests: self.load.arrivals.len(),
            concurrency: self.sizing.instances,
        }
    }

    /// Starts a VM; nothing when it was interrupted.
    async fn boot(
        &self,
        method: Method,
        view: &dyn View,
        interrupt: &Interrupt,
    ) -> Result<Option<(Machine, Duration, Versions)>, RunError> {
        let sizing = self.sizing;
        let method = method.name().method(sizing).ok_or(VmError::NotResizable("there is no VM"))?;
        let name =
            format!("squeezy-{}", self.input.function.name.chars().take(40).collect::<String>());
        let base = configure(&*method, &name, &self.files);
        let config = self.configure(base);
        let begin = Instant::now();
        let started = tokio::select! {
            vm = Vm::start_with(config, |step| tell(view, &step)) => vm?,
            () = interrupt.raised(1) => return Ok(None),
        };
        let info = started.agent()?.info().await?;
        let versions = Versions {
            accelerator: started.accelerator().clone(),
            qemu: started.vmm_version().to_owned(),
            kernel: info.kernel_release,
        };
        let emulated = versions.accelerator.kind == AcceleratorKind::Tcg;
        let machine = Machine {
            vm: started,
            method,
            function: self.input.function.clone(),
            instance_bytes: sizing.instance_bytes,
            cpu_millis: (!emulated).then_some(self.input.function.cpu_millis),
        };
        Ok(Some((machine, begin.elapsed(), versions)))
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

    fn policy(&self) -> FunctionPolicy {
        FunctionPolicy {
            instance_bytes: self.sizing.instance_bytes,
            max_instances: self.sizing.instances.into(),
            keep_alive: self.args.keep_alive,
            queue_limit: self.args.queue as usize,
        }
    }

    fn report(&self) -> Report {
        Report {
            kind: "squeezy_run",
            version: env!("CARGO_PKG_VERSION"),
            function: self.input.function.name.clone(),
            instance_bytes: self.sizing.instance_bytes,
            concurrency: self.sizing.instances,
            keep_alive_seconds: self.args.keep_alive.as_secs_f64(),
            load: self.load.source.clone(),
            load_speed: self.args.speed,
            seed: self.args.seed,
            accelerator: String::new(),
            accelerator_reason: String::new(),
            memory_backend: self.args.memory_backend.to_string(),
            kernel: String::new(),
            qemu: String::new(),
            notes: Vec::new(),
            methods: Vec::new(),
        }
    }

    /// Adds what is known once the first VM runs.
    fn describe(&self, report: &mut Report, versions: Versions) {
        let Versions { accelerator, qemu, kernel } = versions;
        if accelerator.kind == AcceleratorKind::Tcg && report.notes.is_empty() {
            report.notes.push(
                "emulated (TCG): the guest's code runs many times slower than on hardware, so compare the methods \
                 with each other and take no time here for absolute; instances have no CPU limit"
                    .to_owned(),
            );
        }
        report.accelerator = accelerator.kind.to_string();
        report.accelerator_reason = accelerator.reason;
        report.qemu = qemu;
        report.kernel = kernel;
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
