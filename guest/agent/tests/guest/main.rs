//! The agent in a real VM: boots a kernel under QEMU and speaks to it as the host does.

mod client;
#[path = "../../../../scripts/skip.rs"]
mod skip;
mod vm;

use client::Client;
use http::StatusCode;
use serde_json::{Value, json};
use skip::skip;
use squeezy_protocol::{
    ErrorCode, ExitReason, INSTANCE_HEADER, Info, Instance, InstanceState, LOG_END_HEADER, Memory,
    PORT_NAME, PartitionNumber, PartitionState, Profile, Squeezy,
};
use std::time::{Duration, Instant};
use vm::{Artifacts, Vm};

/// The promise: the agent's own memory, in bytes.
const MAX_AGENT_BYTES: u64 = 4 << 20;

/// Artifacts, or the reason why this test cannot run here.
fn artifacts() -> Option<Artifacts> {
    Artifacts::find().map_err(skip).ok()
}

fn shell(id: &str, script: &str) -> Value {
    json!({
        "id": id, "command": ["/bin/sh", "-c", script], "image": 0, "partition": "none",
        "environment": {"PATH": "/bin"}
    })
}

/// Runs a script in an instance to its end; returns how it ended and what it wrote.
async fn run(client: &Client, spec: Value) -> (ExitReason, String) {
    let id = spec["id"].as_str().unwrap().to_owned();
    client.start(spec).await.unwrap();
    let instance: Instance = client.get(&format!("/v1/instances/{id}/wait")).await;
    let InstanceState::Ended(reason) = instance.state else { panic!("{instance:?}") };
    let log = client.log(&id).await;
    client.delete(&id, 0).await;
    (reason, log)
}

#[tokio::test]
async fn the_whole_agent_in_one_vm() {
    let Some(artifacts) = artifacts() else { return };
    let mut vm = Vm::boot(&artifacts, PORT_NAME);
    let begin = Instant::now();
    let client = vm.connect().await;
    let info: Info = client.get("/v1/info").await;
    eprintln!("first answer after {:?}: {info:?}", begin.elapsed());
    assert_eq!(info.page_size_bytes, 4096);
    assert_eq!(info.vcpus, 2);

    macro_rules! case {
        ($name:ident) => {
            let begin = Instant::now();
            eprintln!("{} ...", stringify!($name));
            $name(&client).await;
            eprintln!("{} passed in {:?}", stringify!($name), begin.elapsed());
        };
    }
    case!(the_clock_is_set);
    case!(memory_is_reported);
    case!(an_instance_is_isolated);
    case!(an_instance_serves_requests);
    case!(a_call_that_waits_stops_no_other);
    case!(a_frozen_instance_runs_when_a_request_comes);
    case!(a_log_is_read_on_from_where_it_ended);
    case!(ends_have_reasons);
    case!(the_machine_is_out_of_reach);
    case!(instances_are_users_of_their_own);
    case!(what_is_no_http_is_the_instances_fault);
    case!(memory_has_a_limit);
    case!(files_have_one_limit);
    case!(processors_are_shared_as_told);
    case!(stopping_reaps_everything);
    case!(bad_requests_get_one_clear_line);
    case!(without_partitions_an_error_says_so);
    case!(functions_are_profiled);
    case!(many_instances);
    case!(directories_of_the_image_can_be_replaced);

    let info: Info = client.get("/v1/info").await;
    eprintln!("the agent holds {} KiB", info.agent_resident_bytes >> 10);
    assert!(info.agent_resident_bytes < MAX_AGENT_BYTES, "{info:?}");

    drop(client);
    let client = hosts_come_and_go(&vm).await;
    assert_eq!(client.call("POST", "/v1/shutdown", "").await.status, StatusCode::ACCEPTED);
    vm.ended(Duration::from_secs(20)).await;
    let console = vm.console();
    assert!(!console.contains("panic"), "{console}");
}

