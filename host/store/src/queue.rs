//! What is not in the file yet, in the order in which it happened.
//!
//! An entry stays here while it is being written, so a reader that looks here first and at the file
//! then misses nothing. The queue has bounds of its own: when the file cannot be written, it keeps
//! the latest activations, and what it drops is that of the namespace that has most there.

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
    /// The activation of the sequence that the call is a part of, if it is.
    pub cause: Option<String>,
}

impl Running {
    /// How the call ends if nobody knows how it ended.
    pub fn ended(self, reason: &str) -> Activation {
        let Self { id, action, version, kind, start_ms, cause } = self;
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
            cause,
            limits: None,
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
    /// Whose call it is about.
    fn namespace(&self) -> &Namespace {
        match &self.event {
            Event::Started(call) => &call.action.namespace,
            Event::Ended(_, activation) => &activation.action.namespace,
        }
    }

    /// What its result and logs take, in bytes.
    fn bytes(&self) -> usize {
        match &self.event {
            Event::Started(_) => 0,
            Event::Ended(_, activation) => activation.size(),
        }
    }

    /// Whether it has a result that can be dropped.
    fn has_result(&self) -> bool {
        matches!(self.event, Event::Ended(..)) && !self.is_cut
    }

    /// Whether it is what became of a stranger's call.
    fn is_of_stranger(&self) -> bool {
        matches!(&self.event, Event::Ended(_, activation) if activation.by_stranger)
    }
}

/// What one namespace has in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    entries: usize,
    bytes: usize,
}

/// What is not in the file yet.
pub struct Queue {
    entries: VecDeque<Entry>,
    most: usize,
    most_bytes: usize,
    /// What the results and logs of the entries take, in bytes.
    bytes: usize,
    /// Whose they are.
    parts: BTreeMap<Namespace, Part>,
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
            parts: BTreeMap::new(),
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
        let entry = Entry { ticket: self.next_ticket, event, waiter, is_cut: false };
        self.count(&entry, true);
        self.entries.push_back(entry);
        self.next_ticket += 1;
        while self.entries.len() > self.most {
            let Some(oldest) = self.oldest(|part| part.entries, |_| true) else { break };
            let Some(oldest) = self.entries.remove(oldest) else { break };
            self.count(&oldest, false);
            // A result that was cut has been counted.
            self.lost += u64::from(oldest.has_result());
        }
        // The latest always fits.
        let latest = self.next_ticket - 1;
        while self.bytes > self.most_bytes && self.cut_oldest(latest) {}
        receiver
    }

    /// Counts an entry, or no longer.
    fn count(&mut self, entry: &Entry, adds: bool) {
        let bytes = entry.bytes();
        let part = self.parts.entry(entry.namespace().clone()).or_default();
        if adds {
            self.bytes += bytes;
            (part.entries, part.bytes) = (part.entries + 1, part.bytes + bytes);
            return;
        }
        self.bytes -= bytes;
        (part.entries, part.bytes) = (part.entries - 1, part.bytes - bytes);
        if *part == Part::default() {
            self.parts.remove(entry.namespace());
        }
    }

    /// The oldest of these entries of the namespace that has most; those of its strangers come first.
    fn oldest(
        &self,
        most: impl Fn(&Part) -> usize,
        is_one: impl Fn(&Entry) -> bool,
    ) -> Option<usize> {
        let mut namespaces: Vec<_> = self.parts.iter().collect();
        namespaces.sort_by_key(|(_, part)| std::cmp::Reverse(most(part)));
        namespaces.into_iter().find_map(|(namespace, _)| {
            let is_own = |entry: &Entry| entry.namespace() == namespace && is_one(entry);
            let of_stranger = |entry: &Entry| entry.is_of_stranger() && is_own(entry);
            let position = self.entries.iter().position(of_stranger);
            position.or_else(|| self.entries.iter().position(is_own))
        })
    }

    /// Drops the result and logs of an activation before this one that still has them.
    fn cut_oldest(&mut self, before: u64) -> bool {
        let can_be_cut = |entry: &Entry| entry.has_result() && entry.ticket < before;
        let Some(index) = self.oldest(|part| part.bytes, can_be_cut) else { return false };
        let Some(mut entry) = self.entries.remove(index) else { return false };
        self.count(&entry, false);
        entry.is_cut = true;
        if let Event::Ended(_, activation) = &mut entry.event {
            let mut cut = (**activation).clone();
            cut.status = Status::InternalError;
            cut.result = json!({ "error": "the result and the logs of this call are lost: they could not be written, and there was no memory to keep them" });
            cut.logs = Vec::new();
            *activation = Arc::new(cut);
        }
        self.count(&entry, true);
        self.entries.insert(index, entry);
        self.lost += 1;
        true
    }

    /// The first entries, to be written together: as many as fit into `most_bytes`, at least one.
    /// Also returns the ticket of the last.
    pub fn first(&self, most: usize, most_bytes: usize) -> (Vec<Event>, Option<u64>) {
        let (mut events, mut last, mut bytes) = (Vec::new(), None, 0);
        for entry in self.entries.iter().take(most) {
            bytes += entry.bytes();
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
            self.count(&entry, false);
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
