//! `squeezy serve` from outside: a real daemon, a real VM, real HTTP requests.

mod common;

use common::{Daemon, build, copy_of_html, until, value};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::mpsc::channel,
    time::Duration,
};

#[test]
fn calls_are_answered_as_openwhisk_does_and_memory_comes_back() {
    let Some(build) = build() else { return };
    let configuration = "memory = \"3G\"\nvm_idle_seconds = 2.0\nfreeze_after_seconds = 0.5\n";
    let mut daemon = Daemon::start(&build, configuration);

    let (status, _) = daemon.ask_as("Basic bm86Ym9keQ==", "GET", "/namespaces", None);
    assert_eq!(status, 401);
    assert_eq!(daemon.ask("GET", "/namespaces", None), (200, json!(["guest"])));
    assert_eq!(daemon.ask("GET", "/namespaces/other/actions", None).0, 403);
    let (status, actions) = daemon.ask("GET", "/namespaces/_/actions", None);
    assert_eq!((status, &actions[0]["name"]), (200, &json!("html")));
    assert_eq!(daemon.vms(), 0, "a VM that nobody has needed");

    // A blocking call boots the VM.
    let call = "/namespaces/_/actions/html?blocking=true";
    let arguments = json!({ "username": "test", "items": 10 });
    let (status, activation) = daemon.ask("POST", call, Some(arguments.clone()));
    assert_eq!(status, 200, "{activation}");
    let page = activation["response"]["result"]["html"].as_str().unwrap();
    assert_eq!(page.matches("<tr class=\"item\">").count(), 10);
    assert!(activation["annotations"].to_string().contains("initTime"), "a cold start");
    let id = activation["activationId"].as_str().unwrap();
    let (status, same) = daemon.ask("GET", &format!("/namespaces/_/activations/{id}"), None);
    assert_eq!((status, &same), (200, &activation));

    // The next call finds its instance, and thaws it.
    daemon.says("frozen");
    let (status, result) = daemon.ask("POST", &format!("{call}&result=true"), Some(arguments));
    assert_eq!((status, &result["items"]), (200, &json!(10)));
    let (_, list) = daemon.ask("GET", "/namespaces/_/activations?limit=1", None);
    assert!(!list[0]["annotations"].to_string().contains("initTime"), "a warm start");
    assert_eq!((&list[0]["statusCode"], &list[0]["response"]), (&json!(0), &json!(null)));
    let (_, count) = daemon.ask("GET", "/namespaces/_/activations?count=true&name=html", None);
    assert_eq!(count, json!({ "activations": 2 }));
    let (_, list) = daemon.ask(
        "GET",
        &format!("/namespaces/_/activations?docs=true&upto={}", activation["start"]),
        None,
    );
    assert_eq!(list, json!([activation]));

    // The function's error is not the daemon's.
    let (status, failed) = daemon.ask("POST", call, Some(json!({ "items": "many" })));
    assert_eq!((status, &failed["response"]["status"]), (502, &json!("action developer error")));
    assert_eq!(activation["logs"], json!([]), "the function wrote nothing");
    let lines = failed["logs"].as_array().unwrap();
    let last = lines.last().and_then(Value::as_str).unwrap();
    assert!(last.contains(" stdout: ValueError: ") && last.starts_with("20"), "{last}");

    // As the command line shows it.
    let shown = |arguments: &[&str]| {
        let output = daemon.client(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let id = failed["activationId"].as_str().unwrap();
    let own = shown(&["logs", id]);
    assert_eq!(own.lines().last(), Some(last));
    let text = shown(&["logs", id, "--json"]);
    let as_json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&as_json["activationId"], &as_json["logs"]), (&json!(id), &failed["logs"]));
    assert_eq!(
        shown(&["logs", "--name", "html", "--json"]),
        text,
        "one that wrote nothing is none"
    );
    let all = shown(&["logs", "--name", "html"]);
    assert_eq!(all.lines().last(), Some(&*format!("html {id:.8} {last}")));
    assert_eq!(shown(&["logs", "--limit", "0"]), "");
    assert!(shown(&["activations"]).contains("action developer error"));
    let mut following = daemon.client_command(&["logs", "--follow", "--limit", "0"]);
    let mut following = following.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let (sender, followed) = channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    // It shows what ends once it has begun to look, which it does every second.
    let line = until("a line of a call", || {
        assert_eq!(daemon.ask("POST", call, Some(json!({ "items": "many" }))).0, 502);
        followed.recv_timeout(Duration::from_secs(2)).ok()
    });
    assert!(line.starts_with("html "), "{line}");
    following.kill().unwrap();
    following.wait().unwrap();

    // A non-blocking call.
    let later = json!({ "items": 1 });
    let (status, accepted) = daemon.ask("POST", "/namespaces/_/actions/html", Some(later));
    assert_eq!(status, 202);
    let path = format!("/namespaces/_/activations/{}", accepted["activationId"].as_str().unwrap());
    until("the activation", || (daemon.ask("GET", &path, None).0 == 200).then_some(()));

    // Creating an action, and invalid requests.
    let action = "/namespaces/_/actions/page";
    let body = json!({
        "exec": { "kind": "blackbox", "image": "html" },
        "parameters": [{ "key": "items", "value": 3 }],
    });
    assert_eq!(daemon.ask("PUT", action, Some(body.clone())).0, 200);
    assert_eq!(daemon.ask("PUT", action, Some(body)).0, 409);
    assert_eq!(daemon.ask("DELETE", action, None).0, 200);
    assert_eq!(daemon.ask("GET", action, None).0, 404);
    for wrong in [
        json!({}),
        json!({ "exec": { "kind": "php:8", "code": "function main() {}" } }),
        json!({ "exec": { "kind": "blackbox", "image": "../html" } }),
        json!({ "exec": { "kind": "blackbox", "image": "none" } }),
        json!([]),
    ] {
        assert_eq!(daemon.ask("PUT", action, Some(wrong.clone())).0, 400, "{wrong}");
    }
    assert_eq!(daemon.ask("POST", call, Some(json!([1]))).0, 400);
    let large = json!({ "username": "x".repeat(10 << 20) });
    let (status, error) = daemon.ask("POST", call, Some(large));
    let message = error["error"].as_str().unwrap();
    let is_told = message.contains("larger than allowed") && message.ends_with("is 1.0 MiB.");
    assert_eq!((status, is_told), (413, true), "{message}");
    assert_eq!(daemon.ask("POST", "/namespaces/_/actions/none", None).0, 404);

    daemon.signal("TERM");
    daemon.says("memory back after");
    daemon.says("ended: it is no longer needed");
    assert!(daemon.child.wait().unwrap().success());
    assert!(daemon.key_file().exists());
}

