//! Instances in partitions.

use super::*;

pub(super) fn in_partition(id: &str, partition: Value, wait_ms: u32) -> Value {
    let mut spec = shell(id, "sleep 1000");
    spec["partition"] = partition;
    spec["wait_ms"] = wait_ms.into();
    spec
}

pub(super) async fn partitions_are_assigned_in_turn(client: &Client) {
    let first = client.start(in_partition("first", json!("any"), 0)).await.unwrap();
    assert_eq!(first.partition, Some(PartitionNumber(0)));
    let state = squeezy(client).await.unwrap();
    assert_eq!(state.partitions[0].state, PartitionState::Assigned);
    assert!(state.partitions[0].users > 0);
    for (partition, code) in [
        (json!("any"), ErrorCode::NoPartition),
        (json!({"number": 0}), ErrorCode::NoPartition),
        (json!({"number": 200}), ErrorCode::Invalid),
    ] {
        let error = client.start(in_partition("second", partition, 0)).await.unwrap_err();
        assert_eq!(error.code, code, "{error:?}");
    }
    client.delete("first", 0).await;
    let second = client.start(in_partition("second", json!({"number": 0}), 30_000)).await.unwrap();
    assert_eq!(second.partition, Some(PartitionNumber(0)));
    // An instance that waits for its partition can be stopped.
    let waiting = client.clone();
    let start =
        tokio::spawn(
            async move { waiting.start(in_partition("waits", json!("any"), 100_000)).await },
        );
    while client.get::<Vec<Instance>>("/v1/instances").await.len() < 2 {}
    let instance: Instance = client.get("/v1/instances/waits").await;
    assert_eq!(instance.state, InstanceState::Starting);
    client.delete("waits", 0).await;
    let error = start.await.unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}");
}

pub(super) async fn a_start_waits_while_its_partition_is_plugged(vm: &Vm, client: &Client) {
    let starting = client.clone();
    let start =
        tokio::spawn(
            async move { starting.start(in_partition("third", json!("any"), 60_000)).await },
        );
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!start.is_finished());
    vm.request(2).await;
    let third = start.await.unwrap().unwrap();
    eprintln!("{third:?}");
    assert_eq!(third.partition, Some(PartitionNumber(1)));
    assert!(third.partition_wait_ns > 0 && third.partition_wait_ns < third.start_ns);
}

pub(super) async fn a_full_partition_ends_its_instance_only(client: &Client) {
    client.delete("third", 0).await;
    let (reason, log) = run(
        client,
        json!({
            "id": "hog", "command": ["/bin/memhog", "200M"], "image": null,
            "partition": {"number": 1}, "wait_ms": 30_000
        }),
    )
    .await;
    assert_eq!((reason, log.as_str()), (ExitReason::ExceededMemory, ""));
    let state = squeezy(client).await.unwrap();
    assert!(state.counters["oom_kills"] > 0, "{state:?}");
    let second: Instance = client.get("/v1/instances/second").await;
    assert_eq!(second.state, InstanceState::Running);
}

pub(super) async fn partitions_by_hand(client: &Client) {
    // An instance can neither see partitions nor take one.
    let script = "squeezyctl status; echo status $?; squeezyctl exec -- true; echo exec $?";
    let mut spec = shell("tool", script);
    spec["image"] = Value::Null;
    let (_, log) = run(client, spec).await;
    assert!(!log.contains("assigned") && !log.contains("status 0"), "{log}");
    assert!(log.contains("CAP_SYS_RESOURCE") && log.ends_with("exec 125\n"), "{log}");
}
