//! A guest that lacks memory while the host keeps some of it. These tests need `make kernel image`.

mod common;

use common::{
    LONG, config, instance,
    world::{MIB, SIZING},
};
use squeezy_protocol::{ExitReason, Instance, InstanceSpec, InstanceState};
use squeezy_vmm::{
    MemoryBackend, Vm,
    mechanism::{Mechanism, MechanismName},
};
use std::{pin::pin, time::Duration};
use tokio::time::timeout;

/// A VM of which the host keeps the memory of all its instances.
async fn start(name: &str) -> (Vm, Box<dyn Mechanism>) {
    let mechanism = MechanismName::HyperAlloc.mechanism(SIZING).unwrap();
    let mut config = mechanism.configure(config(name));
    config.memory_backend = MemoryBackend::Memfd;
    config.vcpus = 2;
    (Vm::start(config).await.unwrap(), mechanism)
}

async fn ended(vm: &Vm, spec: &InstanceSpec) -> Instance {
    let agent = vm.agent().unwrap();
    timeout(LONG, agent.wait(&spec.id)).await.unwrap().unwrap()
}

#[tokio::test]
async fn who_needs_more_than_the_guest_has_lives_if_the_host_lends_it() {
    let (vm, mechanism) = start("starving").await;
    let agent = vm.agent().unwrap();
    let start = vm.memory().await.unwrap();
    // As much as the guest has, which needs some for itself.
    let size = format!("{}M", start.plugged_bytes / MIB);
    let hog = instance("hog", &["/bin/memhog", &size, "--check", "--exit-after", "500"]);
    agent.start(&hog).await.unwrap();
    let mut lent = 0;
    let mut end = pin!(ended(&vm, &hog));
    let end = loop {
        let wanted = tokio::select! {
            end = &mut end => break end,
            wanted = vm.starved() => wanted,
        };
        assert!(wanted > 0);
        // Counted in any case: the guest may have it, and the hog have ended, before this returns.
        lent += vm.lend(wanted).await.unwrap();
    };
    assert_eq!(end.state, InstanceState::Ended(ExitReason::Exited(0)), "{lent} bytes were lent");
    assert!((2 * MIB..256 * MIB).contains(&lent), "{lent}");
    agent.stop(&hog.id, Duration::ZERO).await.unwrap();

    // It keeps that, whatever it is resized to.
    let memory = vm.memory().await.unwrap();
    assert_eq!(memory.plugged_bytes, start.plugged_bytes + lent);
    assert_eq!(memory.asked_bytes, memory.plugged_bytes);
    let slot = mechanism.slots().take().unwrap();
    mechanism.plug(&vm, slot).await.unwrap();
    let grown = vm.memory().await.unwrap();
    assert_eq!(grown.plugged_bytes, memory.plugged_bytes + SIZING.instance_bytes);
    mechanism.slots().free(slot).unwrap();
    mechanism.reclaim(&vm, slot).await.unwrap();
    assert_eq!(vm.memory().await.unwrap().plugged_bytes, memory.plugged_bytes);
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn who_gets_no_answer_is_killed_and_the_limit_holds() {
    let (vm, _) = start("refused").await;
    let agent = vm.agent().unwrap();
    let start = vm.memory().await.unwrap();
    let size = format!("{}M", start.plugged_bytes / MIB + 64);
    let hog = instance("hog", &["/bin/memhog", &size, "--exit-after", "500"]);
    agent.start(&hog).await.unwrap();
    timeout(LONG, vm.starved()).await.expect("it asks first");
    let end = ended(&vm, &hog).await;
    assert!(!matches!(end.state, InstanceState::Ended(ExitReason::Exited(0))), "{end:?}");
    assert_eq!(vm.memory().await.unwrap().plugged_bytes, start.plugged_bytes);
    vm.stop().await.unwrap();
}
