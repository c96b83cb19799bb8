//! Instances that share things, and standard input: what pods need.

use super::*;
use std::pin::pin;

/// One more process, a shell, in the instance `other`.
pub(super) fn inside(id: &str, other: &str, script: &str) -> Value {
    json!({
        "id": id, "command": ["/bin/sh", "-c", script], "image": null, "partition": "none",
        "environment": {"PATH": "/bin"}, "company": {"inside": other}
    })
}

/// A shell beside the instance `other`.
pub(super) fn beside(id: &str, other: &str, script: &str) -> Value {
    let mut spec = shell(id, script);
    spec["company"] = json!({"beside": other});
    spec
}

async fn end_of(client: &Client, id: &str) -> ExitReason {
    let instance: Instance = client.get(&format!("/v1/instances/{id}/wait")).await;
    let InstanceState::Ended(reason) = instance.state else { panic!("{instance:?}") };
    client.delete(id, 0).await;
    reason
}

/// Waits until the log of an instance ends so.
async fn said(client: &Client, id: &str, words: &str) {
    while !client.log(id).await.ends_with(words) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) async fn a_home_is_where_the_root_says(client: &Client) {
    let script = "echo own $HOME; mkdir /etc; echo app:x:7:7::/srv/app:/bin/sh > /etc/passwd
        echo ready; while :; do sleep 0.1; done";
    client.start(shell("outer", script)).await.unwrap();
    said(client, "outer", "own /\nready\n").await;
    let home = async |user: u16| {
        let mut spec = inside("more", "outer", "echo $HOME");
        spec["user"] = json!({"user": user, "group": 7});
        run(client, spec).await.1
    };
    assert_eq!(home(7).await, "/srv/app\n");
    assert_eq!(home(8).await, "/\n");
    let mut spec = inside("more", "outer", "echo $HOME");
    spec["environment"]["HOME"] = "/of/the/spec".into();
    assert_eq!(run(client, spec).await.1, "/of/the/spec\n");
    // Nobody writes to it.
    let script = "rm /etc/passwd && busybox mkfifo /etc/passwd";
    let (reason, log) = run(client, inside("more", "outer", script)).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    assert_eq!(home(7).await, "/\n");
    client.delete("outer", 0).await;
}

pub(super) async fn a_process_inside_has_everything_of_its_instance(client: &Client) {
    let script = "echo own > /tmp/file; echo ready; while :; do sleep 0.1; done";
    let mut spec = shell("outer", script);
    spec["user"] = json!({"user": 1000, "group": 50});
    client.start(spec).await.unwrap();
    said(client, "outer", "ready\n").await;
    let script = "cat /tmp/file; busybox id -u; busybox tr '\\0' ' ' < /proc/2/cmdline | busybox cut -c 1-8
        cat /proc/sys/kernel/hostname /proc/self/cgroup; pwd; kill -0 2 && echo reaches it
        grep -E 'Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | busybox awk '{ print $2 }' | busybox sort -u
        grep Seccomp: /proc/self/status; busybox unshare -r true 2>/dev/null; ls /proc/1/root/ 2>/dev/null || echo closed; exit 3";
    let mut spec = inside("more", "outer", script);
    spec["working_directory"] = "/www".into();
    let mut as_other = spec.clone();
    spec["user"] = json!({"user": 1000, "group": 50});
    let (reason, log) = run(client, spec).await;
    let expected = "own\n1000\n/bin/sh \nouter\n0::/\n/www\nreaches it\n0000000000000000\nSeccomp:\t2\n\
        closed\n";
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(3), expected));
    as_other["user"] = json!({"user": 7, "group": 7});
    let (_, log) = run(client, as_other).await;
    assert!(log.contains("own\n7\n") && !log.contains("reaches it"), "{log}");

    for (spec, code) in [
        (inside("more", "absent", "true"), ErrorCode::NotFound),
        (beside("more", "absent", "true"), ErrorCode::NotFound),
        (inside("outer", "outer", "true"), ErrorCode::Exists),
    ] {
        assert_eq!(client.start(spec).await.unwrap_err().code, code);
    }
    let mut odd = inside("more", "outer", "true");
    odd["working_directory"] = "/proc/1/root".into();
    assert_eq!(client.start(odd).await.unwrap_err().code, ErrorCode::Invalid);
    client.start(inside("inner", "outer", "while :; do sleep 0.1; done")).await.unwrap();
    for company in ["inside", "beside"] {
        let mut spec = inside("third", "inner", "true");
        spec["company"] = json!({company: "inner"});
        let error = client.start(spec).await.unwrap_err();
        assert!(error.message.contains("itself inside"), "{error:?}");
    }
    // It is ended by itself, or with the other one.
    client.delete("inner", 0).await;
    client.start(inside("inner", "outer", "sleep 1000")).await.unwrap();
    client.delete("outer", 0).await;
    assert_eq!(end_of(client, "inner").await, ExitReason::Killed(9));

    client.start(shell("short", "true")).await.unwrap();
    let _: Instance = client.get("/v1/instances/short/wait").await;
    for spec in [inside("late", "short", "true"), beside("late", "short", "true")] {
        assert_eq!(client.start(spec).await.unwrap_err().code, ErrorCode::Unavailable);
    }
    client.delete("short", 0).await;
}

