//! A disk that runs full, at every place where something is written.

#[path = "../../../../scripts/skip.rs"]
mod skip;

use super::{disk::Disk, *};
use crate::queue::MOST_ENTRIES;

/// Calls of each round; their results and logs take a few pages each.
const CALLS: usize = 12;

/// A disk of this many KiB that can be full; `None` if there can be none here.
fn disk(kib: usize) -> Option<Disk> {
    let disk = Disk::mounted(kib);
    if disk.is_none() {
        skip::skip("a small disk cannot be mounted: run this as root");
    }
    disk
}

/// Everything that clients see of these, and that each is there once.
async fn are_there(store: &Store, all: &[Arc<Activation>]) {
    for activation in all {
        let read = get(store, &activation.id).await;
        let read = read.unwrap_or_else(|| panic!("{} is lost", activation.id));
        assert_eq!(seen(&read), seen(activation));
    }
    let list = store.list(&everything(), 0, 10_000).await.unwrap();
    assert_eq!(list.len(), all.len());
}

fn is_sound(path: &Path) {
    let connection = schema::open(path).unwrap();
    let sound: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[tokio::test]
async fn a_disk_that_runs_full_anywhere_costs_nothing() {
    let Some(disk) = disk(8192) else { return };
    let path = disk.path().join("squeezy.db");
    let (mut all, mut problems) = (Vec::new(), 0);
    for left in (0..64).chain((64..640).step_by(32)) {
        let store = open(disk.path(), Limits { most: 60, ..LIMITS });
        disk.fill(left);
        for number in 0..CALLS {
            let id = format!("{left}-{number}");
            let call = running(&id, now_ms());
            let _ = store.start(call.clone()).wait().await;
            let activation = activation(&id, call.start_ms, 7000);
            let _ = store.end(activation.clone()).wait().await;
            all.push(activation);
        }
        problems += usize::from(store.health().problem.is_some());
        // All can be read, wherever they are.
        for activation in &all[all.len() - CALLS..] {
            assert_eq!(seen(&get(&store, &activation.id).await.unwrap()), seen(activation));
        }
        disk.free();
        until("there is room again", async || store.health() == Health::default()).await;
        all.drain(..all.len().saturating_sub(60));
        let count = async || store.count(&everything()).await.unwrap();
        until("the oldest are gone", async || count().await == all.len()).await;
        are_there(&store, &all).await;
        drop(store);
        is_sound(&path);
    }
    println!("{problems} rounds ran into the end of the disk");
    assert!((40..80).contains(&problems), "{problems}");
}

/// The process ends while the disk is full, and another one begins: what was written is there, and
/// a call is complete or has ended with the daemon.
#[tokio::test]
async fn a_daemon_starts_on_a_full_disk_with_what_was_written() {
    let Some(disk) = disk(4096) else { return };
    for left in 0..40 {
        let id = |number: usize| format!("{left}-{number}");
        let store = open(disk.path(), LIMITS);
        let mut written = Vec::new();
        for number in 0..CALLS {
            if number == CALLS / 2 {
                disk.fill(left);
            }
            let call = running(&id(number), now_ms());
            let started = store.start(call.clone()).wait().await;
            let ended = store.end(activation(&id(number), call.start_ms, 7000)).wait().await;
            written.push((started, ended));
        }
        drop(store);
        let store = open(disk.path(), LIMITS);
        let lines = async |store: &Store| {
            let mut complete = 0;
            for (number, &(started, ended)) in written.iter().enumerate() {
                match get(store, &id(number)).await {
                    Some(read) if read.status == Status::Success => {
                        assert_eq!(seen(&read), seen(&activation(&read.id, read.start_ms, 7000)));
                        complete += 1;
                    }
                    Some(read) => {
                        assert!(!ended, "{number} of {left} was written");
                        assert_eq!(read.result, json!({ "error": ENDED_WITH_DAEMON }));
                    }
                    None => assert!(!started && !ended, "{number} of {left} is lost"),
                }
            }
            assert!(complete >= CALLS / 2);
        };
        lines(&store).await;
        let _ = store.end(activation(&format!("{left}-latest"), now_ms(), 10)).wait().await;
        disk.free();
        until("there is room again", async || store.health() == Health::default()).await;
        lines(&store).await;
        drop(store);
        let store = open(disk.path(), Limits { most: 1, ..LIMITS });
        until("it is empty", async || store.count(&everything()).await.unwrap() == 1).await;
    }
}

#[tokio::test]
async fn without_any_room_for_a_file_calls_go_on_and_later_it_is_made() {
    let Some(disk) = disk(1024) else { return };
    disk.fill(0);
    let said = Arc::new(Mutex::new(Vec::new()));
    let say = {
        let said = said.clone();
        move |line: &str| said.lock().unwrap().push(line.to_owned())
    };
    let store = Store::open(&disk.path().join("squeezy.db"), LIMITS, say).unwrap();
    for number in 0..5 {
        let id = format!("{number}");
        assert!(!store.start(running(&id, now_ms())).wait().await);
        assert!(!store.end(activation(&id, now_ms(), 100)).wait().await);
    }
    assert!(get(&store, "4").await.is_some());
    disk.free();
    until("there is room", async || store.health() == Health::default()).await;
    assert_eq!(store.count(&everything()).await.unwrap(), 5);
    let said = said.lock().unwrap();
    assert!(said[0].contains("full") && said[1].contains("again") && said.len() == 2, "{said:?}");
}

/// What is kept in memory meanwhile has a bound: the latest results, and of earlier ones that they
/// are lost.
#[tokio::test]
async fn the_latest_are_kept_in_memory_as_far_as_it_goes() {
    let Some(disk) = disk(1024) else { return };
    let limits = Limits { memory_bytes: 1 << 20, ..LIMITS };
    let store = open(disk.path(), limits);
    disk.fill(0);
    for number in 0..100 {
        let _ = store.end(activation(&format!("{number}"), now_ms(), 100_000)).wait().await;
    }
    let health = store.health();
    assert!(health.problem.is_some() && (85..100).contains(&health.lost), "{health:?}");
    assert!(get(&store, "99").await.unwrap().status == Status::Success);
    let lost = get(&store, "0").await.unwrap();
    assert!(lost.status == Status::InternalError && lost.result["error"].is_string());
    // More than fits at all.
    for number in 0..MOST_ENTRIES + 10 {
        let _ = store.end(activation(&format!("then {number}"), now_ms(), 10));
    }
    assert_eq!(store.health().unwritten, MOST_ENTRIES);
    assert!(get(&store, &format!("then {}", MOST_ENTRIES + 9)).await.is_some());
}
