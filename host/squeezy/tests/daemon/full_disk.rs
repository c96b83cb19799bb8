//! A disk that runs full, at every place where the daemon writes anything but activations, with which the store's own
//! tests do this.

use crate::{
    Ended,
    common::{Daemon, NO_VM, base64, empty_image, own_empty_build, serve, skip, until},
    disk::Disk,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

/// More pages than any change takes.
const ENOUGH: usize = 16;

/// What a change is refused with.
const FULL: &str = "the disk of the state directory is full: make room on it";

/// The change that revokes the earlier key.
const REVOKES: (&str, &str) = ("DELETE", "/namespaces/acme/keys/old");

/// What a client asks for: a method, a path, and what it sends.
type Change = (&'static str, &'static str, Option<Value>);

/// A disk that can be full; `None` if there can be none here.
fn disk() -> Option<Disk> {
    let disk = Disk::mounted(256 << 10);
    if disk.is_none() {
        skip("a small disk cannot be mounted: run this as root");
    }
    disk
}

/// A daemon with its state on this disk.
fn daemon(disk: &Disk, build: &Path) -> Daemon {
    Daemon::start_in(disk.path(), build, NO_VM, &[])
}

/// Code of a few pages.
fn code(which: &str) -> Option<Value> {
    let code = format!("{}# {which}", "x = 1\n".repeat(2000));
    Some(json!({ "exec": { "kind": "python:default", "code": code } }))
}

/// What is made while there is room.
fn earlier() -> [Change; 6] {
    [
        ("PUT", "/namespaces/acme", None),
        ("PUT", "/namespaces/acme/keys/old", None),
        ("PUT", "/namespaces/_/actions/kept", code("first")),
        ("PUT", "/namespaces/_/actions/gone", code("gone")),
        ("PUT", "/namespaces/_/packages/gone", Some(json!({}))),
        ("PUT", "/namespaces/_/packages/kept", Some(json!({}))),
    ]
}

/// What is asked for when the disk is full.
fn changes() -> [Change; 12] {
    let image = json!({ "exec": { "kind": "blackbox", "image": "f" } });
    let sequence = json!({ "exec": { "kind": "sequence", "components": ["/_/kept"] } });
    let parameters = json!({ "parameters": [{ "key": "a", "value": 1 }] });
    [
        ("PUT", "/namespaces/_/actions/code", code("code")),
        ("PUT", "/namespaces/_/actions/kept?overwrite=true", code("second")),
        ("PUT", "/namespaces/_/actions/image", Some(image)),
        ("PUT", "/namespaces/_/actions/sequence", Some(sequence)),
        ("DELETE", "/namespaces/_/actions/gone", None),
        ("PUT", "/namespaces/_/packages/new", Some(parameters.clone())),
        ("PUT", "/namespaces/_/packages/kept?overwrite=true", Some(parameters)),
        ("DELETE", "/namespaces/_/packages/gone", None),
        ("PUT", "/namespaces/zeta", None),
        ("PUT", "/namespaces/acme?overwrite=true", Some(json!({ "quotas": { "actions": 7 } }))),
        ("PUT", "/namespaces/acme/keys/new", None),
        (REVOKES.0, REVOKES.1, None),
    ]
}

/// Where a client sees what a path names.
fn shown_at(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default();
    // A key is in the list of all.
    path.find("/keys/").map_or(path, |end| &path[..end + "/keys".len()])
}

/// What a client sees there. No two errors have the same code.
fn look(daemon: &Daemon, path: &str) -> (u16, Value) {
    let (status, mut seen) = daemon.ask("GET", path, None);
    if status >= 400 {
        seen["code"].take();
    }
    (status, seen)
}

/// All that clients see.
fn all(daemon: &Daemon) -> Vec<(u16, Value)> {
    let lists = ["/namespaces", "/namespaces/_/actions", "/namespaces/_/packages"];
    let paths = changes().into_iter().map(|(_, path, _)| shown_at(path)).chain(lists);
    paths.map(|path| look(daemon, path)).collect()
}

/// Asks for something that can be done; returns the answer.
#[track_caller]
fn done(daemon: &Daemon, (method, path, body): Change) -> Value {
    let (status, answer) = daemon.ask(method, path, body);
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    answer
}

/// Whether a daemon knows this key.
fn knows(daemon: &Daemon, key: &str) -> bool {
    let key = format!("Basic {}", base64(key));
    daemon.ask_as(&key, "GET", "/namespaces", None) == (200, json!(["acme"]))
}

/// Has a daemon make each change on a disk with so many pages left, and looks at what another one makes of that when
/// there is room. Returns how many changes were refused.
fn changed_with(disk: &Disk, build: &Path, pages: usize) -> usize {
    let mut full = daemon(disk, build);
    let mut keys = Vec::new();
    for change in earlier() {
        keys.extend(done(&full, change)["key"].as_str().map(str::to_owned));
    }
    let mut refused = Vec::new();
    for change in changes() {
        let (method, path, body) = change.clone();
        let before = look(&full, shown_at(path));
        disk.fill(pages);
        let (status, answer) = full.ask(method, path, body);
        let after = look(&full, shown_at(path));
        let shown = format!("{pages} pages, {method} {path}: {status} {answer}");
        if (200..300).contains(&status) {
            assert_ne!(after, before, "{shown}");
            keys.extend(answer["key"].as_str().map(str::to_owned));
        } else {
            let error = answer["error"].as_str().unwrap_or_default();
            assert_eq!(status, 507, "{shown}");
            assert!(error.contains(FULL), "{shown}");
            assert_eq!(after, before, "{shown}");
            refused.push(change);
        }
    }
    let seen = all(&full);
    if pages.is_multiple_of(2) {
        full.stop();
    } else {
        full.signal("KILL");
        full.child.wait().unwrap();
    }

    disk.free();
    let mut again = daemon(disk, build);
    assert_eq!(all(&again), seen, "{pages} pages");
    let count = refused.len();
    let is_revoked = refused.iter().all(|(method, path, _)| (*method, *path) != REVOKES);
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(knows(&again, key), number > 0 || !is_revoked, "{pages} pages, key {number}");
    }
    for change in refused {
        done(&again, change);
    }
    // Nothing else is left of what was begun.
    let codes = || fs::read_dir(disk.path().join("state/code")).unwrap().count();
    until("the code of two actions", || (codes() == 2).then_some(()));
    again.stop();
    fs::remove_dir_all(disk.path().join("state")).unwrap();
    count
}