pub(super) async fn instances_beside_each_other_share_what_a_pod_shares(client: &Client) {
    const IPC: &str = "busybox readlink /proc/self/ns/ipc";
    let script = format!("{IPC}; echo own > /tmp/file; httpd -f -p 8080 -h /www");
    client.start(shell("first", &script)).await.unwrap();
    let script = "until busybox wget -q -O - http://127.0.0.1:8080/hello 2>/dev/null; do sleep 0.1; done; echo
        cat /proc/sys/kernel/hostname; cat /tmp/file 2>/dev/null || echo other files
        ls /proc > /tmp/list; grep -c '^[0-9]' /tmp/list; kill -0 1 2>/dev/null || echo not its process 1
        set -- $(cat /proc/self/uid_map); echo map $1 $3; exit 4";
    let (reason, log) = run(client, beside("second", "first", script)).await;
    // The shell, ls, and process 1.
    let expected = "hello\nfirst\nother files\n3\nnot its process 1\nmap 0 65536\n";
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(4), expected));
    let (_, ipc) = run(client, beside("second", "first", IPC)).await;
    assert_eq!(ipc, client.log("first").await);
    assert_ne!(ipc, run(client, shell("apart", IPC)).await.1);
    // Each ends by itself, and whoever is left can have company.
    client.start(beside("second", "first", "while :; do sleep 0.1; done")).await.unwrap();
    client.delete("first", 0).await;
    let (_, log) = run(client, beside("third", "second", "cat /proc/sys/kernel/hostname")).await;
    assert_eq!(log, "first\n");
    client.delete("second", 0).await;
}

pub(super) async fn instances_beside_each_other_may_share_their_processes(client: &Client) {
    client.start(shell("keeper", "exec sleep 1000")).await.unwrap();
    let shared = |id: &str, script: &str| {
        let mut spec = beside(id, "keeper", script);
        spec["shared_processes"] = true.into();
        spec
    };
    client.start(shared("first", "echo own > /tmp/file; exec sleep 2000")).await.unwrap();
    const FIND: &str = "find() {
        for process in /proc/[0-9]*; do
            [ \"$(busybox tr '\\0' ' ' < $process/cmdline 2>/dev/null)\" = 'sleep 2000 ' ] && echo ${process#/proc/}
        done; true; }";
    let script = "
        until process=$(find) && [ $process ]; do sleep 0.1; done
        cat /tmp/file 2>/dev/null || echo other files
        cat /proc/$process/root/tmp/file; kill $process
        kill -9 1 2>/dev/null || echo not process 1; exit 4";
    let mut looks = shared("looks", &format!("{FIND}{script}"));
    looks["privileges"] = json!({"capabilities": ["KILL"]});
    let (reason, log) = run(client, looks).await;
    assert_eq!(log, "other files\nown\nnot process 1\n");
    assert_eq!(reason, ExitReason::Exited(4));
    assert_eq!(end_of(client, "first").await, ExitReason::Killed(15));
    // Each ends by itself, with what it has started, and all with whom they share with.
    client.start(shared("second", "sleep 2000 & exec sleep 1000")).await.unwrap();
    client.delete("second", 0).await;
    let (_, log) = run(client, shared("third", &format!("{FIND}; find"))).await;
    assert_eq!(log, "");
    client.start(shared("fourth", "exec sleep 1000")).await.unwrap();
    client.delete("keeper", 0).await;
    assert_eq!(end_of(client, "fourth").await, ExitReason::Killed(9));
}