#[test]
fn every_policy_answers_and_leaves_nothing() {
    let Some(build) = build() else { return };
    for policy in ["virtio-mem", "balloon", "static", "harvest", "hyperalloc", "microvm"] {
        let configuration = format!("memory = \"8G\"\npolicy = \"{policy}\"\n");
        let mut daemon = Daemon::start(&build, &configuration);
        let call = "/namespaces/_/actions/html?blocking=true&result=true";
        for vms in [0, 1] {
            assert_eq!(daemon.vms(), vms, "{policy}");
            let arguments = json!({ "username": "test", "items": 1 });
            let (status, answer) = daemon.ask("POST", call, Some(arguments));
            assert_eq!((status, &answer["items"]), (200, &json!(1)), "{policy}: {answer}");
        }
        daemon.signal("TERM");
        daemon.says("ended: it is no longer needed");
        assert!(daemon.child.wait().unwrap().success());
    }
}

#[test]
fn a_vm_that_is_killed_is_booted_again() {
    let Some(build) = build() else { return };
    let daemon = Daemon::start(&build, "");
    let call = "/namespaces/_/actions/html?blocking=true&result=true";
    let arguments = || Some(json!({ "username": "test", "items": 1 }));
    assert_eq!(daemon.ask("POST", call, arguments()).0, 200);
    daemon.kill_vms();
    daemon.says("ended: ");
    let (status, answer) = daemon.ask("POST", call, arguments());
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn a_vm_that_ends_under_a_call_is_not_the_function_s_doing() {
    let Some(build) = build() else { return };
    // One VM for all instances, or one for each.
    for policy in ["squeezy", "microvm"] {
        let daemon = Daemon::start(&build, &format!("policy = \"{policy}\"\n"));
        let action = "/namespaces/_/actions/html";
        let warm =
            daemon.ask("POST", &format!("{action}?blocking=true"), Some(json!({ "items": 1 })));
        assert_eq!(warm.0, 200, "{policy}: {}", warm.1);
        let (_, accepted) = daemon.ask("POST", action, Some(json!({ "items": 100_000 })));
        // One that no instance has yet would be answered by the next VM.
        let busy = "squeezy_instances{function=\"html\",state=\"busy\"}";
        until("the call to run", || (value(&daemon.metrics(), busy) == Some(1.0)).then_some(()));
        daemon.kill_vms();
        let id = accepted["activationId"].as_str().unwrap();
        let path = format!("/namespaces/_/activations/{id}");
        let activation = until("the activation", || {
            let (status, activation) = daemon.ask("GET", &path, None);
            (status == 200).then_some(activation)
        });
        let status = &activation["response"]["status"];
        assert_eq!(status, "whisk internal error", "{policy}: {activation}");
    }
}

/// A server that reads a request and closes the connection.
const CLOSES: &str = r#"
import socket
listener = socket.create_server(("127.0.0.1", 8080))
while True:
    connection, _ = listener.accept()
    connection.recv(1 << 16)
    connection.close()
"#;

#[test]
fn an_instance_that_cannot_be_started_says_why_at_once() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut configuration = "memory = \"4G\"\n".to_owned();
    for (name, program) in [("ends", "raise SystemExit('no model')"), ("closes", CLOSES)] {
        configuration += &copy_of_html(&build, directory.path(), name, Some(program));
    }
    let daemon = Daemon::start_in(directory.path(), &build, &configuration, &[]);
    for (name, why) in [
        ("ends", "it has ended by itself with status 1 before it had answered /init: no model"),
        ("closes", " did not answer in HTTP: connection closed before message completed"),
    ] {
        let call = format!("/namespaces/_/actions/{name}?blocking=true&result=true");
        // After 60 s the status would be 202; the limit for /init is 120 s.
        let (status, answer) = daemon.ask("POST", &call, None);
        let error = answer["error"].as_str().unwrap();
        assert_eq!(status, 500, "{error}");
        assert!(error.contains("could not be started: ") && error.ends_with(why), "{error}");
    }
    assert_eq!(daemon.vms(), 1);
}

