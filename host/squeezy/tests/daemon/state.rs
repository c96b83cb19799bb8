//! The daemon's persistent state.

use crate::{
    common::{Daemon, NO_VM, own_empty_build},
    daemon, refusal, said,
};
use serde_json::{Value, json};
use std::{fs, process::Command};

#[test]
fn actions_outlive_the_daemon() {
    let directory = own_empty_build();
    let directory = directory.path();
    let mut killed = daemon(directory);
    let put = |daemon: &Daemon, name: &str, body: Value| {
        let path = format!("/namespaces/_/actions/{name}?overwrite=true");
        assert_eq!(daemon.ask("PUT", &path, Some(body)).0, 200);
    };
    let parameters = json!([{ "key": "a", "value": { "b": [1.5, null] } }]);
    let exec = json!({ "kind": "blackbox", "image": "f" });
    put(&killed, "made", json!({ "exec": exec, "limits": { "timeout": 5 } }));
    put(&killed, "made", json!({ "exec": exec, "parameters": parameters }));
    put(&killed, "f", json!({ "annotations": [{ "key": "changed", "value": true }] }));
    put(&killed, "deleted", json!({ "exec": exec }));
    assert_eq!(killed.ask("DELETE", "/namespaces/_/actions/deleted", None).0, 200);
    let list = |daemon: &Daemon| daemon.ask("GET", "/namespaces/_/actions", None).1;
    let before = list(&killed);
    assert_eq!(before.as_array().unwrap().len(), 2);
    killed.signal("KILL");
    killed.child.wait().unwrap();

    let mut again = daemon(directory);
    assert_eq!(list(&again), before);
    assert_eq!(again.ask("DELETE", "/namespaces/_/actions/f", None).0, 200);
    again.stop();
    // The function from the configuration is back, unchanged.
    let (_, f) = daemon(directory).ask("GET", "/namespaces/_/actions/f", None);
    assert_eq!((&f["version"], &f["annotations"]), (&json!("0.0.1"), &json!([])));
}

#[test]
fn an_action_whose_image_is_gone_is_listed_and_can_be_deleted() {
    let directory = own_empty_build();
    let directory = directory.path();
    let mut first = daemon(directory);
    let create = || first.client(&["function", "create", "f", "--name", "made"]);
    assert!(create().status.success());
    let (_, again) = said(&create());
    assert!(again.contains("change it with --overwrite") && again.lines().count() == 1, "{again}");
    first.stop();
    fs::remove_dir_all(directory.join("state/pinned")).unwrap();
    let again = Daemon::start_in(directory, directory, NO_VM, &[]);
    let (list, _) = said(&again.client(&["function", "list"]));
    let row = list.lines().nth(1).unwrap();
    assert!(row.starts_with("made ") && row.contains("is missing"), "{list}");
    let (status, error) = again.ask("POST", "/namespaces/_/actions/made?blocking=true", None);
    let problem = "The action cannot be served: its image sha256:";
    assert!(status == 503 && error["error"].as_str().unwrap().starts_with(problem), "{error}");
    assert!(again.client(&["function", "delete", "made"]).status.success());
    assert_eq!(again.ask("GET", "/namespaces/_/actions", None), (200, json!([])));
}

#[test]
fn a_state_directory_has_one_daemon() {
    let directory = own_empty_build();
    let directory = directory.path();
    let mut first = daemon(directory);
    let error = refusal(directory, &[]);
    assert!(error.contains(&format!("(process {})", first.child.id())), "{error}");
    first.stop();
    drop(daemon(directory));
}

#[test]
fn what_is_wrong_with_the_state_is_said_and_nothing_is_lost() {
    let directory = own_empty_build();
    let directory = directory.path();
    let state = directory.join("state");
    fs::create_dir(&state).unwrap();
    let actions = state.join("actions.json");
    fs::write(&actions, "{ \"version\": 1, \"actions\": { \"f\"").unwrap();
    let error = refusal(directory, &[]);
    assert!(error.contains("actions.json: ") && error.contains("move it away"), "{error}");
    assert!(fs::read_to_string(&actions).unwrap().ends_with("\"f\""));
    fs::remove_file(&actions).unwrap();

    let database = state.join("squeezy.db");
    fs::write(&database, "not one").unwrap();
    let error = refusal(directory, &[]);
    assert!(error.contains("squeezy.db: ") && error.contains("move it"), "{error}");
    assert_eq!(fs::read(&database).unwrap(), b"not one");
    fs::remove_file(&database).unwrap();

    let function = directory.join("images/f.erofs");
    let error = refusal(directory, &[&function, &function]);
    assert!(error.contains("the function \"f\" exists already"), "{error}");
}

/// What a later version would have done to the number of a database's schema.
const RAISE: &str = "\
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute('PRAGMA user_version = 1000')
database.close()
";

#[test]
fn a_state_of_a_later_version_is_refused_and_stays_as_it_is() {
    let directory = own_empty_build();
    let directory = directory.path();
    let mut first = daemon(directory);
    assert!(first.client(&["namespace", "create", "acme"]).status.success());
    assert!(first.client(&["function", "create", "f", "--name", "made"]).status.success());
    first.stop();
    let files = ["actions.json", "namespaces.json", "squeezy.db"]
        .map(|name| directory.join("state").join(name));
    let all = || files.each_ref().map(|file| fs::read(file).unwrap());
    let own = all();
    for (file, own) in files.iter().zip(&own) {
        if file.ends_with("squeezy.db") {
            let raised = Command::new("python3").args(["-c", RAISE]).arg(file).status();
            assert!(raised.unwrap().success());
        } else {
            let mut later: Value = serde_json::from_slice(own).unwrap();
            later["version"] = json!(1000);
            later["later"] = json!({ "what": "nobody knows yet" });
            fs::write(file, later.to_string()).unwrap();
        }
        let later = all();
        for _ in 0..2 {
            let error = refusal(directory, &[]);
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(error.contains(name) && error.contains("it has version 1000"), "{error}");
            assert!(all() == later, "{name}: something has changed");
        }
        fs::write(file, own).unwrap();
    }
    let again = daemon(directory);
    assert_eq!(again.ask("GET", "/namespaces/_/actions/made", None).0, 200);
    assert_eq!(again.ask("GET", "/namespaces", None), (200, json!(["acme", "guest"])));
}
