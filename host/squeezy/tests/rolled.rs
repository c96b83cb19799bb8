//! Updates of actions in real VMs: calls go on while the next version is brought up.

mod common;

use common::{Daemon, build, copy_of_html, server, until, value};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

/// A server that answers after a while, if it is told to.
const SLEEPER: &str = r#"
import http.server, json, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        value = json.loads(self.rfile.read(int(self.headers["Content-Length"]))).get("value", {})
        time.sleep(value.get("seconds", 0))
        answer = {"slept": value.get("seconds")}
"#;

/// A server that never gets as far.
const BROKEN: &str = "raise SystemExit('there is no such module')";

const CONFIGURATION: &str = "memory = \"2G\"\nshared_memory = \"64M\"\naccelerator = \"tcg\"\n";

/// A build directory with these images besides.
fn build_with(build: &Path, directory: &Path) {
    let images = directory.join("images");
    fs::create_dir_all(&images).unwrap();
    for file in ["kernel", "initramfs.cpio"] {
        symlink(build.join(file), directory.join(file)).unwrap();
    }
    copy_of_html(build, &images, "sleeper", Some(&server(SLEEPER)));
    copy_of_html(build, &images, "broken", Some(BROKEN));
}

fn start(directory: &Path) -> Daemon {
    Daemon::start_in(directory, &directory.join("build"), CONFIGURATION, &[])
}

/// Changes the action; returns its version.
#[track_caller]
fn put(daemon: &Daemon, path: &str, change: Value) -> String {
    let (status, action) = daemon.ask("PUT", &format!("{path}?overwrite=true"), Some(change));
    assert_eq!(status, 200, "{action}");
    action["version"].as_str().unwrap().to_owned()
}

fn image(name: &str) -> Value {
    json!({
        "exec": { "kind": "blackbox", "image": name },
        "limits": { "memory": 128, "timeout": 60_000 },
    })
}

fn call(daemon: &Daemon, path: &str, seconds: f32) -> (u16, Value) {
    let arguments = json!({ "seconds": seconds });
    daemon.ask("POST", &format!("{path}?blocking=true"), Some(arguments))
}

/// A successful call that waited for nothing to start; returns the version that served it.
#[track_caller]
fn warm(daemon: &Daemon, path: &str, seconds: f32) -> String {
    let (status, activation) = call(daemon, path, seconds);
    assert_eq!(status, 200, "{activation}");
    let annotations = activation["annotations"].as_array().unwrap();
    let value = |key: &str| annotations.iter().find(|pair| pair["key"] == key);
    assert_eq!(value("initTime"), None, "it waited for a start: {activation}");
    let waited = value("waitTime").map_or(0, |pair| pair["value"].as_u64().unwrap());
    assert!(waited < 2000, "{activation}");
    activation["version"].as_str().unwrap().to_owned()
}

/// Calls one after the other while something is changed; returns the versions that served, without repetitions.
fn called_during(daemon: &Daemon, path: &str, change: impl FnOnce()) -> Vec<String> {
    let is_changed = AtomicBool::new(false);
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let mut versions = Vec::new();
            while !is_changed.load(Ordering::Relaxed) {
                versions.push(warm(daemon, path, 0.0));
            }
            versions.push(warm(daemon, path, 0.0));
            versions
        });
        change();
        is_changed.store(true, Ordering::Relaxed);
        let mut versions = calls.join().unwrap();
        versions.dedup();
        versions
    })
}

/// Begins a change, and waits until its VM is there.
fn begin<'scope>(
    scope: &'scope Scope<'scope, '_>,
    daemon: &'scope Daemon,
    path: &'scope str,
    change: Value,
) -> ScopedJoinHandle<'scope, String> {
    let vms = daemon.vms();
    let begun = scope.spawn(|| put(daemon, path, change));
    until("a VM for the next version", || (daemon.vms() > vms).then_some(()));
    begun
}

fn has_vms(daemon: &Daemon, right: usize) {
    until("VMs that have gone", || (daemon.vms() == right).then_some(()));
}