async fn memory_is_reported(client: &Client) {
    let memory: Memory = client.get("/v1/memory").await;
    assert!(memory.meminfo_bytes["MemTotal"] > 300 << 20, "{memory:?}");
    assert!(memory.vmstat["pgfault"] > 0);
    assert!(memory.kernel_threads_ns["kworker"] > 0, "{:?}", memory.kernel_threads_ns);
}

async fn the_clock_is_set(client: &Client) {
    const SECONDS: u64 = 2_000_000_000;
    let before = run(client, shell("before", "date +%s")).await.1;
    let body = json!({ "unix_ns": SECONDS * 1_000_000_000 }).to_string();
    assert_eq!(client.call("PUT", "/v1/clock", body).await.status, 204);
    let now: u64 = run(client, shell("after", "date +%s")).await.1.trim().parse().unwrap();
    assert!((SECONDS..SECONDS + 60).contains(&now), "{now}");
    let before: u64 = before.trim().parse().unwrap();
    let body = json!({ "unix_ns": before * 1_000_000_000 }).to_string();
    assert_eq!(client.call("PUT", "/v1/clock", body).await.status, 204);
}

async fn an_instance_is_isolated(client: &Client) {
    let script = "
        echo pid $$; cat /proc/self/oom_score_adj; cat /proc/self/cgroup
        cat /proc/sys/kernel/hostname; ls /proc | grep -c '^[0-9]'
        echo x > /kept/file && cat /kept/file; ls /; ls /dev; ls /tmp
        echo 1 > /proc/sys/vm/drop_caches || echo read-only
        echo b > /proc/sysrq-trigger
        grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|SigIgn|SigBlk' /proc/self/status
        ls -l /proc/self/fd; pwd; echo $A; cat /proc/net/dev; cat /proc/mounts
        kill -9 1; echo end";
    let mut spec = shell("isolated", script);
    spec["environment"]["A"] = "value".into();
    spec["working_directory"] = "/kept".into();
    let (reason, log) = run(client, spec).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    for line in ["pid 2", "0", "isolated", "0::/", "x", "read-only", "/kept", "value", "end"] {
        assert!(log.lines().any(|l| l == line), "no line '{line}' in:\n{log}");
    }
    for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb", "SigIgn", "SigBlk"] {
        assert!(log.contains(&format!("{set}:\t0000000000000000")), "{set} in:\n{log}");
    }
    assert!(log.contains("NoNewPrivs:\t1"), "{log}");
    // The next one sees the image as it was.
    let (_, log) = run(client, shell("fresh", "ls /kept /www")).await;
    assert!(log.contains("hello") && !log.contains("file"), "{log}");
}

/// Needs a tmpfs with extended attributes under the overlay.
async fn directories_of_the_image_can_be_replaced(client: &Client) {
    let script = "rm -r /www && mkdir /www && ls /www && echo new > /www/hello && cat /www/hello";
    let (reason, log) = run(client, shell("replace", script)).await;
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), "new\n"));
}

fn server(id: &str) -> Value {
    json!({
        "id": id, "command": ["/bin/httpd", "-f", "-p", "8080", "-h", "/www"], "image": 0,
        "partition": "none", "port": 8080, "memory_limit_bytes": 64 << 20,
        "cpu_limit_millis": 500
    })
}

async fn an_instance_serves_requests(client: &Client) {
    let instance = client.start(server("web")).await.unwrap();
    eprintln!("started in {:.1} ms", instance.start_ns as f64 / 1e6);
    let begin = Instant::now();
    let answer = client.call("GET", "/v1/instances/web/http/hello", "").await;
    eprintln!("first answer after {:?}", begin.elapsed());
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"hello"[..]));
    assert_eq!(answer.headers[INSTANCE_HEADER], "web");
    let body = "abc".repeat(100_000);
    let answer = client.call("POST", "/v1/instances/web/http/cgi-bin/echo?q=1", body.clone()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.body, body);
    let answer = client.call("GET", "/v1/instances/web/http/none", "").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.headers[INSTANCE_HEADER], "web");
    // Not the instance's answer, so without its header.
    let long = vec![b'x'; (8 << 20) + 1];
    let answer = client.call("POST", "/v1/instances/web/http/cgi-bin/echo", long).await;
    assert_eq!(answer.error().code, ErrorCode::Invalid);
    assert!(!answer.headers.contains_key(INSTANCE_HEADER));
    client.delete("web", 0).await;
}

