//! A process that serves one call at a time: the next line that it answers is the answer.

use crate::{
    process::{Answer, Process, too_long},
    refused::Refused,
};
use tokio::{io::AsyncWriteExt, process::ChildStdin};

/// Such a process. It and its children are killed when this is dropped.
#[derive(Debug)]
pub struct OneByOne {
    process: Process,
    calls: ChildStdin,
}

impl OneByOne {
    /// A process that can take calls.
    pub fn new(process: Process, calls: ChildStdin) -> Self {
        Self { process, calls }
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// Sends a call, which has to be one line; returns the line that answers it.
    pub async fn call(&mut self, mut line: Vec<u8>) -> Result<Vec<u8>, Refused> {
        self.process.forget_answers();
        line.push(b'\n');
        // A process that does not read its input may still answer, or end.
        let (_, answer) = tokio::join!(self.calls.write_all(&line), self.process.answer());
        match answer? {
            Answer::Whole(line) => Ok(line),
            Answer::TooLong(_) => Err(too_long()),
        }
    }
}