#[test]
fn calls_go_on_while_an_action_is_changed() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    build_with(&build, &directory.join("build"));
    let mut daemon = start(directory);
    let path = "/namespaces/_/actions/f";
    put(&daemon, path, image("sleeper"));
    assert_eq!(call(&daemon, path, 0.0).0, 200);

    // One call runs all the time, and ends as if nothing had happened.
    let versions = thread::scope(|scope| {
        let slow = scope.spawn(|| call(&daemon, path, 20.0));
        let busy = || value(&daemon.metrics(), r#"squeezy_instances{function="f",state="busy"}"#);
        until("the call to run", || (busy() == Some(1.0)).then_some(()));
        // It starts another instance.
        let (status, second) = call(&daemon, path, 0.0);
        assert_eq!((status, &second["version"]), (200, &json!("0.0.1")), "{second}");
        let versions = called_during(&daemon, path, || {
            assert_eq!(put(&daemon, path, json!({ "parameters": [] })), "0.0.2");
            // From here on whoever changed it meets what it was changed to.
            assert_eq!(warm(&daemon, path, 0.0), "0.0.2");
        });
        let (status, slow) = slow.join().unwrap();
        assert_eq!((status, &slow["version"]), (200, &json!("0.0.1")), "{slow}");
        versions
    });
    assert_eq!(versions, ["0.0.1", "0.0.2"]);
    has_vms(&daemon, 1);

    // Of two changes, one after the other, the latest alone counts.
    let versions = called_during(&daemon, path, || {
        thread::scope(|scope| {
            let third = begin(scope, &daemon, path, json!({ "parameters": [] }));
            assert_eq!(put(&daemon, path, json!({ "parameters": [] })), "0.0.4");
            assert_eq!(third.join().unwrap(), "0.0.3");
        });
    });
    assert_eq!(versions, ["0.0.2", "0.0.4"]);
    has_vms(&daemon, 1);

    // What cannot start is called all the same, so that everybody sees why.
    let changed = Instant::now();
    assert_eq!(put(&daemon, path, image("broken")), "0.0.5");
    daemon.says("f: no instance could be started ahead of calls: the instance for it could not");
    assert!(changed.elapsed() < Duration::from_secs(120));
    let (status, failed) = call(&daemon, path, 0.0);
    assert_eq!((status, &failed["version"]), (500, &json!("0.0.5")), "{failed}");
    let error = failed["response"]["result"]["error"].to_string();
    assert!(error.contains("could not be started"), "{error}");
    assert_eq!(put(&daemon, path, image("sleeper")), "0.0.6");
    assert_eq!(call(&daemon, path, 0.0).1["version"], "0.0.6");
    has_vms(&daemon, 1);

    // The next daemon has what the last change said, whether or not it had come that far.
    thread::scope(|scope| {
        let lost = scope.spawn(|| {
            let put = || put(&daemon, path, json!({ "parameters": [] }));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(put))
        });
        until("a VM for the next version", || (daemon.vms() > 1).then_some(()));
        assert_eq!(warm(&daemon, path, 0.0), "0.0.6");
        daemon.signal("KILL");
        assert!(lost.join().unwrap().is_err());
    });
    daemon.child.wait().unwrap();
    let daemon = start(directory);
    assert_eq!(daemon.ask("GET", path, None).1["version"], "0.0.7");
    assert_eq!(call(&daemon, path, 0.0).1["version"], "0.0.7");
}

/// What a stranger hears of a web action.
fn stranger(daemon: &Daemon) -> u16 {
    let request = ureq::get(format!("{}/api/v1/web/acme/default/f.json", daemon.url));
    let answer = request.config().http_status_as_error(false).build().call();
    answer.unwrap().status().as_u16()
}

/// Whether the only function has its minimum of one instance, which is idle.
fn has_one(daemon: &Daemon) -> bool {
    let output = daemon.client(&["status", "--json"]);
    let state: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let function = &state["functions"][0];
    let idle = |place: usize| function["point"][place].as_u64().unwrap_or(0);
    function["minimum_instances"] == 1 && idle(1) + idle(2) == 1
}

#[test]
fn what_is_deleted_while_it_is_changed_is_gone_with_both_versions() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    build_with(&build, &directory.join("build"));
    let daemon = start(directory);
    assert!(daemon.client(&["namespace", "create", "acme"]).status.success());
    let path = "/namespaces/acme/actions/f";
    let mut public = image("sleeper");
    let annotations = [("web-export", json!(true)), ("minimum-instances", json!(1))];
    public["annotations"] =
        annotations.map(|(key, value)| json!({ "key": key, "value": value })).into();
    let mut too_many = public.clone();
    too_many["annotations"][1]["value"] = json!(9);
    let (status, refused) = daemon.ask("PUT", path, Some(too_many));
    assert_eq!(status, 400, "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("may have 8 in all"), "{refused}");
    for (deleted, gone) in [(path, 404), ("/namespaces/acme?force=true", 403)] {
        put(&daemon, path, public.clone());
        until("an instance without a call", || has_one(&daemon).then_some(()));
        assert_eq!(warm(&daemon, path, 0.0), "0.0.1");
        thread::scope(|scope| {
            assert_eq!(stranger(&daemon), 200);
            let private = json!({ "annotations": [] });
            let changed = begin(scope, &daemon, path, private);
            // The former version serves those alone whom the next one would serve.
            assert_eq!(stranger(&daemon), 404);
            assert_eq!(warm(&daemon, path, 0.0), "0.0.1");
            let (status, answer) = daemon.ask("DELETE", deleted, None);
            assert_eq!(status, 200, "{answer}");
            assert_eq!(changed.join().unwrap(), "0.0.2");
        });
        let (status, answer) = call(&daemon, path, 0.0);
        assert_eq!(status, gone, "{answer}");
        has_vms(&daemon, 0);
    }
}
