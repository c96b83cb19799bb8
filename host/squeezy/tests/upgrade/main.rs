//! State directories of earlier versions, each as it was found after that version had ended: nothing in them is lost.
//! `squeezy.sql` is its database in SQL. When a version is released, its state is added here and never changed.

#[path = "../common/mod.rs"]
mod common;

use common::{Daemon, NO_VM, base64, empty_build, empty_image};
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

/// The key of the namespace `acme` in `with-namespaces`.
const KEY_OF_ACME: &str = "26df1e4ee616dc07f63accf6f8c58319:6f54555423925dcf2cd9e65dd59f736a550a9c8fa87f519f2fe3cbdb5249c719";

/// The digest of the image that was pulled there, in its registry.
const PULLED: &str = "sha256:88761d67e56353ba6033c4f9e201e4a54d4ee9ea098efa617b3f312f839a60e3";

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

/// The IDs of these activations.
fn ids(activations: &Value) -> Vec<&str> {
    let activations = activations.as_array().unwrap().iter();
    activations.map(|one| one["activationId"].as_str().unwrap()).collect()
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
        let right = ["5bd01b37fdc8d7908fbb7f6810cccc92", "7504c41d5825e756171d9d72a02ae729"];
        assert_eq!(ids(&activations), right);
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

#[test]
fn namespaces_packages_sequences_and_pulled_images_are_there() {
    let directory = state("with-namespaces");
    let key = format!("Basic {}", base64(KEY_OF_ACME));
    for _ in 0..2 {
        let mut daemon = start(&directory);
        let hello = action(&daemon, "b/hello");
        assert_eq!(hello["namespace"], "guest/p");
        assert_eq!(hello["exec"]["code"], "def main(a):\n    return a\n");
        assert_eq!(hello["annotations"], json!([{ "key": "web-export", "value": true }]));
        let parameters = ["a", "b", "c"].into_iter().zip(1..);
        let parameters: Vec<_> =
            parameters.map(|(key, value)| json!({ "key": key, "value": value })).collect();
        assert_eq!(hello["parameters"], json!(parameters), "of package, binding and action");
        let components = json!(["/guest/p/hello", "/guest/pulled"]);
        assert_eq!(action(&daemon, "both")["exec"]["components"], components);
        assert_eq!(action(&daemon, "pulled")["exec"]["digest"], PULLED);
        let (_, images) = daemon.ask("GET", "/namespaces/_/images", None);
        let image = (&images[0]["digest"], &images[0]["actions"]);
        assert_eq!(image, (&json!(PULLED), &json!(["pulled"])), "{images}");
        let (_, activations) = daemon.ask("GET", "/namespaces/_/activations?docs=true", None);
        let right = ["7f41497093cd7cb8c62a44c1b5e9c834", "08bea06cb04af3ddbe71768f8d45e282"];
        assert_eq!(ids(&activations), right);
        assert_eq!(activations[1]["cause"], right[0]);

        let of_acme = |path: &str| daemon.ask_as(&key, "GET", path, None).1;
        assert_eq!(of_acme("/namespaces"), json!(["acme"]));
        let acme = of_acme("/namespaces/acme");
        assert_eq!(acme["quotas"]["calls_per_minute"], 60, "{acme}");
        assert_eq!(acme["network_allow"], json!(["10.1.0.0/16"]), "{acme}");
        assert_eq!(acme["usage"]["calls"], 1, "{acme}");
        let hello = of_acme("/namespaces/acme/actions/hello");
        assert_eq!(hello["limits"]["timeout"], 5000, "{hello}");
        let activations = of_acme("/namespaces/acme/activations");
        assert_eq!(ids(&activations), ["92d10af4a57f5c1cac4b3f6a38c4a134"]);
        daemon.stop();
    }
}
