//! What systemd says of the unit. `packaging/test.sh` runs it, in a system of its own.

#[path = "../../../scripts/skip.rs"]
mod skip;

use skip::skip;
use std::{fs, path::PathBuf, process::Command};
use tempfile::TempDir;

/// The least exposed a service can be is 0, the most 10, in tenths. The sockets of the API and of QEMU,
/// the devices and the memory that QEMU needs are what is left.
const MOST_EXPOSURE: &str = "19";

/// The unit for the program that was built here.
fn unit(directory: &TempDir) -> PathBuf {
    let text = include_str!("../../../packaging/squeezy.service");
    let program = format!("ExecStart={} ", env!("CARGO_BIN_EXE_squeezy"));
    assert!(text.contains("ExecStart=/usr/bin/squeezy "));
    let unit = directory.path().join("squeezy.service");
    fs::write(&unit, text.replace("ExecStart=/usr/bin/squeezy ", &program)).unwrap();
    unit
}

fn analyze(arguments: &[&str]) {
    let directory = TempDir::new().unwrap();
    let mut command = Command::new("systemd-analyze");
    let Ok(output) = command.args(arguments).arg(unit(&directory)).output() else {
        return skip("there is no systemd-analyze: apt-get install systemd");
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(said, "");
}

#[test]
fn the_unit_makes_sense() {
    analyze(&["verify", "--man=no"]);
}

#[test]
fn the_unit_may_do_little() {
    analyze(&["security", "--no-pager", "--offline=true", "--threshold", MOST_EXPOSURE]);
}
