//! What only QEMU can be told.

use std::{ffi::OsString, path::PathBuf};

/// What QEMU is started with beside what any VMM is.
#[derive(Clone, Debug)]
pub struct QemuOptions {
    /// The program, `qemu-system-x86_64` unless told otherwise.
    pub program: PathBuf,
    /// Arguments added to its own, for what a test or an experiment needs beside: a device, a second
    /// monitor. They are not checked.
    pub arguments: Vec<OsString>,
}

impl Default for QemuOptions {
    fn default() -> Self {
        Self { program: "qemu-system-x86_64".into(), arguments: Vec::new() }
    }
}