async fn a_call_that_waits_stops_no_other(client: &Client) {
    client.start(shell("sleeper", "sleep 1000")).await.unwrap();
    let mut deaf = shell("deaf", "sleep 1000");
    deaf["port"] = 8080.into();
    client.start(deaf).await.unwrap();
    let waits: Vec<_> = ["sleeper/wait", "deaf/wait", "deaf/http/", "deaf/http/x"]
        .into_iter()
        .map(|path| {
            let client = client.clone();
            tokio::spawn(
                async move { client.call("GET", &format!("/v1/instances/{path}"), "").await },
            )
        })
        .collect();
    for _ in 0..20 {
        let _: Info = client.get("/v1/info").await;
    }
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    client.delete("sleeper", 0).await;
    client.delete("deaf", 0).await;
    for (number, wait) in waits.into_iter().enumerate() {
        let answer = wait.await.unwrap();
        if number < 2 {
            let instance: Instance = answer.json();
            assert_eq!(instance.state, InstanceState::Ended(ExitReason::Stopped));
        } else {
            assert_eq!(answer.error().code, ErrorCode::Unavailable);
        }
    }
}

async fn a_frozen_instance_runs_when_a_request_comes(client: &Client) {
    let mut spec = server("cold");
    let script = "(while :; do echo tick; sleep 0.1; done) & exec httpd -f -p 8080 -h /www";
    spec["command"] = json!(["/bin/sh", "-c", script]);
    spec["environment"] = json!({"PATH": "/bin"});
    client.start(spec).await.unwrap();
    let ask = async || {
        let answer = client.call("GET", "/v1/instances/cold/http/hello", "").await;
        assert_eq!(answer.body, "hello", "{answer:?}");
    };
    let freeze = async || client.call("POST", "/v1/instances/cold/freeze", "").await;
    for _ in 0..3 {
        ask().await;
        assert!(freeze().await.json::<Instance>().frozen);
        let log = client.log("cold").await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(client.log("cold").await, log);
    }
    // Twice is once.
    assert!(freeze().await.json::<Instance>().frozen);
    // A request that comes while it is being frozen is answered.
    for _ in 0..20 {
        tokio::join!(freeze(), ask());
    }
    // One that has a request to answer is not frozen.
    let slow = client.call("GET", "/v1/instances/cold/http/cgi-bin/slow", "");
    let refused = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        freeze().await.error()
    };
    let (answer, error) = tokio::join!(slow, refused);
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}");
    // Neither a request to end nor a kill is held up.
    for grace_ms in [0, 2000] {
        assert!(freeze().await.json::<Instance>().frozen);
        let ended = client.delete("cold", grace_ms).await;
        assert_eq!(ended.state, InstanceState::Ended(ExitReason::Stopped));
        client.start(server("cold")).await.unwrap();
        ask().await;
    }
    client.delete("cold", 0).await;
    assert_eq!(freeze().await.error().code, ErrorCode::NotFound);
}

