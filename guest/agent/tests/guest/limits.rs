//! Limits on what an instance may take from the VM.

use super::*;
use crate::vm::PARTITION_MIB;

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

/// One that grows lets more be written, and one that is below what the files hold is refused.
pub(super) async fn a_limit_of_files_changes(client: &Client) {
    let shared = async || client.get::<Memory>("/v1/memory").await.meminfo_bytes["Shmem"];
    let before = shared().await;
    let mut spec = shell("holds-files", "exec sleep 100000");
    spec["files_limit_bytes"] = (16 << 20).into();
    spec["files_limit_changes"] = true.into();
    client.start(spec).await.unwrap();
    // What does not fit leaves nothing.
    let fits = async |file: &str, mib: u32| {
        let script = format!(
            "said=$(busybox dd if=/dev/zero of={file} bs=1M count={mib} 2>&1) && exit 0
            busybox rm {file}; echo $said; exit 3"
        );
        match run(client, inside("writes", "holds-files", &script)).await {
            (ExitReason::Exited(0), _) => true,
            (ExitReason::Exited(3), log) if log.contains("No space left") => false,
            other => panic!("{other:?}"),
        }
    };
    let change = async |bytes: u64| {
        let body = json!({"files_limit_bytes": bytes}).to_string();
        client.call("PUT", "/v1/instances/holds-files/limits", body).await
    };
    assert!(fits("/tmp/a", 12).await);
    assert!(!fits("/c", 12).await);
    // More than once: the kernel takes nothing more from what it has refused something.
    for _ in 0..2 {
        let refused = change(8 << 20).await.error();
        assert_eq!(refused.code, ErrorCode::Unavailable);
        assert!(refused.message.contains("its files hold 1"), "{refused:?}");
        assert!(refused.message.contains("not 8 MiB: remove some"), "{refused:?}");
    }
    for bytes in [4096, u64::MAX] {
        assert_eq!(change(bytes).await.error().code, ErrorCode::Invalid);
    }
    assert!(fits("/dev/shm/b", 2).await && !fits("/c", 12).await);
    assert_eq!(change(32 << 20).await.status, StatusCode::NO_CONTENT);
    assert!(fits("/c", 12).await);
    assert_eq!(change(28 << 20).await.status, StatusCode::NO_CONTENT);
    assert!(!fits("/d", 4).await);
    client.delete("holds-files", 0).await;
    // What the kernel counts is a little off.
    let after = shared().await;
    assert!(after < before + (4 << 20), "{before} bytes before, {after} after");

    client.start(shell("fixed", "exec sleep 100000")).await.unwrap();
    let body = json!({"files_limit_bytes": 16 << 20}).to_string();
    let refused = client.call("PUT", "/v1/instances/fixed/limits", body).await.error();
    assert!(refused.message.contains("without files_limit_changes"), "{refused:?}");
    client.delete("fixed", 0).await;
}

/// Also as user 0 with capabilities. Nothing of others is there.
pub(super) async fn an_instance_reads_its_limits_and_changes_none(client: &Client) {
    client.start(shell("neighbour", "exec sleep 1000")).await.unwrap();
    let script = "
        busybox awk '$5 == \"/sys/fs/cgroup\" { print $4, substr($6, 1, 3), $8 }' /proc/self/mountinfo
        cd /sys/fs/cgroup; cat memory.max memory.high cpu.max pids.max cpu.weight
        busybox awk '{ print $1, $2, $4 }' /proc/cgroups
        grep -o 'cpu.*memory' cgroup.controllers; ls -d */ 2>/dev/null
        [ $(cat memory.current) -gt 0 ] && echo counts
        while read process; do kill -0 $process 2>/dev/null && echo sees $process; done < cgroup.procs
        for file in cgroup.* cpu.max cpuset.* memory.* pids.*; do
            (echo 1 > $file) 2>/dev/null && echo writes $file
        done
        mkdir new 2>/dev/null && echo makes; busybox chmod 666 cpu.max 2>/dev/null && echo opens
        (echo 1 > /proc/cgroups) 2>/dev/null && echo lists; true";
    let mut spec = shell("reads", script);
    for (field, value) in [
        ("sees_limits", json!(true)),
        ("files_limit_changes", json!(true)),
        ("memory_limit_bytes", json!(48 << 20)),
        ("cpu_limit_millis", json!(500)),
        ("hidden_paths", json!(["/sys/fs/cgroup/cpu.weight"])),
        ("privileges", json!({"capabilities": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL"]})),
    ] {
        spec[field] = value;
    }
    let (reason, log) = run(client, spec.clone()).await;
    let expected = "/ ro, cgroup2\n50331648\nmax\n50000 100000\n1024\n\
        #subsys_name hierarchy enabled\ncpuset 0 1\ncpu 0 1\ncpuacct 0 1\nmemory 0 1\npids 0 1\n\
        cpuset cpu memory\ncounts\nsees 2\n";
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), expected));
    client.delete("neighbour", 0).await;
    // What changes its limits needs the files that the agent keeps.
    spec["files_limit_changes"] = false.into();
    assert_eq!(client.start(spec).await.unwrap_err().code, ErrorCode::Invalid);
}

