//! The network of actions: real requests by name, and what is refused. In a VM.

mod common;
#[path = "../../../scripts/outside.rs"]
mod outside;

use common::{Daemon, build, skip, until, value};
use outside::{HOST, METADATA, Outside, PRIVATE, PUBLIC, serve};
use rustix::{
    mount::{MountPropagationFlags, mount_bind, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};
use serde_json::{Value, json};
use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    sync::mpsc,
    thread,
};

/// Answers with what a page says, or with why it cannot be had; or, if there are hosts, with the ports that are open
/// there.
const FETCH: &str = "\
import socket, urllib.request
def fetch(url):
    try:
        return {'page': urllib.request.urlopen(url, timeout=20).read().decode()}
    except OSError as error:
        return {'problem': str(error)}
def scan(hosts, ports):
    found = []
    for host in hosts:
        for port in ports:
            try:
                socket.create_connection((host, port), timeout=20).close()
            except ConnectionRefusedError:
                continue
            found.append([host, port])
    return {'found': found}
def main(a):
    return scan(a['hosts'], a['ports']) if 'hosts' in a else fetch(a['url'])
";

/// Has what it says said again, and then says whether somebody ends the connection before it has waited for too long.
const HOLD: &str = "\
import socket
def main(a):
    with socket.create_connection((a['host'], a['port']), timeout=40) as held:
        held.sendall(b'hello')
        held.makefile('rb').read(5)
        try:
            return {'ended': not held.recv(1)}
        except ConnectionError:
            return {'ended': True}
";

/// What asks this name server, the only one, for the address of a name gets its own public address; that of a name that
/// begins with `inner`, its private one; and that of one that begins with `turn`, the former for the first question, and
/// the latter for all others.
fn serve_names(outside: &Outside) {
    let (opened, ready) = mpsc::channel();
    let _ = outside.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:53").unwrap();
        opened.send(()).unwrap();
        let (mut query, mut first) = ([0; 512], None);
        loop {
            let (length, from) = socket.recv_from(&mut query).unwrap();
            let question = &query[12..length];
            let end = question.iter().position(|&byte| byte == 0).unwrap() + 5;
            let is_address = question[end - 4..end] == [0, 1, 0, 1];
            let begins_with = |part: &[u8]| question[1..].starts_with(part);
            // Who has heard no answer asks again, under the same number.
            let number = [query[0], query[1]];
            let has_turned =
                is_address && begins_with(b"turn") && *first.get_or_insert(number) != number;
            let is_inner = begins_with(b"inner") || has_turned;
            let address: Ipv4Addr = if is_inner { PRIVATE } else { PUBLIC }.parse().unwrap();
            let mut answer = number.to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
            answer.extend(&question[..end]);
            if is_address {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
                answer.extend(address.octets());
            }
            socket.send_to(&answer, from).unwrap();
        }
    });
    ready.recv().unwrap();
}

/// What a web server with one page says.
const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Serves on all addresses of this thread's network until the process ends; returns the port. Whoever says something is
/// told the same.
fn serve_echo() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
    port
}

/// Has this thread, and what it starts, ask that name server.
fn ask_names_of(server: &str, directory: &Path) {
    // SAFETY: this thread has no other one depend on what it sees of the file system.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    let file = directory.join("resolv.conf");
    fs::write(&file, format!("nameserver {server}\n")).unwrap();
    mount_bind(&file, "/etc/resolv.conf").unwrap();
}

fn put(daemon: &Daemon, name: &str, annotations: Value) -> (u16, Value) {
    put_code(daemon, name, FETCH, annotations)
}

fn put_code(daemon: &Daemon, name: &str, code: &str, annotations: Value) -> (u16, Value) {
    let exec = json!({ "kind": "python:default", "code": code });
    let body = json!({ "exec": exec, "annotations": annotations });
    daemon.ask("PUT", &format!("/namespaces/_/actions/{name}"), Some(body))
}

fn fetch(daemon: &Daemon, action: &str, url: String) -> Value {
    call(daemon, action, json!({ "url": url }))
}

fn call(daemon: &Daemon, action: &str, arguments: Value) -> Value {
    let path = format!("/namespaces/_/actions/{action}?blocking=true&result=true");
    let (status, result) = daemon.ask("POST", &path, Some(arguments));
    assert_eq!(status, 200, "{result}");
    result
}

/// Waits until an action's connections have been refused this often for this reason; returns how often they have. A
/// guest that is slow to hear of it tries again by itself, and metrics are made anew twice a second at most.
fn refusals(daemon: &Daemon, action: &str, reason: &str, least: usize) -> usize {
    let of = format!("{{function=\"{action}\",reason=\"{reason}\"}}");
    let series = format!("squeezy_connections_refused_total{of}");
    until(&series, || {
        let count = value(&daemon.metrics(), &series)? as usize;
        (count >= least).then_some(count)
    })
}

