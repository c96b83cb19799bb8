//! `squeezy-bench`: the experiments, which `squeezy bench NAME` runs.
//!
//! An experiment (`experiments/`) measures with a rig (`rigs/`) in a session (`harness/`). Each
//! measurement becomes a line of JSON (`record`). From these lines, of this run or of an earlier
//! one, come a table, verdicts on the targets in bench/targets.toml and a plot (`report/`).

#[path = "../../host/squeezy/src/diagnostics.rs"]
mod diagnostics;
mod error;
#[cfg(test)]
#[path = "../../scripts/executable.rs"]
mod executable;
mod experiments;
mod harness;
mod record;
mod report;
mod rigs;
mod size;
#[cfg(test)]
#[path = "../../scripts/skip.rs"]
mod skip;
mod specification;
#[cfg(test)]
mod tests;

use clap::Parser;
use diagnostics::Diagnostics;
use error::BenchError;
use experiments::Experiment;
use harness::interrupt;
use std::{path::PathBuf, process::ExitCode};

/// Exit status after Ctrl-C, by the convention of shells.
const INTERRUPTED: u8 = 130;

/// Runs an experiment that compares methods to resize a VM's memory.
#[derive(Debug, Parser)]
#[command(version, name = "squeezy-bench", bin_name = "squeezy bench", propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    diagnostics: Diagnostics,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(flatten)]
    Experiment(Box<Experiment>),
    /// Regenerates the table of SPECIFICATION.md from bench/targets.toml and the recorded lines.
    #[command(hide = true)]
    Specification {
        /// The checkout
        #[arg(long, value_name = "DIR", default_value = ".")]
        checkout: PathBuf,
    },
}

impl Command {
    /// Runs the experiment: progress goes to standard error, the table to standard output, lines
    /// and plot to the requested files. SIGINT or SIGTERM end it with [`BenchError::Interrupted`];
    /// lines recorded so far are kept, and no VM is left.
    async fn run(self) -> Result<(), BenchError> {
        // Dropping an experiment drops its VMs, which ends their processes.
        let done = async {
            match self {
                Self::Experiment(experiment) => experiment.run().await,
                Self::Specification { checkout } => specification::write(&checkout),
            }
        };
        tokio::select! {
            result = done => result,
            result = interrupt::wait() => result,
        }
    }
}

fn main() -> ExitCode {
    let Cli { command, diagnostics } = Cli::parse();
    diagnostics.start();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(command.run()),
        Err(error) => Err(BenchError::Arguments(format!("cannot start: {error}"))),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    // Standard error may be closed; there is nothing to do about that.
    let _ =
        std::io::Write::write_all(&mut std::io::stderr(), format!("squeezy: {error}\n").as_bytes());
    match error {
        BenchError::Interrupted => ExitCode::from(INTERRUPTED),
        _ => ExitCode::FAILURE,
    }
}
