//! Reads activations: those that are not in the file yet from memory, the others by an index.

use crate::{ReadError, Store, rows, schema};
use rusqlite::{Connection, OptionalExtension, ToSql, params_from_iter};
use squeezy_openwhisk::{Namespace, QualifiedName, activation::Activation};
use std::{cmp::Reverse, sync::Arc};

/// A filter for activations. A list is in the order in which they have ended, the latest first;
/// with a time, in the order in which they have started, as in OpenWhisk.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Only of this namespace.
    pub namespace: Namespace,
    /// Only of this action.
    pub action: Option<String>,
    /// Only from this time on, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Only up to this time, in milliseconds since 1970.
    pub upto_ms: Option<i64>,
}

/// An activation that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its place among all that have ended.
    pub number: i64,
    /// What its result and logs take in memory, in bytes.
    pub size: usize,
    /// The activation; without result and logs if it is in the file.
    pub activation: Arc<Activation>,
    /// Whether the result and the logs have yet to be read from the file.
    pub is_head: bool,
}

impl Selection {
    /// All of a namespace.
    pub fn of(namespace: Namespace) -> Self {
        Self { namespace, action: None, since_ms: None, upto_ms: None }
    }

    /// Whether an activation passes the filter.
    pub fn admits(&self, activation: &Activation) -> bool {
        let start_ms = rows::signed(activation.start_ms);
        self.namespace == activation.action.namespace
            && self.action.as_ref().is_none_or(|action| **action == *activation.action.name)
            && self.since_ms.is_none_or(|since| start_ms >= since)
            && self.upto_ms.is_none_or(|upto| start_ms <= upto)
    }

    fn is_by_time(&self) -> bool {
        self.since_ms.is_some() || self.upto_ms.is_some()
    }

    /// The key of the order, descending.
    fn key(&self, found: &Found) -> (i64, i64) {
        let start_ms = if self.is_by_time() { rows::signed(found.activation.start_ms) } else { 0 };
        (start_ms, found.number)
    }

    /// The condition in SQL, and its parameters.
    fn condition(&self) -> (String, Vec<Box<dyn ToSql>>) {
        // An action's name in the file says the namespace, too: in guest, which is not written, a client could name
        // the whole path of somebody else's action.
        let (mut terms, mut parameters): (_, Vec<Box<dyn ToSql>>) = match &self.action {
            Some(action) => {
                let action = QualifiedName::new(self.namespace.clone(), action);
                let text = action.to_string();
                let is_its_own = text.parse().is_ok_and(|read: QualifiedName| read == action);
                let term = if is_its_own { "action = ?" } else { "action = ? AND FALSE" };
                (vec![term], vec![Box::new(text)])
            }
            None => (vec!["namespace = ?"], vec![Box::new(self.namespace.to_string())]),
        };
        if let Some(since_ms) = self.since_ms {
            terms.push("start_ms >= ?");
            parameters.push(Box::new(since_ms));
        }
        if let Some(upto_ms) = self.upto_ms {
            terms.push("start_ms <= ?");
            parameters.push(Box::new(upto_ms));
        }
        (terms.join(" AND "), parameters)
    }

    /// The list in SQL, without result and logs; its parameters are those of the condition, the
    /// limit and the offset.
    pub(crate) fn list_sql(&self) -> String {
        let (condition, _) = self.condition();
        let order = if self.is_by_time() { "start_ms DESC, number DESC" } else { "number DESC" };
        let head = rows::HEAD;
        format!(
            "SELECT {head}, number, size FROM activations WHERE {condition} ORDER BY {order} LIMIT ? OFFSET ?"
        )
    }

    /// The number of activations in SQL.
    pub(crate) fn count_sql(&self) -> String {
        format!("SELECT count(*) FROM activations WHERE {}", self.condition().0)
    }
}

impl Store {
    /// The activation of this namespace with this ID.
    pub async fn find(&self, namespace: &Namespace, id: &str) -> Result<Option<Found>, ReadError> {
        let found = self.find_any(id).await?;
        Ok(found.filter(|found| found.activation.action.namespace == *namespace))
    }

    async fn find_any(&self, id: &str) -> Result<Option<Found>, ReadError> {
        let waiting = self.waiting(|activation| activation.id == id).into_iter().next();
        if waiting.is_some() {
            return Ok(waiting);
        }
        let id = id.to_owned();
        self.read(move |connection| {
            let sql = format!("SELECT {}, number, size FROM activations WHERE id = ?1", rows::HEAD);
            connection.prepare(&sql)?.query_row([id], found).optional()
        })
        .await
    }

