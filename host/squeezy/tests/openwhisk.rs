//! OpenWhisk's published JavaScript client against a real daemon and a real VM.

mod common;

use common::{Daemon, build, skip};
use std::{fs, path::Path, process::Command};

#[test]
fn openwhisk_s_own_client_works() {
    let Some(build) = build() else { return };
    if Command::new("npm").arg("--version").output().is_err() {
        return skip("there is no npm: apt-get install npm");
    }
    let directory = tempfile::tempdir().unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openwhisk");
    for file in ["package.json", "package-lock.json", "client.mjs"] {
        fs::copy(own.join(file), directory.path().join(file)).unwrap();
    }
    let mut install = Command::new("npm");
    install.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]);
    let installed = install.current_dir(&directory).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));

    let daemon = Daemon::start(&build, "");
    let key = fs::read_to_string(daemon.key_file()).unwrap();
    let mut client = Command::new("node");
    client.arg("client.mjs").arg(&daemon.url).arg(key.trim()).current_dir(&directory);
    // Not through a proxy of the user's.
    for name in ["PROXY", "HTTP_PROXY", "HTTPS_PROXY"] {
        client.env_remove(name).env_remove(name.to_lowercase());
    }
    assert!(client.status().unwrap().success());
}
