//! Pausing and resuming.

use super::*;

/// A pod with a container that runs, and a process that was added to it.
async fn running_with_more() -> Bench {
    let bench = running().await;
    bench.add("in/more").await.unwrap();
    bench.tasks.start(&name("in/more")).await.unwrap();
    bench
}

fn phase(bench: &Bench, of: &str) -> Phase {
    bench.tasks.snapshot(&name(of)).unwrap().phase
}

#[tokio::test(start_paused = true)]
async fn a_container_is_paused_and_resumed_with_what_was_added_to_it() {
    let bench = running_with_more().await;
    let before = bench.seen().len();
    bench.tasks.pause(&name("in")).await.unwrap();
    assert_eq!((phase(&bench, "in"), phase(&bench, "in/more")), (Phase::Paused, Phase::Paused));
    assert_eq!(phase(&bench, "pod"), Phase::Running);
    // What it uses is known meanwhile.
    bench.tasks.usage(&name("in")).await.unwrap();
    bench.tasks.resume(&name("in")).await.unwrap();
    assert_eq!((phase(&bench, "in"), phase(&bench, "in/more")), (Phase::Running, Phase::Running));
    assert_eq!(bench.seen()[before..], ["paused in", "resumed in"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_with_a_paused_container_is_refused() {
    let bench = running_with_more().await;
    bench.add("in/waits").await.unwrap();
    bench.tasks.pause(&name("in")).await.unwrap();
    let refused = [
        bench.tasks.pause(&name("in")).await,
        bench.tasks.start(&name("in")).await.map(drop),
        bench.tasks.start(&name("in/waits")).await.map(drop),
        bench.add("in/late").await,
        bench.tasks.delete(&name("in")).await.map(drop),
        bench.tasks.delete(&name("in/more")).await.map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().kind, ErrorKind::State);
    }
    // It is as it was.
    bench.tasks.resume(&name("in")).await.unwrap();
    bench.tasks.start(&name("in/waits")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_what_runs_is_paused_and_only_what_is_paused_resumed() {
    let bench = running_with_more().await;
    bench.create("waits", What::Container(id("pod"), parts())).await.unwrap();
    for (task, kind) in
        [("pod", ErrorKind::State), ("waits", ErrorKind::State), ("x", ErrorKind::NotFound)]
    {
        assert_eq!(bench.tasks.pause(&name(task)).await.unwrap_err().kind, kind, "{task}");
        assert_eq!(bench.tasks.resume(&name(task)).await.unwrap_err().kind, kind, "{task}");
    }
    assert_eq!(bench.tasks.resume(&name("in")).await.unwrap_err().kind, ErrorKind::State);
    bench.tasks.kill(&name("in"), Signal::KILL, true).await.unwrap();
    soon(bench.tasks.wait(&name("in"))).await.unwrap();
    let error = bench.tasks.pause(&name("in")).await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::State, "task in has ended"));
}

#[tokio::test(start_paused = true)]
async fn a_paused_container_can_be_killed_and_ends_with_its_pod() {
    for target in ["in", "pod"] {
        let bench = running_with_more().await;
        bench.tasks.pause(&name("in")).await.unwrap();
        bench.tasks.kill(&name(target), Signal::KILL, true).await.unwrap();
        assert_eq!(soon(bench.tasks.wait(&name("in"))).await.unwrap().status, 137);
        assert_eq!(soon(bench.tasks.wait(&name("in/more"))).await.unwrap().status, 137);
        assert_eq!(bench.tasks.resume(&name("in")).await.unwrap_err().kind, ErrorKind::State);
        bench.tasks.delete(&name("in")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_ends_with_its_pod_however_often_that_has_to_be_tried() {
    let bench = running_with_more().await;
    bench.vm.fail_kills(3);
    bench.tasks.kill(&name("pod"), Signal::KILL, true).await.unwrap();
    assert_eq!(soon(bench.tasks.wait(&name("in"))).await.unwrap().status, 137);
}

#[tokio::test(start_paused = true)]
async fn an_added_process_that_is_killed_ends_though_its_container_is_paused() {
    let bench = running_with_more().await;
    bench.tasks.pause(&name("in")).await.unwrap();
    bench.tasks.kill(&name("in/more"), Signal::KILL, false).await.unwrap();
    assert_eq!(soon(bench.tasks.wait(&name("in/more"))).await.unwrap().status, 137);
    assert_eq!((phase(&bench, "in"), phase(&bench, "in/more")), (Phase::Paused, Phase::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_paused_runs_and_one_that_cannot_be_resumed_is_paused() {
    let bench = running_with_more().await;
    bench.vm.follow(vec![(0, true)]);
    bench.tasks.pause(&name("in")).await.unwrap_err();
    assert_eq!(phase(&bench, "in"), Phase::Running);
    bench.tasks.pause(&name("in")).await.unwrap();
    bench.vm.follow(vec![(0, true)]);
    bench.tasks.resume(&name("in")).await.unwrap_err();
    assert_eq!(phase(&bench, "in"), Phase::Paused);
    bench.tasks.resume(&name("in")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_frozen_on_its_way_into_a_container() {
    let bench = running_with_more().await;
    bench.add("in/slow").await.unwrap();
    bench.vm.follow(vec![(100, false)]);
    let starting = {
        let tasks = bench.tasks.clone();
        tokio::spawn(async move { tasks.start(&name("in/slow")).await })
    };
    tokio::time::sleep(Duration::from_millis(10)).await;
    // The fake panics if it comes too early.
    soon(bench.tasks.pause(&name("in"))).await.unwrap();
    soon(starting).await.unwrap().unwrap();
    assert_eq!(phase(&bench, "in/slow"), Phase::Paused);
}
