//! Keeps the file within its bounds, a little at a time: whoever adds something meanwhile waits for
//! one step at most. A step that fails, such as on a full disk, is repeated later.
//!
//! Each namespace has a number of activations that it may have, and loses its own oldest beyond that. When the file is
//! too large, whoever has most in it loses its oldest: nobody pushes out what is another's.

use crate::{
    Limits,
    rows::{self, Statements, signed, unsigned},
    writer::Added,
};
use rusqlite::{Connection, Statement, params};
use squeezy_openwhisk::{Namespace, now_ms};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// A page, in bytes; SQLite's default.
const PAGE_BYTES: u64 = 4096;

/// What one step removes: at most this many activations, and not many more bytes than this. It is
/// more if more was added since the last step, or the file would not stay within its bounds.
const MOST_ROWS: usize = 64;
const MOST_BYTES: usize = 1 << 20;

/// Pages of the log of changes from which on they are moved to the file itself.
const LOG_PAGES: usize = 1000;

/// Pages that a transaction changes for each entry, about.
const PAGES_PER_WRITE: usize = 6;

/// What an activation takes in the file besides its result and logs, about, in bytes.
const HEAD_BYTES: u64 = 300;

/// How much may be added until the pages in use are counted again.
const UNSEEN_BYTES: usize = 256 << 10;

/// Free pages that one step removes from the file.
const SHRINK_PAGES: u64 = 64;

/// Fewer free pages remain for what comes next.
const MOST_FREE_PAGES: u64 = 256;

/// How long to wait after a step that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// What has to be removed.
pub struct Pruner<'c> {
    limits: Limits,
    /// What is in the file, by namespace.
    held: BTreeMap<Namespace, Held>,
    /// How many activations namespaces may have that have a bound of their own.
    most_of: BTreeMap<Namespace, usize>,
    /// Sum of what was added since the last step.
    added: Added,
    /// Pages of the log of changes, about.
    log_pages: usize,
    /// What was added since the pages in use were counted, about, in bytes.
    unseen_bytes: usize,
    has_old: bool,
    has_too_many: bool,
    has_free: bool,
    paused: Option<Instant>,
    /// Namespaces of which nothing is kept.
    forgotten: BTreeSet<Namespace>,
    of_namespace: Statement<'c>,
    old: Statement<'c>,
}

impl<'c> Pruner<'c> {
    /// For a file in which this is, if that is known.
    pub fn new(
        connection: &'c Connection,
        limits: Limits,
        held: Option<BTreeMap<Namespace, Held>>,
    ) -> rusqlite::Result<Self> {
        let held = match held {
            Some(held) => held,
            None => look(connection)?,
        };
        Ok(Self {
            limits,
            held,
            most_of: BTreeMap::new(),
            added: Added::default(),
            // What an earlier process has left.
            log_pages: LOG_PAGES,
            unseen_bytes: 0,
            has_old: true,
            has_too_many: true,
            has_free: true,
            paused: None,
            forgotten: BTreeSet::new(),
            of_namespace: connection.prepare(
                "SELECT number, size, namespace FROM activations WHERE namespace = ?2
                 ORDER BY number LIMIT ?1",
            )?,
            // Those that have ended by then. The index is of their starts, which are before.
            old: connection.prepare(
                "SELECT number, size, namespace FROM activations
                 WHERE start_ms < ?2 AND start_ms + (waited_ns + took_ns) / 1000000 < ?2
                 ORDER BY start_ms LIMIT ?1",
            )?,
        })
    }

    /// Something was added to the file.
    pub fn added(&mut self, added: Added) {
        for (namespace, of) in added.of {
            let most = self.most_of(&namespace);
            let held = self.held.entry(namespace).or_default();
            held.rows += of.rows;
            held.bytes += of.bytes;
            self.has_too_many |= held.rows > most;
        }
        self.added.rows += added.rows;
        self.added.bytes += added.bytes;
        self.log_pages += PAGES_PER_WRITE * added.writes + added.bytes / PAGE_BYTES as usize;
        // The pages in use are counted now and then only.
        self.unseen_bytes += added.bytes + PAGE_BYTES as usize / 4 * added.rows;
        self.has_too_many |= self.unseen_bytes >= UNSEEN_BYTES;
    }

