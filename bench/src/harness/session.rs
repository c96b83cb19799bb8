//! A run of an experiment: its equipment, and the lines it has recorded.

use super::{Options, Progress, Step};
use crate::{
    error::{BenchError, Result},
    record::{Guest, Header, Measured, NO_GUEST, Recorded, Writer},
};
use squeezy_vmm::{
    Accelerator, AcceleratorKind, Artifacts, Kernel, MemoryBackend, SharedHugePages, VmConfig, Vmm,
};
use std::{
    fmt,
    path::Path,
    time::{Duration, Instant},
};

/// Time budget of `--quick`: less than the 6 minutes of bench/targets.toml, because the last step
/// may take longer than the previous ones.
const QUICK_BUDGET: Duration = Duration::from_secs(280);

/// What all VMs of an experiment have in common, and its results.
pub(crate) struct Session<F> {
    pub(crate) files: Artifacts,
    pub(crate) progress: Progress,
    pub(crate) options: Options,
    experiment: &'static str,
    accelerator: Accelerator,
    writer: Writer,
    records: Vec<Measured<F>>,
    failures: Vec<String>,
    started: Instant,
    /// The fraction of the work that is complete after the current step, 0 to 1.
    share: f64,
}

impl<F: Recorded> Session<F> {
    /// Checks that everything the experiment needs exists.
    pub(crate) fn open(experiment: &'static str, options: &Options) -> Result<Self> {
        let files = Artifacts::find(options.build.as_deref())?;
        refuse_trial(files.path(), &std::env::current_exe().unwrap_or_default())?;
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

    /// Applies the settings that all VMs have in common.
    pub(crate) fn configure(&self, config: &mut VmConfig) {
        config.vcpus = self.options.vcpus;
        config.accelerator = self.options.accelerator;
        config.memory_backend = self.options.memory_backend;
        config.count_device_requests = true;
        // Stock methods may take a minute without KVM.
        config.timeouts.resize = Duration::from_secs(if self.options.quick { 60 } else { 180 });
        config.timeouts.boot = Duration::from_secs(180);
        config.timeouts.call = Duration::from_secs(120);
    }

    /// The header of a line, with a guest or without.
    pub(crate) fn header(&self, method: &str, trial: u32, guest: Option<&Guest>) -> Header {
        let (kernel, vmm) = guest.map_or((NO_GUEST, NO_GUEST), |g| (&*g.kernel, &*g.vmm));
        let is_file = self.options.memory_backend == MemoryBackend::Memfd;
        Header {
            experiment: self.experiment.to_owned(),
            method: method.to_owned(),
            trial,
            accelerator: self.accelerator.kind.to_string(),
            memory_backend: self.options.memory_backend.to_string(),
            shmem_enabled: is_file.then(|| SharedHugePages::of_host().setting),
            kernel: kernel.to_owned(),
            vmm: vmm.to_owned(),
        }
    }

    /// The accelerator of the guests.
    pub(crate) fn accelerator(&self) -> AcceleratorKind {
        self.accelerator.kind
    }

    /// Records a line.
    pub(crate) fn keep(&mut self, header: Header, figures: F) -> Result {
        let record = Measured { header, figures };
        self.writer.write(&record)?;
        self.records.push(record);
        Ok(())
    }

    /// Runs one step after another, even after a failure: hours of the other steps' lines are worth
    /// having. A failure is reported immediately, and again at the end.
    ///
    /// # Errors
    /// A failure that would affect all steps: lines cannot be written.
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
                    | BenchError::Instance { .. }
                    | BenchError::Pod { .. }),
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

    /// Whether the time budget up to the end of this step allows for `next` more: `--quick` must
    /// end in time, at the price of trials.
    pub(crate) fn has_time(&self, next: Duration) -> bool {
        !self.options.quick || self.started.elapsed() + next <= QUICK_BUDGET.mul_f64(self.share)
    }

    /// Whether a kernel has been built; if not, notes that `what` is left out.
    pub(crate) fn has_kernel(&self, kernel: Kernel, what: &impl fmt::Display) -> bool {
        let path = self.files.kernel(kernel);
        let there = path.exists();
        if !there {
            self.progress
                .note(&format!("left out: {what}, because there is no {}", path.display()));
        }
        there
    }

    /// All lines, and the failures.
    pub(crate) fn close(self) -> (Vec<Measured<F>>, Vec<String>) {
        self.progress.finish();
        (self.records, self.failures)
    }
}

/// Refuses what `make run` builds, which is hardly optimised: the guest's files in `build/trial`, and experiments of
/// the same profile.
fn refuse_trial(files: &Path, program: &Path) -> Result {
    if files.ends_with("build/trial")
        || program.parent().is_some_and(|of| of.ends_with("target/trial"))
    {
        return Err(BenchError::Arguments(
            "the profile `trial` is not for measurements: use target/release/squeezy (`make programs`), and unset \
             $SQUEEZY_BUILD"
                .to_owned(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_make_run_builds_is_not_measured() {
        let refused = |files: &str, program: &str| {
            refuse_trial(Path::new(files), Path::new(program)).is_err()
        };
        assert!(refused("/checkout/build/trial", "/checkout/target/release/squeezy-bench"));
        assert!(refused("/checkout/build", "/checkout/target/trial/squeezy-bench"));
        assert!(!refused("/checkout/build", "/checkout/target/release/squeezy-bench"));
        assert!(!refused("/usr/lib/squeezy", "/usr/bin/squeezy-bench"));
    }
}
