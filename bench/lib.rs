//! The experiments: one folder each, with what it found, and one line each in [`Experiment`].
//!
//! `squeezy bench NAME` runs one of them: [`Bench`] is its command line, [`Bench::run`] does it.
//! Every measurement becomes a line of JSON (see [`common::record`]); a table, the bounds of
//! SPECIFICATION.md and a plot are made from these lines, of this run or of an earlier one.

mod common;
mod cpu;
mod faults;
mod plug;
mod reclaim;
mod utilisation;

pub use common::error::BenchError;

/// Runs one experiment.
#[derive(Debug, clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    experiment: Experiment,
}

/// The experiments.
#[derive(Debug, clap::Subcommand)]
enum Experiment {
    /// Latency of taking an instance's memory back while the rest of the VM is full, by size.
    Reclaim(reclaim::Arguments),
    /// Latency of taking an instance's memory back, by how full the rest of the VM is.
    Utilisation(utilisation::Arguments),
    /// CPU time, of the guest and of the host, that taking memory back takes.
    Cpu(cpu::Arguments),
    /// Latency of giving an instance memory, and of its first touch.
    Plug(plug::Arguments),
    /// What page faults, fork and exec cost in a partition, and in a kernel that could have some.
    Faults(faults::Arguments),
}

impl Bench {
    /// Runs the experiment: progress goes to standard error, the table to standard output, lines
    /// and plot to the files that were asked for. Ctrl-C or SIGTERM end it with
    /// [`BenchError::Interrupted`]; what was measured until then is kept, and no VM is left.
    pub async fn run(self) -> Result<(), BenchError> {
        let work = async {
            match self.experiment {
                Experiment::Reclaim(arguments) => common::run(arguments).await,
                Experiment::Utilisation(arguments) => common::run(arguments).await,
                Experiment::Cpu(arguments) => common::run(arguments).await,
                Experiment::Plug(arguments) => common::run(arguments).await,
                Experiment::Faults(arguments) => common::run(arguments).await,
            }
        };
        // Dropping the work drops its VMs, and with them their processes.
        tokio::select! {
            result = work => result,
            result = common::interrupt::wait() => result,
        }
    }
}
