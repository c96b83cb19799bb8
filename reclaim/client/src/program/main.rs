//! `squeezy-reclaim`: makes one process give its free memory back, and shows what came of it.

mod arguments;
mod report;
mod stop;

use arguments::{Arguments, Target};
use clap::Parser;
use report::Report;
use squeezy_reclaim::{Agent, Deadline, Memory, Process, Result, libraries};
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
            eprintln!("squeezy-reclaim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Report> {
    let deadline = Deadline::after(arguments.deadline);
    let (process, agent) = target(arguments, deadline)?;
    let before = Memory::of(&process, deadline)?;
    let mut report = Report::new(process.pid(), before);
    if let Some(mut agent) = agent {
        report.answer = Some(agent.reclaim(&arguments.request(), deadline)?);
        report.hello = Some(agent.hello().clone());
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

/// The process that is meant, and its agent if that is to be asked.
fn target(arguments: &Arguments, deadline: Deadline) -> Result<(Process, Option<Agent>)> {
    match &arguments.target {
        Target::Process(pid) => {
            let process = Process::open(*pid)?;
            let agent =
                arguments.asks_agent().then(|| Agent::of(&process, deadline)).transpose()?;
            Ok((process, agent))
        }
        Target::Socket(path) => {
            let agent = Agent::at(path, deadline)?;
            let process = Process::open(agent.peer().pid)?;
            Ok((process, arguments.asks_agent().then_some(agent)))
        }
    }
}
