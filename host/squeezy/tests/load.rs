//! `squeezy serve` with more clients than it has places and memory for, and with all the actions that it may have. No VM
//! is needed.
//!
//! `SQUEEZY_LOAD_CLIENTS=5000` is the long form, for `make stress`.

mod common;

use common::{Daemon, NO_VM, empty_build, number, own_empty_build};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

/// The daemon's maximum resident memory, and what it returns to within a minute after all clients
/// have left.
const MOST_RESIDENT: u64 = 96 << 20;
const RESIDENT_AFTER: u64 = 12 << 20;

/// How many actions there can be, and the memory of its own that a daemon at rest has then. With the 16 MiB of its file
/// that a program built for release has in memory, that is 40 MiB, which `packaging/test.sh` looks for; one built to be
/// tested has twice as much of its file.
const ACTIONS: usize = 1000;
const MOST_WITH_ACTIONS: u64 = 24 << 20;

/// How long a well-behaved client may wait for a response.
const WAIT: Duration = Duration::from_secs(5);

fn clients() -> usize {
    let count = number("SQUEEZY_LOAD_CLIENTS").unwrap_or(1500);
    // Both ends of a connection count, in two processes.
    let limits = getrlimit(Resource::Nofile);
    let current = limits.maximum.or(Some(65536));
    setrlimit(Resource::Nofile, Rlimit { current, ..limits }).unwrap();
    assert!(current > Some(count + 100), "more files: {current:?}");
    count as usize
}

fn daemon(directory: &Path) -> Daemon {
    empty_build(directory);
    let function = directory.join("images/f.erofs");
    Daemon::start_in(directory, directory, NO_VM, &[&function])
}

