//! What is run: the function, the methods one after another, and the same load for each.

use super::{
    args::Args,
    boot::{Booted, Parts},
    error::RunError,
    input::{FunctionInput, LoadInput, make_up, read_function, read_trace},
    interrupt::Interrupt,
    record::{MethodRecord, Report},
    replay::Replay,
    view::View,
};
use squeezy_runtime::FunctionPolicy;
use squeezy_vmm::{AcceleratorKind, Artifacts, GRANULE_BYTES, method::Sizing, round_up};

/// What is run.
pub struct Setup {
    args: Args,
    files: Artifacts,
    input: FunctionInput,
    sizing: Sizing,
    /// The same for every method. A load that is made up is only known once an instance has run.
    load: Option<LoadInput>,
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
        let load = read_trace(&args, &input.function)?;
        let parts = Parts { args: &args, files: &files, input: &input, sizing };
        args.methods.iter().try_for_each(|method| parts.check(*method))?;
        Ok(Self { args, files, input, sizing, load })
    }

    /// Runs the methods one after another, until one is interrupted.
    pub async fn run(mut self, view: &dyn View, interrupt: &Interrupt) -> Result<Report, RunError> {
        let mut report = self.report();
        for index in 0..self.args.methods.len() {
            let record = match self.run_method(index, &mut report, view, interrupt).await {
                // What other methods have shown is worth keeping.
                Err(error) if !report.methods.is_empty() => MethodRecord {
                    method: self.args.methods[index].name().to_string(),
                    ended_early: Some(error.to_string()),
                    ..MethodRecord::default()
                },
                result => result?,
            };
            report.methods.push(record);
            if interrupt.is_raised() {
                break;
            }
        }
        Ok(report)
    }

    async fn run_method(
        &mut self,
        index: usize,
        report: &mut Report,
        view: &dyn View,
        interrupt: &Interrupt,
    ) -> Result<MethodRecord, RunError> {
        let method = self.args.methods[index];
        let mut record =
            MethodRecord { method: method.name().to_string(), ..MethodRecord::default() };
        let turn = format!("{} ({} of {})", record.method, index + 1, self.args.methods.len());
        view.begin(&self.input.function.name, &turn, self.sizing.instances);
        let parts =
            Parts { args: &self.args, files: &self.files, input: &self.input, sizing: self.sizing };
        let Some(booted) = parts.boot(method, view, interrupt).await? else {
            record.ended_early = Some("interrupted".to_owned());
            return Ok(record);
        };
        record.boot_seconds = booted.boot.as_secs_f64();
        record.first_answer_seconds = booted.first_answer.as_secs_f64();
        let load = match &mut self.load {
            Some(load) => load,
            unknown => {
                let burst = self.args.burst.unwrap_or(self.sizing.instances.into());
                unknown.insert(make_up(&self.args, burst, booted.first_answer)?)
            }
        };
        describe(report, &booted, load);
        view.load(&load.load, load.length);
        let policy = FunctionPolicy {
            instance_bytes: self.sizing.instance_bytes,
            max_instances: self.sizing.instances.into(),
            keep_alive: load.keep_alive,
            queue_limit: self.args.queue as usize,
        };
        let replay = Replay::new(booted.machine, policy, record, view)?;
        Ok(replay.run(&load.load.arrivals, interrupt).await)
    }

    fn report(&self) -> Report {
        Report {
            kind: "squeezy_run",
            version: env!("CARGO_PKG_VERSION"),
            function: self.input.function.name.clone(),
            instance_bytes: self.sizing.instance_bytes,
            concurrency: self.sizing.instances,
            load_speed: self.args.speed,
            seed: self.args.seed,
            memory_backend: self.args.memory_backend.to_string(),
            ..Report::default()
        }
    }
}

/// Adds what is known once the first VM runs.
fn describe(report: &mut Report, booted: &Booted, load: &LoadInput) {
    report.load.clone_from(&load.load.source);
    report.load_seconds = load.length.as_secs_f64();
    report.keep_alive_seconds = load.keep_alive.as_secs_f64();
    report.accelerator = booted.accelerator.kind.to_string();
    report.accelerator_reason.clone_from(&booted.accelerator.reason);
    report.qemu.clone_from(&booted.qemu);
    report.kernel.clone_from(&booted.kernel);
    report.notes = vec![
        "Before the load a first instance answers a request and ends, which leaves the function's files in the \
         page cache."
            .to_owned(),
    ];
    if booted.accelerator.kind == AcceleratorKind::Tcg {
        report.notes.push(
            "Emulated (TCG): the guest's code runs many times slower than on hardware, and the keep-alive is in \
             proportion. Compare the methods with each other; no time here is absolute. Instances have no CPU limit."
                .to_owned(),
        );
    }
}