    /// Activations that pass the filter, without the first `skip` and at most `limit`.
    pub async fn list(
        &self,
        selection: &Selection,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<Found>, ReadError> {
        let selection = selection.clone();
        let waiting = self.waiting(|activation| selection.admits(activation));
        self.read(move |connection| {
            // The same state of the file for all queries.
            let read = connection.unchecked_transaction()?;
            let waiting = not_there(&read, waiting)?;
            // Any of those that wait may come first: so many less of the others are among those that are left out.
            let from = skip.saturating_sub(waiting.len());
            let most = (skip - from).saturating_add(limit);
            let (_, mut parameters) = selection.condition();
            for number in [most, from] {
                parameters.push(Box::new(rows::signed(number as u64)));
            }
            let mut statement = read.prepare(&selection.list_sql())?;
            let written = statement.query_map(params_from_iter(parameters), found)?;
            let mut all = written.collect::<rusqlite::Result<Vec<_>>>()?;
            all.extend(waiting);
            all.sort_by_key(|found| Reverse(selection.key(found)));
            Ok(all.into_iter().skip(skip - from).take(limit).collect())
        })
        .await
    }

    /// Number of activations that pass the filter.
    pub async fn count(&self, selection: &Selection) -> Result<usize, ReadError> {
        let selection = selection.clone();
        let waiting = self.waiting(|activation| selection.admits(activation));
        self.read(move |connection| {
            // The same state of the file for all queries.
            let read = connection.unchecked_transaction()?;
            let (_, parameters) = selection.condition();
            let mut statement = read.prepare(&selection.count_sql())?;
            let count: i64 = statement.query_row(params_from_iter(parameters), |row| row.get(0))?;
            let more = not_there(&read, waiting)?;
            Ok(usize::try_from(count).unwrap_or(0) + more.len())
        })
        .await
    }

    /// Reads the results and logs of activations. One that is gone by now is left out.
    pub async fn load(&self, found: Vec<Found>) -> Result<Vec<Arc<Activation>>, ReadError> {
        if found.iter().all(|found| !found.is_head) {
            return Ok(found.into_iter().map(|found| found.activation).collect());
        }
        self.read(move |connection| {
            let sql =
                format!("SELECT {}, result, logs FROM activations WHERE number = ?1", rows::HEAD);
            let mut statement = connection.prepare(&sql)?;
            let mut all = Vec::new();
            for Found { number, activation, is_head, .. } in found {
                if !is_head {
                    all.push(activation);
                } else if let Some(whole) = statement.query_row([number], rows::whole).optional()? {
                    all.push(Arc::new(whole));
                }
            }
            Ok(all)
        })
        .await
    }

    /// Those that are not in the file yet, the latest first.
    fn waiting(&self, admits: impl Fn(&Activation) -> bool) -> Vec<Found> {
        let queue = self.shared.queue();
        let waiting = queue.ended().filter(|(_, activation)| admits(activation));
        let found = |(number, activation): (i64, &Arc<Activation>)| Found {
            number,
            size: activation.size(),
            activation: activation.clone(),
            is_head: false,
        };
        waiting.map(found).collect()
    }

    /// Reads from the file, on a thread that may wait for the disk.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ReadError> {
        let mut reader = self.reader.clone().lock_owned().await;
        let shared = self.shared.clone();
        let result = tokio::task::spawn_blocking(move || {
            let connection = match reader.take() {
                Some(connection) => connection,
                None => schema::open_to_read(&shared.path)?,
            };
            let result = read(&connection);
            // After an error, the next one tries another connection.
            if result.is_ok() {
                *reader = Some(connection);
            }
            result
        });
        match result.await {
            Ok(result) => result.map_err(|error| ReadError(schema::describe(&error))),
            Err(error) => Err(ReadError(error.to_string())),
        }
    }
}

/// Those that are not in the file yet: some that waited may be by now.
fn not_there(read: &Connection, waiting: Vec<Found>) -> rusqlite::Result<Vec<Found>> {
    let mut there = read.prepare("SELECT 1 FROM activations WHERE number = ?1")?;
    let mut left = Vec::new();
    for found in waiting {
        if !there.exists([found.number])? {
            left.push(found);
        }
    }
    Ok(left)
}

fn found(row: &rusqlite::Row<'_>) -> rusqlite::Result<Found> {
    Ok(Found {
        activation: Arc::new(rows::head(row)?),
        number: row.get(12)?,
        size: usize::try_from(row.get::<_, i64>(13)?).unwrap_or(0),
        is_head: true,
    })
}
