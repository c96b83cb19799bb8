//! The configuration read again.

use super::{
    certificate,
    common::{Daemon, NO_VM, base64, empty_image, own_empty_build, serve},
    said,
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Output};

/// Replaces the daemon's configuration, except its address and its state directory.
fn configure(directory: &Path, more: &str) {
    drop(serve(directory, directory, &format!("{NO_VM}{more}"), &[]));
}

fn reload(daemon: &Daemon) -> Output {
    daemon.client(&["reload"])
}

/// The names of all actions.
fn actions(daemon: &Daemon) -> Vec<String> {
    let (status, listed) = daemon.ask("GET", "/namespaces/_/actions", None);
    assert_eq!(status, 200, "{listed}");
    let names = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn what_can_change_changes_and_the_rest_is_named() {
    let directory = own_empty_build();
    let directory = directory.path();
    for name in ["g", "h"] {
        empty_image(directory, name);
    }
    let given = directory.join("images/f.erofs");
    let functions = "functions = [\"images/g.erofs\"]";
    let configuration = format!("{NO_VM}{functions}");
    let daemon = Daemon::start_in(directory, directory, &configuration, &[&given]);
    assert_eq!(actions(&daemon), ["f", "g"]);

    let (text, error) = said(&reload(&daemon));
    assert_eq!(text, "the configuration is what the daemon runs with\n", "{error}");

    configure(
        directory,
        "queue = 7\nfreeze_after_seconds = 1.5\nshared_memory = \"64M\"\nfunctions = [\"images/h.erofs\"]",
    );
    let (text, error) = said(&reload(&daemon));
    let lines: Vec<_> = text.lines().collect();
    let path = |name: &str| directory.join(format!("images/{name}.erofs")).display().to_string();
    let of_functions =
        format!("functions: {0}, {2} (was {1}, {2})", path("h"), path("g"), path("f"));
    let right = [
        "freeze_after_seconds: 1.5 s (was 10 s)",
        "queue: 7 (was 256)",
        &of_functions,
        "shared_memory: still 128M; 64M once the daemon is started again",
    ];
    assert_eq!(lines, right, "{error}");
    assert_eq!(actions(&daemon), ["f", "h"]);
    // What needs a restart goes on to be named.
    let json = daemon.client(&["reload", "--json"]);
    let reloaded: Value = serde_json::from_slice(&json.stdout).unwrap();
    let memory = json!([{ "key": "shared_memory", "from": "128M", "to": "64M" }]);
    assert_eq!(reloaded, json!({ "applied": [], "needs_restart": memory }));
}

#[test]
fn a_configuration_with_a_mistake_changes_nothing() {
    let directory = own_empty_build();
    let directory = directory.path();
    empty_image(directory, "g");
    let given = directory.join("images/f.erofs");
    let daemon = Daemon::start_in(directory, directory, NO_VM, &[&given]);
    let both = "[\"images/g.erofs\", \"images/f.erofs\"]";
    for (configuration, part) in [
        ("queue = 7\nmemroy = 1", "line 7: unknown field `memroy`"),
        ("queue = 7\nfunctions = [\"images/g.erofs\", \"none\"]", "/none"),
        (&format!("queue = 7\nfunctions = {both}"), "\"f\" exists already"),
    ] {
        configure(directory, configuration);
        let output = reload(&daemon);
        let (_, error) = said(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        assert!(error.contains("; nothing has changed (status 400)"), "{error}");
        assert_eq!(actions(&daemon), ["f"]);
    }
    configure(directory, "");
    let (text, _) = said(&reload(&daemon));
    assert_eq!(text, "the configuration is what the daemon runs with\n");
    assert_eq!(daemon.ask_as("", "POST", "/reload", None).0, 401);
}

#[test]
fn an_action_of_the_api_is_not_replaced_by_a_function_of_its_name() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = Daemon::start_in(directory, directory, NO_VM, &[]);
    let body = json!({ "exec": { "kind": "blackbox", "image": "f" } });
    let (status, made) = daemon.ask("PUT", "/namespaces/_/actions/f", Some(body));
    assert_eq!(status, 200, "{made}");
    for functions in ["functions = [\"images/f.erofs\"]", ""] {
        configure(directory, functions);
        let output = reload(&daemon);
        assert!(output.status.success(), "{output:?}");
        let (status, shown) = daemon.ask("GET", "/namespaces/_/actions/f", None);
        assert_eq!((status, &shown["version"]), (200, &made["version"]), "{shown}");
    }
}

#[test]
fn a_hangup_reloads_and_is_not_the_end() {
    let directory = own_empty_build();
    let directory = directory.path();
    let mut daemon = Daemon::start_in(directory, directory, NO_VM, &[]);
    configure(directory, "queue = 9");
    daemon.signal("HUP");
    daemon.says("reload: queue: 9 (was 256)");
    configure(directory, "queue = 0");
    daemon.signal("HUP");
    daemon.says("queue: must be from 1 to 1000000; nothing has changed");
    assert_eq!(daemon.ask("GET", "/namespaces", None).0, 200);
    daemon.stop();
}

#[test]
fn the_operators_key_is_replaced_while_the_daemon_runs() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = Daemon::start_in(directory, directory, NO_VM, &[]);
    let file = daemon.key_file();
    let key = || format!("Basic {}", base64(fs::read_to_string(&file).unwrap().trim()));
    let status = |key: &str| daemon.ask_as(key, "GET", "/namespaces", None).0;
    let first = key();
    // It makes another one.
    fs::remove_file(&file).unwrap();
    daemon.signal("HUP");
    daemon.says("the operator's key is another one from now on");
    let second = key();
    assert_eq!([status(&first), status(&second)], [401, 200]);
    // What is no key changes nothing, of the configuration neither.
    fs::write(&file, "short").unwrap();
    configure(directory, "queue = 9");
    daemon.signal("HUP");
    daemon.says("; nothing has changed");
    assert_eq!(status(&second), 200);
    // Nor does a configuration that is wrong keep a leaked key in force.
    fs::write(&file, "own:0123456789abcdef").unwrap();
    configure(directory, "queue = 0");
    daemon.signal("HUP");
    daemon.says("the operator's key is another one from now on");
    daemon.says("; of the configuration nothing has changed, the operator's key has");
    assert_eq!([status(&second), status(&key())], [401, 200]);
}

#[test]
fn a_daemon_can_be_told_of_another_certificate() {
    let directory = own_empty_build();
    let directory = directory.path();
    let (first, second) =
        (certificate::make(directory, "first"), certificate::make(directory, "second"));
    let of = |name: &str| format!("tls_certificate = \"{name}.pem\"\ntls_key = \"{name}.key\"");
    let configuration = format!("{NO_VM}{}", of("first"));
    let daemon = Daemon::start_in(directory, directory, &configuration, &[]);
    let with = |trusted: &Path| {
        let mut client = daemon.client_command(&["reload"]);
        client.env("SQUEEZY_CA_FILE", trusted).output().unwrap()
    };
    configure(directory, &of("second"));
    let (text, error) = said(&with(&first.0));
    assert_eq!(text.lines().count(), 2, "{text}{error}");
    assert!(!with(&first.0).status.success());
    assert!(with(&second.0).status.success());
    // Plain HTTP needs a restart.
    configure(directory, "");
    let (text, _) = said(&with(&second.0));
    assert!(text.contains("tls_key: still ") && text.contains("; none once"), "{text}");
}
