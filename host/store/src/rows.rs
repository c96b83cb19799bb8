//! Activations and totals as rows.

use crate::{Totals, queue::Running};
use rusqlite::{Connection, Row, Statement, params, types::Type};
use serde_json::Value;
use squeezy_node::WaitedFor;
use squeezy_openwhisk::{
    Namespace, QualifiedName,
    activation::{Activation, Status},
};
use std::{collections::BTreeMap, time::Duration};

/// The columns of an activation without its result and logs.
pub const HEAD: &str = "id, action, version, kind, start_ms, status, waited_ns, waited_for, init_ns, took_ns, cause, limits";

/// The statements of the writer, prepared once.
pub struct Statements<'c> {
    pub begin: Statement<'c>,
    pub commit: Statement<'c>,
    started: Statement<'c>,
    ended: Statement<'c>,
    no_longer_running: Statement<'c>,
    total: Statement<'c>,
    no_total: Statement<'c>,
    pub removed: Statement<'c>,
    pub pages: Statement<'c>,
    pub free_pages: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql: &str| connection.prepare(sql);
        Ok(Self {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            // A transaction whose end is not known is repeated.
            started: prepare("INSERT OR IGNORE INTO running VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?,
            ended: prepare(&format!(
                "INSERT OR IGNORE INTO activations (number, {HEAD}, size, result, logs)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
            ))?,
            no_longer_running: prepare("DELETE FROM running WHERE id = ?1")?,
            total: prepare(
                "INSERT OR REPLACE INTO totals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?,
            no_total: prepare("DELETE FROM totals WHERE function = ?1")?,
            removed: prepare("DELETE FROM activations WHERE number = ?1")?,
            pages: prepare("PRAGMA page_count")?,
            free_pages: prepare("PRAGMA freelist_count")?,
        })
    }

    /// Writes that a call is running.
    pub fn start(&mut self, call: &Running) -> rusqlite::Result<()> {
        let Running { id, action, version, kind, start_ms, cause } = call;
        let (action, start_ms) = (action.to_string(), signed(*start_ms));
        self.started.execute(params![id, action, version, kind, start_ms, cause])?;
        Ok(())
    }

    /// Writes that a call is not running any more.
    pub fn no_longer_running(&mut self, id: &str) -> rusqlite::Result<()> {
        self.no_longer_running.execute([id])?;
        Ok(())
    }

    /// Writes how a call has ended. Returns the number of new activations.
    pub fn end(&mut self, number: i64, activation: &Activation) -> rusqlite::Result<usize> {
        let text = |error: serde_json::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
        let logs = (!activation.logs.is_empty())
            .then(|| serde_json::to_string(&activation.logs).map_err(text))
            .transpose()?;
        self.ended.execute(params![
            number,
            activation.id,
            activation.action.to_string(),
            activation.version,
            activation.kind,
            signed(activation.start_ms),
            activation.status as u8,
            nanoseconds(activation.waited),
            activation.waited_for.map(WaitedFor::name),
            activation.init.map(nanoseconds),
            nanoseconds(activation.took),
            activation.cause,
            activation.limits.as_ref().map(Value::to_string),
            signed(activation.size() as u64),
            serde_json::to_string(&activation.result).map_err(text)?,
            logs,
        ])
    }

    /// Writes a function's totals, or removes them.
    pub fn total(&mut self, function: &str, totals: Option<&Totals>) -> rusqlite::Result<()> {
        let Some(totals) = totals else {
            self.no_total.execute([function])?;
            return Ok(());
        };
        self.total.execute(params![
            function,
            signed(totals.cold),
            signed(totals.warm),
            signed(totals.recreated),
            signed(totals.failed),
            signed(totals.reclaimed_bytes),
            signed(totals.taken_bytes),
            signed(totals.condemned_bytes),
            nanoseconds(totals.taking),
        ])?;
        Ok(())
    }
}

