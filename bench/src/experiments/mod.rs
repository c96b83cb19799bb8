//! The experiments: one folder each, and one line in the list below.

use crate::{
    error::Result,
    harness::{Run, recorded as recorded_by},
    report::Assessment,
};
use std::path::Path;

/// Declares each experiment's module and its command, whose help is that of its arguments. `cargo
/// fmt` does not look inside macros, so scripts/lint.sh runs rustfmt on these modules.
macro_rules! experiments {
    ($($module:ident: $variant:ident,)+) => {
        $(mod $module;)+

        /// The experiments as subcommands.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Experiment {
            $($variant(Run<$module::Arguments>),)+
        }

        impl Experiment {
            /// Runs the experiment.
            pub(crate) async fn run(self) -> Result {
                match self {
                    $(Self::$variant(run) => run.execute().await,)+
                }
            }
        }

        /// Assesses the targets of all experiments by their recorded lines.
        pub(crate) fn recorded(results: &Path) -> Result<Vec<Assessment>> {
            let mut assessed = Vec::new();
            $(assessed.extend(recorded_by::<$module::Arguments>(results)?);)+
            Ok(assessed)
        }

        /// The names of all experiments.
        #[cfg(test)]
        pub(crate) const NAMES: &[&str] =
            &[$(<$module::Arguments as crate::harness::Experiment>::NAME),+];
    };
}

experiments! {
    reclaim: Reclaim,
    utilisation: Utilisation,
    cpu: Cpu,
    plug: Plug,
    pressure: Pressure,
    coldstart: Coldstart,
    code: Code,
    footprint: Footprint,
    elasticity: Elasticity,
    throughput: Throughput,
    interference: Interference,
    scale: Scale,
    overhead: Overhead,
    simulate: Simulate,
    faults: Faults,
    single: Single,
    squeeze: Squeeze,
    frozen_garbage: FrozenGarbage,
    after: After,
    cache: Cache,
    inflate: Inflate,
    backend: Backend,
    allocator: Allocator,
    build: Build,
    batch: Batch,
    several: Several,
    bandwidth: Bandwidth,
    work: Work,
    network: Network,
    fairness: Fairness,
    fleet: Fleet,
    pods: Pods,
}
