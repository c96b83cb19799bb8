//! The host discards the memory of an instance in a paused VM, and the instance is killed. These tests need
//! `make kernel image`.

mod common;

use bytes::Bytes;
use common::{
    config, instance,
    world::{MIB, SIZING, World},
};
use squeezy_protocol::{ErrorCode, ExitReason, InstanceSpec, InstanceState};
use squeezy_vmm::{
    AgentClient, Result, Vm, VmError,
    mechanism::{Mechanism, MechanismName},
};
use std::{sync::Arc, time::Duration};

/// An instance that looks at its memory all the time, and answers requests.
fn hog(id: &str, size: &str) -> InstanceSpec {
    let command = ["/bin/memhog", size, "--check", "--retouch=20", "--port=8080"];
    InstanceSpec { port: Some(8080), ..instance(id, &command) }
}

async fn ask(agent: &AgentClient, hog: &InstanceSpec) -> Result<u16> {
    let request = http::Request::get("/").body(Bytes::new()).unwrap();
    let answer = agent.http(&hog.id, request, Duration::from_secs(30)).await?;
    Ok(answer.status().as_u16())
}

/// Panics unless it lives and all its memory is as it was.
async fn assert_whole(agent: &AgentClient, hog: &InstanceSpec) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(agent.instance(&hog.id).await.unwrap().state, InstanceState::Running);
    let log = agent.log(&hog.id).await.unwrap();
    assert!(!log.contains("lost"), "{log}");
}

/// Waits until nothing is left of it, which takes a moment.
async fn assert_gone(agent: &AgentClient, hog: &InstanceSpec) {
    for _ in 0..1800 {
        if let Err(VmError::Agent { code: ErrorCode::NotFound, .. }) = agent.instance(&hog.id).await
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{} is still there", hog.id);
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T>, part: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[tokio::test]
async fn a_condemned_instance_is_killed_and_nobody_else_notices() {
    let world = World::start(2).await;
    let agent = world.vm.agent().unwrap();
    let (doomed, neighbour) = (hog("doomed", "200M"), hog("neighbour", "100M"));
    let (slot, partition) = world.run(doomed.clone()).await;
    let (_, other) = world.run(neighbour.clone()).await;
    assert_refused(agent.doom(&doomed.id).await, "not frozen");
    agent.freeze(&doomed.id).await.unwrap();
    agent.doom(&doomed.id).await.unwrap();
    assert_refused(world.vm.condemn(partition).await, "not paused");

    let end = tokio::spawn({
        let (agent, id) = (agent.clone(), doomed.id.clone());
        async move { agent.wait(&id).await }
    });
    world.vm.pause().await.unwrap();
    let before = world.resident(partition).await;
    assert!(before > 200 * MIB, "{before}");
    assert_refused(world.vm.condemn(other).await, "not doomed");
    assert_eq!(world.vm.condemn(partition).await.unwrap(), before);
    assert_eq!(world.resident(partition).await, 0);
    world.vm.resume().await.unwrap();

    assert_eq!(end.await.unwrap().unwrap().state, InstanceState::Ended(ExitReason::Stopped));
    assert_gone(agent, &doomed).await;
    assert_whole(agent, &neighbour).await;
    assert_eq!(ask(agent, &neighbour).await.unwrap(), 200);

    // Its death has brought next to nothing back.
    let after = world.resident(partition).await;
    assert!(after < MIB, "{after}");
    world.mechanism.slots().free(slot).unwrap();
    let reclaimed = world.mechanism.reclaim(&world.vm, slot).await.unwrap().unwrap();
    assert_eq!(reclaimed.before_bytes - reclaimed.plugged_bytes, SIZING.instance_bytes);
    // And the partition serves the next one, which is nobody's to condemn.
    let next = instance("next", &["/bin/memhog", "200M", "--check", "--exit-after", "10"]);
    let (_, same) = world.run(next.clone()).await;
    assert_eq!(same, partition);
    world.vm.pause().await.unwrap();
    assert_refused(world.vm.condemn(same).await, "not doomed");
    world.vm.resume().await.unwrap();
    assert_eq!(world.ended(&next).await.state, InstanceState::Ended(ExitReason::Exited(0)));
    world.vm.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_not_condemned_lives_on() {
    let world = World::start(2).await;
    let agent = world.vm.agent().unwrap();
    let hog = hog("hog", "150M");
    let (_, partition) = world.run(hog.clone()).await;
    agent.freeze(&hog.id).await.unwrap();
    agent.doom(&hog.id).await.unwrap();
    world.vm.pause().await.unwrap();
    world.vm.resume().await.unwrap();
    // A request undoes it, also one that comes while it is being doomed again.
    assert_eq!(ask(agent, &hog).await.unwrap(), 200);
    assert_whole(agent, &hog).await;
    for delay_ms in 0..20 {
        agent.freeze(&hog.id).await.unwrap();
        let late = async {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            ask(agent, &hog).await
        };
        let (_, answer) = tokio::join!(agent.doom(&hog.id), late);
        assert_eq!(answer.unwrap(), 200, "after {delay_ms} ms");
    }
    assert_whole(agent, &hog).await;
    // It has not been doomed since.
    agent.freeze(&hog.id).await.unwrap();
    world.vm.pause().await.unwrap();
    assert_refused(world.vm.condemn(partition).await, "not doomed");
    world.vm.resume().await.unwrap();
    assert_eq!(ask(agent, &hog).await.unwrap(), 200);
    assert_whole(agent, &hog).await;
    world.vm.stop().await.unwrap();
}

/// Whoever comes first when the VM runs again.
#[tokio::test]
async fn a_condemned_instance_can_be_spared_by_nobody() {
    let world = Arc::new(World::start(2).await);
    let agent = world.vm.agent().unwrap();
    let hog = hog("hog", "150M");
    let (_, partition) = world.run(hog.clone()).await;
    agent.freeze(&hog.id).await.unwrap();
    agent.doom(&hog.id).await.unwrap();
    world.vm.pause().await.unwrap();
    let late = {
        let (agent, hog) = (agent.clone(), hog.clone());
        tokio::spawn(async move { ask(&agent, &hog).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(world.vm.condemn(partition).await.unwrap() > 150 * MIB);
    world.vm.resume().await.unwrap();
    assert_ne!(late.await.unwrap(), Ok(200));
    assert_gone(agent, &hog).await;
    world.vm.stop().await.unwrap();
}

#[tokio::test]
async fn private_memory_cannot_be_discarded_from_outside() {
    let mechanism: Box<dyn Mechanism> = MechanismName::Squeezy.mechanism(SIZING).unwrap();
    let vm = Vm::start(mechanism.configure(config("private"))).await.unwrap();
    let world = World { vm, mechanism };
    let agent = world.vm.agent().unwrap();
    let hog = hog("hog", "50M");
    let (_, partition) = world.run(hog.clone()).await;
    agent.freeze(&hog.id).await.unwrap();
    agent.doom(&hog.id).await.unwrap();
    world.vm.pause().await.unwrap();
    assert_refused(world.vm.condemn(partition).await, "memfd");
    world.vm.resume().await.unwrap();
    assert_eq!(ask(agent, &hog).await.unwrap(), 200);
    assert_whole(agent, &hog).await;
    world.vm.stop().await.unwrap();
}
