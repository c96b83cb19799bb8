//! Plugged memory can be used, and unplugged memory is returned to the host.

mod common;

use common::{LONG, config, instance};
use squeezy_protocol::{ExitReason, InstanceState};
use squeezy_vmm::{
    Artifacts, MemoryBackend, Vm, VmError,
    mechanism::{Mechanism, MechanismName, Sizing},
    memory::VirtioMem,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
const SIZING: Sizing = Sizing { instance_bytes: 256 * MIB, instances: 2, shared_bytes: 64 * MIB };

/// Plugs memory for an instance that uses most of it, ends the instance, reclaims, and measures on
/// the host.
async fn plug_use_and_reclaim(name: MechanismName, backend: MemoryBackend) {
    let mechanism = name.mechanism(SIZING).unwrap();
    let mut config = mechanism.configure(config("resizing"));
    config.kernel = Artifacts::find(None).unwrap().kernel(mechanism.kernel());
    config.memory_backend = backend;
    config.count_device_requests = true;
    let vm = Vm::start(config).await.unwrap();
    let agent = vm.agent().unwrap();
    let start = vm.memory().await.unwrap();
    assert_eq!(start.asked_bytes, start.plugged_bytes);

    let slot = mechanism.slots().take().unwrap();
    let resize = mechanism.plug(&vm, slot).await.unwrap().unwrap();
    assert_eq!(resize.plugged_bytes - resize.before_bytes, SIZING.instance_bytes);
    assert!(resize.latency > Duration::ZERO);
    let plugged = Instant::now();
    let mut hog = instance("hog", &["/bin/memhog", "200M", "--exit-after", "1"]);
    hog.wait_ms = 30_000;
    mechanism.place(slot, &mut hog);
    agent.start(&hog).await.unwrap();
    let ended = tokio::time::timeout(LONG, agent.wait(&hog.id)).await.unwrap().unwrap();
    assert_eq!(
        ended.state,
        InstanceState::Ended(ExitReason::Exited(0)),
        "{}",
        agent.log(&hog.id).await.unwrap()
    );
    agent.stop(&hog.id, Duration::ZERO).await.unwrap();
    let used = vm.memory().await.unwrap();
    let grown = used.resident.resident_bytes - start.resident.resident_bytes;
    assert!(grown > 190 * MIB, "{grown}");

    // By then, QEMU has reported what it delayed of the plug, by a second, and another one has passed after that.
    tokio::time::sleep(Duration::from_secs(4).saturating_sub(plugged.elapsed())).await;
    mechanism.slots().free(slot).unwrap();
    let reclaimed = mechanism.reclaim(&vm, slot).await.unwrap().unwrap();
    assert_eq!(reclaimed.before_bytes - reclaimed.plugged_bytes, SIZING.instance_bytes);
    let end = vm.memory().await.unwrap();
    assert_eq!(end.plugged_bytes, start.plugged_bytes);
    assert_eq!(end.asked_bytes, start.asked_bytes);
    let kept = end.resident.resident_bytes.saturating_sub(start.resident.resident_bytes);
    assert!(kept < 100 * MIB, "{name} on {backend}: {kept} of {grown} bytes are still resident");
    match name {
        MechanismName::Balloon => assert_eq!(reclaimed.device, None),
        MechanismName::Squeezy => {
            assert_eq!(reclaimed.device.unwrap().unplug, 1);
            // QEMU reports the change immediately; polling would only delay it.
            assert!(
                u128::from(reclaimed.polls) <= reclaimed.latency.as_millis() / 5,
                "{reclaimed:?}"
            );
        }
        _ => assert!(reclaimed.device.unwrap().unplug > 0),
    }
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn virtio_mem_on_anonymous_memory() {
    plug_use_and_reclaim(MechanismName::VirtioMem, MemoryBackend::Ram).await;
}

#[tokio::test]
async fn virtio_mem_on_a_memfd() {
    plug_use_and_reclaim(MechanismName::VirtioMem, MemoryBackend::Memfd).await;
}

#[tokio::test]
async fn partitions_on_anonymous_memory() {
    plug_use_and_reclaim(MechanismName::Squeezy, MemoryBackend::Ram).await;
}

#[tokio::test]
async fn partitions_on_a_memfd() {
    plug_use_and_reclaim(MechanismName::Squeezy, MemoryBackend::Memfd).await;
}

#[tokio::test]
#[ignore = "a kernel of its own, in make stress"]
async fn nodes_on_anonymous_memory() {
    plug_use_and_reclaim(MechanismName::Numa, MemoryBackend::Ram).await;
}

#[tokio::test]
async fn a_partition_in_use_blocks_its_reclaim_with_the_reason_until_it_is_free() {
    let mechanism = MechanismName::Squeezy.mechanism(SIZING).unwrap();
    let mut config = mechanism.configure(config("blocked"));
    // It has to grow in this time, too.
    config.timeouts.resize = Duration::from_secs(15);
    let vm = Vm::start(config).await.unwrap();
    let agent = vm.agent().unwrap();
    let slot = mechanism.slots().take().unwrap();
    mechanism.plug(&vm, slot).await.unwrap();
    let mut sleeper = instance("sleeper", &["/bin/sleep", "1000"]);
    mechanism.place(slot, &mut sleeper);
    agent.start(&sleeper).await.unwrap();
    mechanism.slots().free(slot).unwrap();
    let error = mechanism.reclaim(&vm, slot).await.unwrap_err();
    assert!(
        matches!(&error, VmError::Resize { reason, .. } if reason.contains("assigned 1")),
        "{error}"
    );
    let owed = vm.memory().await.unwrap();
    assert_eq!(owed.plugged_bytes - owed.asked_bytes, SIZING.instance_bytes);

    // The request stands and need not be repeated.
    agent.stop(&sleeper.id, Duration::ZERO).await.unwrap();
    let done = async {
        while vm.memory().await.unwrap().plugged_bytes != owed.asked_bytes {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, done).await.unwrap();
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn balloon_on_anonymous_memory() {
    plug_use_and_reclaim(MechanismName::Balloon, MemoryBackend::Ram).await;
}

#[tokio::test]
async fn a_resize_that_is_overtaken_ends_with_the_later_one() {
    let mut config = config("overtaken");
    config.memory = Arc::new(VirtioMem { region_bytes: 512 * MIB, initial_bytes: 512 * MIB });
    let vm = Vm::start(config).await.unwrap();
    let both = async { tokio::join!(vm.resize(0), vm.resize(256 * MIB), vm.resize(384 * MIB)) };
    let (first, second, third) = tokio::time::timeout(LONG, both).await.unwrap();
    let last = third.unwrap();
    assert_eq!(last.plugged_bytes, 384 * MIB);
    assert!(first.unwrap().requested_bytes == 0 && second.is_ok());
    assert_eq!(vm.memory().await.unwrap().plugged_bytes, vm.config().base_bytes + 384 * MIB);
    vm.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_come_and_go_at_once_leave_the_right_size() {
    let sizing = Sizing { instance_bytes: 128 * MIB, instances: 4, shared_bytes: 64 * MIB };
    let mechanism: Arc<dyn Mechanism> = MechanismName::VirtioMem.mechanism(sizing).unwrap().into();
    let vm = Arc::new(Vm::start(mechanism.configure(config("busy"))).await.unwrap());
    let start = vm.memory().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (mechanism, vm) = (mechanism.clone(), vm.clone());
        tasks.spawn(async move {
            for _ in 0..3 {
                let slot = mechanism.slots().take().unwrap();
                mechanism.plug(&vm, slot).await.unwrap();
                mechanism.slots().free(slot).unwrap();
                mechanism.reclaim(&vm, slot).await.unwrap();
            }
        });
    }
    tokio::time::timeout(LONG, tasks.join_all()).await.unwrap();
    let end = vm.memory().await.unwrap();
    assert_eq!((end.asked_bytes, end.plugged_bytes), (start.asked_bytes, start.plugged_bytes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_come_or_go_at_once_are_one_request() {
    let sizing = Sizing { instance_bytes: 128 * MIB, instances: 6, shared_bytes: 0 };
    let mechanism: Arc<dyn Mechanism> = MechanismName::Squeezy.mechanism(sizing).unwrap().into();
    let vm = Arc::new(Vm::start(mechanism.configure(config("together"))).await.unwrap());
    let requests = async || {
        let memory = vm.agent().unwrap().memory().await.unwrap();
        memory.squeezy.unwrap().counters["device_requests"]
    };
    // The first plug of a partition takes another path than later ones.
    for round in 0..3 {
        let before = requests().await;
        let slots: Vec<_> = (0..6).map(|_| mechanism.slots().take().unwrap()).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for &slot in &slots {
            let (mechanism, vm) = (mechanism.clone(), vm.clone());
            tasks.spawn(async move { mechanism.plug(&vm, slot).await.unwrap() });
        }
        tasks.join_all().await;
        assert_eq!(requests().await - before, 1, "plugs of round {round}");
        let mut tasks = tokio::task::JoinSet::new();
        for &slot in &slots {
            mechanism.slots().free(slot).unwrap();
        }
        for slot in slots {
            let (mechanism, vm) = (mechanism.clone(), vm.clone());
            tasks.spawn(async move { mechanism.reclaim(&vm, slot).await.unwrap() });
        }
        tasks.join_all().await;
        assert_eq!(requests().await - before, 2, "reclaims of round {round}");
    }
}

#[tokio::test]
async fn fixed_memory_stays() {
    let mechanism = MechanismName::Static.mechanism(SIZING).unwrap();
    let vm = Vm::start(mechanism.configure(config("fixed"))).await.unwrap();
    let all = vm.config().base_bytes + 2 * SIZING.instance_bytes + SIZING.shared_bytes;
    assert_eq!(vm.memory().await.unwrap().plugged_bytes, all);
    assert!(matches!(vm.resize(0).await, Err(VmError::NotResizable(_))));
    let slot = mechanism.slots().take().unwrap();
    assert_eq!(mechanism.plug(&vm, slot).await.unwrap(), None);
    mechanism.slots().free(slot).unwrap();
    assert_eq!(mechanism.reclaim(&vm, slot).await.unwrap(), None);
    let times = vm.cpu_times().unwrap();
    assert!(times.vcpus_ns > 100_000_000 && times.devices_ns > 0, "{times:?}");
    vm.stop().await.unwrap();
}
