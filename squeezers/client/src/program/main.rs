//! `squeezer`: makes one process give its free memory back, and shows what came of it.

mod arguments;
mod report;
mod stop;

use arguments::{Arguments, Target};
use clap::Parser;
use report::Report;
use squeezer::{Deadline, Memory, Process, Result, Squeezer, libraries};
use std::{
    io::{self, Write},
    process::ExitCode,
};
use stop::Stopped;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(report) => {
            let text = if arguments.json { report.json() } else { report.table() };
            // That nobody reads it is no error.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("squeezer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Report> {
    let deadline = Deadline::after(arguments.deadline);
    let (process, squeezer) = target(arguments, deadline)?;
    let before = Memory::of(&process, deadline)?;
    let mut report = Report::new(process.pid(), before);
    if let Some(mut squeezer) = squeezer {
        report.answer = Some(squeezer.squeeze(&arguments.request(), deadline)?);
        report.hello = Some(squeezer.hello().clone());
    }
    // Until its memory has been read: a process that runs fetches its libraries again at once.
    let _stopped;
    if arguments.libraries {
        _stopped = Stopped::stop(&process, deadline)?;
        report.libraries = Some(libraries::evict(&process, deadline)?);
    }
    report.after = Memory::of(&process, deadline)?;
    Ok(report)
}

/// The process that is meant, and its squeezer if that is to be asked.
fn target(arguments: &Arguments, deadline: Deadline) -> Result<(Process, Option<Squeezer>)> {
    match &arguments.target {
        Target::Process(pid) => {
            let process = Process::open(*pid)?;
            let squeezer =
                arguments.asks_squeezer().then(|| Squeezer::of(&process, deadline)).transpose()?;
            Ok((process, squeezer))
        }
        Target::Socket(path) => {
            let squeezer = Squeezer::at(path, deadline)?;
            let process = Process::open(squeezer.peer().pid)?;
            Ok((process, arguments.asks_squeezer().then_some(squeezer)))
        }
    }
}
