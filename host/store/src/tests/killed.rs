//! A process that uses the store and is killed at any moment.

use super::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::{atomic::AtomicBool, mpsc::channel},
};

/// How many times; `SQUEEZY_KILLS` says otherwise.
const KILLS: u64 = 20;

/// Names the directory of the child's store.
const DIRECTORY: &str = "SQUEEZY_STORE_DIRECTORY";

/// Calls at a time.
const TASKS: usize = 8;

/// The sizes of results: some take many pages.
fn bytes(number: usize) -> usize {
    [10, 100, 3000, 10, 40_000, 10, 10, 200_000][number % 8]
}

fn number_of(id: &str) -> usize {
    id.split('-').nth(1).unwrap().parse().unwrap()
}

/// What a client has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// The ID.
    Id,
    /// The result.
    Result,
}

#[test]
#[ignore = "the process that another test kills"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let run = std::process::id();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let store = Arc::new(open(Path::new(&directory), LIMITS));
    let next = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    // A line is written by one call, so that it is whole or not there.
    let tell = |line: String| drop(std::io::stdout().write_all(line.as_bytes()));
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..TASKS {
            let (store, next, is_over) = (store.clone(), next.clone(), is_over.clone());
            tasks.push(tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let id = format!("{run}-{number}-");
                    let start_ms = now_ms();
                    if !store.start(running(&id, start_ms)).wait().await {
                        continue;
                    }
                    tell(format!("I {id}\n"));
                    tokio::time::sleep(Duration::from_micros(number as u64 % 7 * 500)).await;
                    let ended = activation(&id, start_ms, bytes(number));
                    if store.end(ended).wait().await {
                        tell(format!("R {id}\n"));
                    }
                }
            }));
        }
        // Nobody has killed it.
        tokio::time::sleep(LIMIT).await;
        is_over.store(true, Ordering::Relaxed);
    });
}

fn start(directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::killed::child", "--ignored", "--nocapture"]);
    command.env(DIRECTORY, directory).stdout(Stdio::piped()).spawn().unwrap()
}

/// Kills a child once it has told this many things, and this time has passed then; returns what it
/// has told.
fn kill(directory: &Path, things: u64, then: Duration) -> BTreeMap<String, Told> {
    let mut child = start(directory);
    let output = child.stdout.take().unwrap();
    let (sender, lines) = channel();
    let read = std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        // The last one may have been cut off.
        while output.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
            let _ = sender.send(std::mem::take(&mut line));
        }
    });
    let mut told = Vec::new();
    while (told.len() as u64) < things {
        told.push(lines.recv_timeout(LIMIT).unwrap());
    }
    std::thread::sleep(then);
    child.kill().unwrap();
    child.wait().unwrap();
    read.join().unwrap();
    told.extend(lines.try_iter());
    let lines = std::mem::take(&mut told);
    let mut told = BTreeMap::new();
    for line in lines {
        let (id, what) = match line.trim_end().split_once(' ') {
            Some(("I", id)) => (id, Told::Id),
            Some(("R", id)) => (id, Told::Result),
            _ => continue,
        };
        told.insert(id.to_owned(), what);
    }
    told
}

#[tokio::test]
async fn only_calls_in_flight_are_lost_and_each_is_reported_once() {
    let kills = std::env::var("SQUEEZY_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut told = BTreeMap::new();
    let (mut calls, mut in_flight, mut complete) = (0, 0, 0);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    for round in 0..kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Some are killed while they open the file.
        let things = if (random >> 50).is_multiple_of(5) { 0 } else { (random >> 40) % 300 };
        let then = Duration::from_micros((random >> 33) % if things == 0 { 50_000 } else { 2000 });
        told.extend(kill(directory.path(), things, then));
        // Sometimes the next child finds what this one has left.
        if (random >> 20).is_multiple_of(3) && round + 1 < kills {
            continue;
        }
        let store = open(directory.path(), LIMITS);
        let list = store.list(&everything(), 0, 1_000_000).await.unwrap();
        let mut there = BTreeSet::new();
        for found in &list {
            let id = &found.activation.id;
            assert!(there.insert(id.clone()), "{id} is there twice");
            let read = get(&store, id).await.unwrap();
            if read.status == Status::Success {
                let right = activation(id, read.start_ms, bytes(number_of(id)));
                assert_eq!(seen(&read), seen(&right), "half written");
                complete += 1;
            } else {
                assert_eq!(read.result, json!({ "error": ENDED_WITH_DAEMON }));
                assert_ne!(told.get(id), Some(&Told::Result), "{id} was answered");
                in_flight += 1;
            }
        }
        for (id, told) in &told {
            assert!(there.contains(id), "{id} is lost, and {told:?} was told");
        }
        assert_eq!(store.count(&everything()).await.unwrap(), list.len());
        calls += told.len();
        drop(store);
        let path = directory.path().join("squeezy.db");
        let connection = schema::open(&path).unwrap();
        let sound: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        assert!(rows::running(&connection).unwrap().is_empty());
        drop(connection);
        // The next rounds would read all of these again.
        told.clear();
        for end in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(directory.path().join(format!("squeezy.db{end}")));
        }
    }
    println!(
        "{kills} kills: {calls} calls whose ID was told, {complete} complete, {in_flight} that had not ended"
    );
    assert!(complete > 0 && in_flight > 0);
}
