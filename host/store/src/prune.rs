//! Keeps the file within its bounds, a little at a time: whoever adds something meanwhile waits for
//! one step at most. A step that fails, such as on a full disk, is repeated later.

use crate::{
    Limits,
    rows::{Statements, signed},
    writer::Added,
};
use rusqlite::{Connection, Statement, params};
use squeezy_openwhisk::now_ms;
use std::time::{Duration, Instant};

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
    /// Number of activations in the file.
    count: usize,
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
    first: Statement<'c>,
    old: Statement<'c>,
}

impl<'c> Pruner<'c> {
    pub fn new(connection: &'c Connection, limits: Limits) -> rusqlite::Result<Self> {
        let count = "SELECT count(*) FROM activations";
        let count: i64 = connection.query_row(count, [], |row| row.get(0))?;
        Ok(Self {
            limits,
            count: count.try_into().unwrap_or(0),
            added: Added::default(),
            // What an earlier process has left.
            log_pages: LOG_PAGES,
            unseen_bytes: 0,
            has_old: true,
            has_too_many: true,
            has_free: true,
            paused: None,
            first: connection
                .prepare("SELECT number, size FROM activations ORDER BY number LIMIT ?1")?,
            old: connection.prepare(
                "SELECT number, size FROM activations WHERE start_ms < ?2 ORDER BY start_ms LIMIT ?1",
            )?,
        })
    }

    /// Something was added to the file.
    pub fn added(&mut self, added: Added) {
        self.count += added.rows;
        self.added.rows += added.rows;
        self.added.bytes += added.bytes;
        self.log_pages += PAGES_PER_WRITE * added.writes + added.bytes / PAGE_BYTES as usize;
        // The pages in use are counted now and then only.
        self.unseen_bytes += added.bytes + PAGE_BYTES as usize / 4 * added.rows;
        self.has_too_many |= self.count > self.limits.most || self.unseen_bytes >= UNSEEN_BYTES;
    }

    /// Makes the next step look for activations that are too old.
    pub fn look_for_old(&mut self) {
        self.has_old = true;
    }

    /// Whether there is something left to do that need not wait.
    pub fn has_more(&self) -> bool {
        (self.has_old || self.has_too_many || self.has_free)
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
        let mut numbers = Vec::new();
        if self.has_old {
            let keep_ms = u64::try_from(self.limits.keep.as_millis()).unwrap_or(u64::MAX);
            let before = signed(now_ms().saturating_sub(keep_ms));
            numbers = some(&mut self.old, params![rows as i64, before], bytes)?;
            self.has_old = !numbers.is_empty();
        }
        if self.has_too_many && numbers.is_empty() {
            // A little more at once costs less in all.
            let Limits { most, disk_bytes, .. } = self.limits;
            self.unseen_bytes = 0;
            let excess_bytes = self.used_bytes(statements)?.saturating_sub(disk_bytes);
            let too_many = match self.count.checked_sub(most) {
                Some(excess) if excess > 0 => excess + (most / 100).min(MOST_ROWS / 2),
                _ if excess_bytes > 0 => {
                    bytes = bytes.min((excess_bytes + disk_bytes / 64) as usize);
                    MOST_ROWS
                }
                _ => 0,
            };
            let rows = rows.min(too_many);
            if rows > 0 {
                numbers = some(&mut self.first, params![rows as i64], bytes)?;
            }
            self.has_too_many = !numbers.is_empty();
        }
        if !numbers.is_empty() {
            statements.begin.execute([])?;
            for number in &numbers {
                statements.removed.execute([number])?;
            }
            statements.commit.execute([])?;
            self.count = self.count.saturating_sub(numbers.len());
            self.added = Added::default();
            self.log_pages += PAGES_PER_WRITE * numbers.len();
            self.has_free = true;
        } else if is_idle && self.has_free {
            self.shrink(connection, statements)?;
        }
        if self.log_pages >= LOG_PAGES {
            self.empty_log(connection, "PASSIVE")?;
        }
        Ok(())
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

/// Activations from the beginning of a list: those whose sizes are within `bytes`, at least one.
fn some(
    list: &mut Statement<'_>,
    parameters: impl rusqlite::Params,
    bytes: usize,
) -> rusqlite::Result<Vec<i64>> {
    let (mut numbers, mut sum) = (Vec::new(), 0);
    let mut rows = list.query(parameters)?;
    while let Some(row) = rows.next()? {
        sum += usize::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
        if sum > bytes && !numbers.is_empty() {
            break;
        }
        numbers.push(row.get(0)?);
    }
    Ok(numbers)
}

fn number(pragma: &mut Statement<'_>) -> rusqlite::Result<u64> {
    let number: i64 = pragma.query_row([], |row| row.get(0))?;
    Ok(number.try_into().unwrap_or(0))
}
