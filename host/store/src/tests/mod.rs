//! The store as a whole. Its parts have no tests of their own, because they are only right together.

mod cost;
#[path = "../../../../scripts/disk.rs"]
mod disk;
mod full_disk;
mod killed;
mod model;
mod opening;
mod plans;

use super::*;
use serde_json::json;
use squeezy_node::WaitedFor;
use squeezy_openwhisk::{Namespace, QualifiedName, activation::Status};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Longer than anything here takes, on a machine that is busy with something else.
const LIMIT: Duration = Duration::from_secs(60);

/// More than any test here needs.
const LIMITS: Limits = Limits {
    most: 100_000,
    disk_bytes: 1 << 30,
    keep: Duration::from_secs(7 * 86400),
    memory_bytes: 16 << 20,
};

fn running(id: &str, start_ms: u64) -> Running {
    Running {
        id: id.to_owned(),
        action: QualifiedName::guest("f"),
        version: "0.0.1".to_owned(),
        kind: "blackbox".into(),
        start_ms,
        cause: Some("s".to_owned()),
    }
}

/// An activation whose result depends on its ID and takes about this many bytes.
fn activation(id: &str, start_ms: u64, bytes: usize) -> Arc<Activation> {
    let text = id.repeat(bytes / id.len() + 1);
    Arc::new(Activation {
        status: Status::Success,
        result: json!({ "text": text, "number": 0.1 + bytes as f64 }),
        waited: Duration::from_nanos(1_500_001),
        waited_for: Some(WaitedFor::Boot),
        init: Some(Duration::from_micros(7)),
        took: Duration::from_millis(3),
        limits: Some(json!({ "memory": 256 })),
        logs: vec![format!("2026-11-25T00:00:00.000Z stdout: {id}")],
        ..running(id, start_ms).ended("")
    })
}

/// All activations that [`activation`] makes.
fn everything() -> Selection {
    Selection::of(Namespace::guest())
}

fn now_ms() -> u64 {
    squeezy_openwhisk::now_ms()
}

/// A store that says nothing.
fn open(directory: &Path, limits: Limits) -> Store {
    Store::open(&directory.join("squeezy.db"), limits, |_| ()).unwrap()
}

/// All that clients see of an activation.
fn seen(activation: &Activation) -> String {
    serde_json::to_string(&activation.describe()).unwrap()
}

async fn get(store: &Store, id: &str) -> Option<Arc<Activation>> {
    let found = store.find(&Namespace::guest(), id).await.unwrap()?;
    store.load(vec![found]).await.unwrap().pop()
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Adds this and waits until it is written, however slow the disk is.
async fn start(store: &Store, call: Running) {
    let _ = store.start(call).wait().await;
    until("it is written", async || store.health().unwritten == 0).await;
}

/// The same for its end.
async fn end(store: &Store, activation: Arc<Activation>) {
    let _ = store.end(activation).wait().await;
    until("it is written", async || store.health().unwritten == 0).await;
}

#[tokio::test]
async fn what_was_written_is_read_again_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), LIMITS);
    let mut all = Vec::new();
    for (number, status) in
        [Status::Success, Status::ApplicationError, Status::DeveloperError, Status::InternalError]
            .into_iter()
            .enumerate()
    {
        let mut activation = (*activation(&format!("{number}"), now_ms(), 10_000 * number)).clone();
        activation.status = status;
        activation.result["odd"] =
            json!([null, 1e-7, 0.1 + 0.2, u64::MAX, i64::MIN, "\0\u{1f600}", {}]);
        if number == 2 {
            activation.logs.clear();
            (activation.init, activation.waited_for) = (None, None);
        }
        all.push(Arc::new(activation));
    }
    for activation in &all {
        end(&store, activation.clone()).await;
    }
    drop(store);
    let store = open(directory.path(), LIMITS);
    for activation in all {
        let read = get(&store, &activation.id).await.unwrap();
        assert_eq!(seen(&read), seen(&activation));
        let (times, right) =
            [&read, &activation].map(|a| (a.waited, a.init, a.took, a.start_ms)).into();
        assert_eq!(times, right);
    }
    assert!(get(&store, "none").await.is_none());
}

