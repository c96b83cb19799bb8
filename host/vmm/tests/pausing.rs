//! A VM that is paused on request. These tests need `make kernel image`.

mod common;

use common::{LONG, config};
use futures_util::FutureExt;
use squeezy_vmm::Vm;
use std::time::{Duration, Instant};

/// Longer than the supervisor's interval.
const WHILE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_vm_that_was_told_to_pause_stands_still_until_it_is_told_to_go_on() {
    let vm = Vm::start(config("pausing")).await.unwrap();
    let agent = vm.agent().unwrap();
    vm.pause().await.unwrap();
    assert!(vm.is_paused());
    let held = vm.memory().await.unwrap().resident.resident_bytes;
    let asked = tokio::time::timeout(WHILE, agent.info()).await;
    assert!(asked.is_err(), "{asked:?}");
    assert_eq!(vm.ended(), None, "nothing is wrong with it");
    assert_eq!(vm.memory().await.unwrap().resident.resident_bytes, held);
    vm.resume().await.unwrap();
    assert!(!vm.is_paused());
    agent.info().await.unwrap();
    // Doing either twice is not an error.
    vm.resume().await.unwrap();
    for _ in 0..2 {
        vm.pause().await.unwrap();
    }
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn a_vm_is_paused_and_resumed_though_nobody_waits_for_it_any_more() {
    let vm = Vm::start(config("left")).await.unwrap();
    for paused in [true, false] {
        // Begun, and dropped.
        if paused {
            assert!(vm.pause().now_or_never().is_none());
        } else {
            assert!(vm.resume().now_or_never().is_none());
        }
        let changes = async {
            while vm.is_paused() != paused {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, changes).await.unwrap();
    }
    vm.agent().unwrap().info().await.unwrap();
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn a_paused_vm_ends_without_waiting_for_its_guest() {
    let mut config = config("ending");
    config.timeouts.stop = Duration::from_secs(60);
    let vm = Vm::start(config).await.unwrap();
    vm.pause().await.unwrap();
    let start = Instant::now();
    vm.stop().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_paused_vm_whose_vmm_dies_has_ended() {
    let vm = Vm::start(config("dying")).await.unwrap();
    vm.pause().await.unwrap();
    common::signal(vm.process_id(), "KILL");
    assert!(vm.wait().await.to_string().contains("killed by signal 9"));
    assert!(vm.resume().await.is_err());
}
