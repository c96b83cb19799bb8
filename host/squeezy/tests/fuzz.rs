//! Requests that nobody has thought of, made up by schemathesis from the API's own description: every
//! answer has to be one that the description has.

mod common;

use common::{Daemon, NO_VM, empty_build, skip};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// How requests are made up, and with what.
const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz");

/// Installs schemathesis, unless it is there from an earlier run.
fn schemathesis() -> Option<PathBuf> {
    let requirements = Path::new(OWN).join("requirements.txt");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis");
    let text = fs::read_to_string(&requirements).unwrap();
    let installed = directory.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|earlier| earlier == text) {
        return Some(directory);
    }
    let _ = fs::remove_dir_all(&directory);
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--root-user-action", "ignore", "--target"]).arg(&directory);
    let Ok(output) = pip.arg("-r").arg(&requirements).output() else {
        skip("there is no python3: apt-get install python3-pip");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(installed, text).unwrap();
    Some(directory)
}

#[test]
fn the_api_is_as_it_is_described() {
    let Some(schemathesis) = schemathesis() else { return };
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