#[tokio::test]
async fn totals_go_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let totals = |cold| Totals {
        cold,
        taken_bytes: 1 << 60,
        condemned_bytes: 7,
        taking: Duration::from_nanos(1),
        ..Totals::default()
    };
    let store = open(directory.path(), LIMITS);
    store.put_totals([("f".to_owned(), Some(totals(1))), ("g".to_owned(), Some(totals(2)))]);
    store.put_totals([("f".to_owned(), Some(totals(3))), ("h".to_owned(), None)]);
    drop(store);
    let store = open(directory.path(), LIMITS);
    let right = [("f".to_owned(), totals(3)), ("g".to_owned(), totals(2))];
    assert_eq!(*store.earlier_totals(), BTreeMap::from(right));
    store.put_totals([("g".to_owned(), None)]);
    drop(store);
    assert_eq!(open(directory.path(), LIMITS).earlier_totals().len(), 1);
}

#[tokio::test]
async fn a_call_that_never_ended_ends_with_the_daemon_once() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { keep: Duration::from_secs(1 << 40), ..LIMITS };
    let store = open(directory.path(), limits);
    for id in ["a", "b"] {
        start(&store, running(id, 1000)).await;
    }
    end(&store, activation("a", 1000, 10)).await;
    // A call that runs is no activation yet.
    assert!(get(&store, "b").await.is_none());
    drop(store);
    for _ in 0..2 {
        let store = open(directory.path(), limits);
        let b = get(&store, "b").await.unwrap();
        assert_eq!(b.status, Status::InternalError);
        assert_eq!((&b.result, b.start_ms), (&json!({ "error": ENDED_WITH_DAEMON }), 1000));
        assert_eq!(get(&store, "a").await.unwrap().status, Status::Success);
        assert_eq!(store.count(&everything()).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn a_file_stays_within_its_bound_and_shrinks_again() {
    const BOUND: u64 = 4 << 20;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("squeezy.db");
    let store = open(directory.path(), Limits { disk_bytes: BOUND, ..LIMITS });
    let mut largest = 0;
    for number in 0..400 {
        let bytes = if number % 40 == 0 { 1 << 20 } else { 20_000 };
        end(&store, activation(&format!("{number}"), now_ms(), bytes)).await;
        largest = largest.max(file.metadata().unwrap().len());
    }
    // One transaction may be on top, which the largest result dominates.
    assert!(largest <= BOUND + (2 << 20), "{largest}");
    assert!(get(&store, "399").await.is_some() && get(&store, "0").await.is_none());
    let count = store.count(&everything()).await.unwrap();
    assert!((60..200).contains(&count), "{count}");
    drop(store);
    // Once little of it is in use, the file system gets the rest back.
    let store = open(directory.path(), Limits { most: 1, ..LIMITS });
    let reader = schema::open_to_read(&file).unwrap();
    let pages = || reader.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap();
    until("it shrinks", async || pages() < (2 << 20) / 4096).await;
    drop((store, reader));
    let length = file.metadata().unwrap().len();
    assert!(length < 2 << 20, "{length}");
}

/// An activation of another namespace.
fn of_acme(id: &str, bytes: usize) -> Arc<Activation> {
    let mut activation = (*activation(id, now_ms(), bytes)).clone();
    activation.action = "/acme/f".parse().unwrap();
    Arc::new(activation)
}

#[tokio::test]
async fn nobody_pushes_out_what_is_another_s() {
    let directory = tempfile::tempdir().unwrap();
    let acme: Namespace = "acme".parse().unwrap();
    let limits = Limits { most: 20, disk_bytes: 4 << 20, ..LIMITS };
    let store = open(directory.path(), limits);
    let counts = async |store: &Store| {
        let acme = store.count(&Selection::of(acme.clone())).await.unwrap();
        (acme, store.count(&everything()).await.unwrap())
    };
    for number in 0..10 {
        end(&store, of_acme(&format!("a{number}"), 1000)).await;
    }
    for number in 0..60 {
        end(&store, activation(&format!("{number}"), now_ms(), 1000)).await;
    }
    until("the oldest of who has too many are gone", async || counts(&store).await == (10, 20))
        .await;
    // The disk is too small: whoever has most on it pays.
    for number in 0..20 {
        end(&store, activation(&format!("large {number}"), now_ms(), 600_000)).await;
    }
    until("it is within its bound", async || counts(&store).await.1 < 9).await;
    assert_eq!(counts(&store).await.0, 10);
    drop(store);
    // It is known again after a restart, and a namespace may have a bound of its own.
    let store = open(directory.path(), limits);
    store.set_most_of(BTreeMap::from([(acme.clone(), 4)]));
    until("fewer are kept", async || counts(&store).await.0 == 4).await;
    assert!(store.find(&acme, "a9").await.unwrap().is_some());
    assert!(store.find(&acme, "a0").await.unwrap().is_none());
    assert!(store.find(&Namespace::guest(), "a9").await.unwrap().is_none());
    store.forget(&acme).await;
    assert_eq!(counts(&store).await.0, 0);
    assert!(counts(&store).await.1 > 3);
}

#[test]
fn strangers_are_cut_first_in_memory() {
    let size = activation("0", 0, 1000).size();
    let mut queue = Queue::new(7 * size);
    for number in 0..10 {
        let mut one = (*activation(&format!("{number}"), now_ms(), 1000)).clone();
        one.by_stranger = number >= 3;
        let _ = queue.end(Arc::new(one));
    }
    let whole = queue.ended().filter(|(_, one)| one.status == Status::Success);
    let mut ids: Vec<_> = whole.map(|(_, one)| one.id.as_str()).collect();
    ids.sort();
    assert_eq!((ids.len(), &ids[..3], ids.last()), (6, &["0", "1", "2"][..], Some(&"9")));
}

/// Of a namespace with two results among so many of another one: how many of both there are, and how many are whole.
fn beside_a_flood(most_bytes: usize, flood: usize) -> [(usize, usize); 2] {
    let mut queue = Queue::new(most_bytes);
    let _ = queue.end(of_acme("first", 1000));
    for number in 0..flood {
        let _ = queue.end(activation(&format!("{number}"), now_ms(), 1000));
    }
    let _ = queue.end(of_acme("last", 1000));
    let (guest, acme): (Vec<_>, Vec<_>) =
        queue.ended().partition(|(_, one)| one.action.namespace.is_guest());
    [acme, guest].map(|all| {
        let whole = all.iter().filter(|(_, one)| one.status == Status::Success);
        (all.len(), whole.count())
    })
}

#[test]
fn who_has_most_in_memory_pays() {
    let size = activation("0", 0, 1000).size();
    let [acme, (there, whole)] = beside_a_flood(20 * size, 30);
    assert_eq!((acme, there), ((2, 2), 30));
    assert!((10..18).contains(&whole), "{whole}");
    // Not only their bytes are bounded.
    let [acme, guest] = beside_a_flood(2 * size * queue::MOST_ENTRIES, queue::MOST_ENTRIES + 5);
    assert_eq!(acme, (2, 2));
    assert_eq!(guest, (queue::MOST_ENTRIES - 2, queue::MOST_ENTRIES - 2));
}

#[tokio::test]
async fn a_whole_name_leads_to_no_other_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), LIMITS);
    end(&store, of_acme("a", 10)).await;
    for namespace in [Namespace::guest(), "acme".parse().unwrap()] {
        let path = Selection { action: Some("/acme/f".to_owned()), ..Selection::of(namespace) };
        assert_eq!(store.count(&path).await.unwrap(), 0);
        assert!(store.list(&path, 0, 10).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn bounds_may_change_while_it_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), LIMITS);
    for number in 0..20 {
        end(&store, activation(&format!("{number}"), now_ms(), 10)).await;
    }
    store.set_limits(Limits { most: 5, ..LIMITS });
    until("only five are left", async || store.count(&everything()).await.unwrap() == 5).await;
    assert!(get(&store, "19").await.is_some() && get(&store, "0").await.is_none());
}

#[tokio::test]
async fn who_looks_while_much_is_written_misses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(directory.path(), LIMITS));
    let ended = Arc::new(AtomicUsize::new(0));
    let write = std::thread::spawn({
        let (store, ended) = (store.clone(), ended.clone());
        move || {
            for number in 0..2000 {
                let _ = store.end(activation(&format!("{number}"), now_ms(), 100));
                ended.store(number + 1, Ordering::SeqCst);
            }
        }
    });
    while !write.is_finished() {
        let there = ended.load(Ordering::SeqCst);
        if there == 0 {
            continue;
        }
        assert!(store.count(&everything()).await.unwrap() >= there);
        assert!(
            store.find(&Namespace::guest(), &format!("{}", there - 1)).await.unwrap().is_some()
        );
        let list = store.list(&everything(), 0, 50).await.unwrap();
        let ids: Vec<u64> = list.iter().map(|found| found.activation.id.parse().unwrap()).collect();
        assert!(ids[0] as usize >= there - 1 && ids.is_sorted_by(|a, b| *a == b + 1), "{ids:?}");
    }
    write.join().unwrap();
    assert_eq!(store.count(&everything()).await.unwrap(), 2000);
}
