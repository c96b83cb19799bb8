//! A guest that uses memory that the host keeps. This test needs `make kernel image`.

mod common;

use common::{
    alive, config,
    memory::{files, resident, touch_what_is_not_there},
    world::{MIB, SIZING},
};
use squeezy_vmm::{Vm, VmError, mechanism::MechanismName};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longer than it takes the host to look.
const LOOKED: Duration = Duration::from_secs(3);

#[tokio::test]
async fn who_uses_what_the_host_keeps_is_warned_once_and_then_ended() {
    let mechanism = MechanismName::HyperAlloc.mechanism(SIZING).unwrap();
    let vm = Vm::start(mechanism.configure(config("greedy"))).await.unwrap();
    let files = files("greedy");
    let [file] = &files[..] else { panic!("{files:?}") };
    let kept_areas = usize::from(SIZING.instances) * (SIZING.instance_bytes / (2 * MIB)) as usize;
    // A guest that keeps the rules lives.
    sleep(LOOKED).await;
    assert!(touch_what_is_not_there(file) >= kept_areas);
    sleep(LOOKED).await;
    assert_eq!(vm.ended(), None);
    let again = touch_what_is_not_there(file);
    assert!(again >= kept_areas, "the host has taken it back: {again}");
    let error = timeout(2 * LOOKED, vm.wait()).await.unwrap();
    assert!(matches!(error, VmError::LimitBroken { bytes } if bytes >= 4096), "{error}");
    assert_eq!((resident(&files), alive(vm.process_id())), (0, false));
}