    /// Makes the next steps look for activations that are too old, and that are too many by now if the bounds
    /// have changed.
    pub fn look_anew(
        &mut self,
        limits: Limits,
        most_of: BTreeMap<Namespace, usize>,
        forgotten: BTreeSet<Namespace>,
    ) {
        self.forgotten = forgotten;
        self.has_old = true;
        self.has_too_many |= limits != self.limits || most_of != self.most_of;
        (self.limits, self.most_of) = (limits, most_of);
    }

    /// What is in the file.
    pub fn held(self) -> BTreeMap<Namespace, Held> {
        self.held
    }

    /// How many activations a namespace may have.
    fn most_of(&self, namespace: &Namespace) -> usize {
        self.most_of.get(namespace).copied().unwrap_or(self.limits.most)
    }

    /// A namespace that has more than it may, and how many more.
    fn crowded(&self) -> Option<(Namespace, usize)> {
        self.held.iter().find_map(|(namespace, held)| {
            let excess = held.rows.checked_sub(self.most_of(namespace)).filter(|more| *more > 0)?;
            Some((namespace.clone(), excess))
        })
    }

    /// The namespace that has most in the file.
    fn largest(&self) -> Option<Namespace> {
        let largest =
            self.held.iter().max_by_key(|(_, held)| held.bytes + HEAD_BYTES * held.rows as u64);
        largest.map(|(namespace, _)| namespace.clone())
    }

    /// Whether there is something left to do that need not wait.
    pub fn has_more(&self) -> bool {
        (!self.forgotten.is_empty() || self.has_old || self.has_too_many || self.has_free)
            && self.paused.is_none_or(|since| since.elapsed() >= PAUSE)
    }

    /// Does a part of what there is to do. The file shrinks only if nothing else is to be done.
    pub fn step(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        is_idle: bool,
    ) {
        if self.paused.is_some_and(|since| since.elapsed() < PAUSE) {
            return;
        }
        self.paused = None;
        if self.try_step(connection, statements, is_idle).is_err() {
            if !connection.is_autocommit() {
                let _ = connection.execute_batch("ROLLBACK");
            }
            self.paused = Some(Instant::now());
        }
    }

    fn try_step(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        is_idle: bool,
    ) -> rusqlite::Result<()> {
        let rows = MOST_ROWS.max(2 * self.added.rows);
        let mut bytes = MOST_BYTES.max(2 * self.added.bytes);
        let mut going = Vec::new();
        if self.has_old {
            let keep_ms = u64::try_from(self.limits.keep.as_millis()).unwrap_or(u64::MAX);
            let before = signed(now_ms().saturating_sub(keep_ms));
            going = some(&mut self.old, params![rows as i64, before], bytes)?;
            self.has_old = !going.is_empty();
        }
        while going.is_empty()
            && let Some(namespace) = self.forgotten.first().cloned()
        {
            let parameters = params![rows as i64, namespace.as_str()];
            going = some(&mut self.of_namespace, parameters, bytes)?;
            if going.is_empty() {
                self.forgotten.remove(&namespace);
            }
        }
        if self.has_too_many && going.is_empty() {
            // A little more at once costs less in all.
            let disk_bytes = self.limits.disk_bytes;
            self.unseen_bytes = 0;
            let excess_bytes = self.used_bytes(statements)?.saturating_sub(disk_bytes);
            let (whose, too_many) = match self.crowded() {
                Some((namespace, excess)) => {
                    let more = (self.most_of(&namespace) / 100).min(MOST_ROWS / 2);
                    (Some(namespace), excess + more)
                }
                None if excess_bytes > 0 => {
                    bytes = bytes.min((excess_bytes + disk_bytes / 64) as usize);
                    (self.largest(), MOST_ROWS)
                }
                None => (None, 0),
            };
            if let Some(namespace) = whose {
                let parameters = params![rows.min(too_many) as i64, namespace.as_str()];
                going = some(&mut self.of_namespace, parameters, bytes)?;
            }
            self.has_too_many = !going.is_empty();
        }
        if !going.is_empty() {
            statements.begin.execute([])?;
            for (number, ..) in &going {
                statements.removed.execute([number])?;
            }
            statements.commit.execute([])?;
            self.added = Added::default();
            self.log_pages += PAGES_PER_WRITE * going.len();
            for (_, bytes, namespace) in going {
                self.removed(&namespace, bytes);
            }
            self.has_free = true;
        } else if is_idle && self.has_free {
            self.shrink(connection, statements)?;
        }
        if self.log_pages >= LOG_PAGES {
            self.empty_log(connection, "PASSIVE")?;
        }
        Ok(())
    }

