//! What waits for a pod to be thawed, which may take seconds, and holds up nobody.

use super::*;
use tokio::task::JoinHandle;

/// Begins to start a task or an added process of a frozen pod.
async fn starting(bench: &Bench, of: &str) -> JoinHandle<Result<u32>> {
    let (tasks, name) = (bench.tasks.clone(), name(of));
    let starting = tokio::spawn(async move { tasks.start(&name).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!starting.is_finished(), "{of} has not waited");
    starting
}

/// A pod with a container that runs, and another one and an added process that do not; nothing of it can be thawed.
async fn frozen() -> Bench {
    let bench = running().await;
    bench.create("waits", What::Container(id("pod"), parts())).await.unwrap();
    bench.add("in/waits").await.unwrap();
    bench.vm.freeze(true);
    bench
}

#[tokio::test(start_paused = true)]
async fn a_container_is_killed_and_deleted_and_what_is_being_added_to_it_is_told() {
    let bench = frozen().await;
    let adding = starting(&bench, "in/waits").await;
    soon(bench.tasks.kill(&name("in"), Signal::KILL, true)).await.unwrap();
    soon(bench.tasks.wait(&name("in"))).await.unwrap();
    let error = soon(adding).await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::State, "container in has ended"));
    soon(bench.tasks.delete(&name("in"))).await.unwrap();
    assert_eq!(bench.vm.left(), (1, 1), "there is more than the pod and its other container");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_started_is_killed() {
    for of in ["waits", "in/waits"] {
        let bench = frozen().await;
        let starting = starting(&bench, of).await;
        soon(bench.tasks.kill(&name(of), Signal::KILL, true)).await.unwrap();
        assert_eq!(soon(bench.tasks.wait(&name(of))).await.unwrap().status, 137);
        assert_eq!(soon(starting).await.unwrap().unwrap_err().kind, ErrorKind::State);
        soon(bench.tasks.delete(&name(of))).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_not_start_is_told_at_once() {
    let bench = frozen().await;
    bench.vm.freeze(false);
    bench.tasks.pause(&name("in")).await.unwrap();
    bench.vm.freeze(true);
    let error = soon(bench.tasks.start(&name("in/waits"))).await.unwrap_err();
    assert_eq!(error.message, "container in is paused: resume it first");
    let error = soon(bench.tasks.start(&name("in"))).await.unwrap_err();
    assert_eq!(error.message, "task in runs already");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_created_is_not_there_yet_for_whoever_would_use_its_pod() {
    let bench = running().await;
    bench.vm.follow(vec![(1_000, false)]);
    let (late, what) = (name("late"), What::Container(id("pod"), parts()));
    let (created, started, paused, resumed) = tokio::join!(
        bench.create("late", what),
        bench.tasks.start(&late),
        bench.tasks.pause(&late),
        bench.tasks.resume(&late),
    );
    created.unwrap();
    for refused in [started.map(drop), paused, resumed] {
        assert_eq!(refused.unwrap_err().kind, ErrorKind::NotFound);
    }
    bench.tasks.start(&late).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_removed_whatever_waits_in_it() {
    let bench = frozen().await;
    let waiting = [starting(&bench, "waits").await, starting(&bench, "in/waits").await];
    let pausing = {
        let tasks = bench.tasks.clone();
        tokio::spawn(async move { tasks.pause(&name("in")).await })
    };
    tokio::task::yield_now().await;
    soon(bench.tasks.remove(&name("pod"))).await;
    assert_eq!((bench.tasks.is_empty(), bench.vm.left()), (true, (0, 0)));
    for waiting in waiting {
        soon(waiting).await.unwrap().unwrap_err();
    }
    soon(pausing).await.unwrap().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_started_once_its_pod_is_thawed() {
    let bench = frozen().await;
    let waiting = [starting(&bench, "waits").await, starting(&bench, "in/waits").await];
    bench.vm.freeze(false);
    for waiting in waiting {
        soon(waiting).await.unwrap().unwrap();
    }
    for of in ["waits", "in/waits"] {
        assert_eq!(bench.tasks.snapshot(&name(of)).unwrap().phase, Phase::Running, "{of}");
    }
}
