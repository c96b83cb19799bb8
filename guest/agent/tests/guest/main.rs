//! The agent in a real VM: boots a kernel under QEMU and talks to the agent as the host does.

mod client;
mod company;
mod isolation;
mod layers;
mod limits;
mod networks;
mod partitions;
mod privileges;
mod serving;
#[path = "../../../../scripts/skip.rs"]
mod skip;
mod terminals;
mod vm;
mod volumes;

use client::Client;
use company::*;
use http::StatusCode;
use isolation::*;
use layers::*;
use limits::*;
use networks::*;
use partitions::*;
use privileges::*;
use serde_json::{Value, json};
use serving::*;
use skip::skip;
use squeezy_protocol::{
    ErrorCode, ExitReason, INSTANCE_HEADER, Info, Instance, InstanceState, Instruction,
    LOG_END_HEADER, Memory, PORT_NAME, PartitionNumber, PartitionState, Profile, Squeezy,
    SystemCallFilter, Usage,
};
use std::time::{Duration, Instant};
use terminals::*;
use vm::{Artifacts, Vm};
use volumes::*;

/// The limit on the agent's own memory after many instances, in bytes.
const MAX_AGENT_BYTES: u64 = 5 << 20;

/// The artifacts, or a message why this test cannot run here.
fn artifacts() -> Option<Artifacts> {
    Artifacts::find().map_err(skip).ok()
}

fn shell(id: &str, script: &str) -> Value {
    json!({
        "id": id, "command": ["/bin/sh", "-c", script], "image": 0, "partition": "none",
        "environment": {"PATH": "/bin"}
    })
}

/// Runs an instance to its end; returns how it ended and what it wrote.
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
    case!(capabilities_are_for_what_the_instance_has);
    case!(a_program_gives_what_its_owner_may_if_that_is_allowed);
    case!(limits_of_a_process_are_lowered);
    case!(a_root_is_as_the_spec_says);
    case!(a_filter_of_the_host_decides_too);
    case!(what_is_no_http_is_the_instances_fault);
    case!(memory_has_a_limit);
    case!(files_have_one_limit);
    case!(a_limit_of_files_changes);
    case!(an_instance_reads_its_limits_and_changes_none);
    case!(processors_are_shared_as_told);
    case!(limits_of_processors_change);
    case!(stopping_reaps_everything);
    case!(bad_requests_get_one_clear_line);
    case!(without_partitions_an_error_says_so);
    case!(functions_are_profiled);
    case!(a_root_is_a_stack_of_layers);
    case!(code_is_over_its_image_for_each_instance);
    case!(a_layer_is_removed_when_nobody_has_it);
    case!(what_is_no_layer_is_refused_and_leaves_nothing);
    case!(streams_lose_nothing);
    case!(an_instance_is_whoever_it_is_told_to_be);
    case!(signals_are_sent_as_told);
    case!(a_home_is_where_the_root_says);
    case!(a_process_inside_has_everything_of_its_instance);
    case!(instances_beside_each_other_share_what_a_pod_shares);
    case!(instances_beside_each_other_may_share_their_processes);
    case!(what_keeps_shared_processes_is_out_of_their_reach);
    case!(instances_beside_each_other_have_a_limit_together);
    case!(message_queues_are_seen_by_those_who_share_them);
    case!(standard_input_loses_nothing);
    case!(a_terminal_is_one_stream_that_can_be_resized);
    case!(files_of_the_host_are_read_and_change);
    case!(an_empty_volume_is_shared_and_has_an_end);
    case!(calls_are_answered_while_the_files_of_a_volume_are_freed);
    case!(a_part_of_a_volume_is_found_or_made);
    case!(links_that_change_lead_no_part_out_of_its_volume);
    case!(volumes_are_nowhere_but_in_the_root);
    case!(paths_in_volumes_are_covered);
    case!(a_network_is_shared_and_has_a_device_to_itself);
    case!(a_network_stays_while_somebody_is_in_it);
    case!(many_instances);
    case!(directories_of_the_image_can_be_replaced);

    let info: Info = client.get("/v1/info").await;
    eprintln!("the agent holds {} KiB", info.agent_resident_bytes >> 10);
    assert!(info.agent_resident_bytes < MAX_AGENT_BYTES, "{info:?}");

    drop(client);
    let client = hosts_come_and_go(&vm).await;
    assert_eq!(client.call("POST", "/v1/shutdown", "").await.status, StatusCode::ACCEPTED);
    vm.ended(Duration::from_secs(60)).await;
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

