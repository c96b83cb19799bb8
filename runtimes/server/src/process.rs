//! The process that an action's code runs in.

use crate::{
    line::{self, Line},
    refused::Refused,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::unix::pipe::Receiver,
    process::{Child, ChildStdin, Command},
};

/// Longest answer, in bytes: what the agent passes on.
const MOST_BYTES: usize = 8 << 20;

/// How long after its end a process's last answer is waited for.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// How long a native program is watched for an end at its start.
const BEGINNING: Duration = Duration::from_millis(50);

/// The descriptor that answers come from.
const ANSWERS: i32 = 3;

/// A line that was answered.
#[derive(Debug)]
pub enum Answer {
    /// All of it.
    Whole(Vec<u8>),
    /// How it begins.
    TooLong(Vec<u8>),
}

/// A process with an action's code in it. It and its children are killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: Option<Pid>,
    answers: BufReader<Receiver>,
}

impl Process {
    /// Executes `command` in `directory`. Calls are written to the second of the two.
    pub fn start(
        command: &[String],
        directory: &Path,
        environment: &[(String, String)],
    ) -> Result<(Self, ChildStdin), Refused> {
        let failed = |error| {
            let program = command.first().map_or("", String::as_str);
            Refused::action(format!("The action cannot be executed: {program}: {error}."))
        };
        Self::spawn(command, directory, environment).map_err(failed)
    }

    fn spawn(
        command: &[String],
        directory: &Path,
        environment: &[(String, String)],
    ) -> io::Result<(Self, ChildStdin)> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| io::Error::other("there is no program"))?;
        let (answers, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let answers = Receiver::from_owned_fd(answers)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(directory).envs(environment.iter().cloned());
        command.stdin(Stdio::piped()).kill_on_drop(true).process_group(0);
        let number = theirs.as_raw_fd();
        // SAFETY: only calls that are safe after a fork are made, on a descriptor that `theirs` keeps open.
        unsafe { command.pre_exec(move || answer_on(number)) };
        let mut child = command.spawn()?;
        drop::<OwnedFd>(theirs);
        let calls = child.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok((Self { child, group, answers: BufReader::new(answers) }, calls))
    }

    /// Waits for a launcher's word that it has loaded the code; it has the reason otherwise.
    pub async fn is_ready(&mut self) -> Result<(), Refused> {
        let answer = loop {
            match self.answer().await? {
                Answer::Whole(line) if line.is_empty() => {}
                Answer::Whole(line) => break line,
                Answer::TooLong(_) => return Err(too_long()),
            }
        };
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        match answer["ok"].as_bool() {
            Some(true) => Ok(()),
            _ => Err(Refused::action(match answer["error"].as_str() {
                Some(reason) => format!("The action cannot be loaded: {reason}"),
                None => "The action cannot be loaded: it answers before it is called.".to_owned(),
            })),
        }
    }

    /// Makes sure, for a program that says nothing at its start, that it does not end there.
    pub async fn has_begun(&mut self) -> Result<(), Refused> {
        match tokio::time::timeout(BEGINNING, self.child.wait()).await {
            Ok(status) => Err(ended(status)),
            Err(_) => Ok(()),
        }
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The next line that it answers.
    pub async fn answer(&mut self) -> Result<Answer, Refused> {
        answer(&mut self.answers, &mut self.child).await
    }

    /// Drops what was answered before it was asked.
    pub fn forget_answers(&mut self) {
        let buffered = self.answers.buffer().len();
        self.answers.consume(buffered);
        let mut part = [0; 4096];
        while matches!(self.answers.get_ref().try_read(&mut part), Ok(1..)) {}
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // There may be nobody left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn answer(answers: &mut BufReader<Receiver>, child: &mut Child) -> Result<Answer, Refused> {
    let line = tokio::select! {
        biased;
        line = line::read(answers, MOST_BYTES) => line,
        status = child.wait() => {
            let last = tokio::time::timeout(LAST_WORDS, line::read(answers, MOST_BYTES)).await;
            match last {
                Ok(Ok(Line::Whole(line))) => Ok(Line::Whole(line)),
                _ => return Err(ended(status)),
            }
        }
    };
    match line {
        Ok(Line::Whole(line)) => Ok(Answer::Whole(line)),
        Ok(Line::TooLong(beginning)) => Ok(Answer::TooLong(beginning)),
        Ok(Line::End) => Err(match tokio::time::timeout(LAST_WORDS, child.wait()).await {
            Ok(status) => ended(status),
            Err(_) => Refused::action("The action has closed descriptor 3, which it answers on."),
        }),
        Err(error) => Err(Refused::action(format!("The action's answer cannot be read: {error}."))),
    }
}

/// What an action hears whose answer is too long.
pub fn too_long() -> Refused {
    Refused::action(format!("The action's answer is longer than {} MiB.", MOST_BYTES >> 20))
}

fn ended(status: io::Result<std::process::ExitStatus>) -> Refused {
    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    Refused::action(format!(
        "The action's process has ended ({how}) before it answered; see its logs."
    ))
}

/// In the new process: makes `number` the descriptor that answers go to.
fn answer_on(number: i32) -> io::Result<()> {
    // SAFETY: system calls on numbers.
    let done = unsafe {
        if number == ANSWERS {
            libc::fcntl(number, libc::F_SETFD, 0)
        } else {
            libc::dup2(number, ANSWERS)
        }
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