#[test]
fn an_action_reaches_the_outside_by_name_if_it_may() {
    let Some(build) = build() else { return };
    if !build.join("images/runtime-python.erofs").exists() {
        return skip("runtime-python has not been built: make runtimes");
    }
    let Some(outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let directory = tempfile::tempdir().unwrap();
    // The host's name server may be asked wherever it is.
    ask_names_of(PRIVATE, directory.path());
    serve_names(&outside);
    let port = outside.run(|| serve(0, PAGE)).join().unwrap();
    let daemon = Daemon::start_in(directory.path(), &build, "", &[]);

    let (status, action) = put(&daemon, "open", json!([{ "key": "network", "value": "outbound" }]));
    assert_eq!(status, 200, "{action}");
    let hello = format!("http://hello.test:{port}/");
    assert_eq!(fetch(&daemon, "open", hello.clone()), json!({ "page": "hello" }));
    // A name with a private address opens no door.
    let inner = fetch(&daemon, "open", format!("http://inner.test:{port}/"));
    assert!(inner["problem"].to_string().contains("refused"), "{inner}");
    let own = fetch(&daemon, "open", daemon.url.clone());
    assert!(own["problem"].to_string().contains("refused"), "{own}");
    let by_rule = refusals(&daemon, "open", "private", 1);
    let opened = "squeezy_connections_opened_total{function=\"open\"}";
    assert!(value(&daemon.metrics(), opened) > Some(0.0));
    // Nor does one that had a public address when it was asked for before: what is judged is where a connection goes.
    let turning = format!("http://turn.test:{port}/");
    assert_eq!(fetch(&daemon, "open", turning.clone()), json!({ "page": "hello" }));
    let turned = fetch(&daemon, "open", turning);
    assert!(turned["problem"].to_string().contains("refused"), "{turned}");
    refusals(&daemon, "open", "private", by_rule + 1);
    assert!(TcpStream::connect((PRIVATE, port)).is_ok(), "nobody would have answered");

    assert_eq!(put(&daemon, "closed", json!([])).0, 200);
    let closed = fetch(&daemon, "closed", hello);
    assert!(closed["problem"].is_string(), "{closed}");
    let (status, error) = put(&daemon, "wrong", json!([{ "key": "network", "value": "all" }]));
    assert_eq!(status, 400);
    assert_eq!(error["error"], "the annotation network must be none or outbound");
}

#[test]
fn an_action_reaches_what_its_own_lists_and_the_operator_allow() {
    let Some(build) = build() else { return };
    if !build.join("images/runtime-python.erofs").exists() {
        return skip("runtime-python has not been built: make runtimes");
    }
    let Some(outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    // There and on the host.
    let port = serve(0, PAGE);
    outside.run(move || serve(port, PAGE)).join().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start_in(directory.path(), &build, "network = \"outbound\"\n", &[]);
    let [public, private] = [PUBLIC, PRIVATE].map(|address| format!("http://{address}:{port}/"));
    let page = json!({ "page": "hello" });
    let is_refused = |action: &str, url: &str| {
        let answer = fetch(&daemon, action, url.to_owned());
        answer["problem"].to_string().contains("refused")
    };

    // Two actions of one image.
    assert_eq!(put(&daemon, "open", json!([])).0, 200);
    let deny = json!([{ "key": "network-deny", "value": [format!("{PUBLIC}:{port}")] }]);
    assert_eq!(put(&daemon, "closed", deny).0, 200);
    assert_eq!(fetch(&daemon, "open", public.clone()), page);
    assert!(is_refused("closed", &public) && is_refused("open", &private));
    refusals(&daemon, "closed", "denied", 1);
    // One that knocks at every door opens none, and keeps nobody from his own.
    let (hosts, ports) = ([HOST, PRIVATE, METADATA], (1..=50).chain([port]).collect::<Vec<_>>());
    let found = call(&daemon, "closed", json!({ "hosts": hosts, "ports": ports }));
    assert_eq!(found, json!({ "found": [] }));
    for reason in ["host", "private", "reserved"] {
        refusals(&daemon, "closed", reason, ports.len());
    }
    assert_eq!(fetch(&daemon, "open", public.clone()), page);

    // What is private is the operator's to allow, and then for those alone who ask for it.
    let only = json!([
        { "key": "network-deny", "value": ["0.0.0.0/0"] },
        { "key": "network-allow", "value": [PRIVATE] },
    ]);
    let (status, refused) = put(&daemon, "inner", only.clone());
    assert_eq!(status, 400, "{refused}");
    assert!(refused["error"].to_string().contains("which is private"), "{refused}");
    let allow = |list: Value| {
        let body = Some(json!({ "network_allow": list }));
        let (status, answer) = daemon.ask("PUT", "/namespaces/_?overwrite=true", body);
        assert_eq!((status, &answer["network_allow"]), (200, &list), "{answer}");
    };
    allow(json!(["10.9.0.0/24"]));
    let (status, made) = put(&daemon, "inner", only);
    assert_eq!(status, 200, "{made}");
    assert_eq!(fetch(&daemon, "inner", private.clone()), page);
    assert!(is_refused("inner", &public) && is_refused("open", &private));
    let own = json!([{ "key": "network-allow", "value": [PRIVATE] }]);
    let (status, made) = put_code(&daemon, "holds", HOLD, own);
    assert_eq!(status, 200, "{made}");
    let echo = outside.run(serve_echo).join().unwrap();
    thread::scope(|scope| {
        let arguments = json!({ "host": PRIVATE, "port": echo });
        let held = scope.spawn(|| call(&daemon, "holds", arguments));
        let opened = "squeezy_connections_opened_total{function=\"holds\"} 1";
        until("a connection", || daemon.metrics().contains(opened).then_some(()));
        let carried = until("what it carries", || {
            let metrics = daemon.metrics();
            let of = |what| format!("squeezy_network_{what}_bytes_total{{function=\"holds\"}}");
            let carried = ["sent", "received"].map(|what| value(&metrics, &of(what)).unwrap());
            carried.iter().all(|&bytes| bytes > 0.0).then_some(carried)
        });
        assert_eq!(carried, [5.0, 5.0]);
        allow(json!([]));
        // From then on, in the VMs that there are.
        assert!(is_refused("inner", &private));
        assert_eq!(held.join().unwrap(), json!({ "ended": true }));
    });
    assert!(is_refused("inner", &private));
}
