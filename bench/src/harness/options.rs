//! Options that all experiments have.

use squeezy_vmm::{AcceleratorChoice, MemoryBackend};
use std::path::PathBuf;

/// How to measure and where results go.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure less: results within minutes, with more noise
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write each measurement to FILE as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw the result to FILE as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Measure nothing; read the lines of an earlier run from FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "json"])]
    pub(crate) from: Option<PathBuf>,
    /// Number of trials
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) trials: Option<u32>,
    /// The accelerator: auto, kvm or tcg
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) accelerator: AcceleratorChoice,
    /// The memory backend of the guest: ram or memfd
    #[arg(long, value_name = "NAME", default_value = "ram")]
    pub(crate) memory_backend: MemoryBackend,
    /// Processors of a VM
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) vcpus: u32,
    /// The directory of kernels and images
    #[arg(long, value_name = "DIR")]
    pub(crate) build: Option<PathBuf>,
}

impl Options {
    /// The number of trials: as requested, otherwise one of these.
    pub(crate) fn trials_or(&self, quick: u32, full: u32) -> u32 {
        self.trials.unwrap_or(if self.quick { quick } else { full })
    }
}
