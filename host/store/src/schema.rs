//! The file: how it is made, opened, brought up to date and refused.

use crate::OpenError;
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};
use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

/// The steps to the current schema; `user_version` is the number of those that a file has had. A
/// step that has been released is never changed.
const STEPS: &[&str] = &[
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
];

/// Tells our files from others, for `file` and for us: "sqzy".
const APPLICATION_ID: i32 = 0x7371_7a79;

/// How long a connection waits for a lock that an operator's `sqlite3` holds.
const BUSY_LIMIT: Duration = Duration::from_millis(200);

/// Page cache of a connection, in KiB.
const CACHE_KIB: u32 = 1024;

/// The log of changes is cut down to this, in bytes, if it was larger.
const LOG_BYTES: u32 = 8 << 20;

/// A version of the schema that this program does not know, or none.
enum Found {
    Empty,
    Ours(usize),
}

/// Opens the file, and makes it if there is none. If the file cannot be used, it is left as it is.
pub fn open(path: &Path) -> Result<Connection, OpenError> {
    let file = |error| OpenError::File { path: path.to_owned(), error };
    // SQLite would let others read it. Its other files get the mode of this one.
    let made = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    drop(made.map_err(file)?);
    let of = |error| OpenError::of(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(of)?;
    // A file that is refused must not change, not even by what an earlier daemon has left in the
    // log of changes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(of)?;
    connection.busy_timeout(BUSY_LIMIT).map_err(of)?;
    let steps = match find(&connection, path)? {
        Found::Ours(steps) => steps,
        Found::Empty => {
            // Both can only be chosen before anything is written.
            let start = "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL";
            connection.execute_batch(start).map_err(of)?;
            0
        }
    };
    for (done, step) in STEPS.iter().enumerate().skip(steps) {
        let change = connection.transaction().map_err(of)?;
        change.execute_batch(step).map_err(of)?;
        change.pragma_update(None, "application_id", APPLICATION_ID).map_err(of)?;
        change.pragma_update(None, "user_version", done as i64 + 1).map_err(of)?;
        change.commit().map_err(of)?;
    }
    configure(&connection).map_err(of)?;
    Ok(connection)
}

/// Opens the file for reading, once it is there.
pub fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_LIMIT)?;
    configure(&connection)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Writes something that changes nothing.
pub fn touch(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "user_version", STEPS.len() as i64)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;
         PRAGMA cache_size = -{CACHE_KIB}; PRAGMA journal_size_limit = {LOG_BYTES}"
    ))
}

/// What kind of file it is.
fn find(connection: &Connection, path: &Path) -> Result<Found, OpenError> {
    let of = |error| OpenError::of(path, error);
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let damaged = |problem: String| OpenError::Damaged { path: path.to_owned(), problem };
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(tables, [], |row| row.get(0)).map_err(of)?;
    let id = number("application_id").map_err(of)?;
    let version = number("user_version").map_err(of)?;
    if tables == 0 && id == 0 && version == 0 {
        return Ok(Found::Empty);
    }
    if id != i64::from(APPLICATION_ID) {
        return Err(damaged("it is a database of another program".to_owned()));
    }
    match usize::try_from(version) {
        Ok(steps) if steps <= STEPS.len() => Ok(Found::Ours(steps)),
        _ => Err(damaged(format!("it has version {version}, this squeezy knows {}", STEPS.len()))),
    }
}

impl OpenError {
    pub(crate) fn of(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            // It may become possible while the daemon runs.
            Some(
                ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked,
            ) => Self::NotNow { path, problem: describe(&error) },
            _ => Self::Damaged { path, problem: describe(&error) },
        }
    }

    /// Whether it may become possible to open the file while the daemon runs.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NotNow { .. } => true,
            Self::File { error, .. } => {
                matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Self::Damaged { .. } => false,
        }
    }
}

/// SQLite's error in a few words.
pub fn describe(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full".to_owned(),
        Some(ErrorCode::SystemIoFailure) => "the disk fails, or is full".to_owned(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program has locked it".to_owned()
        }
        _ => error.to_string().replace('\n', " "),
    }
}