async fn a_log_is_read_on_from_where_it_ended(client: &Client) {
    client.start(shell("speaker", "echo one; read line; echo two; sleep 1000")).await.unwrap();
    let read = async |from: u64| {
        let path = format!("/v1/instances/speaker/log?from={from}");
        let answer = client.call("GET", &path, "").await;
        let end = answer.headers[LOG_END_HEADER].to_str().unwrap().parse::<u64>().unwrap();
        (String::from_utf8(answer.body.to_vec()).unwrap(), end)
    };
    while read(0).await.1 < 8 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(read(0).await, ("one\ntwo\n".to_owned(), 8));
    assert_eq!(read(4).await, ("two\n".to_owned(), 8));
    assert_eq!(read(u64::MAX).await, (String::new(), 8));
    let error = client.call("GET", "/v1/instances/speaker/log?from=x", "").await.error();
    assert_eq!(error.code, ErrorCode::Invalid);
    client.delete("speaker", 0).await;
}

async fn ends_have_reasons(client: &Client) {
    assert_eq!(run(client, shell("three", "exit 3")).await.0, ExitReason::Exited(3));
    // What a process does to itself ends it.
    for signal in [6, 11, 15] {
        let (reason, log) =
            run(client, shell("self", &format!("kill -{signal} $$; echo on"))).await;
        assert_eq!((reason, log.as_str()), (ExitReason::Killed(signal), ""));
    }
    let script = "sh -c 'kill -11 $$'; echo $?";
    let (reason, log) = run(client, shell("child", script)).await;
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), "Segmentation fault\n139\n"));
    // Orphans die with it.
    let (reason, _) =
        run(client, shell("orphans", "(sleep 1000 &) ; (sleep 1000 &) ; exit 0")).await;
    assert_eq!(reason, ExitReason::Exited(0));
}