/// Reads an activation without its result and logs from the columns [`HEAD`].
pub fn head(row: &Row<'_>) -> rusqlite::Result<Activation> {
    let status: u64 = unsigned(row.get(5)?);
    let waited_for: Option<String> = row.get(7)?;
    let limits: Option<String> = row.get(11)?;
    let named = |name: String| WaitedFor::ALL.into_iter().find(|one| one.name() == name);
    Ok(Activation {
        id: row.get(0)?,
        action: action(row)?,
        version: row.get(2)?,
        kind: row.get::<_, String>(3)?.into(),
        start_ms: unsigned(row.get(4)?),
        status: Status::of_code(status).ok_or(rusqlite::Error::IntegralValueOutOfRange(5, 0))?,
        result: Value::Null,
        waited: duration(row.get(6)?),
        waited_for: waited_for.and_then(named),
        init: row.get::<_, Option<i64>>(8)?.map(duration),
        took: duration(row.get(9)?),
        logs: Vec::new(),
        cause: row.get(10)?,
        limits: limits.and_then(|text| serde_json::from_str(&text).ok()),
        by_stranger: false,
    })
}

/// Reads the name of the action that was called.
fn action(row: &Row<'_>) -> rusqlite::Result<QualifiedName> {
    let wrong =
        |error: String| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, error.into());
    row.get_ref(1)?.as_str()?.parse().map_err(wrong)
}

/// Reads a namespace.
pub fn namespace(row: &Row<'_>, column: usize) -> rusqlite::Result<Namespace> {
    let wrong =
        |error: String| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into());
    row.get_ref(column)?.as_str()?.parse().map_err(wrong)
}

/// Reads an activation from the columns [`HEAD`], `result` and `logs`.
pub fn whole(row: &Row<'_>) -> rusqlite::Result<Activation> {
    let json = |column, error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
    };
    let result = serde_json::from_str(row.get_ref(12)?.as_str()?).map_err(|e| json(12, e))?;
    let logs = match row.get_ref(13)?.as_str_or_null()? {
        Some(text) => serde_json::from_str(text).map_err(|error| json(13, error))?,
        None => Vec::new(),
    };
    Ok(Activation { result, logs, ..head(row)? })
}

/// Calls that were running when the file was last written.
pub fn running(connection: &Connection) -> rusqlite::Result<Vec<Running>> {
    let sql =
        "SELECT id, action, version, kind, start_ms, cause FROM running ORDER BY start_ms, id";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Running {
            id: row.get(0)?,
            action: action(row)?,
            version: row.get(2)?,
            kind: row.get::<_, String>(3)?.into(),
            start_ms: unsigned(row.get(4)?),
            cause: row.get(5)?,
        })
    })?;
    rows.collect()
}

/// The totals of all functions.
pub fn totals(connection: &Connection) -> rusqlite::Result<BTreeMap<String, Totals>> {
    let mut statement = connection.prepare(
        "SELECT function, cold, warm, recreated, failed, reclaimed_bytes, taken_bytes,
             condemned_bytes, taking_ns FROM totals",
    )?;
    let rows = statement.query_map([], |row| {
        let number = |column| row.get(column).map(unsigned);
        let totals = Totals {
            cold: number(1)?,
            warm: number(2)?,
            recreated: number(3)?,
            failed: number(4)?,
            reclaimed_bytes: number(5)?,
            taken_bytes: number(6)?,
            condemned_bytes: number(7)?,
            taking: Duration::from_nanos(number(8)?),
        };
        Ok((row.get(0)?, totals))
    })?;
    rows.collect()
}

/// SQLite's integers are signed.
pub fn signed(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Nothing here is negative.
pub fn unsigned(number: i64) -> u64 {
    number.try_into().unwrap_or(0)
}

fn nanoseconds(time: Duration) -> i64 {
    time.as_nanos().try_into().unwrap_or(i64::MAX)
}

fn duration(nanoseconds: i64) -> Duration {
    Duration::from_nanos(unsigned(nanoseconds))
}