/// An instance that only keeps what those beside it share.
fn keeper(partition: &str) -> Value {
    json!({"id": "keeper", "command": [], "image": null, "partition": partition, "wait_ms": 30_000})
}

pub(super) async fn what_keeps_shared_processes_is_out_of_their_reach(client: &Client) {
    client.start(keeper("none")).await.unwrap();
    let shared = |id: &str, script: &str| {
        let mut spec = beside(id, "keeper", script);
        spec["shared_processes"] = true.into();
        spec["privileges"] = json!({"capabilities": ["KILL"]});
        spec
    };
    client.start(shared("first", "exec sleep 2000")).await.unwrap();
    // It is process 1, and beside that there are only the other one, the shell and ls.
    let script = "ls /proc > /tmp/list; grep -c '^[0-9]' /tmp/list; set -- $(cat /proc/self/uid_map); echo map $1 $3
        busybox tr '\\0' ' ' < /proc/1/cmdline; echo; cat /proc/sys/kernel/hostname
        ls /proc/1/root/ 2> /dev/null; ls /proc/1/fd 2> /dev/null; busybox readlink /proc/1/ns/user
        kill -9 1 2> /dev/null || echo not process 1; kill -9 -1; exit 4";
    let (reason, log) = run(client, shared("second", script)).await;
    let expected = "4\nmap 0 65536\n/proc/self/exe --instance-init \nkeeper\nnot process 1\n";
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(4), expected));
    // Whoever was in reach is gone, and others come.
    assert_eq!(end_of(client, "first").await, ExitReason::Killed(9));
    assert_eq!(run(client, shared("third", "echo comes")).await.1, "comes\n");
    // So do those that have processes of their own.
    let script = "set -- $(cat /proc/self/uid_map); echo map $1 $3; cat /proc/sys/kernel/hostname";
    assert_eq!(run(client, beside("apart", "keeper", script)).await.1, "map 0 65536\nkeeper\n");
    client.start(shared("fourth", "exec sleep 1000")).await.unwrap();
    client.delete("keeper", 0).await;
    assert_eq!(end_of(client, "fourth").await, ExitReason::Killed(9));
}

