//! A VM that has ended has left nothing on the host, whoever keeps its handle. These tests need `make kernel image`.

mod common;

use common::{
    LONG, alive, config,
    memory::{files, resident},
    signal,
};
use squeezy_vmm::{MemoryBackend, Vm, VmConfig, VmError};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn in_files(name: &str) -> VmConfig {
    let mut config = config(name);
    config.memory_backend = MemoryBackend::Memfd;
    config
}

#[tokio::test]
async fn a_vm_that_is_stopped() {
    let vm = Vm::start(in_files("stopped")).await.unwrap();
    let files = files("stopped");
    assert!(resident(&files) > 16 * MIB, "{}", resident(&files));
    vm.stop().await.unwrap();
    assert_eq!(resident(&files), 0);
    assert_eq!(vm.ended(), Some(VmError::Stopped));
}

#[tokio::test]
async fn a_vm_whose_vmm_is_killed() {
    let vm = Vm::start(in_files("murdered")).await.unwrap();
    let files = files("murdered");
    signal(vm.process_id(), "KILL");
    // Whoever hears of it first, by a call.
    let error = vm.agent().unwrap().info().await.unwrap_err();
    assert_eq!(resident(&files), 0, "{error}");
    assert!(matches!(&error, VmError::Died { .. }), "{error}");
    assert_eq!(vm.ended(), Some(error));
}

#[tokio::test]
async fn a_vm_whose_guest_panics() {
    let mut config = in_files("panicked");
    config.agent = false;
    config.command_line.push("rdinit=/none root=/dev/none".into());
    let vm = Vm::start(config).await.unwrap();
    let files = files("panicked");
    let error = tokio::time::timeout(LONG, vm.wait()).await.unwrap();
    assert_eq!((resident(&files), alive(vm.process_id())), (0, false));
    assert!(matches!(error, VmError::Panicked(_)), "{error}");
}

#[tokio::test]
async fn a_vm_that_hangs() {
    let mut config = in_files("hanging");
    config.timeouts.hang = Duration::from_secs(4);
    let vm = Vm::start(config).await.unwrap();
    let files = files("hanging");
    signal(vm.process_id(), "STOP");
    let error = tokio::time::timeout(LONG, vm.wait()).await.unwrap();
    assert_eq!((resident(&files), alive(vm.process_id())), (0, false));
    assert!(matches!(error, VmError::Hung(_)), "{error}");
}

#[tokio::test]
async fn a_vm_that_does_not_get_ready() {
    let mut config = in_files("unready");
    config.command_line.push("rdinit=/bin/sleep -- 1000".into());
    config.timeouts.boot = Duration::from_secs(4);
    let starting = tokio::spawn(Vm::start(config));
    let files = loop {
        let files = files("unready");
        if resident(&files) > 0 {
            break files;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let error = starting.await.unwrap().err().unwrap();
    assert_eq!(resident(&files), 0);
    assert!(matches!(error, VmError::AgentLate { .. }), "{error}");
}
