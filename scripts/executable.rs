//! Scripts that a test writes and runs. Tests of several crates have this file as a module.

use std::{path::Path, process::Command};

/// Writes a shell script that can be run at once. This process must not have it open itself: what another test starts
/// just then has it, too, until it executes its program, and nobody can run it meanwhile ("Text file busy").
pub fn write_script(path: &Path, script: &str) {
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let written = Command::new("sh").args(["-c", write]).arg(path).arg(script).status();
    assert!(written.is_ok_and(|status| status.success()), "cannot write {}", path.display());
}