/// Others are told by `docs/threat-model.md`.
async fn the_machine_is_out_of_reach(client: &Client) {
    let script = "
        for file in buddyinfo interrupts kallsyms kcore keys kmsg kpagecgroup kpagecount kpageflags \
            pagetypeinfo partitions slabinfo softirqs sysrq-trigger timer_list vmallocinfo zoneinfo; do
            [ -z \"$(busybox head -c 1 /proc/$file 2>&1 | grep -vE 'denied|No such')\" ] || echo shows $file
        done
        for directory in /sys/kernel/mm/squeezy /sys/kernel/slab /sys/kernel/debug /sys/kernel/tracing \
            /sys/firmware /sys/block /sys/fs/cgroup /proc/pressure; do
            [ -z \"$(ls $directory 2>/dev/null)\" ] || echo shows $directory
        done
        for switch in /proc/sys/kernel/hostname /proc/sys/user/max_user_namespaces \
            /sys/kernel/mm/transparent_hugepage/enabled /proc/sysrq-trigger /proc/1/oom_score_adj; do
            (echo 1 > $switch) 2>/dev/null && echo writes $switch
        done
        busybox dmesg 2>/dev/null && echo reads messages
        busybox unshare -r true 2>/dev/null && echo makes namespaces
        ls /proc/1/root/ 2>/dev/null; ls /proc/1/fd 2>/dev/null
        kill -0 1 2>/dev/null && echo signals process 1
        for limit in fs/file-max fs/aio-max-nr kernel/threads-max kernel/pid_max; do cat /proc/sys/$limit; done
        cat /proc/sys/user/max_net_namespaces; cat /proc/sys/net/ipv4/tcp_no_metrics_save
        grep -c '^processor' /proc/cpuinfo; grep -c MemTotal /proc/meminfo
        set -- $(cat /proc/self/uid_map); echo map $1 $3; ls -lnd /www/hello / /tmp | busybox awk '{ print $3, $4 }'
        echo own > /www/hello && echo writes && ls -ln /www/hello | busybox awk '{ print $3 }'
        echo out > /dev/stdout; ulimit -n; ulimit -u; ulimit -i; ulimit -l; grep Seccomp: /proc/self/status";
    let (reason, log) = run(client, shell("nosy", script)).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    let expected = "9223372036854775807\n1073741824\n4194304\n4194304\n0\n1\n2\n1\nmap 0 65536\n0 0\n0 0\n0 0\n\
        writes\n0\nout\n1024\n1024\n4096\n64\nSeccomp:\t2\n";
    assert_eq!(log, expected);
    // What process 1 takes of ordinary memory.
    let (_, log) = run(client, shell("first", "grep RssAnon: /proc/1/status")).await;
    let kib: u64 = log.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect(&log);
    eprintln!("process 1 holds {kib} KiB");
    assert!(kib < 256, "{log}");
    let mut spec = shell(
        "free",
        "grep Seccomp: /proc/self/status; ulimit -l; busybox unshare -r true; echo $?",
    );
    spec["seccomp"] = "unconfined".into();
    let (_, log) = run(client, spec).await;
    assert!(log.starts_with("Seccomp:\t0\n8192\n") && log.ends_with("\n1\n"), "{log}");
}

/// Two instances at a time are two users.
async fn instances_are_users_of_their_own(client: &Client) {
    let script = "set -- $(cat /proc/self/uid_map); echo $2; sleep 1000";
    for id in ["one", "two"] {
        client.start(shell(id, script)).await.unwrap();
    }
    let mut users = Vec::new();
    for id in ["one", "two"] {
        while client.log(id).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        users.push(client.log(id).await.trim().parse::<u32>().unwrap());
        client.delete(id, 0).await;
    }
    assert!(users[0] != users[1] && users.iter().all(|user| *user >= 65536), "{users:?}");
}

async fn what_is_no_http_is_the_instances_fault(client: &Client) {
    // Nonsense, an end without an answer, and one before the request is read, which resets the connection.
    for (id, server) in [
        ("babble", "/bin/sh -c 'read line; echo nonsense; sleep 1'"),
        ("silent", "/bin/sh -c 'busybox timeout 1 cat > /dev/null'"),
        ("rude", "/bin/true"),
    ] {
        let mut spec = shell(id, &format!("exec busybox nc -ll -p 8080 -e {server}"));
        spec["port"] = 8080.into();
        client.start(spec).await.unwrap();
        let answer = client.call("GET", &format!("/v1/instances/{id}/http/"), "").await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{answer:?}");
        let error = answer.error();
        assert_eq!(error.code, ErrorCode::BadAnswer);
        assert!(error.message.contains(&format!("{id} did not answer in HTTP")), "{error:?}");
        client.delete(id, 0).await;
    }
}

async fn memory_has_a_limit(client: &Client) {
    let (reason, _) = run(
        client,
        json!({
            "id": "hog", "command": ["/bin/memhog", "100M"], "image": null,
            "partition": "none", "memory_limit_bytes": 32 << 20
        }),
    )
    .await;
    assert_eq!(reason, ExitReason::ExceededMemory);
    // The writable layer counts too, and is bounded besides.
    let mut spec = shell("files", "dd if=/dev/zero of=/big bs=1M count=64; echo status $?");
    spec["memory_limit_bytes"] = (32 << 20).into();
    let (reason, log) = run(client, spec).await;
    assert!(reason == ExitReason::ExceededMemory || log.contains("status 1"), "{reason:?} {log}");
}

/// The writable root, /tmp and /dev/shm are one file system, which is full before memory is.
async fn files_have_one_limit(client: &Client) {
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
    // Their inodes are outside of a partition, and have a part of what may be there.
    let mut spec = shell("inodes", "i=0; while true > /tmp/$i; do i=$((i+1)); done; echo made $i");
    spec["memory_limit_bytes"] = (8 << 20).into();
    let (reason, log) = run(client, spec).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    let made = log.lines().find_map(|line| line.strip_prefix("made ")?.parse::<u64>().ok());
    assert!(made.is_some_and(|made| (1000..2048).contains(&made)), "{log}");
}

/// Both want all processors for the same time; one may have ten times as much of them.
async fn processors_are_shared_as_told(client: &Client) {
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

async fn stopping_reaps_everything(client: &Client) {
    let script = "trap 'echo bye; exit 0' TERM; while :; do (sleep 1000 &); sleep 1; done";
    client.start(shell("polite", script)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let log_before = client.log("polite").await;
    let begin = Instant::now();
    let ended = client.delete("polite", 10_000).await;
    eprintln!("ended in {:?}", begin.elapsed());
    assert_eq!(log_before, "");
    assert_eq!(ended.state, InstanceState::Ended(ExitReason::Stopped));
    assert!(begin.elapsed() < Duration::from_secs(8));
    // Without a handler there is nothing to wait for.
    client.start(shell("plain", "sleep 1000")).await.unwrap();
    let begin = Instant::now();
    client.delete("plain", 60_000).await;
    assert!(begin.elapsed() < Duration::from_secs(8));
    let (_, left) = run(
        client,
        json!({
            "id": "look", "image": null, "partition": "none",
            "command": ["/bin/sh", "-c", "echo $(ls -d /proc/[0-9]* | wc -l)"]
        }),
    )
    .await;
    eprintln!("processes seen inside: {left}");
    let list: Vec<Instance> = client.get("/v1/instances").await;
    assert_eq!(list, []);
}

async fn bad_requests_get_one_clear_line(client: &Client) {
    for (method, path, body, status, code) in [
        ("GET", "/", "", 404, ErrorCode::NotFound),
        ("GET", "/v1/nothing", "", 404, ErrorCode::NotFound),
        ("PUT", "/v1/info", "", 404, ErrorCode::NotFound),
        ("POST", "/v1/instances", "{", 400, ErrorCode::Invalid),
        ("POST", "/v1/instances", "{\"id\":\"a\"}", 400, ErrorCode::Invalid),
        ("GET", "/v1/instances/absent", "", 404, ErrorCode::NotFound),
        ("GET", "/v1/instances/BAD", "", 400, ErrorCode::Invalid),
        ("DELETE", "/v1/instances/absent", "", 404, ErrorCode::NotFound),
        ("GET", "/v1/instances/absent/http/x", "", 404, ErrorCode::NotFound),
        ("PUT", "/v1/profile", "{\"functions\":[]}", 400, ErrorCode::Invalid),
        ("PUT", "/v1/clock", "{\"unix_ns\":-1}", 400, ErrorCode::Invalid),
        ("PUT", "/v1/clock", "{\"unix_ns\":1}", 400, ErrorCode::Invalid),
    ] {
        let answer = client.call(method, path, body).await;
        assert_eq!((answer.status.as_u16(), answer.error().code), (status, code), "{path}");
    }
    let huge = vec![b' '; (1 << 20) + 1];
    let answer = client.call("POST", "/v1/instances", huge).await;
    assert!(answer.error().message.contains("longer than"), "{answer:?}");
    for (change, value, words) in [
        ("command", json!(["/bin/absent"]), "executing /bin/absent: No such file"),
        ("command", json!(["/www/hello"]), "executing /www/hello: Permission denied"),
        ("working_directory", json!("/absent"), "working_directory /absent: No such file"),
        ("memory_node", json!(7), "cpuset.mems"),
    ] {
        let mut spec = shell("bad", "true");
        spec[change] = value;
        let error = client.start(spec).await.unwrap_err();
        assert!(error.message.contains(words), "{error:?}");
    }
    client.start(shell("twice", "sleep 1000")).await.unwrap();
    assert_eq!(client.start(shell("twice", "true")).await.unwrap_err().code, ErrorCode::Exists);
    let answer = client.call("GET", "/v1/instances/twice/http/", "").await;
    assert!(answer.error().message.contains("without a port"), "{answer:?}");
    client.delete("twice", 0).await;
}

async fn without_partitions_an_error_says_so(client: &Client) {
    let memory: Memory = client.get("/v1/memory").await;
    assert_eq!(memory.squeezy, None);
    let mut spec = shell("nowhere", "true");
    spec["partition"] = "any".into();
    let error = client.start(spec).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Invalid);
    assert!(error.message.contains("squeezy.partitions="), "{error:?}");
    let mut spec = shell("tool", "squeezyctl exec -- true; echo $?");
    spec["image"] = Value::Null;
    let (_, log) = run(client, spec).await;
    assert!(log.contains("no partitions") && log.ends_with("125\n"), "{log}");
}

async fn functions_are_profiled(client: &Client) {
    let request = json!({"functions": ["kernel_clone", "no_such_function", "do_exit"]}).to_string();
    let answer = client.call("PUT", "/v1/profile", request.clone()).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
    run(client, shell("forks", "for i in 1 2 3 4 5; do busybox true; done")).await;
    let profile: Profile = client.get("/v1/profile").await;
    let clones = profile.functions["kernel_clone"];
    assert!(clones.calls >= 5 && clones.time_ns > 0, "{profile:?}");
    assert!(!profile.functions.contains_key("no_such_function"));
    client.call("PUT", "/v1/profile", request).await;
    let profile: Profile = client.get("/v1/profile").await;
    assert!(!profile.functions.contains_key("kernel_clone"), "{profile:?}");
}

async fn many_instances(client: &Client) {
    const COUNT: usize = 32;
    let begin = Instant::now();
    let starts: Vec<_> = (0..COUNT)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let id = format!("many-{number}");
                client.start(server(&id)).await.unwrap();
                let path = format!("/v1/instances/{id}/http/hello");
                assert_eq!(client.call("GET", &path, "").await.body, "hello");
                client.delete(&id, 0).await;
            })
        })
        .collect();
    for start in starts {
        start.await.unwrap();
    }
    eprintln!("{COUNT} instances started, asked and stopped in {:?}", begin.elapsed());
}