async fn ends_have_reasons(client: &Client) {
    assert_eq!(run(client, shell("three", "exit 3")).await.0, ExitReason::Exited(3));
    // Signals that a process sends itself end it.
    for signal in [6, 11, 15] {
        let (reason, log) =
            run(client, shell("self", &format!("kill -{signal} $$; echo on"))).await;
        assert_eq!((reason, log.as_str()), (ExitReason::Killed(signal), ""));
    }
    let script = "sh -c 'kill -11 $$'; echo $?";
    let (reason, log) = run(client, shell("child", script)).await;
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), "Segmentation fault\n139\n"));
    // Orphans die with the instance.
    let (reason, _) =
        run(client, shell("orphans", "(sleep 1000 &) ; (sleep 1000 &) ; exit 0")).await;
    assert_eq!(reason, ExitReason::Exited(0));
}

async fn stopping_reaps_everything(client: &Client) {
    let script = "trap 'echo bye; exit 0' TERM; while :; do (sleep 1000 &); sleep 1; done";
    client.start(shell("polite", script)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let log_before = client.log("polite").await;
    let begin = Instant::now();
    let ended = client.delete("polite", 60_000).await;
    eprintln!("ended in {:?}", begin.elapsed());
    assert_eq!(log_before, "");
    assert_eq!(ended.state, InstanceState::Ended(ExitReason::Stopped));
    assert!(begin.elapsed() < Duration::from_secs(30));
    // Without a handler for SIGTERM, it ends at once.
    client.start(shell("plain", "sleep 1000")).await.unwrap();
    let begin = Instant::now();
    client.delete("plain", 60_000).await;
    assert!(begin.elapsed() < Duration::from_secs(30));
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
        (
            "working_directory",
            json!("/proc/absent"),
            "working_directory /proc/absent: No such file",
        ),
        // The machine's root, as the sandbox sees it.
        ("working_directory", json!("/proc/1/root"), "it is not in the instance's root"),
        ("working_directory", json!("/proc/1/cwd/run"), "it is not in the instance's root"),
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

/// A host may disconnect in the middle of anything, and the next one is served.
async fn hosts_come_and_go(vm: &Vm) -> Client {
    use tokio::io::AsyncWriteExt;
    let client = vm.connect_again().await;
    client.start(shell("left", "sleep 1000")).await.unwrap();
    drop(client);
    for garbage in
        [&b""[..], b"\0\0\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
    {
        let client = vm.connect_again().await;
        // The instance is still there.
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
    // Without its port the agent cannot be reached, so it must end the VM.
    let mut vm = Vm::boot(&artifacts, "org.squeezy.other");
    vm.ended(Duration::from_secs(300)).await;
    let console = vm.console();
    assert!(console.contains("no virtio-serial port is named org.squeezy.agent"), "{console}");
    assert!(console.contains("Attempted to kill init"), "{console}");
}

#[tokio::test]
async fn instances_in_partitions() {
    let Some(artifacts) = artifacts() else { return };
    let vm = Vm::boot_with_partitions(&artifacts, "llfree=all");
    let client = vm.connect().await;
    if squeezy(&client).await.is_none() {
        return skip(format_args!("{} has no partitions", artifacts.kernel.display()));
    }
    what_others_use_is_hidden(&client).await;
    partitions_are_assigned_in_turn(&client).await;
    a_start_waits_while_its_partition_is_plugged(&vm, &client).await;
    a_full_partition_ends_its_instance_only(&client).await;
    a_partition_is_shared_until_the_last_has_ended(&client).await;
    private_memory_has_a_limit_that_changes(&client).await;
    an_instance_in_a_partition_reads_what_it_may_have(&client).await;
    partitions_by_hand(&client).await;
}

/// The kernel's partitions, once the first one is plugged.
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

/// `squeezyctl exec` as root, without the agent.
#[tokio::test]
async fn squeezyctl_runs_commands_in_partitions() {
    let Some(artifacts) = artifacts() else { return };
    let script = "mount -t sysfs s /sys; cd /sys/kernel/mm/squeezy || poweroff -f; \
        until grep -q free partition0/state; do sleep 0.1; done; \
        squeezyctl exec -- cat partition0/state; \
        squeezyctl exec --wait 30000 --partition 0 -- sh -c 'cat partition0/users; exit 9'; \
        echo status $?; \
        squeezyctl exec --wait forever -- squeezyctl exec -- true; echo nested $?; \
        squeezyctl exec --wait 30000 /bin/absent; echo absent $?; \
        squeezyctl exec --wait 30000 /dev; echo directory $?; \
        squeezyctl exec --partition 2 --wait 50 true; echo unplugged $?; \
        squeezyctl exec --partition 3 true; echo range $?; \
        poweroff -f";
    let mut vm =
        Vm::boot_with_partitions(&artifacts, &format!("rdinit=/bin/sh -- -c \"{script}\""));
    vm.ended(Duration::from_secs(300)).await;
    let console = vm.console().replace('\r', "");
    if console.contains("can't cd to /sys/kernel/mm/squeezy") {
        return skip(format_args!("{} has no partitions", artifacts.kernel.display()));
    }
    for line in [
        "assigned",
        "2",
        "status 9",
        "squeezyctl: this process already runs in a partition",
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
