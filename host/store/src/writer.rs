//! The thread that writes.

use crate::{
    ENDED_WITH_DAEMON, LINGER, OpenError, Shared, Totals,
    prune::{Held, Pruner},
    queue::Event,
    rows::{self, Statements},
    schema,
};
use rusqlite::Connection;
use squeezy_openwhisk::Namespace;
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

/// What is written together: at most this many entries, and results of this size unless a single
/// one is larger.
const MOST_TOGETHER: usize = 256;
const MOST_BYTES_TOGETHER: usize = 4 << 20;

/// How long to wait until a file that could not be written is tried again.
const RETRY: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 1000 });

/// How often to look for activations that are too old while nothing is written.
const TICK: Duration = Duration::from_secs(1);

/// A file that has been opened.
pub struct Opened {
    connection: Connection,
    pub totals: BTreeMap<String, Totals>,
}

impl Opened {
    /// Opens the file for the first time in this process. The calls that it says are running have
    /// ended with an earlier process.
    pub fn new(shared: &Shared) -> Result<Self, OpenError> {
        let path = &shared.path;
        let of = |error| OpenError::of(path, error);
        let connection = schema::open(path)?;
        let latest = "SELECT coalesce(max(number), 0) FROM activations";
        let latest = connection.query_row(latest, [], |row| row.get(0)).map_err(of)?;
        let totals = rows::totals(&connection).map_err(of)?;
        let interrupted = rows::running(&connection).map_err(of)?;
        let mut queue = shared.queue();
        let is_behind = std::mem::replace(&mut queue.is_behind, true);
        queue.renumber(latest);
        queue.admit(interrupted.len());
        for call in interrupted {
            let _ = queue.end(Arc::new(call.ended(ENDED_WITH_DAEMON)));
        }
        queue.is_behind = is_behind;
        Ok(Self { connection, totals })
    }
}

/// Writes until the store is closed.
pub fn run(shared: &Shared, opened: Option<Opened>) {
    let mut was_open = opened.is_some();
    let mut connection = opened.map(|opened| opened.connection);
    let mut held = None;
    loop {
        let open = match connection.take() {
            Some(connection) => Ok(connection),
            None if was_open => schema::open(&shared.path),
            None => Opened::new(shared).map(|opened| opened.connection),
        };
        let result = match &open {
            Ok(connection) => {
                was_open = true;
                write_all(shared, connection, &mut held).map_err(|error| {
                    format!("{}: {}", shared.path.display(), schema::describe(&error))
                })
            }
            Err(error) => Err(error.to_string()),
        };
        match result {
            Ok(()) => break,
            Err(problem) => failed(shared, &problem),
        }
        drop(open);
        let queue = shared.queue();
        let wait = shared.changed.wait_timeout_while(queue, RETRY, |queue| !queue.is_closing);
        let (queue, _) = wait.unwrap_or_else(PoisonError::into_inner);
        if queue.is_closing {
            break;
        }
    }
    shared.done.notify_all();
}

/// The file cannot be written: nobody waits for it, and it is said once.
pub fn failed(shared: &Shared, problem: &str) {
    let mut queue = shared.queue();
    queue.release();
    let is_new = queue.problem.is_none();
    queue.problem = Some(problem.to_owned());
    drop(queue);
    if is_new {
        (shared.say)(&format!(
            "activations are kept in memory only, the latest of them, until this is over: {problem}"
        ));
    }
}

/// It can be written (again).
fn succeeded(shared: &Shared, last: Option<u64>) {
    let mut queue = shared.queue();
    queue.written(last);
    queue.is_behind = false;
    let (was_problem, lost) = (queue.problem.take().is_some(), queue.lost);
    drop(queue);
    if was_problem {
        let lost = if lost == 0 {
            String::new()
        } else {
            format!("; the results of {lost} are lost since the daemon started")
        };
        (shared.say)(&format!("activations are written to {} again{lost}", shared.path.display()));
    }
}

