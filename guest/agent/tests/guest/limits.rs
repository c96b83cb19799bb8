//! Limits on what an instance may take from the VM.

use super::*;

pub(super) async fn memory_has_a_limit(client: &Client) {
    let (reason, _) = run(
        client,
        json!({
            "id": "hog", "command": ["/bin/memhog", "100M"], "image": null,
            "partition": "none", "memory_limit_bytes": 32 << 20
        }),
    )
    .await;
    assert_eq!(reason, ExitReason::ExceededMemory);
    // The writable layer counts too, and also has a limit of its own.
    let mut spec = shell("files", "dd if=/dev/zero of=/big bs=1M count=64; echo status $?");
    spec["memory_limit_bytes"] = (32 << 20).into();
    let (reason, log) = run(client, spec).await;
    assert!(reason == ExitReason::ExceededMemory || log.contains("status 1"), "{reason:?} {log}");
}

/// The writable root, /tmp and /dev/shm are one file system, which is full before memory is.
pub(super) async fn files_have_one_limit(client: &Client) {
    let write =
        |file: &str| format!("dd if=/dev/zero of={file} bs=1M count=6 2>&1; echo status $?;");
    let script = ["/tmp/a", "/dev/shm/b", "/c"].map(write).concat();
    let mut spec = shell("one-limit", &script);
    spec["files_limit_bytes"] = (16 << 20).into();
    let (reason, log) = run(client, spec).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    let ends: Vec<_> = log.lines().filter(|line| line.starts_with("status")).collect();
    assert_eq!(ends, ["status 0", "status 0", "status 1"], "{log}");
    assert!(log.contains("No space left"), "{log}");
    // Inodes are outside the partition, and are limited to a part of the memory there.
    let mut spec = shell("inodes", "i=0; while true > /tmp/$i; do i=$((i+1)); done; echo made $i");
    spec["memory_limit_bytes"] = (8 << 20).into();
    let (reason, log) = run(client, spec).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    let made = log.lines().find_map(|line| line.strip_prefix("made ")?.parse::<u64>().ok());
    assert!(made.is_some_and(|made| (1000..2048).contains(&made)), "{log}");
}

/// Both use all processors for the same time; one has ten times the other's share.
pub(super) async fn processors_are_shared_as_told(client: &Client) {
    let script = "
        spin() { i=0; trap 'echo $i; exit' TERM; while :; do i=$((i+1)); done; }
        spin & a=$!; spin & b=$!; sleep 4; kill $a $b; wait";
    let shared = |id, millis: u32| {
        let mut spec = shell(id, script);
        spec["cpu_share_millis"] = millis.into();
        run(client, spec)
    };
    let (much, little) = tokio::join!(shared("much", 1000), shared("little", 100));
    let rounds = |(_, log): (ExitReason, String)| -> u64 {
        log.lines().map(|line| line.parse::<u64>().expect(line)).sum()
    };
    let (much, little) = (rounds(much), rounds(little));
    eprintln!("{much} rounds beside {little}");
    assert!(much > 3 * little, "{much} rounds beside {little}");
}