/// Its limit of private memory or else its partition, and not what it may have outside of that.
pub(super) async fn an_instance_in_a_partition_reads_what_it_may_have(client: &Client) {
    let spec = |id: &str| {
        let mut spec = shell(id, "exec sleep 100000");
        spec["sees_limits"] = true.into();
        spec["files_limit_changes"] = true.into();
        spec["memory_limit_bytes"] = (32 << 20).into();
        spec
    };
    let reads = async |id: &str, name: &str| {
        let script = format!("cat /sys/fs/cgroup/{name} 2>&1");
        run(client, inside("asks", id, &script)).await.1
    };
    let shows = async |id: &str, bytes: u64| {
        assert_eq!(reads(id, "memory.max").await, format!("{bytes}\n"), "{id}");
    };
    let mut whole = spec("whole");
    whole["partition"] = "any".into();
    whole["wait_ms"] = 30_000.into();
    client.start(whole).await.unwrap();
    let mut part = spec("part");
    part["company"] = json!({"beside": "whole"});
    part["private_limit_bytes"] = (48 << 20).into();
    client.start(part).await.unwrap();
    shows("whole", PARTITION_MIB << 20).await;
    shows("part", 48 << 20).await;
    // Nothing of the partition is charged to it.
    for name in ["memory.current", "memory.peak", "memory.stat"] {
        let said = reads("part", name).await;
        assert!(said.contains("Permission denied"), "{name}: {said}");
    }
    let change = async |bytes: u64| {
        let body = json!({"private_limit_bytes": bytes}).to_string();
        client.call("PUT", "/v1/instances/part/limits", body).await.status
    };
    // Its files may take all that there is, and it still reads a limit that has more digits.
    let fills = "busybox dd if=/dev/zero of=/tmp/file bs=1M count=2 2>/dev/null; echo $?";
    let limits = json!({"files_limit_bytes": 2 << 20}).to_string();
    let answer = client.call("PUT", "/v1/instances/part/limits", limits).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
    assert_eq!(run(client, inside("fills", "part", fills)).await.1, "1\n");
    for (bytes, shown) in
        [(112 << 20, 112 << 20), (u64::MAX, PARTITION_MIB << 20), (32 << 20, 32 << 20)]
    {
        assert_eq!(change(bytes).await, StatusCode::NO_CONTENT);
        shows("part", shown).await;
    }
    shows("whole", PARTITION_MIB << 20).await;
    for id in ["part", "whole"] {
        client.delete(id, 0).await;
    }
}

/// What was inherited counts once, and others of the company are left alone.
pub(super) async fn private_memory_has_a_limit_that_changes(client: &Client) {
    const LIMIT_BYTES: u64 = 48 << 20;
    let beside = |id: &str, command: Value| {
        json!({
            "id": id, "command": command, "image": null, "partition": "none",
            "company": {"beside": "other"}, "private_limit_bytes": LIMIT_BYTES
        })
    };
    let other = json!({
        "id": "other", "command": ["/bin/sh", "-c", "exec sleep 1000"], "image": null,
        "partition": "any", "wait_ms": 30_000
    });
    client.start(other).await.unwrap();
    let (reason, _) = run(client, beside("more", json!(["/bin/memhog", "80M"]))).await;
    assert_eq!(reason, ExitReason::ExceededMemory);
    // However it is held: by no thread that the process began with, or as shared memory.
    for how in ["--without-first-thread", "--shared"] {
        let spec = beside("hides", json!(["/bin/memhog", "80M", how, "--exit-after", "20000"]));
        assert_eq!(run(client, spec).await.0, ExitReason::ExceededMemory, "{how}");
    }
    // What is the same memory counts once: what was inherited, and that of a child which has not executed its program,
    // for which a small quota makes it wait.
    for (children, size, millis) in [("fork", "40M", 2000), ("spawn", "30M", 200)] {
        let command = json!(["/bin/memhog", size, "--children", children, "--exit-after", "5000"]);
        let mut spec = beside(children, command);
        spec["cpu_limit_millis"] = millis.into();
        let (reason, log) = run(client, spec).await;
        assert_eq!(reason, ExitReason::Exited(0), "{children}: {log}");
    }
    let less = json!(["/bin/memhog", "24M", "--exit-after", "2"]);
    assert_eq!(run(client, beside("less", less)).await.0, ExitReason::Exited(0));

    client.start(beside("holds", json!(["/bin/memhog", "24M"]))).await.unwrap();
    while !client.log("holds").await.ends_with("}\n") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let change = async |bytes: u64| {
        let body = json!({"private_limit_bytes": bytes}).to_string();
        client.call("PUT", "/v1/instances/holds/limits", body).await
    };
    let refused = change(8 << 20).await.error();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.message.contains("private memory"), "{refused:?}");
    assert_eq!(change(4096).await.error().code, ErrorCode::Invalid);
    for bytes in [64 << 20, 32 << 20] {
        assert_eq!(change(bytes).await.status, StatusCode::NO_CONTENT);
    }
    // No limit but the partition's is one, too, and can be taken back.
    for bytes in [u64::MAX, 32 << 20] {
        assert_eq!(change(bytes).await.status, StatusCode::NO_CONTENT);
    }
    // Another process in it counts, too.
    let mut inside = beside("inner", json!(["/bin/memhog", "24M"]));
    inside["company"] = json!({"inside": "holds"});
    inside["private_limit_bytes"] = Value::Null;
    client.start(inside).await.unwrap();
    let ended: Instance = client.get("/v1/instances/holds/wait").await;
    assert_eq!(ended.state, InstanceState::Ended(ExitReason::ExceededMemory));
    for id in ["inner", "holds"] {
        client.delete(id, 0).await;
    }
    let other: Instance = client.get("/v1/instances/other").await;
    assert_eq!(other.state, InstanceState::Running);
    client.delete("other", 0).await;
}

