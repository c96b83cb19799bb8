//! `squeezy run`: replays a load against a function in a VM, once for each policy.

mod args;
mod error;
mod input;
mod plot;
mod record;
mod recorder;
mod replay;
mod setup;
mod summary;
mod view;
mod whole_file;

pub use args::Args;

use crate::{interrupt::Interrupt, output::Output};
use error::RunError;
use record::{Outcome, Report};
use serde::Serialize;
use setup::Setup;
use std::{path::Path, process::ExitCode};
use summary::Summary;
use whole_file::WholeFile;

/// Runs the command.
pub async fn main(args: Args) -> Result<ExitCode, RunError> {
    // Opened before anything takes time, so that a file that cannot be written is an error now.
    let json_file = args.json.as_deref().map(open).transpose()?;
    let plot_file = args.plot.as_deref().map(open).transpose()?;
    let plain = args.plain;
    let setup = Setup::read(args)?;
    let interrupt = Interrupt::listen().map_err(RunError::Signals)?;
    let output = Output::new(interrupt.clone());
    let view = view::open(plain, &interrupt, &output);
    let result = setup.run(&view, &interrupt).await;
    // Restores the terminal.
    drop(view);
    let report = result?;

    output.print(format_args!("\n{}", summary::table(&report).trim_end()));
    if let Some(file) = &json_file {
        write(file, &json(&report))?;
        output.print(format_args!("measurements: {}", file.path().display()));
    }
    if let Some(file) = &plot_file {
        write(file, &plot::svg(&report).map_err(|e| RunError::Plot(e.to_string()))?)?;
        output.print(format_args!("plot: {}", file.path().display()));
    }
    match output.failure() {
        Some(failure) => failure.map_err(|error| RunError::Output(error.to_string())),
        None => Ok(status(&report, &interrupt)),
    }
}

fn status(report: &Report, interrupt: &Interrupt) -> ExitCode {
    let right = |policy: &record::PolicyRecord| {
        policy.ended_early.is_none() && policy.requests.iter().all(|r| r.outcome == Outcome::Right)
    };
    if interrupt.is_raised() {
        ExitCode::from(crate::INTERRUPTED)
    } else if report.policies.iter().all(right) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The JSON file: the summary first, then the data it is computed from.
#[derive(Serialize)]
struct Document<'a> {
    summaries: Vec<Summary>,
    #[serde(flatten)]
    report: &'a Report,
}

fn json(report: &Report) -> String {
    let summaries = report.policies.iter().map(Summary::of).collect();
    let text = serde_json::to_string_pretty(&Document { summaries, report });
    // The only possible failure is a key that is not a string, and all keys are strings.
    text.expect("a report can be written") + "\n"
}

fn open(path: &Path) -> Result<WholeFile, RunError> {
    WholeFile::new(path).map_err(|error| RunError::File { path: path.to_owned(), error })
}

fn write(file: &WholeFile, text: &str) -> Result<(), RunError> {
    let path = || file.path().to_owned();
    file.write(text).map_err(|error| RunError::File { path: path(), error })
}
