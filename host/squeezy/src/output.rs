//! Standard output, which may be a pipe that nobody reads any more.

use crate::interrupt::Interrupt;
use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
    process::{ExitCode, exit},
    sync::{Arc, OnceLock},
};

/// Exit status when nobody reads any more: as shells give it for a program that SIGPIPE has ended.
const UNREAD: u8 = 128 + 13;

/// Prints a line. When it cannot be written there is nothing left to do.
pub fn print(line: impl Display) {
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(UNREAD.into()),
        Err(error) => {
            complain(format_args!("squeezy: standard output: {error}"));
            exit(1);
        }
    }
}

/// Writes a line to standard error. Nothing can be done for somebody who has closed that.
pub fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Standard output of something that has to be ended when nobody reads any more.
#[derive(Clone)]
pub struct Output {
    interrupt: Interrupt,
    failure: Arc<OnceLock<io::Error>>,
}

impl Output {
    /// Raises this interrupt when it cannot be written to.
    pub fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, failure: Arc::default() }
    }

    /// Prints a line, unless an earlier one could not be.
    pub fn print(&self, line: impl Display) {
        if self.failure.get().is_some() {
            return;
        }
        if let Err(error) = writeln!(io::stdout(), "{line}")
            && self.failure.set(error).is_ok()
        {
            self.interrupt.raise();
        }
    }

    /// What comes of it when something could not be printed: an error, unless nobody has read it.
    pub fn failure(&self) -> Option<Result<ExitCode, &io::Error>> {
        let error = self.failure.get()?;
        let unread = error.kind() == ErrorKind::BrokenPipe;
        Some(if unread { Ok(ExitCode::from(UNREAD)) } else { Err(error) })
    }
}
