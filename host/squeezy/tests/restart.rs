//! A daemon with a real VM is killed during a call, and starts again.

mod common;

use common::{Daemon, build, copy_of_html, server, until};
use serde_json::{Value, json};

/// Answers at once, or after an hour; what it prints is in the logs.
const SERVER: &str = r#"
import http.server, json, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["value"]
        print("called with", value, flush=True)
        if value.get("sleeps"):
            time.sleep(3600)
        answer = {"number": value.get("number")}
"#;

/// The totals of the function, as `squeezy status` has them.
fn totals(daemon: &Daemon) -> Value {
    let output = daemon.client(&["status", "--json"]);
    let state: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let function = &state["functions"][0];
    json!([function["starts"]["cold"], function["starts"]["warm"], function["failed"]])
}

#[test]
fn what_a_killed_daemon_has_done_is_known_to_the_next() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let function = copy_of_html(&build, directory, "f", Some(&server(SERVER)));
    let start = || Daemon::start_in(directory, &build, &function, &[]);
    let mut killed = start();
    let call = "/namespaces/_/actions/f";
    let mut ended = Vec::new();
    for number in 0..3 {
        let arguments = json!({ "number": number });
        let answer = killed.ask("POST", &format!("{call}?blocking=true"), Some(arguments));
        let (status, activation) = answer;
        assert_eq!(status, 200, "{activation}");
        assert!(activation["logs"].to_string().contains("called with"), "{activation}");
        ended.push(activation);
    }
    let (status, accepted) = killed.ask("POST", call, Some(json!({ "sleeps": true })));
    assert_eq!(status, 202);
    let path = format!("/namespaces/_/activations/{}", accepted["activationId"].as_str().unwrap());
    assert_eq!(killed.ask("GET", &path, None).0, 404, "it has not ended");
    let right = json!([1, 2, 0]);
    until("the totals are kept", || (totals(&killed) == right).then_some(()));
    // They are written at once then, and counted every second, or a little later.
    std::thread::sleep(std::time::Duration::from_secs(5));
    killed.signal("KILL");
    killed.child.wait().unwrap();

    let mut again = start();
    let (status, interrupted) = again.ask("GET", &path, None);
    assert_eq!((status, &interrupted["response"]["statusCode"]), (200, &json!(3)));
    let right_error = json!({ "error": "the daemon was ended while this call ran" });
    assert_eq!(interrupted["response"]["result"], right_error);
    ended.push(interrupted);
    ended.reverse();
    let list = |daemon: &Daemon| daemon.ask("GET", "/namespaces/_/activations?docs=true", None).1;
    assert_eq!(list(&again), json!(ended));
    let output = again.client(&["logs", ended[1]["activationId"].as_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("{'number': 2}"), "{output:?}");
    until("the totals go on", || (totals(&again) == right).then_some(()));

    // Told to end, it leaves everything in one file.
    again.stop();
    let log = std::fs::metadata(directory.join("state/squeezy.db-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0);
    assert_eq!(list(&start()), json!(ended));
}
