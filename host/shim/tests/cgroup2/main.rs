//! The control groups of servers on a kernel with version 2 of these, in a VM: this machine may have version 1.
//!
//! This program is the init of that VM, too, with the libraries that it is linked to: nothing has to be built for it.

mod cases;
mod guest;
mod processes;
#[path = "../single/mod.rs"]
mod single;

use squeezy_vmm::{Artifacts, Kernel, Vm, VmConfig, VmError};
use std::{
    env,
    fs::File,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{runtime::Runtime, time::timeout};

/// How long the VM may take, with others beside it. Alone and emulated it takes some seconds.
const LIMIT: Duration = Duration::from_secs(240);
/// What the guest has, in bytes: the page cache and the processes of [`cases`], and as much again.
const GUEST_BYTES: u64 = 768 << 20;

fn main() -> ExitCode {
    if env::args_os().next().is_some_and(|program| program == guest::PROGRAM) {
        return guest::main();
    }
    single::run("servers_have_control_groups_of_version_2", || {
        Runtime::new().expect("a runtime").block_on(run_in_vm());
        ExitCode::SUCCESS
    })
}

/// Boots the VM, whose guest powers off if all is well, and panics if not.
async fn run_in_vm() {
    let directory = TempDir::new().unwrap();
    let vm = Vm::start(config(directory.path())).await.unwrap();
    let end = timeout(LIMIT, vm.wait()).await;
    if !matches!(end, Ok(VmError::PoweredOff { what: "powered off", .. })) {
        for line in vm.console().tail(usize::MAX) {
            eprintln!("{line}");
        }
        panic!("the guest has not powered off within {LIMIT:?} because all is well: {end:?}");
    }
}

fn config(directory: &Path) -> VmConfig {
    let files =
        Artifacts::find(None).unwrap_or_else(|error| panic!("this test needs a guest: {error}"));
    let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/initramfs.sh"))
        .arg(env::current_exe().unwrap())
        .arg(directory)
        .status();
    assert!(made.unwrap().success(), "there is no initramfs");
    let drive = directory.join("drive");
    File::create(&drive).unwrap().set_len(cases::DRIVE_BYTES).unwrap();
    let mut config =
        VmConfig::new("cgroup2", files.kernel(Kernel::Release), directory.join("initramfs.cpio"));
    config.base_bytes = GUEST_BYTES;
    config.vcpus = 2;
    config.images = vec![drive];
    config.agent = false;
    config
}