    fn removed(&mut self, namespace: &Namespace, bytes: u64) {
        let Some(held) = self.held.get_mut(namespace) else { return };
        held.rows = held.rows.saturating_sub(1);
        held.bytes = held.bytes.saturating_sub(bytes);
        if held.rows == 0 {
            self.held.remove(namespace);
        }
    }

    /// The pages that are in use, in bytes.
    fn used_bytes(&self, statements: &mut Statements<'_>) -> rusqlite::Result<u64> {
        let pages = number(&mut statements.pages)?;
        Ok((pages - number(&mut statements.free_pages)?.min(pages)) * PAGE_BYTES)
    }

    /// Gives free pages back to the file system, unless they are few.
    fn shrink(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
    ) -> rusqlite::Result<()> {
        let free = number(&mut statements.free_pages)?;
        let pages = number(&mut statements.pages)?;
        if free <= MOST_FREE_PAGES.max(pages / 4) {
            self.has_free = false;
            return Ok(());
        }
        let mut shrink =
            connection.prepare(&format!("PRAGMA incremental_vacuum({SHRINK_PAGES})"))?;
        let mut rows = shrink.query([])?;
        while rows.next()?.is_some() {}
        drop(rows);
        self.log_pages += 2 * SHRINK_PAGES as usize;
        // Never for ever, whatever SQLite makes of it.
        self.has_free = number(&mut statements.free_pages)? < free;
        Ok(())
    }

    /// Moves the log of changes to the file itself, which waits for the disk.
    pub fn empty_log(&mut self, connection: &Connection, how: &str) -> rusqlite::Result<()> {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        let (pages, moved): (i64, i64) =
            connection.query_row(&sql, [], |row| Ok((row.get(1)?, row.get(2)?)))?;
        // If somebody reads an older state, the rest can be moved later.
        self.log_pages = usize::try_from(pages - moved).unwrap_or(0).min(LOG_PAGES / 2);
        Ok(())
    }
}

/// What is in the file of a namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Activations.
    rows: usize,
    /// Their results and logs, in bytes.
    bytes: u64,
}

impl Held {
    /// Adds an activation whose result and logs are of this size in bytes.
    pub fn add(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes as u64;
    }
}

/// What is in the file.
fn look(connection: &Connection) -> rusqlite::Result<BTreeMap<Namespace, Held>> {
    let sums = "SELECT namespace, count(*), sum(size) FROM activations GROUP BY namespace";
    let mut sums = connection.prepare(sums)?;
    let rows = sums.query_map([], |row| {
        let number = |column| row.get(column).map(unsigned);
        Ok((rows::namespace(row, 0)?, Held { rows: number(1)? as usize, bytes: number(2)? }))
    })?;
    rows.collect()
}

/// An activation to remove: its number, the size of its result and logs in bytes, and whose it is.
type Going = (i64, u64, Namespace);

/// Activations from the beginning of a list: those whose sizes are within `bytes`, at least one.
fn some(
    list: &mut Statement<'_>,
    parameters: impl rusqlite::Params,
    bytes: usize,
) -> rusqlite::Result<Vec<Going>> {
    let (mut going, mut sum) = (Vec::new(), 0);
    let mut rows = list.query(parameters)?;
    while let Some(row) = rows.next()? {
        let size = unsigned(row.get(1)?);
        sum += size;
        if sum > bytes as u64 && !going.is_empty() {
            break;
        }
        going.push((row.get(0)?, size, rows::namespace(row, 2)?));
    }
    Ok(going)
}

fn number(pragma: &mut Statement<'_>) -> rusqlite::Result<u64> {
    let number: i64 = pragma.query_row([], |row| row.get(0))?;
    Ok(number.try_into().unwrap_or(0))
}
