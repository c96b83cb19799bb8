//! Files that are refused.

use super::*;
use std::{fs, os::unix::fs::PermissionsExt};

/// The error of a file that is refused, which has to remain as it is.
fn refusal(path: &Path) -> String {
    let before = fs::read(path).unwrap();
    let error = Store::open(path, LIMITS, |_| ()).err().expect("it is refused").to_string();
    assert_eq!(fs::read(path).unwrap(), before);
    assert!(error.starts_with(&format!("{}: ", path.display())), "{error}");
    assert!(error.contains("move it and its -wal away") && error.lines().count() == 1, "{error}");
    error
}

#[tokio::test]
async fn a_file_that_cannot_be_understood_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("squeezy.db");
    drop(open(directory.path(), LIMITS));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let good = fs::read(&path).unwrap();

    let change = |sql: &str| {
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    };
    change("PRAGMA user_version = 5");
    assert!(refusal(&path).contains("it has version 5, this squeezy knows 4"));
    change("PRAGMA user_version = 4; PRAGMA application_id = 5");
    assert!(refusal(&path).contains("of another program"));
    change(&format!("PRAGMA application_id = {}; DROP TABLE totals", 0x7371_7a79));
    assert!(refusal(&path).contains("no such table: totals"));
    fs::write(&path, "something else").unwrap();
    assert!(refusal(&path).contains("not a database"), "{}", refusal(&path));
    // The header is right, and the rest is not.
    let mut damaged = good.clone();
    damaged[100..].fill(0x5a);
    fs::write(&path, damaged).unwrap();
    assert!(refusal(&path).contains("malformed"), "{}", refusal(&path));
    fs::write(&path, good).unwrap();
    drop(open(directory.path(), LIMITS));
}

#[tokio::test]
async fn a_daemon_that_was_killed_while_it_made_the_file_can_make_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("squeezy.db");
    for beginning in ["", "PRAGMA journal_mode = WAL"] {
        let _ = fs::remove_file(&path);
        rusqlite::Connection::open(&path).unwrap().execute_batch(beginning).unwrap();
        let store = open(directory.path(), LIMITS);
        end(&store, activation("a", now_ms(), 10)).await;
        drop(store);
        fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn an_operator_may_look_with_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), LIMITS);
    let operator = rusqlite::Connection::open(directory.path().join("squeezy.db")).unwrap();
    operator.execute_batch("BEGIN").unwrap();
    let sql = "SELECT count(*) FROM activations";
    let count = || -> i64 { operator.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(count(), 0);
    end(&store, activation("a", now_ms(), 10)).await;
    operator.execute_batch("COMMIT").unwrap();
    assert_eq!(count(), 1);
}

/// Somebody has locked the file. Calls go on, and it is said once when that begins and ends.
#[tokio::test]
async fn who_locks_the_file_stops_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let say = {
        let said = said.clone();
        move |line: &str| said.lock().unwrap().push(line.to_owned())
    };
    let path = directory.path().join("squeezy.db");
    let store = Store::open(&path, LIMITS, say).unwrap();
    end(&store, activation("a", now_ms(), 10)).await;
    let operator = rusqlite::Connection::open(&path).unwrap();
    operator.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begin = Instant::now();
    for number in 0..100 {
        assert!(!store.end(activation(&format!("{number}"), now_ms(), 10)).wait().await);
    }
    assert!(begin.elapsed() < 5 * PATIENCE, "{:?}", begin.elapsed());
    until("it is said", async || store.health().problem.is_some()).await;
    assert_eq!(store.count(&everything()).await.unwrap(), 101);
    operator.execute_batch("COMMIT").unwrap();
    until("it is written", async || store.health() == Health::default()).await;
    assert!(store.end(activation("z", now_ms(), 10)).wait().await);
    let said = said.lock().unwrap();
    let right = ["another program has locked it", "are written to"];
    assert!(said.iter().zip(right).all(|(said, right)| said.contains(right)), "{said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
}
