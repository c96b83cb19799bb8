//! What all experiments can be told.

use super::error::{BenchError, Result};
use squeezy_vmm::{AcceleratorChoice, MemoryBackend, mechanism::MechanismName};
use std::path::PathBuf;

/// How to measure and where results go.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure little: an answer within minutes, with more noise
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write each measurement to FILE as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw the result to FILE as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Measure nothing; take the lines of an earlier run from FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "json"])]
    pub(crate) from: Option<PathBuf>,
    /// How often to measure each thing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) trials: Option<u32>,
    /// What runs the guest's code: auto, kvm or tcg
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) accelerator: AcceleratorChoice,
    /// What backs the guest's memory on the host: ram or memfd
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
    /// How often to measure: what was asked for, else one of these.
    pub(crate) fn trials_or(&self, quick: u32, full: u32) -> u32 {
        self.trials.unwrap_or(if self.quick { quick } else { full })
    }
}

/// Which ways to resize are compared.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Methods {
    /// Which ways to compare, with commas: squeezy, virtio-mem, balloon, node, floor
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    methods: Vec<MechanismName>,
}

impl Methods {
    /// Those that were asked for, each once; an error if one of them is not `possible`.
    pub(crate) fn chosen(&self, possible: &[MechanismName]) -> Result<Vec<MechanismName>> {
        let mut chosen: Vec<MechanismName> = Vec::new();
        for method in &self.methods {
            if !possible.contains(method) {
                let names: Vec<_> = possible.iter().map(MechanismName::to_string).collect();
                return Err(BenchError::Arguments(format!(
                    "`{method}` cannot be measured here; choose from {}",
                    names.join(", ")
                )));
            }
            if !chosen.contains(method) {
                chosen.push(*method);
            }
        }
        Ok(chosen)
    }

    /// Whether they were named, rather than left to the experiment.
    pub(crate) fn named(&self) -> bool {
        !self.methods.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_checked_and_counted_once() {
        use MechanismName::{Balloon, Floor, Squeezy, Static};
        let methods = Methods { methods: vec![Floor, Squeezy, Floor] };
        assert_eq!(methods.chosen(&[Squeezy, Floor]).unwrap(), [Floor, Squeezy]);
        assert!(methods.named());
        let error =
            Methods { methods: vec![Static] }.chosen(&[Squeezy, Balloon]).unwrap_err().to_string();
        assert_eq!(error, "`static` cannot be measured here; choose from squeezy, balloon");
    }
}
