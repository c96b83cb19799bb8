use super::*;
use crate::{
    group::Group,
    owner::tests::{busy_owner, stopped_owner},
    registry::Place,
    serve::tests::{Running, limit},
};
use containerd_shim_protos::api;
use rustix::net::listen;
use serde_json::json;
use std::{fs, os::unix::process::ExitStatusExt, path::PathBuf, thread};
use tempfile::TempDir;
use tokio::{task::spawn_blocking, time::sleep};

const CONTAINERD: &str = "/run/containerd/containerd.sock";

fn id(text: &str) -> Id {
    text.parse().unwrap()
}

/// The task of this id, whose bundle is in `directory`.
fn task(directory: &Path, name: &str) -> Task {
    Task {
        namespace: id("default"),
        id: id(name),
        address: CONTAINERD.to_owned(),
        bundle: Some(directory.join(name)),
    }
}

fn registry(state: &Path) -> Registry {
    Registry::lock(state, CONTAINERD, &id("default")).unwrap()
}

/// Makes a bundle of the pod `one`, or of a container in it.
fn write_bundle(directory: &Path, name: &str) -> PathBuf {
    let bundle = directory.join(name);
    let kind = if name == "one" { "sandbox" } else { "container" };
    let spec = json!({
        "process": {"args": ["sh"], "cwd": "/"},
        "annotations": {
            "io.kubernetes.cri.container-type": kind,
            "io.kubernetes.cri.sandbox-id": "one",
            "io.kubernetes.cri.sandbox-memory": "134217728"
        },
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "network"}]
        }
    });
    fs::create_dir(&bundle).unwrap();
    fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
    bundle
}

/// Makes a bundle, and says how its task is created.
fn bundle(running: &Running, name: &str) -> api::CreateTaskRequest {
    let bundle = write_bundle(running.directory.path(), name).display().to_string();
    api::CreateTaskRequest { id: name.to_owned(), bundle, ..running.create() }
}

async fn start(running: &Running, name: &str) {
    let start = api::StartRequest { id: name.to_owned(), ..Default::default() };
    running.task().start(limit(), &start).await.unwrap();
}

/// A server with the pod `one`, and in it the container `in`; both run.
async fn running() -> Running {
    let running = Running::new().await;
    for name in ["one", "in"] {
        running.task().create(limit(), &bundle(&running, name)).await.unwrap();
        start(&running, name).await;
    }
    running
}

/// What containerd does with a task that it gives up on.
async fn deleted(running: &Running, name: &str) {
    let state = running.directory.path().to_owned();
    let task = task(&state, name);
    let printed = spawn_blocking(move || delete(&task, &state)).await.unwrap().unwrap();
    assert_eq!(DeleteResponse::parse_from_bytes(&printed).unwrap().exit_status, 137);
}

fn has_place(running: &Running) -> bool {
    registry(running.directory.path()).server_of(&id("one")).is_ok()
}

/// The server ends after its last task.
async fn ends(running: Running) {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, running.server).await.expect("it ends").unwrap().unwrap();
    assert_eq!(running.vm.left(), (0, 0));
}

/// Begins to create a task, which takes the VM so long.
async fn creating(running: &Running, request: api::CreateTaskRequest, milliseconds: u64) {
    running.vm.follow(vec![(milliseconds, false)]);
    let client = running.task();
    tokio::spawn(async move { client.create(limit(), &request).await });
    // Its pod's holder is started before.
    let begins = async {
        while !running.vm.has_begun_all() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), begins).await.expect("it is created");
}

#[tokio::test]
async fn a_container_that_runs_is_removed_and_its_pod_goes_on() {
    let running = running().await;
    deleted(&running, "in").await;
    assert_eq!(running.vm.left(), (1, 0));
    assert!(has_place(&running));
    // containerd executes it again after each task that it has deleted.
    deleted(&running, "in").await;
    deleted(&running, "one").await;
    ends(running).await;
}

#[tokio::test]
async fn a_container_that_is_being_created_is_removed_when_it_is_made() {
    let running = Running::new().await;
    running.task().create(limit(), &bundle(&running, "one")).await.unwrap();
    creating(&running, bundle(&running, "in"), 1500).await;
    deleted(&running, "in").await;
    assert_eq!(running.vm.left(), (1, 0));
}

