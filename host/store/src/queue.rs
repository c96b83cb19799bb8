//! What is not in the file yet, in the order in which it happened.
//!
//! An entry stays here while it is being written, so a reader that looks here first and at the file
//! then misses nothing. The queue has bounds of its own: when the file cannot be written, it keeps
//! the latest activations.

use crate::Totals;
use serde_json::json;
use squeezy_openwhisk::{
    Namespace, QualifiedName,
    activation::{Activation, Status},
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::sync::oneshot;

/// Maximum number of entries, besides the calls that an earlier process has left.
pub const MOST_ENTRIES: usize = 10_000;

/// A call that has been accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The activation's ID.
    pub id: String,
    /// The action that is called.
    pub action: QualifiedName,
    /// The action's version.
    pub version: String,
    /// The action's kind.
    pub kind: Cow<'static, str>,
    /// When the call came, in milliseconds since 1970.
    pub start_ms: u64,
}

impl Running {
    /// How the call ends if nobody knows how it ended.
    pub fn ended(self, reason: &str) -> Activation {
        let Self { id, action, version, kind, start_ms } = self;
        Activation {
            id,
            action,
            version,
            kind,
            start_ms,
            status: Status::InternalError,
            result: json!({ "error": reason }),
            waited: Duration::ZERO,
            waited_for: None,
            init: None,
            took: Duration::ZERO,
            logs: Vec::new(),
            by_stranger: false,
        }
    }
}

/// Something to write.
#[derive(Clone, Debug)]
pub enum Event {
    /// A call was accepted.
    Started(Arc<Running>),
    /// A call has ended; the number is its place among all that have.
    Ended(i64, Arc<Activation>),
}

struct Entry {
    /// Entries are numbered in their order.
    ticket: u64,
    event: Event,
    /// Somebody waits until it is written.
    waiter: Option<oneshot::Sender<()>>,
    /// Its result was dropped to save memory.
    is_cut: bool,
}

impl Entry {
    /// Whether it is what became of a stranger's call.
    fn is_of_stranger(&self) -> bool {
        matches!(&self.event, Event::Ended(_, activation) if activation.by_stranger)
    }
}

/// What is not in the file yet.
pub struct Queue {
    entries: VecDeque<Entry>,
    most: usize,
    most_bytes: usize,
    /// What the results and logs of the entries take, in bytes.
    bytes: usize,
    next_ticket: u64,
    next_number: i64,
    /// Functions whose totals have changed; `None` if the function is gone.
    pub totals: BTreeMap<String, Option<Totals>>,
    /// Namespaces whose activations are removed.
    pub forgotten: BTreeSet<Namespace>,
    /// Results that could neither be written nor kept.
    pub lost: u64,
    /// Why the file cannot be written.
    pub problem: Option<String>,
    /// The file has not kept up, so nobody waits for it.
    pub is_behind: bool,
    /// The daemon is about to end.
    pub is_closing: bool,
}

