//! Checks the unit with systemd's tools. `packaging/test.sh` runs it, in a system of its own.

#[path = "../../../scripts/skip.rs"]
mod skip;

use skip::skip;
use std::{fs, path::PathBuf, process::Command};
use tempfile::TempDir;

/// The maximum exposure that systemd-analyze may report, in tenths, from 0 (least) to 100. What
/// remains are the sockets of the API and of QEMU, the devices and the memory that QEMU needs, one call of the group
/// for debuggers, `pidfd_getfd`, and the namespaces in which images are pulled and unpacked.
const MOST_EXPOSURE: &str = "30";

/// Writes the unit for the program built here.
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
