//! `squeezy`: runs functions in VMs whose memory comes and goes with their instances.

mod interrupt;
mod run;

use clap::{Parser, Subcommand};
use squeezy_bench::{Bench, BenchError};
use std::process::ExitCode;

/// Exit status after Ctrl-C, as shells expect it.
const INTERRUPTED: u8 = 130;

/// Runs functions in VMs whose memory comes and goes with their instances.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replays a load against a function in a VM, and shows instances and memory over time.
    Run(Box<run::Args>),
    /// Runs an experiment that compares ways of changing a VM's memory.
    Bench(Box<Bench>),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(format_args!("cannot start: {error}")),
    };
    match command {
        Command::Run(args) => runtime.block_on(run::main(*args)).unwrap_or_else(fail),
        Command::Bench(bench) => match runtime.block_on(bench.run()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error @ BenchError::Interrupted) => {
                fail(error);
                ExitCode::from(INTERRUPTED)
            }
            Err(error) => fail(error),
        },
    }
}

/// One line for a person.
fn fail(error: impl std::fmt::Display) -> ExitCode {
    eprintln!("squeezy: {error}");
    ExitCode::FAILURE
}
