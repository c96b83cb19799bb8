//! The host takes free memory out of a guest by itself. These tests need `make kernel image`.

mod common;

use common::{
    LONG, config, instance,
    world::{MIB, SIZING, World},
};
use squeezy_protocol::{ExitReason, InstanceState};
use squeezy_vmm::{Grain, MemoryBackend, MemoryUse, Vm, mechanism::MechanismName};
use std::time::Duration;

/// What a runtime's garbage collector frees is scattered over areas that are in use.
#[tokio::test]
async fn single_pages_of_a_frozen_instance_go_back_and_its_data_stays() {
    let world = World::start(2).await;
    let agent = world.vm.agent().unwrap();
    let mut hog = instance(
        "hog",
        &["/bin/memhog", "200M", "--keep-every=2", "--check", "--retouch=100", "--port=8080"],
    );
    hog.port = Some(8080);
    let (_, partition) = world.run(hog.clone()).await;
    agent.freeze(&hog.id).await.unwrap();
    let before = world.resident(partition).await;
    assert!(before > 200 * MIB, "{before}");

    let areas = world.vm.take_free(partition, Grain::Area).await.unwrap();
    assert!(areas.bytes < 10 * MIB, "there are hardly any: {areas:?}");
    let pages = world.vm.take_free(partition, Grain::Page).await.unwrap();
    let after = world.resident(partition).await;
    assert!(pages.bytes > 95 * MIB, "{pages:?}");
    assert_eq!(before - after, areas.bytes + pages.bytes);
    let again = world.vm.take_free(partition, Grain::Page).await.unwrap();
    assert_eq!(again.bytes, 0, "there is nothing left");

    // It goes on with what it has.
    let request = http::Request::get("/").body(bytes::Bytes::new()).unwrap();
    agent.http(&hog.id, request, Duration::from_secs(30)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(agent.instance(&hog.id).await.unwrap().state, InstanceState::Running);
    let log = agent.log(&hog.id).await.unwrap();
    assert!(!log.contains("lost"), "{log}");
    // Others are not concerned.
    let more = ["/bin/memhog", "10M", "--check", "--exit-after", "500"];
    let more = instance("more", &more);
    let (_, other) = world.run(more.clone()).await;
    assert_ne!(other, partition);
    assert_eq!(world.ended(&more).await.state, InstanceState::Ended(ExitReason::Exited(0)));
    world.vm.stop().await.unwrap();
}

/// One that runs would lose its huge pages, and somebody may wait for its memory.
#[tokio::test]
async fn single_pages_are_swept_from_a_paused_vm_only() {
    let world = World::start(2).await;
    let hog = instance("hog", &["/bin/memhog", "200M", "--keep-every=2"]);
    world.run(hog.clone()).await;
    let swept = async || {
        world.vm.sweep(Grain::Page).await.unwrap();
        world.vm.memory().await.unwrap().swept_bytes
    };
    let running = swept().await;
    assert!(running < 20 * MIB, "{running}");
    world.vm.pause().await.unwrap();
    let paused = swept().await;
    assert!(paused > running + 95 * MIB, "{paused}");
    world.vm.resume().await.unwrap();
    world.vm.stop().await.unwrap();
}

/// The instance checks its data all the time while the host works on the memory around it.
#[tokio::test]
async fn a_running_instance_loses_nothing() {
    let world = World::start(2).await;
    let agent = world.vm.agent().unwrap();
    let hog =
        instance("hog", &["/bin/memhog", "150M", "--keep-every", "3", "--check", "--retouch", "5"]);
    let (_, partition) = world.run(hog.clone()).await;
    let mut sum = 0;
    for round in 0..20 {
        // Its memory comes and goes.
        let id = format!("visitor{round}");
        let visitor = instance(&id, &["/bin/memhog", "40M", "--check", "--exit-after", "200"]);
        agent.start(&visitor).await.unwrap();
        for grain in [Grain::Area, Grain::Page, Grain::Page] {
            sum += world.vm.take_free(partition, grain).await.unwrap().bytes;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(world.ended(&visitor).await.state, InstanceState::Ended(ExitReason::Exited(0)));
        agent.stop(&visitor.id, Duration::ZERO).await.unwrap();
    }
    assert!(sum > 90 * MIB, "{sum}");
    assert_eq!(agent.instance(&hog.id).await.unwrap().state, InstanceState::Running);
    world.vm.stop().await.unwrap();
}

#[tokio::test]
async fn an_instance_that_has_ended_is_on_the_host_before_its_partition_is_unplugged() {
    // With one processor, too.
    let world = World::start(1).await;
    let agent = world.vm.agent().unwrap();
    let hog = instance("hog", &["/bin/memhog", "200M", "--exit-after", "10"]);
    let (slot, partition) = world.run(hog.clone()).await;
    world.ended(&hog).await;
    agent.stop(&hog.id, Duration::ZERO).await.unwrap();
    // Even if the guest cannot do anything.
    world.vm.pause().await.unwrap();
    let before = world.resident(partition).await;
    assert!(before > 190 * MIB, "{before}");
    let areas = world.vm.take_free(partition, Grain::Area).await.unwrap();
    assert!(areas.bytes > 190 * MIB, "{areas:?}");
    assert_eq!(world.resident(partition).await, before - areas.bytes);
    world.vm.resume().await.unwrap();

    world.mechanism.slots().free(slot).unwrap();
    let reclaimed = world.mechanism.reclaim(&world.vm, slot).await.unwrap().unwrap();
    assert_eq!(reclaimed.before_bytes - reclaimed.plugged_bytes, SIZING.instance_bytes);
    assert_eq!(world.resident(partition).await, 0);

    // And the partition serves the next one.
    let next = instance("next", &["/bin/memhog", "200M", "--check", "--exit-after", "10"]);
    world.run(next.clone()).await;
    assert_eq!(world.ended(&next).await.state, InstanceState::Ended(ExitReason::Exited(0)));
    world.vm.stop().await.unwrap();
}

/// What the peak of an instance leaves behind goes back while the instance runs on.
#[tokio::test]
async fn what_a_running_instance_has_freed_goes_back_by_itself() {
    let world = World::start_with(2, Some(Duration::from_secs(1))).await;
    let arguments = ["/bin/memhog", "200M", "--keep-every=16384", "--check", "--retouch=50"];
    let hog = instance("hog", &arguments);
    let (_, partition) = world.run(hog.clone()).await;
    let mut memory = world.vm.memory().await.unwrap();
    for _ in 0..1800 {
        // It is counted when the sweep has ended, after it has gone.
        if world.resident(partition).await < 50 * MIB && memory.swept_bytes > 140 * MIB {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        memory = world.vm.memory().await.unwrap();
    }
    assert!(world.resident(partition).await < 50 * MIB);
    assert!(memory.swept_bytes > 140 * MIB && !memory.sweeps_took.is_zero(), "{memory:?}");
    let agent = world.vm.agent().unwrap();
    assert_eq!(agent.instance(&hog.id).await.unwrap().state, InstanceState::Running);
    world.vm.stop().await.unwrap();
}

/// So it is with a VM without partitions, and it keeps its size.
#[tokio::test]
async fn what_a_vm_that_the_host_resizes_has_free_goes_back_by_itself() {
    let mechanism = MechanismName::HyperAlloc.mechanism(SIZING).unwrap();
    let mut config = mechanism.configure(config("swept"));
    config.memory_backend = MemoryBackend::Memfd;
    config.take_free_every = Some(Duration::from_secs(1));
    let vm = Vm::start(config).await.unwrap();
    let agent = vm.agent().unwrap();
    mechanism.plug(&vm, mechanism.slots().take().unwrap()).await.unwrap();
    let before = vm.memory().await.unwrap();
    let hog = instance("hog", &["/bin/memhog", "200M", "--check", "--exit-after", "500"]);
    agent.start(&hog).await.unwrap();
    let wait = agent.wait(&hog.id);
    let ended = tokio::time::timeout(LONG, wait).await.unwrap().unwrap();
    assert_eq!(ended.state, InstanceState::Ended(ExitReason::Exited(0)));

    let mut memory = vm.memory().await.unwrap();
    let left = |memory: &MemoryUse| {
        memory.resident.resident_bytes.saturating_sub(before.resident.resident_bytes)
    };
    for _ in 0..1800 {
        // What was swept before, or while the hog still had a part of its memory, counts, too.
        if memory.swept_bytes > 140 * MIB && left(&memory) < 100 * MIB {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        memory = vm.memory().await.unwrap();
    }
    assert!(memory.swept_bytes > 140 * MIB, "{memory:?}");
    assert!(left(&memory) < 100 * MIB, "{} bytes are left", left(&memory));
    assert_eq!(memory.plugged_bytes, before.plugged_bytes);
    vm.stop().await.unwrap();
}

/// The whole VM: the host takes what instances do not need, and gives it back.
#[tokio::test]
async fn a_vm_shrinks_and_grows_without_its_guest() {
    let mechanism = MechanismName::HyperAlloc.mechanism(SIZING).unwrap();
    let mut config = mechanism.configure(config("shrinking"));
    config.memory_backend = MemoryBackend::Memfd;
    config.vcpus = 2;
    let vm = Vm::start(config).await.unwrap();
    let agent = vm.agent().unwrap();
    let start = vm.memory().await.unwrap();
    assert_eq!(start.asked_bytes, start.plugged_bytes);

    let slot = mechanism.slots().take().unwrap();
    let grown = mechanism.plug(&vm, slot).await.unwrap().unwrap();
    assert_eq!(grown.plugged_bytes - grown.before_bytes, SIZING.instance_bytes);
    let hog = instance("hog", &["/bin/memhog", "200M", "--check", "--exit-after", "500"]);
    agent.start(&hog).await.unwrap();
    let wait = agent.wait(&hog.id);
    let ended = tokio::time::timeout(LONG, wait).await.unwrap().unwrap();
    assert_eq!(ended.state, InstanceState::Ended(ExitReason::Exited(0)));
    agent.stop(&hog.id, Duration::ZERO).await.unwrap();
    let used = vm.memory().await.unwrap();
    assert!(used.resident.resident_bytes > start.resident.resident_bytes + 190 * MIB, "{used:?}");

    // Even if its guest cannot do anything.
    vm.pause().await.unwrap();
    mechanism.slots().free(slot).unwrap();
    let shrunk = mechanism.reclaim(&vm, slot).await.unwrap().unwrap();
    vm.resume().await.unwrap();
    assert_eq!(shrunk.before_bytes - shrunk.plugged_bytes, SIZING.instance_bytes);
    let end = vm.memory().await.unwrap();
    assert_eq!(end.plugged_bytes, start.plugged_bytes);
    let left = end.resident.resident_bytes.saturating_sub(start.resident.resident_bytes);
    assert!(left < 100 * MIB, "{left} bytes are left");

    // A size that the guest cannot work with is refused, and the VM lives on.
    let all = vm.resize(0).await.unwrap();
    assert_eq!(all.plugged_bytes, 0);
    let next = instance("next", &["/bin/memhog", "20M", "--check", "--exit-after", "100"]);
    agent.start(&next).await.unwrap();
    let wait = agent.wait(&next.id);
    tokio::time::timeout(LONG, wait).await.unwrap().unwrap();
    vm.stop().await.unwrap();
}
