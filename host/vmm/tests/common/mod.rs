//! Helpers that the tests share: a small VM, and waiting with a limit.

#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../../scripts/executable.rs"]
mod executable;
pub mod memory;
pub mod world;

use executable::write_script;
use squeezy_protocol::InstanceSpec;
use squeezy_vmm::{AcceleratorChoice, Artifacts, Kernel, VmConfig};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Longer than anything takes that is not stuck, however busy the host is.
pub const LONG: Duration = Duration::from_secs(180);

/// A VM from the artifacts of `make kernel image`.
pub fn config(name: &str) -> VmConfig {
    let files = Artifacts::find(None).unwrap_or_else(|e| panic!("this test needs a guest: {e}"));
    let mut config = VmConfig::new(name, files.kernel(Kernel::Release), files.initramfs());
    config.accelerator = AcceleratorChoice::Tcg;
    config
}

/// An instance that runs a program of the initramfs.
pub fn instance(id: &str, command: &[&str]) -> InstanceSpec {
    let command = command.iter().map(ToString::to_string).collect();
    InstanceSpec::new(id.parse().unwrap(), command)
}

/// A shell script to run instead of QEMU.
pub fn wrapper(directory: &Path, script: &str) -> PathBuf {
    let path = directory.join("qemu");
    write_script(&path, script);
    path
}

/// Whether a process exists and is not a zombie.
pub fn alive(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits for `done`, for at most `limit`.
pub fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Sends a signal to a process that this test has started.
pub fn signal(process: u32, name: &str) {
    let status =
        std::process::Command::new("kill").args(["-s", name, &process.to_string()]).status();
    assert!(status.unwrap().success());
}