impl Queue {
    /// An empty queue for results and logs of `most_bytes`.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            most: MOST_ENTRIES,
            most_bytes,
            bytes: 0,
            next_ticket: 0,
            next_number: 1,
            totals: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            lost: 0,
            problem: None,
            is_behind: false,
            is_closing: false,
        }
    }

    /// Adds that a call was accepted. The receiver hears when that is written; there is none if
    /// that is not worth waiting for.
    pub fn start(&mut self, call: Running) -> Option<oneshot::Receiver<()>> {
        self.push(Event::Started(Arc::new(call)), !self.is_behind)
    }

    /// Adds that a call was accepted that nobody has to hear of yet.
    pub fn start_unheard(&mut self, call: Running) {
        self.push(Event::Started(Arc::new(call)), false);
    }

    /// Adds how a call has ended.
    pub fn end(&mut self, activation: Arc<Activation>) -> Option<oneshot::Receiver<()>> {
        self.bytes += activation.size();
        let number = self.next_number;
        self.next_number += 1;
        self.push(Event::Ended(number, activation), !self.is_behind)
    }

    /// Makes room for this many entries more.
    pub fn admit(&mut self, more: usize) {
        self.most += more;
    }

    fn push(&mut self, event: Event, waits: bool) -> Option<oneshot::Receiver<()>> {
        let (waiter, receiver) = waits.then(oneshot::channel).unzip();
        self.entries.push_back(Entry { ticket: self.next_ticket, event, waiter, is_cut: false });
        self.next_ticket += 1;
        while self.entries.len() > self.most {
            // Those of strangers go first.
            let of_stranger = self.entries.iter().position(Entry::is_of_stranger).unwrap_or(0);
            let Some(oldest) = self.entries.remove(of_stranger) else { break };
            if let Event::Ended(_, activation) = &oldest.event {
                self.bytes -= activation.size();
                // A result that was cut has been counted.
                self.lost += u64::from(!oldest.is_cut);
            }
        }
        // The latest always fits.
        let latest = self.next_ticket - 1;
        while self.bytes > self.most_bytes && self.cut_oldest(latest) {}
        receiver
    }

    /// Drops the result and logs of the oldest activation before this one that still has them, preferably of a
    /// stranger's.
    fn cut_oldest(&mut self, before: u64) -> bool {
        let has_them = |entry: &Entry| {
            let is_ended = matches!(entry.event, Event::Ended(..));
            is_ended && !entry.is_cut && entry.ticket < before
        };
        let of_stranger = |entry: &Entry| has_them(entry) && entry.is_of_stranger();
        let oldest = self.entries.iter().position(of_stranger);
        let oldest = oldest.or_else(|| self.entries.iter().position(has_them));
        let Some(entry) = oldest.and_then(|oldest| self.entries.get_mut(oldest)) else {
            return false;
        };
        entry.is_cut = true;
        let Event::Ended(_, activation) = &mut entry.event else { return false };
        let mut cut = (**activation).clone();
        cut.status = Status::InternalError;
        cut.result = json!({ "error": "the result and the logs of this call are lost: they could not be written, and there was no memory to keep them" });
        cut.logs = Vec::new();
        self.bytes = self.bytes - activation.size() + cut.size();
        *activation = Arc::new(cut);
        self.lost += 1;
        true
    }

    /// The first entries, to be written together: as many as fit into `most_bytes`, at least one.
    /// Also returns the ticket of the last.
    pub fn first(&self, most: usize, most_bytes: usize) -> (Vec<Event>, Option<u64>) {
        let (mut events, mut last, mut bytes) = (Vec::new(), None, 0);
        for entry in self.entries.iter().take(most) {
            if let Event::Ended(_, activation) = &entry.event {
                bytes += activation.size();
            }
            if bytes > most_bytes && !events.is_empty() {
                break;
            }
            events.push(entry.event.clone());
            last = Some(entry.ticket);
        }
        (events, last)
    }

    /// Drops what has been written, and tells those who wait for it.
    pub fn written(&mut self, last: Option<u64>) {
        while self.entries.front().is_some_and(|entry| Some(entry.ticket) <= last) {
            let Some(entry) = self.entries.pop_front() else { break };
            if let Event::Ended(_, activation) = &entry.event {
                self.bytes -= activation.size();
            }
            if let Some(waiter) = entry.waiter {
                let _ = waiter.send(());
            }
        }
    }

    /// Lets everybody go who waits.
    pub fn release(&mut self) {
        self.is_behind = true;
        self.entries.iter_mut().for_each(|entry| entry.waiter = None);
    }

    /// The file has been opened, and its activations have numbers up to this one.
    pub fn renumber(&mut self, latest: i64) {
        self.next_number += latest;
        for entry in &mut self.entries {
            if let Event::Ended(number, _) = &mut entry.event {
                *number += latest;
            }
        }
    }

    /// The activations that have not been written, the latest first.
    pub fn ended(&self) -> impl Iterator<Item = (i64, &Arc<Activation>)> {
        self.entries.iter().rev().filter_map(|entry| match &entry.event {
            Event::Ended(number, activation) => Some((*number, activation)),
            Event::Started(_) => None,
        })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is something to write.
    pub fn has_work(&self) -> bool {
        !self.entries.is_empty() || !self.totals.is_empty()
    }
}
