//! A process that serves several calls at a time: each call is a line that begins with a number and a blank, and so does
//! its answer.

use crate::{
    process::{Answer, Process, too_long},
    refused::Refused,
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};
use tokio::{
    io::AsyncWriteExt,
    process::ChildStdin,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// The calls that are not answered yet.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    calls: BTreeMap<u64, oneshot::Sender<Result<Vec<u8>, Refused>>>,
    /// Why there are no further answers.
    ended: Option<Refused>,
}

/// Such a process. It and its children are killed when this is dropped.
#[derive(Debug)]
pub struct Numbered {
    waiting: Rc<RefCell<Waiting>>,
    /// Lines go through here, so that each is written whole even if whoever called goes away.
    lines: mpsc::UnboundedSender<Vec<u8>>,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
}

impl Numbered {
    /// A process that has loaded its code.
    pub fn new(process: Process, calls: ChildStdin) -> Self {
        let waiting = Rc::<RefCell<Waiting>>::default();
        // As many lines as there are calls under way, which the host bounds.
        let (lines, queue) = mpsc::unbounded_channel();
        let writer = tokio::task::spawn_local(write(calls, queue));
        let reader = tokio::task::spawn_local(read(process, waiting.clone()));
        Self { waiting, lines, writer, reader }
    }

    /// Whether it still runs, as far as is known.
    pub fn is_alive(&self) -> bool {
        self.waiting.borrow().ended.is_none()
    }

    /// Sends a call, which has to be one line; resolves to the line that answers it.
    pub fn call(&self, line: &[u8]) -> impl Future<Output = Result<Vec<u8>, Refused>> + use<> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.waiting.borrow_mut();
        let number = waiting.next;
        waiting.next += 1;
        match waiting.ended.clone() {
            Some(ended) => drop(answer.send(Err(ended))),
            None => {
                waiting.calls.insert(number, answer);
                // If nobody writes any more, the process has ended, and whoever reads says so.
                let _ = self.lines.send([format!("{number} ").as_bytes(), line, b"\n"].concat());
            }
        }
        async {
            answered.await.unwrap_or_else(|_| Err(Refused::action("The action's process is gone.")))
        }
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.writer.abort();
        self.reader.abort();
    }
}

async fn write(mut calls: ChildStdin, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        // A process that does not read its input may still answer, or end.
        let _ = calls.write_all(&line).await;
    }
}

/// Gives each answer to whoever waits for it, until there are none any more.
async fn read(mut process: Process, waiting: Rc<RefCell<Waiting>>) {
    let ended = loop {
        match process.answer().await {
            Ok(answer) => {
                let (line, answer) = match &answer {
                    Answer::Whole(line) => (line, None),
                    Answer::TooLong(beginning) => (beginning, Some(Err(too_long()))),
                };
                // What answers no call was not asked for.
                let Some((number, rest)) = split(line) else { continue };
                let call = waiting.borrow_mut().calls.remove(&number);
                let answer = answer.unwrap_or_else(|| Ok(rest.to_vec()));
                call.map(|call| call.send(answer));
            }
            Err(ended) => break ended,
        }
    };
    let calls = {
        let mut waiting = waiting.borrow_mut();
        waiting.ended = Some(ended.clone());
        std::mem::take(&mut waiting.calls)
    };
    for call in calls.into_values() {
        let _ = call.send(Err(ended.clone()));
    }
}

/// The number of an answer, and the rest of it.
fn split(line: &[u8]) -> Option<(u64, &[u8])> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    let number = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    Some((number, &line[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_begins_with_its_number() {
        assert_eq!(split(b"7 {\"a\": 1}"), Some((7, &b"{\"a\": 1}"[..])));
        assert_eq!(split(b"7 "), Some((7, &b""[..])));
        for wrong in ["", "7", " {}", "-1 {}", "{} 7", "99999999999999999999 {}"] {
            assert_eq!(split(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
