//! Clients of OpenWhisk's API that people use, against a real daemon and real VMs: OpenWhisk's own libraries for
//! JavaScript and Go, Python's requests, and curl.

mod common;

use common::{Daemon, build, build_with, python_packages, skip};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Runs a client with the address and the key of a new daemon.
#[track_caller]
fn succeeds(build: &Path, client: &mut Command) {
    let daemon = Daemon::start(build, "");
    let key = fs::read_to_string(daemon.key_file()).unwrap();
    client.arg(&daemon.url).arg(key.trim());
    // Not through a proxy of the user's.
    for name in ["PROXY", "HTTP_PROXY", "HTTPS_PROXY"] {
        client.env_remove(name).env_remove(name.to_lowercase());
    }
    assert!(client.status().unwrap().success());
}

fn own(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openwhisk").join(file)
}

#[test]
fn openwhisk_s_own_client_works() {
    let Some(build) = build() else { return };
    if Command::new("npm").arg("--version").output().is_err() {
        return skip("there is no npm: apt-get install npm");
    }
    let directory = tempfile::tempdir().unwrap();
    for file in ["package.json", "package-lock.json", "client.mjs"] {
        fs::copy(own(file), directory.path().join(file)).unwrap();
    }
    let mut install = Command::new("npm");
    install.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]);
    let installed = install.current_dir(&directory).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    succeeds(&build, Command::new("node").arg("client.mjs").current_dir(&directory));
}

#[test]
fn openwhisk_s_client_for_go_works() {
    let Some(build) = build_with("runtime-python") else { return };
    let built = Command::new(own("go/build.sh")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let programs = String::from_utf8(built.stdout).unwrap();
    succeeds(&build, &mut Command::new(Path::new(programs.trim()).join("client")));
}

#[test]
fn a_client_in_python_works() {
    let Some(build) = build_with("runtime-python") else { return };
    let requirements = "host/squeezy/tests/openwhisk/requirements.txt";
    let Some(packages) = python_packages("openwhisk", requirements) else { return };
    let mut client = Command::new("python3");
    succeeds(&build, client.arg(own("client.py")).env("PYTHONPATH", packages));
}

#[test]
fn curl_makes_an_action_and_calls_it_with_the_key_and_at_the_web() {
    let Some(build) = build() else { return };
    let daemon = Daemon::start(&build, "");
    let key = fs::read_to_string(daemon.key_file()).unwrap();
    let asked = |path: &str, arguments: &[&str]| -> Value {
        let mut curl = Command::new("curl");
        // Without what the user has configured, a proxy above all.
        curl.args(["-q", "-sS", "--fail-with-body", "--noproxy", "*", "--max-time", "180"]);
        curl.args(arguments).arg(format!("{}/api/v1/{path}", daemon.url));
        let output = curl.output().expect("curl is installed");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let with_key = |path: &str, method: &str, body: Value| {
        let (body, kind) = (body.to_string(), "Content-Type: application/json");
        asked(path, &["-u", key.trim(), "-X", method, "-H", kind, "-d", &body])
    };
    let exec = json!({ "kind": "blackbox", "image": "html" });
    let exported = json!([{ "key": "web-export", "value": true }]);
    let items = json!([{ "key": "items", "value": 3 }]);
    let page = json!({ "exec": exec, "annotations": exported, "parameters": items });
    let made = with_key("namespaces/_/actions/page", "PUT", page);
    assert_eq!((&made["name"], &made["version"]), (&json!("page"), &json!("0.0.1")), "{made}");
    let call = "namespaces/_/actions/page?blocking=true&result=true";
    assert_eq!(with_key(call, "POST", json!({ "items": 2 }))["items"], 2);
    let web = "web/guest/default/page.json?username=Jane";
    let answer = asked(web, &[]);
    assert!(answer["items"] == 3 && answer["html"].as_str().unwrap().contains("Jane"), "{answer}");
}
