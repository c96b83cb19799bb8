//! A guest that uses memory that the host keeps. These tests need `make kernel image`.

mod common;

use common::{
    LONG, alive, config,
    memory::{AREA_BYTES, empty_areas, files, resident, touch},
    world::SIZING,
};
use squeezy_vmm::{MemoryBackend, Vm, VmError, mechanism::MechanismName};
use std::{fs::File, time::Duration};
use tokio::time::{sleep, timeout};

const KEPT_BYTES: u64 = SIZING.instances as u64 * SIZING.instance_bytes;

/// A VM of which the host keeps some memory, and the file of all its memory.
async fn start(name: &str) -> (Vm, File) {
    let mechanism = MechanismName::HyperAlloc.mechanism(SIZING).unwrap();
    let mut config = mechanism.configure(config(name));
    config.memory_backend = MemoryBackend::Memfd;
    let vm = Vm::start(config).await.unwrap();
    let Ok([file]) = <[File; 1]>::try_from(files(name)) else { panic!("one file") };
    wait_until("the host keeps it", || has_taken_all(&file)).await;
    (vm, file)
}

/// Whether there is nothing in what the host keeps.
fn has_taken_all(file: &File) -> bool {
    empty_areas(file).len() as u64 >= KEPT_BYTES / AREA_BYTES
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn who_uses_much_of_what_the_host_keeps_is_warned_once_and_then_ended() {
    /// 24 MiB of what is kept. If the host looks in the middle of it, no more than one part of it is too much.
    const BYTES_OF_EACH: usize = (24 << 20) / (KEPT_BYTES / AREA_BYTES) as usize;
    let (vm, file) = start("greedy").await;
    // A guest that keeps the rules lives.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(vm.ended(), None);
    touch(&file, &empty_areas(&file), BYTES_OF_EACH);
    wait_until("the host takes it back", || has_taken_all(&file)).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(vm.ended(), None);
    let uses_it = async {
        loop {
            touch(&file, &empty_areas(&file), BYTES_OF_EACH);
            // Longer than the end of a VM takes: nobody touches its memory after that.
            sleep(LONG / 6).await;
        }
    };
    let error = tokio::select! {
        error = timeout(LONG, vm.wait()) => error.unwrap(),
        () = uses_it => unreachable!(),
    };
    assert!(matches!(error, VmError::LimitBroken { bytes } if bytes > 16 << 20), "{error}");
    assert!(!alive(vm.process_id()));
    assert_eq!(resident(&[file]), 0);
}

/// A kernel reads a few bytes past the end of a page.
#[tokio::test]
async fn who_touches_an_area_again_and_again_lives_and_gets_nothing() {
    let (vm, file) = start("stray").await;
    let empty = empty_areas(&file);
    // Nearly all of them are kept.
    let area = empty[empty.len() / 2];
    let swept = async || vm.memory().await.unwrap().swept_bytes;
    for _ in 0..4 {
        let before = swept().await;
        touch(&file, &[area], AREA_BYTES as usize);
        wait_until("the host takes it back", || empty_areas(&file).contains(&area)).await;
        timeout(LONG, async {
            // The host may look in the middle of it, and discard more than it has counted.
            while swept().await == before {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .expect("it is counted");
    }
    assert_eq!(vm.ended(), None);
    vm.stop().await.unwrap();
}