#[test]
fn what_a_client_is_told_on_a_full_disk_is_still_so_after_a_restart() {
    let Some(disk) = disk() else { return };
    let build = own_empty_build();
    empty_image(build.path(), "runtime-python");
    let with = |pages| changed_with(&disk, build.path(), pages);
    let refused: Vec<_> = (0..ENOUGH).map(with).collect();
    println!("changes refused, by the pages that were left: {refused:?}");
    assert_eq!((refused[0], refused[ENOUGH - 1]), (changes().len(), 0));
}

#[test]
fn a_daemon_starts_on_a_full_disk_or_says_why_it_does_not() {
    let Some(disk) = disk() else { return };
    let build = own_empty_build();
    let mut starts = Vec::new();
    for pages in (0..ENOUGH).chain((ENOUGH..128).step_by(16)) {
        let mut command = serve(disk.path(), build.path(), NO_VM, &[]);
        disk.fill(pages);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut daemon = Ended(child);
        let output = BufReader::new(daemon.0.stdout.take().unwrap());
        let is_serving = |line: String| line.contains("serving on ");
        let serves = output.lines().map_while(Result::ok).any(is_serving);
        if !serves {
            let error = std::io::read_to_string(daemon.0.stderr.take().unwrap()).unwrap();
            assert_eq!(daemon.0.wait().unwrap().code(), Some(1), "{pages} pages: {error}");
            assert_eq!(error.lines().count(), 1, "{pages} pages: {error}");
            let says_why = error.contains("No space left on device") || error.contains("full");
            assert!(says_why, "{pages} pages: {error}");
        }
        starts.push(serves);
        drop(daemon);
        disk.free();
        // With room, whatever that one has left behind does no harm.
        let mut daemon = self::daemon(&disk, build.path());
        done(&daemon, ("PUT", "/namespaces/_/packages/new", Some(json!({}))));
        daemon.stop();
        fs::remove_dir_all(disk.path().join("state")).unwrap();
    }
    assert_eq!((starts.first(), starts.last()), (Some(&false), Some(&true)), "{starts:?}");
}
