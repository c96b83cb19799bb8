//! Requests that nobody has thought of, made up by schemathesis from the API's own description: every
//! answer has to be one that the description has.

mod common;

use common::{Daemon, NO_VM, empty_build, python_packages};
use std::{fs, path::Path, process::Command};

/// How requests are made up, and with what.
const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz");

#[test]
fn the_api_is_as_it_is_described() {
    let packages = python_packages("schemathesis", "host/squeezy/tests/fuzz/requirements.txt");
    let Some(schemathesis) = packages else { return };
    let directory = tempfile::tempdir().unwrap();
    let build = directory.path().join("build");
    empty_build(&build);
    // What the description has as an example.
    let images = build.join("images");
    let definition = fs::read_to_string(images.join("f.toml")).unwrap();
    fs::write(images.join("html.toml"), definition.replace("\"f\"", "\"html\"")).unwrap();
    let function = images.join("html.erofs");
    fs::write(&function, "").unwrap();
    let daemon = Daemon::start_in(directory.path(), &build, NO_VM, &[&function]);
    let key = fs::read_to_string(daemon.key_file()).unwrap();
    let mut run = Command::new("python3");
    run.arg(schemathesis.join("bin/schemathesis")).env("PYTHONPATH", &schemathesis);
    run.arg("--config-file").arg(Path::new(OWN).join("schemathesis.toml"));
    run.arg("run").arg(format!("{}/api/v1/api-docs", daemon.url)).args(["--auth", key.trim()]);
    run.arg("--no-color");
    // It leaves what it has found where it runs.
    let output = run.current_dir(&directory).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", report.lines().find(|line| line.contains("generated")).unwrap_or_default());
}
