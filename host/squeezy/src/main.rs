//! `squeezy`: runs functions in VMs whose memory comes and goes with their instances.

mod run;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::main(*args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("squeezy: {error}");
            ExitCode::FAILURE
        }
    }
}