/// A quota holds from the moment that it is said.
pub(super) async fn limits_of_processors_change(client: &Client) {
    client.start(shell("spins", "while :; do :; done")).await.unwrap();
    let used_in_2_s = async |limits: Value| {
        let body = limits.to_string();
        let answer = client.call("PUT", "/v1/instances/spins/limits", body).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
        let used = async || client.get::<Usage>("/v1/instances/spins/usage").await.cpu_us;
        let before = used().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        used().await - before
    };
    let little = used_in_2_s(json!({"cpu_limit_millis": 50, "cpu_share_millis": 100})).await;
    let much = used_in_2_s(json!({"cpu_limit_millis": 2000})).await;
    eprintln!("{little} us of CPU time with a quota, {much} without");
    assert!(little < 600_000 && much > 2 * little, "{little} and {much}");
    // Whoever waits for his quota is busy, and whoever sleeps is not.
    client.start(shell("sleeps", "exec sleep 100000")).await.unwrap();
    // A start ends before that: what the shell and the program do until they sleep takes processor time.
    let script = "until [ \"$(busybox tr '\\0' ' ' < /proc/2/cmdline)\" = 'sleep 100000 ' ] &&
        grep -q '^State:.S' /proc/2/status; do sleep 0.1; done";
    assert_eq!(run(client, inside("looks", "sleeps", script)).await.0, ExitReason::Exited(0));
    let limits = json!({"cpu_limit_millis": 50}).to_string();
    client.call("PUT", "/v1/instances/spins/limits", limits).await;
    let busy = async |id| client.get::<u64>(&format!("/v1/instances/{id}/busy")).await;
    let before = (busy("spins").await, busy("sleeps").await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (spins, sleeps) = (busy("spins").await - before.0, busy("sleeps").await - before.1);
    eprintln!("who spins was busy for {spins} us, who sleeps for {sleeps}");
    assert!(spins > 1_500_000 && sleeps < 50_000, "{spins} and {sleeps}");
    client.delete("sleeps", 0).await;
    for wrong in
        [json!({"cpu_limit_millis": 1}), json!({"cpu_share_millis": 1 << 21}), json!({"pids": 1})]
    {
        let answer = client.call("PUT", "/v1/instances/spins/limits", wrong.to_string()).await;
        assert_eq!(answer.error().code, ErrorCode::Invalid);
    }
    client.delete("spins", 0).await;
}

/// Both want all processors at the same time; one has ten times the other's share.
pub(super) async fn processors_are_shared_as_told(client: &Client) {
    for (id, millis) in [("much", 1000), ("little", 100)] {
        let mut spec = shell(id, "spin() { while :; do :; done; }; spin & spin & wait");
        spec["cpu_share_millis"] = millis.into();
        client.start(spec).await.unwrap();
    }
    let used = async |id| client.get::<Usage>(&format!("/v1/instances/{id}/usage")).await.cpu_us;
    let before = (used("much").await, used("little").await);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (much, little) = (used("much").await - before.0, used("little").await - before.1);
    eprintln!("{much} us of CPU time beside {little}");
    assert!(much > 3 * little, "{much} us beside {little}");
    for id in ["much", "little"] {
        client.delete(id, 0).await;
    }
}
