//! Options that only QEMU has.

use std::{ffi::OsString, path::PathBuf};

/// How QEMU is started.
#[derive(Clone, Debug)]
pub struct QemuOptions {
    /// The program; by default `qemu-system-x86_64`.
    pub program: PathBuf,
    /// Additional arguments, such as a device or a second monitor that a test or an experiment
    /// needs. They are not checked.
    pub arguments: Vec<OsString>,
}

impl Default for QemuOptions {
    fn default() -> Self {
        Self { program: "qemu-system-x86_64".into(), arguments: Vec::new() }
    }
}
