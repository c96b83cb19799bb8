//! Clients of OpenWhisk's API that people use, against a real daemon and real VMs: OpenWhisk's own libraries for
//! JavaScript and Go, and Python's requests.

mod common;

use common::{Daemon, build, build_with, python_packages, skip};
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