fn address(daemon: &Daemon) -> SocketAddr {
    daemon.url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// The memory that the daemon itself has at the moment, in bytes. Pages of the program's file, of which a debug build
/// has tens of MiB, are not counted: nothing that clients do is in them.
fn resident(daemon: &Daemon) -> u64 {
    status(daemon, "RssAnon:")
}

/// A size in bytes that the kernel says of the daemon.
fn status(daemon: &Daemon, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Waits until the daemon has no more than this of its memory.
#[track_caller]
fn comes_down_to(daemon: &Daemon, key: &str, most: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    while status(daemon, key) > most {
        assert!(Instant::now() < until, "{key} {} MiB a minute later", status(daemon, key) >> 20);
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// A connection that has sent this and stays idle; `None` if it was closed immediately.
fn hold(address: SocketAddr, sent: &[&[u8]]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    for part in sent {
        match stream.write_all(part) {
            Ok(()) => {}
            // The daemon has stopped reading, or has closed the connection.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return None,
        }
    }
    Some(stream)
}

/// A complete exchange on its own connection; returns the status line and the duration.
fn ask(address: SocketAddr, request: &str) -> (String, Duration) {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    (String::from_utf8_lossy(&answer).into_owned(), begin.elapsed())
}

#[test]
fn clients_that_only_hold_connections_keep_nobody_waiting() {
    let count = clients();
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon(directory.path());
    let address = address(&daemon);
    let head = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX: ".as_slice();
    // Sends nothing, the beginning of a request, or a head byte by byte.
    let mut held: Vec<_> = (0..count)
        .filter_map(|number| hold(address, &[&head[..[0, 20, head.len()][number % 3]]]))
        .collect();
    for round in 0..5 {
        let request = format!(
            "GET /api/v1/namespaces/_/actions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\r\n",
            daemon.authorization
        );
        let (status, took) = ask(address, &request);
        assert_eq!(status, "HTTP/1.1 200");
        assert!(took < WAIT, "round {round}: {took:?}");
        // They reconnect when they have been disconnected.
        for holder in &mut held {
            if holder.write_all(b"x").is_err() {
                *holder = hold(address, &[head]).unwrap();
            }
        }
    }
    let most = resident(&daemon);
    assert!(most <= MOST_RESIDENT, "{} MiB resident", most >> 20);
}

#[test]
fn bodies_that_do_not_end_take_no_more_memory_than_there_is_for_them() {
    let count = clients();
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon(directory.path());
    let address = address(&daemon);
    let before = resident(&daemon);
    let head = format!(
        "POST /api/v1/namespaces/_/actions/f HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\
         Content-Length: 800000\r\n\r\n",
        daemon.authorization
    );
    // Nested arrays, which take the most memory as values.
    let body = "[[0],".repeat(140_000);
    let (mut held, mut most, mut slowest) = (Vec::new(), 0, Duration::ZERO);
    for number in 0..count {
        held.extend(hold(address, &[head.as_bytes(), body.as_bytes()]));
        if number % (count / 20) == 0 {
            let request = format!(
                "GET /api/v1/namespaces/_/actions/f HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\r\n",
                daemon.authorization
            );
            let (status, took) = ask(address, &request);
            assert_eq!(status, "HTTP/1.1 200");
            slowest = slowest.max(took);
        }
        most = most.max(resident(&daemon));
    }
    assert!(slowest < WAIT, "{slowest:?}");
    assert!(most <= MOST_RESIDENT, "{} MiB resident", most >> 20);
    drop(held);
    let begin = Instant::now();
    comes_down_to(&daemon, "RssAnon:", RESIDENT_AFTER);
    println!(
        "{} clients: {} MiB resident before, {} at most, {} after {:.0} s; a well-behaved client waited {:.2} s at most",
        count,
        before >> 20,
        most >> 20,
        resident(&daemon) >> 20,
        begin.elapsed().as_secs_f64(),
        slowest.as_secs_f64()
    );
}

#[test]
fn clients_without_the_key_take_no_memory_from_those_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon(directory.path());
    let address = address(&daemon);
    let web = json!({ "annotations": [{ "key": "web-export", "value": true }] });
    let (status, _) = daemon.ask("PUT", "/namespaces/_/actions/f?overwrite=true", Some(web));
    assert_eq!(status, 200);
    let body = format!("{{\"a\": \"{}\"}}", "x".repeat(800_000));
    let length = body.len();
    let head = format!(
        "POST /api/v1/web/guest/default/f HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    // More of them than there is memory for; the rest of each body does not come.
    let held: Vec<_> = (0..100)
        .filter_map(|_| hold(address, &[head.as_bytes(), &body.as_bytes()[..700_000]]))
        .collect();
    assert!(held.len() > 50, "{}", held.len());
    let request = |head: &str| format!("{head}{body}");
    // One more of them finds no memory: none at once, or after a while.
    let (status, _) = ask(address, &request(&head));
    assert_eq!(status, "HTTP/1.1 503");
    let known = format!("Host: localhost\r\nAuthorization: {}", daemon.authorization);
    let path = "/api/v1/namespaces/_/actions/f?blocking=true";
    for head in [
        head.replace("Host: localhost", &known),
        head.replace("Host: localhost", &known).replace("/api/v1/web/guest/default/f", path),
    ] {
        let (status, took) = ask(address, &request(&head));
        // The VM cannot be booted, but it has been tried.
        let right = if head.contains("/web/") { 400 } else { 500 };
        assert_eq!(status, format!("HTTP/1.1 {right}"));
        assert!(took < WAIT, "{took:?}");
    }
    let most = resident(&daemon);
    assert!(most <= MOST_RESIDENT, "{} MiB resident", most >> 20);
    drop(held);
}

#[test]
fn a_daemon_at_rest_with_all_actions_has_little_memory() {
    let directory = own_empty_build();
    let directory = directory.path();
    let start = || Daemon::start_in(directory, directory, NO_VM, &[]);
    let mut made = start();
    for number in 0..ACTIONS {
        let path = format!("/namespaces/_/actions/action-{number}");
        let image = json!({ "exec": { "kind": "blackbox", "image": "f" } });
        let (status, answer) = made.ask("PUT", &path, Some(image));
        assert_eq!(status, 200, "{answer}");
    }
    comes_down_to(&made, "RssAnon:", MOST_WITH_ACTIONS);
    let before = resident(&made);
    made.stop();
    let again = start();
    let (_, count) = again.ask("GET", "/namespaces/_/actions?count=true", None);
    assert_eq!(count, json!({ "actions": ACTIONS }));
    comes_down_to(&again, "RssAnon:", MOST_WITH_ACTIONS);
    println!(
        "{ACTIONS} actions: {} MiB of its own, {} after a restart, when {} are resident with its file",
        before >> 20,
        resident(&again) >> 20,
        status(&again, "VmRSS:") >> 20
    );
}