/// A host may go away in the middle of anything, and the next one be served.
async fn hosts_come_and_go(vm: &Vm) -> Client {
    use tokio::io::AsyncWriteExt;
    let client = vm.connect_again().await;
    client.start(shell("left", "sleep 1000")).await.unwrap();
    drop(client);
    for garbage in
        [&b""[..], b"\0\0\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
    {
        let client = vm.connect_again().await;
        // What was started lives on.
        let list: Vec<Instance> = client.get("/v1/instances").await;
        assert_eq!(list.len(), 1);
        let waiting = client.clone();
        let wait = tokio::spawn(async move {
            waiting.try_call("GET", "/v1/instances/left/wait", "").await.is_ok()
        });
        tokio::task::yield_now().await;
        wait.abort();
        let _ = wait.await;
        drop(client);
        let mut stream = vm.stream().await;
        stream.write_all(garbage).await.unwrap();
    }
    let client = vm.connect_again().await;
    client.delete("left", 0).await;
    client
}

#[tokio::test]
async fn the_death_of_the_agent_ends_the_vm() {
    let Some(artifacts) = artifacts() else { return };
    // Without its port nobody can reach the agent: it must not sit there in silence.
    let mut vm = Vm::boot(&artifacts, "org.squeezy.other");
    vm.ended(Duration::from_secs(90)).await;
    let console = vm.console();
    assert!(console.contains("no virtio-serial port is named org.squeezy.agent"), "{console}");
    assert!(console.contains("Attempted to kill init"), "{console}");
}

#[tokio::test]
async fn instances_in_partitions() {
    let Some(artifacts) = artifacts() else { return };
    let vm = Vm::boot_with_partitions(&artifacts, "");
    let client = vm.connect().await;
    if squeezy(&client).await.is_none() {
        return skip(format_args!("{} has no partitions", artifacts.kernel.display()));
    }
    partitions_are_assigned_in_turn(&client).await;
    a_start_waits_while_its_partition_is_plugged(&vm, &client).await;
    a_full_partition_ends_its_instance_only(&client).await;
    partitions_by_hand(&client).await;
}

/// The kernel's partitions, once it has plugged the first one.
async fn squeezy(client: &Client) -> Option<Squeezy> {
    loop {
        let memory: Memory = client.get("/v1/memory").await;
        let squeezy = memory.squeezy?;
        if squeezy.partitions[0].state != PartitionState::Absent
            && squeezy.partitions[0].state != PartitionState::Populating
        {
            return Some(squeezy);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn in_partition(id: &str, partition: Value, wait_ms: u32) -> Value {
    let mut spec = shell(id, "sleep 1000");
    spec["partition"] = partition;
    spec["wait_ms"] = wait_ms.into();
    spec
}

async fn partitions_are_assigned_in_turn(client: &Client) {
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
    let second = client.start(in_partition("second", json!({"number": 0}), 5000)).await.unwrap();
    assert_eq!(second.partition, Some(PartitionNumber(0)));
    // Who waits can be stopped.
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

async fn a_start_waits_while_its_partition_is_plugged(vm: &Vm, client: &Client) {
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

async fn a_full_partition_ends_its_instance_only(client: &Client) {
    client.delete("third", 0).await;
    let (reason, log) = run(
        client,
        json!({
            "id": "hog", "command": ["/bin/memhog", "200M"], "image": null,
            "partition": {"number": 1}, "wait_ms": 5000
        }),
    )
    .await;
    assert_eq!((reason, log.as_str()), (ExitReason::ExceededMemory, ""));
    let state = squeezy(client).await.unwrap();
    assert!(state.counters["oom_kills"] > 0, "{state:?}");
    let second: Instance = client.get("/v1/instances/second").await;
    assert_eq!(second.state, InstanceState::Running);
}

async fn partitions_by_hand(client: &Client) {
    // An instance sees no partitions, and can take none.
    let script = "squeezyctl status; echo status $?; squeezyctl exec -- true; echo exec $?";
    let mut spec = shell("tool", script);
    spec["image"] = Value::Null;
    let (_, log) = run(client, spec).await;
    assert!(!log.contains("assigned") && !log.contains("status 0"), "{log}");
    assert!(log.contains("CAP_SYS_RESOURCE") && log.ends_with("exec 125\n"), "{log}");
}

/// `squeezyctl exec` as root, without the agent.
#[tokio::test]
async fn squeezyctl_runs_commands_in_partitions() {
    let Some(artifacts) = artifacts() else { return };
    let script = "mount -t sysfs s /sys; cd /sys/kernel/mm/squeezy || poweroff -f; \
        until grep -q free partition0/state; do sleep 0.1; done; \
        squeezyctl exec -- cat partition0/state; \
        squeezyctl exec --wait 5000 --partition 0 -- sh -c 'cat partition0/users; exit 9'; \
        echo status $?; \
        squeezyctl exec --wait forever -- squeezyctl exec -- true; echo nested $?; \
        squeezyctl exec --wait 5000 /bin/absent; echo absent $?; \
        squeezyctl exec --wait 5000 /dev; echo directory $?; \
        squeezyctl exec --partition 2 --wait 50 true; echo unplugged $?; \
        squeezyctl exec --partition 3 true; echo range $?; \
        poweroff -f";
    let mut vm =
        Vm::boot_with_partitions(&artifacts, &format!("rdinit=/bin/sh -- -c \"{script}\""));
    vm.ended(Duration::from_secs(90)).await;
    let console = vm.console().replace('\r', "");
    if console.contains("can't cd to /sys/kernel/mm/squeezy") {
        return skip(format_args!("{} has no partitions", artifacts.kernel.display()));
    }
    for line in [
        "assigned",
        "2",
        "status 9",
        "squeezyctl: this process runs in a partition already",
        "nested 125",
        "absent 127",
        "directory 126",
        "squeezyctl: no partition became free in time: plug one more, or wait longer",
        "unplugged 125",
        "squeezyctl: there is no partition with that number",
        "range 125",
    ] {
        assert!(console.lines().any(|l| l == line), "no line '{line}' in:\n{console}");
    }
}
