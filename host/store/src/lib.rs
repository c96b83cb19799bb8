//! Activations, their results and logs, and the totals of functions, in an SQLite database.
//!
//! One thread writes: what has come up while it wrote becomes its next transaction. A caller waits
//! until what it has added is in the file, but not longer than [`PATIENCE`]; a file that has not
//! kept up is not waited for again until it has. What is in the file survives the end of the
//! process, however that comes; what a power cut takes is said in docs/adr/0034.
//!
//! - `queue` has what is not in the file yet.
//! - `writer` writes it, and `prune` keeps the file within its bounds.
//! - `query` reads, on threads that may block.
//! - `schema` opens the file, and `rows` says what is in it.

mod prune;
mod query;
mod queue;
mod rows;
mod schema;
mod writer;

pub use query::{Found, Selection};
pub use queue::Running;

use queue::Queue;
use rusqlite::Connection;
use squeezy_openwhisk::{Namespace, activation::Activation};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// How long a caller waits until what it has added is written.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// How long a call that is waited for may run until it is in the file.
pub const LINGER: Duration = Duration::from_millis(100);

/// What a call that was running when the daemon ended has as its error.
pub const ENDED_WITH_DAEMON: &str = "the daemon was ended while this call ran";

/// The bounds of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of activations of a namespace that has no bound of its own.
    pub most: usize,
    /// Maximum size of the database in bytes; its log of changes comes on top, see docs/adr/0034.
    pub disk_bytes: u64,
    /// How long an activation is kept, from its start.
    pub keep: Duration,
    /// What results and logs may take in memory until they are written, in bytes.
    pub memory_bytes: usize,
}

/// What a function has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Calls that waited for an instance to start.
    pub cold: u64,
    /// Calls that an existing instance has taken.
    pub warm: u64,
    /// Calls that waited for an instance, after an earlier one had ended.
    pub recreated: u64,
    /// Calls that failed, with or without an instance.
    pub failed: u64,
    /// Memory of ended instances that was reclaimed.
    pub reclaimed_bytes: u64,
    /// Free memory that the host has taken by itself.
    pub taken_bytes: u64,
    /// Memory of instances that the host has taken with them while their VM was paused.
    pub condemned_bytes: u64,
    /// How long the host took for both.
    pub taking: Duration,
}

/// How the store is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Activations, and starts of calls, that are in memory only.
    pub unwritten: usize,
    /// Activations whose result could neither be written nor kept.
    pub lost: u64,
    /// Why the file cannot be written, if it cannot.
    pub problem: Option<String>,
}

/// Why a database cannot be used, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read or made.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The file cannot be used at the moment.
    #[error("{}: {problem}", path.display())]
    NotNow {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It is no database of this or an earlier version.
    #[error(
        "{}: {problem}; it holds the activations: repair it, or move it and its -wal away to start without them",
        path.display()
    )]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// Why activations cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the activations cannot be read: {0}")]
pub struct ReadError(String);

/// The store.
pub struct Store {
    shared: Arc<Shared>,
    /// One reader at a time. There is no connection while it could not be made, or has failed.
    reader: Arc<tokio::sync::Mutex<Option<Connection>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// What the file had when it was opened.
    earlier: BTreeMap<String, Totals>,
}