#[tokio::test]
async fn a_pod_is_removed_with_its_containers_and_its_server_ends() {
    let running = running().await;
    deleted(&running, "one").await;
    assert_eq!(running.vm.left(), (0, 0));
    assert!(!has_place(&running));
    ends(running).await;
}

#[tokio::test]
async fn a_pod_whose_boot_takes_long_is_removed_after_it_and_has_its_place_until_then() {
    let running = Running::new().await;
    creating(&running, bundle(&running, "one"), 12_000).await;
    let begin = Instant::now();
    deleted(&running, "one").await;
    let waited = begin.elapsed();
    // containerd waits for 5 s. Who tests this may have to wait for the processor besides.
    const { assert!(REMOVAL_LIMIT.as_secs() < 5) };
    assert!(waited < Duration::from_secs(10), "containerd does not wait for {waited:?}");
    assert!(has_place(&running));
    ends(running).await;
}

#[tokio::test]
async fn a_place_is_given_back_whose_pod_never_came_to_its_server() {
    let running = Running::new().await;
    deleted(&running, "one").await;
    assert!(!has_place(&running));
}

#[tokio::test]
async fn a_server_that_is_only_too_busy_goes_on_and_removes_a_pod_when_it_comes_to_it() {
    // Also one that never came to it.
    for running in [running().await, Running::new().await] {
        let state = running.directory.path().to_owned();
        let mut process = busy_owner(&registry(&state).owner(&running.assignment.server));
        let task = task(&state, "one");
        // Nobody else has this thread meanwhile, on which the server would answer.
        thread::spawn(move || delete(&task, &state)).join().unwrap().unwrap();
        assert!(process.try_wait().unwrap().is_none(), "it is ended");
        assert!(has_place(&running));
        process.kill().unwrap();
        process.wait().unwrap();
        ends(running).await;
    }
}

/// Has a place kept for a pod, as `start` does.
fn reserve(state: &Path, pod: &str) -> Place {
    let group = Group::of_namespace("", 128 << 20);
    registry(state).reserve(&id(pod), &group, &[]).unwrap()
}

#[test]
fn a_server_that_hangs_is_ended_for_a_pod_and_takes_no_more_but_not_for_a_container() {
    let state = TempDir::new().unwrap();
    let Place::New(server, listener) = reserve(state.path(), "one") else {
        panic!("there is none yet")
    };
    reserve(state.path(), "two");
    let mut process = stopped_owner(&registry(state.path()).owner(&server));
    // It has as many connections as it can have, from whoever looked whether it runs: that is no answer yet, and no end.
    listen(&listener, 0).unwrap();

    write_bundle(state.path(), "in");
    delete(&task(state.path(), "in"), state.path()).unwrap();
    assert!(process.try_wait().unwrap().is_none(), "the VM of others is ended for a container");

    let begin = Instant::now();
    delete(&task(state.path(), "one"), state.path()).unwrap();
    assert!(begin.elapsed() >= PATIENCE.idle, "it has had no time to answer");
    assert_eq!(process.wait().unwrap().signal(), Some(9));
    // The listener is still there, as if the process did not end.
    let found = registry(state.path()).server_of(&id("two"));
    assert!(found.is_err(), "{found:?} has places");
    assert!(matches!(reserve(state.path(), "three"), Place::New(..)));
}

#[test]
fn the_next_server_of_a_name_is_left_alone() {
    let state = TempDir::new().unwrap();
    let Place::New(server, listener) = reserve(state.path(), "one") else {
        panic!("there is none yet")
    };
    let owner = registry(state.path()).owner(&server);
    fs::write(&owner, "").unwrap();
    let found = Found::new(&registry(state.path()), server).unwrap();
    // While it is waited for, the server ends, and another one has its name.
    drop(listener);
    let Place::New(next, _listening) = reserve(state.path(), "two") else {
        panic!("the first has ended")
    };
    assert_eq!(next, found.server);
    let mut process = stopped_owner(&owner);
    found.end(&id("one"), || Ok(registry(state.path()))).unwrap();
    assert!(process.try_wait().unwrap().is_none(), "the next one is killed");
    assert!(registry(state.path()).server_of(&id("two")).is_ok(), "the next one is forgotten");
    process.kill().unwrap();
    process.wait().unwrap();
}