/// Writes until the store is closed and everything is written, or until something fails. `held` is what is in the
/// file, once that is known: finding it out takes a while.
fn write_all(
    shared: &Shared,
    connection: &Connection,
    held: &mut Option<BTreeMap<Namespace, Held>>,
) -> rusqlite::Result<()> {
    let mut statements = Statements::new(connection)?;
    let mut pruner = Pruner::new(connection, shared.limits(), held.take())?;
    // A retry begins with little: it may fit where much does not.
    let mut together = MOST_TOGETHER;
    if shared.queue().problem.is_some() {
        together = 1;
        // The log of changes may be what fills the disk.
        let _ = pruner.empty_log(connection, "PASSIVE");
    }
    let mut looked = None;
    loop {
        let queue = shared.queue();
        // Whoever starts unheard does not wake this thread.
        let wait = if pruner.has_more() { Duration::ZERO } else { LINGER };
        let idle = |queue: &mut crate::queue::Queue| !queue.has_work() && !queue.is_closing;
        let waited = shared.changed.wait_timeout_while(queue, wait, idle);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (events, last) = queue.first(together, MOST_BYTES_TOGETHER);
        let totals = std::mem::take(&mut queue.totals);
        let (is_closing, has_problem) = (queue.is_closing, queue.problem.is_some());
        drop(queue);
        if events.is_empty() && totals.is_empty() && is_closing {
            // What the next start would have to read from the log of changes.
            let _ = pruner.empty_log(connection, "TRUNCATE");
            return Ok(());
        }
        if !events.is_empty() || !totals.is_empty() || has_problem {
            let written = write(connection, &mut statements, &events, &totals);
            match written {
                Ok(added) => pruner.added(added),
                Err(error) => {
                    // Later ones are newer.
                    let mut queue = shared.queue();
                    for (function, totals) in totals {
                        queue.totals.entry(function).or_insert(totals);
                    }
                    drop(queue);
                    undo(connection);
                    *held = Some(pruner.held());
                    return Err(error);
                }
            }
            succeeded(shared, last);
            together = (2 * together).min(MOST_TOGETHER);
        }
        // Nobody waits for what follows, except who comes meanwhile.
        if looked.is_none_or(|looked: Instant| looked.elapsed() >= TICK) || pruner.has_more() {
            looked = Some(Instant::now());
            let forgotten = shared.queue().forgotten.clone();
            pruner.look_anew(shared.limits(), shared.most_of(), forgotten);
        }
        let is_idle = !shared.queue().has_work();
        pruner.step(connection, &mut statements, is_idle);
    }
}

/// Writes these together, or nothing of them. Returns what was added.
fn write(
    connection: &Connection,
    statements: &mut Statements<'_>,
    events: &[Event],
    totals: &BTreeMap<String, Option<Totals>>,
) -> rusqlite::Result<Added> {
    debug_assert!(connection.is_autocommit());
    let ended: HashSet<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Ended(_, activation) => Some(activation.id.as_str()),
            Event::Started(_) => None,
        })
        .collect();
    let started: HashSet<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Started(call) => Some(call.id.as_str()),
            Event::Ended(..) => None,
        })
        .collect();
    let mut added = Added::default();
    statements.begin.execute([])?;
    for event in events {
        match event {
            Event::Started(call) if ended.contains(call.id.as_str()) => {}
            Event::Started(call) => statements.start(call)?,
            Event::Ended(number, activation) => {
                if !started.contains(activation.id.as_str()) {
                    statements.no_longer_running(&activation.id)?;
                }
                let rows = statements.end(*number, activation)?;
                added.rows += rows;
                added.bytes += activation.size();
                if rows > 0 {
                    let of = added.of.entry(activation.action.namespace.clone()).or_default();
                    of.add(activation.size());
                }
            }
        }
    }
    for (function, totals) in totals {
        statements.total(function, totals.as_ref())?;
    }
    if events.is_empty() && totals.is_empty() {
        // Whether the disk is still full shows only when something is written.
        schema::touch(connection)?;
    }
    statements.commit.execute([])?;
    added.writes = events.len() + totals.len();
    Ok(added)
}

/// What a transaction has added to the file.
#[derive(Clone, Debug, Default)]
pub struct Added {
    /// Activations.
    pub rows: usize,
    /// Size of their results and logs, in bytes.
    pub bytes: usize,
    /// Everything that was written, including what is no activation.
    pub writes: usize,
    /// Activations by namespace.
    pub of: BTreeMap<Namespace, Held>,
}

fn undo(connection: &Connection) {
    if !connection.is_autocommit() {
        // SQLite has done so already if it could not write.
        let _ = connection.execute_batch("ROLLBACK");
    }
}
