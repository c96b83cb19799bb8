//! Where an experiment is made: what it is made with, and the lines it has yielded.

use super::{
    cases::Case,
    error::{BenchError, Result},
    options::Options,
    progress::Progress,
    record::{Header, NATIVE, Record, Writer},
    stand::describe,
};
use squeezy_node::{MachineDetails, VmPlan};
use squeezy_vmm::{
    Accelerator, AcceleratorKind, Artifacts, Kernel, VmConfig, Vmm, mechanism::MechanismName,
};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// How long `--quick` may take: less than the 6 minutes that are promised, for the last step may
/// take longer than those before it.
const QUICK_BUDGET: Duration = Duration::from_secs(280);

/// One of the things that an experiment does one after the other, shown as what it is.
pub(crate) trait Step: fmt::Display {
    /// About how long it takes, against the others.
    fn weight(&self) -> f64 {
        1.0
    }
}

impl Step for MechanismName {}

/// The things that every VM of an experiment has in common, and its results.
pub(crate) struct Lab<R> {
    pub(crate) files: Artifacts,
    pub(crate) progress: Progress,
    experiment: &'static str,
    accelerator: Accelerator,
    options: Options,
    writer: Writer,
    records: Vec<R>,
    failures: Vec<String>,
    started: Instant,
    /// What of the work is done after the step that is being taken, 0 to 1.
    share: f64,
}

impl<R: Record> Lab<R> {
    /// Checks that everything that is needed is there.
    pub(crate) fn open(experiment: &'static str, options: &Options) -> Result<Self> {
        let files = Artifacts::find(options.build.as_deref())?;
        let progress = Progress::new();
        let accelerator = Vmm::default().accelerator(options.accelerator)?;
        progress.note(&format!("accelerator {}: {}", accelerator.kind, accelerator.reason));
        Ok(Self {
            files,
            progress,
            experiment,
            accelerator,
            options: options.clone(),
            writer: Writer::create(options.json.as_deref())?,
            records: Vec::new(),
            failures: Vec::new(),
            started: Instant::now(),
            share: 1.0,
        })
    }

    /// Sets in a VM's configuration what all VMs have in common.
    pub(crate) fn configure(&self, config: &mut VmConfig) {
        config.vcpus = self.options.vcpus;
        config.accelerator = self.options.accelerator;
        config.memory_backend = self.options.memory_backend;
        config.count_device_requests = true;
        // Stock methods may well take a minute without KVM.
        config.timeouts.resize = Duration::from_secs(if self.options.quick { 60 } else { 180 });
        config.timeouts.boot = Duration::from_secs(180);
        config.timeouts.call = Duration::from_secs(120);
    }

    /// Sets in a plan of VMs for functions what all have in common.
    pub(crate) fn configure_plan(&self, plan: &mut VmPlan) {
        plan.accelerator = self.options.accelerator;
        plan.memory_backend = self.options.memory_backend;
        plan.vcpus = self.options.vcpus;
    }

    /// The header of a line about a guest, or about none.
    pub(crate) fn header(&self, method: &str, trial: u32, guest: Option<(&str, &str)>) -> Header {
        let (kernel, qemu) = guest.unwrap_or(("none", "none"));
        Header {
            experiment: self.experiment.to_owned(),
            method: method.to_owned(),
            trial,
            accelerator: self.accelerator.kind.to_string(),
            memory_backend: self.options.memory_backend.to_string(),
            kernel: kernel.to_owned(),
            qemu: qemu.to_owned(),
        }
    }

    /// The header of a line about functions on a node.
    pub(crate) fn fleet_header(&self, case: &Case<'_>, details: Option<&MachineDetails>) -> Header {
        let kernel = details.map(|details| describe(&details.kernel, Kernel::Release));
        let guest = kernel.as_deref().zip(details.map(|details| details.vmm_version.as_str()));
        self.header(case.policy.name(), case.trial, guest)
    }

    /// The header of a line about plain processes.
    pub(crate) fn native_header(&self, method: &str, trial: u32) -> Header {
        let none = || NATIVE.to_owned();
        Header { accelerator: none(), memory_backend: none(), ..self.header(method, trial, None) }
    }

    /// What runs the guests' code.
    pub(crate) fn accelerator(&self) -> AcceleratorKind {
        self.accelerator.kind
    }

    /// Keeps a line.
    pub(crate) fn keep(&mut self, record: R) -> Result {
        self.writer.write(&record)?;
        self.records.push(record);
        Ok(())
    }

    /// Takes one step after the other, also after one has failed: hours of the others' lines are
    /// worth having. What failed is said at once, and once more at the end.
    ///
    /// # Errors
    /// What would fail the others too: lines that cannot be written.
    pub(crate) async fn each<S: Step>(
        &mut self,
        steps: &[S],
        mut take: impl AsyncFnMut(&mut Self, &S) -> Result,
    ) -> Result {
        let total = steps.iter().map(S::weight).sum();
        self.progress.plan(total);
        let mut done = 0.0;
        for step in steps {
            done += step.weight();
            self.share = done / total;
            self.progress.say(&step.to_string());
            match take(self, step).await {
                Err(
                    error @ (BenchError::Vm(_)
                    | BenchError::Workload { .. }
                    | BenchError::Instance { .. }),
                ) => {
                    let failure = format!("{step}: {error}");
                    self.progress.note(&failure);
                    self.failures.push(failure);
                }
                outcome => outcome?,
            }
            self.progress.reach(done);
        }
        Ok(())
    }

    /// Whether the work until the end of this step may have taken as long as it has, and `next`
    /// more: `--quick` must end in time, at the price of trials.
    pub(crate) fn has_time(&self, next: Duration) -> bool {
        !self.options.quick || self.started.elapsed() + next <= QUICK_BUDGET.mul_f64(self.share)
    }

    /// Of `methods`, those that can be had here: one that nobody asked for by name is left out,
    /// with a note, when its kernel has not been built.
    pub(crate) fn available(&self, methods: Vec<MechanismName>, named: bool) -> Vec<MechanismName> {
        methods
            .into_iter()
            .filter(|name| {
                let Some(method) = name.mechanism(super::stand::smallest()) else { return true };
                let kernel = self.files.kernel(method.kernel());
                let there = named || kernel.exists();
                if !there {
                    self.progress
                        .note(&format!("left out: {name}, for there is no {}", kernel.display()));
                }
                there
            })
            .collect()
    }

    /// All lines, and what failed.
    pub(crate) fn close(self) -> (Vec<R>, Vec<String>) {
        self.progress.finish();
        (self.records, self.failures)
    }
}
