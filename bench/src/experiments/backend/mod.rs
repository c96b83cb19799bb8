//! What guest memory in a file that the host works on costs and brings, compared with private memory of the VMM.
//! See README.md.

mod report;
mod steps;

use crate::{
    error::Result,
    harness::{Experiment, Session},
    rigs::node_rig::Functions,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::MemoryBackend;
use std::time::Instant;

/// Both take turns in each trial.
const BACKENDS: [MemoryBackend; 2] = [MemoryBackend::Ram, MemoryBackend::Memfd];

/// The function that is called, unless another one is named.
const FUNCTION: &str = "html";

/// What each memory backend costs and brings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    functions: Functions,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// A VM with partitions is booted.
    Boot,
    /// The memory of an instance is plugged.
    Plug,
    /// The instance touches it for the first time.
    Touch,
    /// The instance has ended, and its memory is reclaimed as a node does it.
    Reclaim,
    /// The part of that in which the host takes what is free. Without a guest, another process discards as much.
    Take,
    /// A frozen instance has freed nearly all its memory, which goes back.
    Frozen,
    /// A frozen instance has freed every other page, which go back.
    FrozenPages,
    /// A function is called that has a running VM and no instance.
    ColdStart,
    /// A VM with one frozen instance of the function is paused.
    Paused,
}

/// One step of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    step: Step,
    /// How long it took.
    latency_ns: u64,
    /// The part of that in which the host's kernel discarded memory, where it is known.
    discard_ns: Option<u64>,
    /// CPU time of the VM's virtual processors meanwhile, if it was measured.
    vcpus_ns: Option<u64>,
    /// By how much host memory behind the guest's memory decreased, where that is what it is for.
    resident_drop_bytes: Option<u64>,
    /// Host memory behind the guest's memory at the end.
    resident_bytes: u64,
    /// The part of it in huge pages.
    huge_bytes: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "backend";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let functions = self.functions.find(session, &[FUNCTION])?;
        let trials = session.options.trials_or(1, 7);
        session.progress.plan(f64::from(trials) * BACKENDS.len() as f64);
        for trial in 0..trials {
            let start = Instant::now();
            for backend in BACKENDS {
                session.options.memory_backend = backend;
                session.progress.say(&format!("trial {} of {trials}: {backend}", trial + 1));
                steps::memhog(session, trial).await?;
                steps::cold_start(session, &functions[..1], trial).await?;
                steps::paused(session, &functions[..1], trial).await?;
                session.progress.advance(1.0);
            }
            steps::floor(session, trial).await?;
            if !session.has_time(start.elapsed()) {
                break;
            }
        }
        Ok(())
    }
}
