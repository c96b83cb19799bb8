//! Standard output, which may be a closed pipe.

use crate::interrupt::Interrupt;
use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
    process::{ExitCode, exit},
    sync::{Arc, OnceLock},
};

/// Exit status if standard output is a closed pipe: what shells report for a program killed by
/// SIGPIPE.
const UNREAD: u8 = 128 + 13;

/// Prints a line. Exits if that fails.
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

/// Writes a line to standard error. Errors are ignored, because there is nowhere to report them.
pub fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Standard output of an operation that must be ended if nobody reads its output any more.
#[derive(Clone)]
pub struct Output {
    interrupt: Interrupt,
    failure: Arc<OnceLock<io::Error>>,
}

impl Output {
    /// Raises `interrupt` when it cannot be written to.
    pub fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, failure: Arc::default() }
    }

    /// Prints a line, unless an earlier one has failed.
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

    /// The exit status if printing has failed: an error, unless the reader has closed the pipe.
    pub fn failure(&self) -> Option<Result<ExitCode, &io::Error>> {
        let error = self.failure.get()?;
        let unread = error.kind() == ErrorKind::BrokenPipe;
        Some(if unread { Ok(ExitCode::from(UNREAD)) } else { Err(error) })
    }
}
