//! State directories of earlier versions, each as it was found after that version had ended: nothing in them is lost.
//! `squeezy.sql` is its database in SQL. When a version is released, its state is added here and never changed.

#[path = "../common/mod.rs"]
mod common;

use common::{Daemon, NO_VM, empty_build, empty_image};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// Makes a database from SQL. Its activations happen now instead of then: they would expire after a week.
const MAKE_DATABASE: &str = "\
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[2])
database.executescript(open(sys.argv[1]).read())
(latest,) = database.execute('SELECT max(start_ms) FROM activations').fetchone()
passed = int(time.time() * 1000) - latest
database.execute('UPDATE activations SET start_ms = start_ms + ?', (passed,))
database.commit()
";

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// A directory with the state of this version, and what had been built then.
fn state(version: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade").join(version), &state);
    fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    let key = state.join("key");
    fs::write(&key, format!("{}:{}\n", "0".repeat(32), "1".repeat(64))).unwrap();
    fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
    let database = state.join("squeezy.sql");
    if database.exists() {
        let mut python = Command::new("python3");
        python.args(["-c", MAKE_DATABASE]).arg(&database).arg(state.join("squeezy.db"));
        assert!(python.status().unwrap().success());
        fs::remove_file(database).unwrap();
    }
    let build = build(&directory);
    empty_build(&build);
    empty_image(&build, "runtime-python");
    directory
}

fn build(directory: &TempDir) -> PathBuf {
    directory.path().join("build")
}

fn start(directory: &TempDir) -> Daemon {
    Daemon::start_in(directory.path(), &build(directory), NO_VM, &[])
}

fn action(daemon: &Daemon, name: &str) -> Value {
    let (status, action) = daemon.ask("GET", &format!("/namespaces/_/actions/{name}"), None);
    assert_eq!(status, 200, "{action}");
    assert_eq!(action["problem"], Value::Null, "{action}");
    action
}

#[test]
fn actions_from_before_there_was_code_are_served() {
    let directory = state("without-code");
    let mut daemon = start(&directory);
    let before = action(&daemon, "image");
    assert_eq!(before["version"], "0.0.7");
    assert_eq!(before["parameters"], json!([{ "key": "name", "value": "you" }]));
    // What is written now is as this version writes it, and all of it.
    let code = json!({ "exec": { "kind": "python:default", "code": "def main(a): return a" } });
    assert_eq!(daemon.ask("PUT", "/namespaces/_/actions/new", Some(code)).0, 200);
    daemon.stop();
    let daemon = start(&directory);
    assert_eq!(action(&daemon, "image"), before);
    assert_eq!(action(&daemon, "new")["exec"]["kind"], "python:3.11");
}

#[test]
fn everything_of_0_1_0_is_there() {
    let directory = state("0.1.0");
    for round in 0..2 {
        let mut daemon = start(&directory);
        // What there was not then is made, and is there after the next start.
        if round == 0 {
            let parameters = json!({ "parameters": [{ "key": "a", "value": 1 }] });
            let made = daemon.ask("PUT", "/namespaces/_/packages/p", Some(parameters));
            assert_eq!(made.0, 200, "{}", made.1);
            let code = json!({ "exec": { "kind": "python:3", "code": "def main(a): return a" } });
            let made = daemon.ask("PUT", "/namespaces/_/actions/p/new", Some(code));
            assert_eq!(made.0, 200, "{}", made.1);
            let components = json!(["/_/hello", "/_/p/new"]);
            let exec = json!({ "exec": { "kind": "sequence", "components": components } });
            let made = daemon.ask("PUT", "/namespaces/_/actions/both", Some(exec));
            assert_eq!(made.0, 200, "{}", made.1);
        }
        let components = json!(["/guest/hello", "/guest/p/new"]);
        assert_eq!(action(&daemon, "both")["exec"]["components"], components);
        let new = action(&daemon, "p/new");
        assert_eq!((&new["namespace"], &new["name"]), (&json!("guest/p"), &json!("new")));
        assert_eq!(new["parameters"], json!([{ "key": "a", "value": 1 }]));
        let hello = action(&daemon, "hello");
        assert_eq!(hello["exec"]["code"], "def main(a):\n    return a\n");
        assert_eq!(
            (&hello["version"], action(&daemon, "image")["version"].as_str()),
            (&json!("0.0.2"), Some("0.0.1"))
        );
        let (_, activations) = daemon.ask("GET", "/namespaces/_/activations?docs=true", None);
        let ids: Vec<_> = activations
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["activationId"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["5bd01b37fdc8d7908fbb7f6810cccc92", "7504c41d5825e756171d9d72a02ae729"]);
        assert_eq!(
            (&activations[1]["name"], &activations[1]["version"]),
            (&json!("hello"), &json!("0.0.2"))
        );
        let error = activations[1]["response"]["result"]["error"].as_str().unwrap();
        assert!(error.contains("8.2 TiB of memory are needed"), "{error}");
        let status = daemon.client(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        let functions = status["functions"].as_array().unwrap();
        let hello = functions.iter().find(|function| function["name"] == "hello").unwrap();
        assert_eq!(hello["failed"], 1, "{hello}");
        daemon.stop();
    }
}