pub(super) async fn instances_beside_each_other_have_a_limit_together(client: &Client) {
    const LIMIT_BYTES: u64 = 32 << 20;
    let holds = |id: &str, size: &str| {
        json!({
            "id": id, "command": ["/bin/memhog", size, "--exit-after", "1"], "image": null,
            "partition": "none", "memory_limit_bytes": LIMIT_BYTES
        })
    };
    assert_eq!(run(client, holds("alone", "26M")).await.0, ExitReason::Exited(0));
    let mut first = holds("first", "8M");
    first["command"] = json!(["/bin/memhog", "8M"]);
    first["company_memory_limit_bytes"] = LIMIT_BYTES.into();
    client.start(first.clone()).await.unwrap();
    said(client, "first", "}\n").await;
    let more = |id: &str, size: &str, other: &str| {
        let mut spec = holds(id, size);
        spec["company"] = json!({"beside": other});
        spec
    };
    assert_eq!(run(client, more("second", "26M", "first")).await.0, ExitReason::ExceededMemory);
    assert_eq!(run(client, more("second", "8M", "first")).await.0, ExitReason::Exited(0));
    let first_now: Instance = client.get("/v1/instances/first").await;
    assert_eq!(first_now.state, InstanceState::Running);
    // It holds for those who come when the first has gone.
    let mut second = more("second", "8M", "first");
    second["command"] = json!(["/bin/memhog", "8M"]);
    client.start(second).await.unwrap();
    said(client, "second", "}\n").await;
    client.delete("first", 0).await;
    assert_eq!(run(client, more("third", "26M", "second")).await.0, ExitReason::ExceededMemory);
    client.delete("second", 0).await;
    client.start(first).await.unwrap();
    client.delete("first", 0).await;
}

/// And by nobody else. There are no more of them than without the file system.
pub(super) async fn message_queues_are_seen_by_those_who_share_them(client: &Client) {
    let with_queues = |mut spec: Value| {
        spec["sees_message_queues"] = true.into();
        spec
    };
    let first = shell("first", ": > /dev/mqueue/told && echo ready; exec sleep 1000");
    client.start(with_queues(first)).await.unwrap();
    said(client, "first", "ready\n").await;
    let script = "ls /dev/mqueue; grep -o QSIZE:0 /dev/mqueue/told; rm /dev/mqueue/told; ls /dev/mqueue
        made=0; while (: > /dev/mqueue/$made) 2>/dev/null; do made=$((made + 1)); done; echo made $made";
    let (_, log) = run(client, with_queues(beside("second", "first", script))).await;
    let made = log.strip_prefix("told\nQSIZE:0\nmade ").and_then(|made| made.trim().parse().ok());
    assert!(made.is_some_and(|made: u32| (1..=10).contains(&made)), "{log}");
    let (_, log) = run(client, with_queues(shell("other", "ls /dev/mqueue; echo nothing"))).await;
    assert_eq!(log, "nothing\n");
    let (_, log) = run(client, shell("without", "ls /dev/mqueue 2>/dev/null; echo none")).await;
    assert_eq!(log, "none\n");
    client.delete("first", 0).await;
}

/// More than the agent and the channel hold together, so that the host has to wait.
pub(super) async fn standard_input_loses_nothing(client: &Client) {
    let put = async |id: &str, bytes: Vec<u8>| {
        client.call("PUT", &format!("/v1/instances/{id}/stdin"), bytes).await
    };
    let mut spec = shell("reads", "sleep 1; busybox md5sum; echo end");
    spec["input"] = true.into();
    client.start(spec).await.unwrap();
    let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(put("reads", bytes).await.status, StatusCode::NO_CONTENT);
    said(client, "reads", "end\n").await;
    // Of these bytes.
    assert_eq!(client.log("reads").await, format!("{INPUT_SUM}  -\nend\n"));
    assert_eq!(put("reads", Vec::new()).await.error().code, ErrorCode::Unavailable);
    client.delete("reads", 0).await;

    // Nobody who reads nothing holds up the host for longer than he lives.
    let mut spec = shell("deaf", "exec sleep 1000");
    spec["input"] = true.into();
    client.start(spec).await.unwrap();
    let mut held_up = pin!(put("deaf", vec![b'x'; 1 << 20]));
    // The agent gets the input first, and answers nothing to it yet.
    tokio::select! {
        biased;
        _ = &mut held_up => panic!("nobody has read it"),
        _ = client.get::<Info>("/v1/info") => {}
    }
    client.delete("deaf", 0).await;
    assert_eq!(held_up.await.status, StatusCode::NO_CONTENT);

    let mut spec = shell("inner", "cat");
    spec["input"] = true.into();
    client.start(shell("outer", "cat; echo nothing; exec sleep 1000")).await.unwrap();
    said(client, "outer", "nothing\n").await;
    assert_eq!(put("outer", b"x".to_vec()).await.error().code, ErrorCode::Invalid);
    spec["image"] = Value::Null;
    spec["company"] = json!({"inside": "outer"});
    client.start(spec).await.unwrap();
    put("inner", b"through two of them".to_vec()).await;
    said(client, "inner", "through two of them").await;
    assert_eq!(end_of(client, "inner").await, ExitReason::Exited(0));
    client.delete("outer", 0).await;
}

