//! The experiments: one folder each, and one line in the list below.

use crate::{
    error::Result,
    harness::{Run, recorded as recorded_by},
    report::Assessment,
};
use std::path::Path;

/// Declares each experiment's module and makes its command, whose help is that of its arguments.
/// `cargo fmt` does not look into a macro: scripts/lint.sh has rustfmt check these modules.
macro_rules! experiments {
    ($($module:ident: $variant:ident,)+) => {
        $(mod $module;)+

        /// What `squeezy-bench` is told to do.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Experiment {
            $($variant(Run<$module::Arguments>),)+
        }

        impl Experiment {
            /// Runs the one that was asked for.
            pub(crate) async fn run(self) -> Result {
                match self {
                    $(Self::$variant(run) => run.execute().await,)+
                }
            }
        }

        /// What the recorded lines of all experiments say of their targets.
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
}