#[test]
fn nothing_is_left_of_a_daemon_that_is_killed() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let html = build.join("images/html.erofs");
    let start = || Daemon::start_in(directory.path(), &build, "", &[&html]);
    let call = "/namespaces/_/actions/html?blocking=true&result=true";
    let arguments = || Some(json!({ "username": "test", "items": 1 }));
    let mut killed = start();
    assert_eq!(killed.ask("POST", call, arguments()).0, 200);
    let vms = killed.vm_processes();
    assert_eq!(vms.len(), 1);
    killed.signal("KILL");
    killed.child.wait().unwrap();
    until("the end of its VM", || (!vms.iter().any(|id| is_qemu(*id))).then_some(()));
    let mut kept: Vec<_> = fs::read_dir(directory.path().join("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    kept.sort();
    // What namespaces have used is written each minute.
    kept.retain(|name| name != "namespaces.json");
    // SQLite removes the last two when it is closed.
    let database = ["squeezy.db", "squeezy.db-shm", "squeezy.db-wal"];
    let others = ["code", "code-drives", "key", "lock", "pinned"];
    assert_eq!(kept, others.into_iter().chain(database).collect::<Vec<_>>());
    assert_eq!(start().ask("POST", call, arguments()).0, 200);
}

/// Whether this process is a VM, rather than gone or a reused pid.
fn is_qemu(id: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{id}/comm"));
    name.is_ok_and(|name| name.starts_with("qemu"))
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("squeezy.toml");
    for (configuration, part) in [
        ("memory = \"lots\"", "line 1: memory"),
        ("memory = \"64M\"\nstate_directory = \"s\"", "a VM with one instance needs "),
        ("listen = \"203.0.113.1:1\"\nstate_directory = \"s\"", "choose another `listen`"),
        ("state_directory = \"squeezy.toml\"", "squeezy.toml: "),
    ] {
        fs::write(&file, configuration).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_squeezy"))
            .args(["serve", "--config"])
            .arg(&file)
            .arg("--build")
            .arg(&build)
            .arg(build.join("images/html.erofs"))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{configuration}");
        assert!(error.contains(part) && error.lines().count() == 1, "{configuration}: {error}");
    }
}
