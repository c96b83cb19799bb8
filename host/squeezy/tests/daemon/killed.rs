//! A daemon that is killed at any moment while clients call: whatever a client has been told is
//! still so afterwards. Its calls fail at once, because no VM can boot, or are answered in a VM (`make stress`).

use crate::{
    common::{Daemon, build, copy_of_html, number, own_empty_build, server},
    daemon,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// How often it is killed; `SQUEEZY_KILLS` says otherwise.
const KILLS: u64 = 20;

/// Answers at once, as fast as an emulated VM does.
const SERVER: &str = r#"
import http.server, json

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = {"done": True}
"#;

/// Clients that call at a time. Half of them do not wait for the result.
const CLIENTS: usize = 6;

/// The error of a call that was in flight.
const ENDED: &str = "the daemon was ended while this call ran";

/// The response that a client was given, by activation; `Null` if it was only told the ID.
type Told = BTreeMap<String, Value>;

/// Calls until the daemon is gone.
fn call(daemon: &Daemon, action: &str, blocking: bool, is_killed: &AtomicBool) -> Told {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .new_agent();
    let url = format!("{}/api/v1/namespaces/_/actions/{action}?blocking={blocking}", daemon.url);
    let mut told = Told::new();
    while !is_killed.load(Ordering::Relaxed) {
        let request = agent.post(&url).header("Authorization", &daemon.authorization);
        let Ok(mut answer) = request.send_empty() else { continue };
        let status = answer.status().as_u16();
        let id = answer.headers().get("x-openwhisk-activation-id");
        let id = id.map(|id| id.to_str().unwrap().to_owned());
        let text = answer.body_mut().read_to_string();
        match (status, id) {
            // The header has the ID, even if the rest did not arrive.
            (202, Some(id)) => drop(told.insert(id, Value::Null)),
            (200 | 500, Some(id)) => {
                let text = text.ok().and_then(|text| serde_json::from_str(&text).ok());
                told.insert(id, text.unwrap_or(Value::Null));
            }
            (429, None) => {}
            (status, _) => panic!("{status}: {text:?}"),
        }
    }
    told
}

/// Kills a new daemon after this time; returns what its clients were told.
fn kill(start: &dyn Fn() -> Daemon, told: &Told, after: Duration, counts: &mut [usize; 3]) -> Told {
    let mut daemon = start();
    check(&daemon, told, counts);
    let is_killed = AtomicBool::new(false);
    let mut new = Told::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn({
                    let (daemon, is_killed) = (&daemon, &is_killed);
                    // An action, or a sequence that has it.
                    let action = if client % 3 == 0 { "s" } else { "f" };
                    move || call(daemon, action, client % 2 == 0, is_killed)
                })
            })
            .collect();
        std::thread::sleep(after);
        daemon.signal("KILL");
        is_killed.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| new.extend(client.join().unwrap()));
    });
    daemon.child.wait().unwrap();
    if daemon.was_slow() {
        println!("the disk was too slow for this round to say anything");
        new.clear();
    }
    new
}

/// Everything that clients were told is so, and nothing is there twice.
fn check(daemon: &Daemon, told: &Told, counts: &mut [usize; 3]) {
    for (id, response) in told {
        let (status, found) = daemon.ask("GET", &format!("/namespaces/_/activations/{id}"), None);
        assert_eq!(status, 200, "{id} is lost: {response}");
        assert!(found["logs"].is_array() && found["response"]["status"].is_string(), "{found}");
        if !response.is_null() {
            assert_eq!(found, *response);
        }
        counts[0] += 1;
        counts[1] += usize::from(found["response"]["result"]["error"] == ENDED);
    }
    let (mut ids, mut skip) = (BTreeSet::new(), 0);
    loop {
        let path = format!("/namespaces/_/activations?limit=200&skip={skip}");
        let (_, list) = daemon.ask("GET", &path, None);
        let list = list.as_array().unwrap();
        for activation in list {
            assert!(ids.insert(activation["activationId"].to_string()), "twice: {activation}");
        }
        skip += list.len();
        if list.len() < 200 {
            break;
        }
    }
    let (_, count) = daemon.ask("GET", "/namespaces/_/activations?count=true", None);
    assert_eq!(count, json!({ "activations": skip }));
    counts[2] = skip;
}

/// Makes a sequence of the function `f`.
fn make_sequence(daemon: &Daemon) {
    let sequence = json!({ "exec": { "kind": "sequence", "components": ["/_/f"] } });
    let made = daemon.ask("PUT", "/namespaces/_/actions/s", Some(sequence));
    assert_eq!(made.0, 200, "{}", made.1);
}

/// Kills one daemon after the other, each within so many milliseconds of its start.
fn kill_again_and_again(start: &dyn Fn() -> Daemon, longest_ms: u64) {
    let kills = number("SQUEEZY_KILLS").unwrap_or(KILLS);
    let (mut told, mut counts) = (Told::new(), [0; 3]);
    let mut random = u64::from(std::process::id());
    for _ in 0..kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let after = Duration::from_millis((random >> 33) % longest_ms);
        told = kill(start, &told, after, &mut counts);
    }
    check(&start(), &told, &mut counts);
    let [calls, in_flight, there] = counts;
    println!("{kills} kills, {calls} calls, {in_flight} of them in flight; {there} are kept");
    assert!(calls as u64 > kills);
    assert!(in_flight > 0, "no daemon was killed during a call");
}

#[test]
fn what_a_client_was_told_is_still_so_after_a_kill() {
    let directory = own_empty_build();
    let directory = directory.path();
    make_sequence(&daemon(directory));
    kill_again_and_again(&|| daemon(directory), 300);
}

#[test]
#[ignore = "boots a VM for each kill: make stress"]
fn what_a_client_was_told_of_calls_in_a_vm_is_still_so_after_a_kill() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let function = copy_of_html(&build, directory, "f", Some(&server(SERVER)));
    let start = || Daemon::start_in(directory, &build, &function, &[]);
    make_sequence(&start());
    let start_warm = || {
        let daemon = start();
        let path = "/namespaces/_/actions/f?blocking=true&result=true";
        assert_eq!(daemon.ask("POST", path, None), (200, json!({ "done": true })));
        daemon
    };
    kill_again_and_again(&start_warm, 2000);
}