/// What the writer shares with the others.
struct Shared {
    path: PathBuf,
    limits: Mutex<Limits>,
    most_of: Mutex<BTreeMap<Namespace, usize>>,
    queue: Mutex<Queue>,
    /// Something was added to an empty queue, or the daemon is about to end.
    changed: Condvar,
    /// Everything has been written, or cannot be.
    done: Condvar,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn most_of(&self) -> BTreeMap<Namespace, usize> {
        self.most_of.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nobody waits until the file has kept up.
    fn is_slow(&self) {
        let mut queue = self.queue();
        let is_new = !queue.is_behind;
        queue.release();
        drop(queue);
        if is_new {
            (self.say)(&format!(
                "calls are answered before their activations are in {}, until the disk has kept up: a write has taken longer than {} s",
                self.path.display(),
                PATIENCE.as_secs()
            ));
        }
    }
}

/// What the caller may wait for.
#[must_use]
pub struct Written {
    receiver: Option<oneshot::Receiver<()>>,
    shared: Arc<Shared>,
}

impl Written {
    /// Waits until it is in the file. Gives up when that cannot be written or takes too long;
    /// returns whether it has been written.
    pub async fn wait(self) -> bool {
        let Some(receiver) = self.receiver else { return false };
        match tokio::time::timeout(PATIENCE, receiver).await {
            Ok(written) => written.is_ok(),
            Err(_) => {
                self.shared.is_slow();
                false
            }
        }
    }
}

impl Store {
    /// Opens the database, and makes it if there is none. Calls that were running when it was last
    /// written have ended with the daemon, and become activations that say so. A disk that is full
    /// is no error; `say` gets a line when that begins and when it is over.
    pub fn open(
        path: &Path,
        limits: Limits,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let queue = Queue::new(limits.memory_bytes);
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            limits: Mutex::new(limits),
            most_of: Mutex::default(),
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            done: Condvar::new(),
            say: Box::new(say),
        });
        let opened = match writer::Opened::new(&shared) {
            Ok(opened) => Some(opened),
            Err(error) if error.may_pass() => {
                writer::failed(&shared, &error.to_string());
                None
            }
            Err(error) => return Err(error),
        };
        let earlier = opened.as_ref().map(|opened| opened.totals.clone()).unwrap_or_default();
        let writer = thread::Builder::new().name("store".to_owned()).spawn({
            let shared = shared.clone();
            move || writer::run(&shared, opened)
        });
        let writer = writer.map_err(|error| OpenError::File { path: path.to_owned(), error })?;
        let reader = Arc::new(tokio::sync::Mutex::new(schema::open_to_read(path).ok()));
        Ok(Self { shared, reader, writer: Mutex::new(Some(writer)), earlier })
    }

    /// Changes what is kept in the file, within a second. What may be kept in memory stays as it is.
    pub fn set_limits(&self, limits: Limits) {
        *self.shared.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Removes all activations of a namespace, in which no call runs. Returns when that is done, however long the file
    /// cannot be written.
    pub async fn forget(&self, namespace: &Namespace) {
        loop {
            self.shared.queue().forgotten.insert(namespace.clone());
            self.shared.changed.notify_one();
            if self.count(&Selection::of(namespace.clone())).await == Ok(0) {
                self.shared.queue().forgotten.remove(namespace);
                return;
            }
            tokio::time::sleep(LINGER).await;
        }
    }

    /// How many activations of these namespaces are kept, within a second.
    pub fn set_most_of(&self, most_of: BTreeMap<Namespace, usize>) {
        *self.shared.most_of.lock().unwrap_or_else(PoisonError::into_inner) = most_of;
    }

    /// Adds a call that has been accepted. Before a client hears its ID, this should have been
    /// waited for.
    pub fn start(&self, call: Running) -> Written {
        let mut queue = self.shared.queue();
        let receiver = queue.start(call);
        self.added(queue, receiver)
    }

    /// Adds a call whose ID no client hears before its result, or before it has taken a long time.
    /// It is written within [`LINGER`], unless it has ended by then: most never cost a write.
    pub fn start_unheard(&self, call: Running) {
        self.shared.queue().start_unheard(call);
    }

    /// Adds an activation. Before a client hears of its result, this should have been waited for.
    pub fn end(&self, activation: Arc<Activation>) -> Written {
        let mut queue = self.shared.queue();
        let receiver = queue.end(activation);
        self.added(queue, receiver)
    }

    fn added(
        &self,
        queue: MutexGuard<'_, Queue>,
        receiver: Option<oneshot::Receiver<()>>,
    ) -> Written {
        drop(queue);
        self.shared.changed.notify_one();
        Written { receiver, shared: self.shared.clone() }
    }

    /// Replaces the totals of these functions; `None` removes those of one that is gone.
    pub fn put_totals(&self, totals: impl IntoIterator<Item = (String, Option<Totals>)>) {
        self.shared.queue().totals.extend(totals);
        self.shared.changed.notify_one();
    }

    /// The totals that the file had when it was opened.
    pub fn earlier_totals(&self) -> &BTreeMap<String, Totals> {
        &self.earlier
    }

    /// How the store is doing.
    pub fn health(&self) -> Health {
        let queue = self.shared.queue();
        Health { unwritten: queue.len(), lost: queue.lost, problem: queue.problem.clone() }
    }

    /// Writes what is left, for a limited time, and ends. Nothing is written afterwards.
    pub fn close(&self, limit: Duration) {
        let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let until = Instant::now() + limit;
        self.shared.queue().is_closing = true;
        self.shared.changed.notify_one();
        let mut queue = self.shared.queue();
        while !writer.is_finished() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // A disk that hangs must not keep the daemon.
                return;
            }
            let wait = left.min(Duration::from_millis(20));
            let waited = self.shared.done.wait_timeout(queue, wait);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(queue);
        let _ = writer.join();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close(Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests;
