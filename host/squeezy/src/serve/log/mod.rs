//! The daemon's log: of the node's events, and of what the daemon does. It goes to standard output or to a file, as
//! text or as JSON.
//!
//! `events` has the words, `entry` the form of a line, and `output` is where lines go.

mod entry;
mod events;
mod output;

use super::metrics::Watch;
pub use entry::{Entry, Format, Level};
pub use output::Output;
use squeezy_node::{NodeEvent, Observer};
use squeezy_scaler::Moment;
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Entries that may wait to be written; beyond that, entries are lost.
const MOST_WAITING: usize = 1000;

/// How long writing the last entries may take.
const LAST_LIMIT: Duration = Duration::from_secs(1);

/// Writes an entry for each event, with functions' names.
pub struct Log(pub Arc<Watch>);

impl Observer for Log {
    fn observe(&self, _: Moment, event: NodeEvent<'_>) {
        let name = |function| self.0.names.of(function).name.0.to_string();
        if let Some(entry) = events::entry(&event, name) {
            write_later(entry);
        }
    }
}

/// Logs something that the daemon does, or that happens to it.
pub fn log_line(line: &str) {
    write_later(Entry::new(Level::Info, line.to_owned()));
}

/// Logs something that somebody should look at.
pub fn log_warning(line: &str) {
    write_later(Entry::new(Level::Warning, line.to_owned()));
}

/// Writes an entry in the background. Nobody reading it any more must not end the daemon, and a slow reader or a
/// hanging disk must not make it wait.
fn write_later(entry: Entry) {
    let mut waiting = lock();
    if !waiting.has_writer {
        let writer = thread::Builder::new().name("log".to_owned());
        waiting.has_writer = writer.spawn(write).is_ok();
    }
    if waiting.entries.len() < MOST_WAITING {
        waiting.entries.push_back(entry);
    } else {
        waiting.lost += 1;
    }
    CHANGED.notify_all();
}

/// Sends everything that is logged from now on to another output, in another format. By default it is text on
/// standard output.
pub fn send_to(output: Output, format: Format) {
    lock().output = Some((output, format));
}

/// Waits, for a limited time, until everything has been written.
pub fn finish() {
    let is_open = |waiting: &mut Waiting| waiting.is_writing || !waiting.entries.is_empty();
    let _ = CHANGED.wait_timeout_while(lock(), LAST_LIMIT, is_open);
}

/// The buffer between those who log and the thread that writes.
struct Waiting {
    entries: VecDeque<Entry>,
    /// Entries dropped since the buffer became full, or the file could not be written.
    lost: u64,
    has_writer: bool,
    is_writing: bool,
    /// Where entries go next, until the writer has taken it over.
    output: Option<(Output, Format)>,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    entries: VecDeque::new(),
    lost: 0,
    has_writer: false,
    is_writing: false,
    output: None,
});
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes entries as they come, for ever.
fn write() {
    let (mut output, mut format) = (Output::standard(), Format::Text);
    let mut waiting = lock();
    loop {
        let is_quiet = |waiting: &mut Waiting| waiting.entries.is_empty();
        waiting = CHANGED.wait_while(waiting, is_quiet).unwrap_or_else(PoisonError::into_inner);
        let (entries, mut lost) = (mem::take(&mut waiting.entries), mem::take(&mut waiting.lost));
        if let Some(other) = waiting.output.take() {
            (output, format) = other;
        }
        waiting.is_writing = true;
        drop(waiting);
        output.renew();
        for entry in entries {
            // Whether this one fits is known in a moment; how many did not is said once one does.
            if lost > 0 && output.write(&missing(lost).line(format, output.has_own_time())) {
                lost = 0;
            }
            lost += u64::from(!output.write(&entry.line(format, output.has_own_time())));
        }
        waiting = lock();
        waiting.lost += lost;
        waiting.is_writing = false;
        CHANGED.notify_all();
    }
}

fn missing(lost: u64) -> Entry {
    let message = format!("{lost} lines are missing here: they could not be written in time");
    Entry::new(Level::Warning, message)
}