/// MD5 of what [`standard_input_loses_nothing`] sends.
const INPUT_SUM: &str = "a2ea9a7af4c73214840b2988d334a353";

/// The instance `second` is in partition 0, and partition 1 is free.
pub(super) async fn a_partition_is_shared_until_the_last_has_ended(client: &Client) {
    let users = async |number: usize| squeezy(client).await.unwrap().partitions[number].users;
    let before = users(0).await;
    let script = "exec sleep 1000";
    let third = client.start(beside("third", "second", script)).await.unwrap();
    assert_eq!(third.partition, Some(PartitionNumber(0)));
    assert!(users(0).await > before);
    let mut spec = beside("fourth", "third", script);
    spec["shared_processes"] = true.into();
    let fourth = client.start(spec).await.unwrap();
    assert_eq!(fourth.partition, Some(PartitionNumber(0)));
    let inner = client.start(inside("inner", "third", "exec sleep 1000")).await.unwrap();
    assert_eq!(inner.partition, Some(PartitionNumber(0)));
    // Whoever fills it is killed, and nobody else.
    let hog = json!({
        "id": "hog", "command": ["/bin/memhog", "200M"], "image": null, "partition": "none",
        "company": {"beside": "second"}
    });
    let (reason, log) = run(client, hog).await;
    assert_eq!((reason, log.as_str()), (ExitReason::ExceededMemory, ""));
    // That is not what the others have ended of.
    let (reason, _) = run(client, beside("fails", "third", "exit 5")).await;
    assert_eq!(reason, ExitReason::Exited(5));
    client.delete("second", 0).await;
    client.delete("inner", 0).await;
    client.delete("fourth", 0).await;
    let state = squeezy(client).await.unwrap();
    assert_eq!(state.partitions[0].state, PartitionState::Assigned);
    let third: Instance = client.get("/v1/instances/third").await;
    assert_eq!(third.state, InstanceState::Running);
    client.delete("third", 0).await;
    let is_free = async |number: usize| {
        while squeezy(client).await.unwrap().partitions[number].state != PartitionState::Free {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    is_free(0).await;
    // What has no command keeps a partition, too, while others come and go.
    let kept = client.start(keeper("any")).await.unwrap().partition.expect("it has one");
    for shares in [false, true] {
        let mut spec = beside("comes", "keeper", script);
        spec["shared_processes"] = shares.into();
        assert_eq!(client.start(spec).await.unwrap().partition, Some(kept));
        client.delete("comes", 0).await;
    }
    let number = usize::from(kept.0);
    let state = squeezy(client).await.unwrap();
    assert_eq!(state.partitions[number].state, PartitionState::Assigned);
    // Files are gone with whoever has written them, though the agent keeps them as long, also if he is the last.
    let writes = |mut spec: Value| {
        let script = "busybox dd if=/dev/zero of=/tmp/a bs=1M count=8 2>/dev/null";
        spec["command"] = json!(["/bin/sh", "-c", script]);
        spec["files_limit_changes"] = true.into();
        spec
    };
    let beside_it = writes(beside("writes", "keeper", script));
    assert_eq!(run(client, beside_it).await.0, ExitReason::Exited(0));
    client.delete("keeper", 0).await;
    is_free(number).await;
    let alone = writes(in_partition("writes", json!({"number": number}), 30_000));
    assert_eq!(run(client, alone).await.0, ExitReason::Exited(0));
    is_free(number).await;
}
