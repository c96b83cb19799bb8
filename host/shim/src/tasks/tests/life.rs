use super::*;
use crate::spec::Limits;

fn ended(status: u8) -> Ended {
    Ended { status, out_of_memory: false }
}

#[tokio::test(start_paused = true)]
async fn a_pod_and_its_container_live_and_leave_nothing() {
    let bench = Bench::new();
    let (pod_id, container) = (name("pod"), name("container"));
    let pid = bench.create("pod", What::Pod(pod())).await.unwrap();
    bench.tasks.start(&pod_id).await.unwrap();
    assert_eq!(bench.create("container", What::Container(id("pod"), parts())).await.unwrap(), pid);
    bench.tasks.start(&container).await.unwrap();
    assert_eq!(bench.tasks.usage(&container).await.unwrap().memory_bytes, 4096);
    bench.tasks.update(&container, Limits::default()).await.unwrap();
    bench.vm.end_process(&container, ended(3));
    assert_eq!(soon(bench.tasks.wait(&container)).await.unwrap().status, 3);
    assert_eq!(bench.tasks.delete(&container).await.unwrap().1.status, 3);
    bench.tasks.kill(&pod_id, Signal::KILL, false).await.unwrap();
    assert_eq!(soon(bench.tasks.wait(&pod_id)).await.unwrap().status, 137);
    bench.tasks.delete(&pod_id).await.unwrap();
    let seen = bench.seen();
    let expected = [
        "create pod",
        "start pod",
        "create container",
        "start container",
        "exit container",
        "delete container",
        "exit pod",
        "delete pod",
    ];
    assert_eq!(seen, expected);
    assert!(bench.tasks.is_empty());
    assert_eq!((bench.vm.left(), bench.host.holders()), ((0, 0), 0));
    assert_eq!(bench.host.released(), [id("pod")]);
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_a_pod_that_has_ended_goes_back_when_it_has_no_containers() {
    let bench = running().await;
    bench.create("empty", What::Pod(pod())).await.unwrap();
    for pod in ["pod", "empty"] {
        bench.tasks.kill(&name(pod), Signal::KILL, false).await.unwrap();
    }
    soon(bench.tasks.wait(&name("in"))).await.unwrap();
    assert!(bench.vm.has_ended_pod(&id("empty")), "it waits until it is deleted");
    assert!(!bench.vm.has_ended_pod(&id("pod")), "it has a container");
    bench.tasks.delete(&name("in")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(bench.vm.has_ended_pod(&id("pod")), "it had a container");
    soon(bench.tasks.delete(&name("empty"))).await.unwrap();
    assert_eq!(bench.vm.left(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_at_its_end_is_gone_though_its_memory_does_not_go_back_before() {
    let bench = Bench::new();
    bench.create("pod", What::Pod(pod())).await.unwrap();
    bench.tasks.start(&name("pod")).await.unwrap();
    // The call at its end.
    bench.vm.follow(vec![(100, true)]);
    bench.tasks.kill(&name("pod"), Signal::KILL, false).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(bench.vm.has_begun_all());
    soon(bench.tasks.delete(&name("pod"))).await.unwrap();
    assert_eq!(bench.vm.left(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_though_its_place_is_given_back_later() {
    let bench = Bench::new();
    bench.create("pod", What::Pod(pod())).await.unwrap();
    let registry = bench.host.registry.lock().await;
    soon(bench.tasks.delete(&name("pod"))).await.unwrap();
    assert!(bench.tasks.is_empty() && bench.host.released().is_empty());
    drop(registry);
    soon(async {
        while bench.host.released() != [id("pod")] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn limits_change_before_the_start_and_after_it_but_not_meanwhile() {
    let bench = Bench::new();
    let one = name("one");
    let limits = |mib: u64| Limits { memory_bytes: Some(mib << 20), ..Limits::default() };
    assert_eq!(bench.tasks.update(&one, limits(1)).await.unwrap_err().kind, ErrorKind::NotFound);
    bench.create("one", What::Single(pod(), parts())).await.unwrap();
    bench.tasks.update(&one, limits(64)).await.unwrap();
    assert_eq!(bench.vm.limits_of(&one.task), limits(64));
    bench.vm.follow(vec![(100, false)]);
    let starting = {
        let (tasks, one) = (bench.tasks.clone(), one.clone());
        tokio::spawn(async move { tasks.start(&one).await })
    };
    tokio::time::sleep(Duration::from_millis(10)).await;
    // The fake panics if it comes too early.
    soon(bench.tasks.update(&one, limits(96))).await.unwrap();
    soon(starting).await.unwrap().unwrap();
    assert_eq!(bench.vm.limits_of(&one.task), limits(96));
    bench.tasks.kill(&one, Signal::KILL, true).await.unwrap();
    soon(bench.tasks.wait(&one)).await.unwrap();
    assert_eq!(bench.tasks.update(&one, limits(64)).await.unwrap_err().kind, ErrorKind::State);
}

#[tokio::test(start_paused = true)]
async fn a_full_partition_is_told_before_the_exit() {
    let bench = Bench::new();
    bench.create("one", What::Single(pod(), parts())).await.unwrap();
    bench.tasks.start(&name("one")).await.unwrap();
    bench.vm.end_process(&name("one"), Ended { status: 137, out_of_memory: true });
    soon(bench.tasks.wait(&name("one"))).await.unwrap();
    assert_eq!(bench.seen(), ["create one", "start one", "oom one", "exit one"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_of_a_pod_that_has_ended_is_refused_at_once() {
    let bench = Bench::new();
    let container = || What::Container(id("pod"), parts());
    assert_eq!(bench.create("early", container()).await.unwrap_err().kind, ErrorKind::State);
    bench.create("pod", What::Pod(pod())).await.unwrap();
    bench.create("first", container()).await.unwrap();
    bench.tasks.kill(&name("pod"), Signal::KILL, false).await.unwrap();
    assert_eq!(bench.create("late", container()).await.unwrap_err().kind, ErrorKind::State);
    assert_eq!(bench.tasks.start(&name("first")).await.unwrap_err().kind, ErrorKind::State);
    // It ends with its pod.
    assert_eq!(soon(bench.tasks.wait(&name("first"))).await.unwrap().status, 137);
}

#[tokio::test(start_paused = true)]
async fn what_fails_half_way_leaves_nothing() {
    let bench = Bench::new();
    // The pod is made, its container is not.
    bench.vm.follow(vec![(0, true), (0, false)]);
    bench.create("one", What::Single(pod(), parts())).await.unwrap_err();
    assert!(bench.tasks.is_empty());
    assert_eq!((bench.vm.left(), bench.host.holders()), ((0, 0), 0));
    assert_eq!(bench.host.released(), [id("one")]);
    assert!(bench.seen().is_empty());
    bench.create("one", What::Single(pod(), parts())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_no_room_beside_others_ends_and_its_place_is_nobodys() {
    let bench = running().await;
    bench.vm.follow(vec![(0, true)]);
    bench.create("fails", What::Container(id("pod"), parts())).await.unwrap_err();
    assert_eq!(bench.tasks.snapshot(&name("pod")).unwrap().phase, Phase::Running);
    assert!(bench.host.refused().is_empty(), "it would fail anywhere");
    bench.vm.crowd();
    let error = bench.create("more", What::Container(id("pod"), parts())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Crowded);
    assert_eq!(bench.host.refused(), [id("pod")]);
    assert!(bench.host.released().is_empty(), "it has its place until it is deleted");
    for task in ["in", "pod"] {
        assert_eq!(soon(bench.tasks.wait(&name(task))).await.unwrap().status, 137, "{task}");
        bench.tasks.delete(&name(task)).await.unwrap();
    }
    assert!(bench.tasks.is_empty());
    assert_eq!(bench.host.released(), [id("pod")]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_made_beside_others_is_the_last_that_is_sent_here() {
    let bench = Bench::new();
    bench.vm.crowd();
    let error = bench.create("pod", What::Pod(pod())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Crowded);
    assert_eq!((bench.host.refused(), bench.host.released()), (vec![id("pod")], vec![id("pod")]));
    assert!(bench.tasks.is_empty() && bench.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_can_be_tried_again() {
    let bench = Bench::new();
    bench.create("one", What::Single(pod(), parts())).await.unwrap();
    bench.vm.follow(vec![(0, true)]);
    bench.tasks.start(&name("one")).await.unwrap_err();
    bench.tasks.start(&name("one")).await.unwrap();
    assert_eq!(bench.seen(), ["create one", "start one"]);
}

#[tokio::test(start_paused = true)]
async fn all_tasks_end_with_their_vm_after_nobody_can_find_it() {
    let bench = Bench::new();
    let watching = {
        let (tasks, events) = (bench.tasks.clone(), bench.events.clone());
        tokio::spawn(async move {
            let exits =
                || events.envelopes().iter().filter(|event| event.topic == "/tasks/exit").count();
            tasks.end_with_vm(async { assert_eq!(exits(), 0) }).await;
        })
    };
    bench.create("pod", What::Pod(pod())).await.unwrap();
    bench.tasks.start(&name("pod")).await.unwrap();
    bench.create("runs", What::Container(id("pod"), parts())).await.unwrap();
    bench.tasks.start(&name("runs")).await.unwrap();
    bench.create("waits", What::Container(id("pod"), parts())).await.unwrap();
    bench.vm.end();
    for task in ["runs", "waits", "pod"] {
        assert_eq!(soon(bench.tasks.wait(&name(task))).await.unwrap().status, 255, "{task}");
    }
    soon(watching).await.unwrap();
    let error = bench.create("late", What::Pod(pod())).await.unwrap_err();
    assert!(error.message.contains("the VM has ended: killed"), "{error}");
    for task in ["runs", "waits", "pod"] {
        soon(bench.tasks.delete(&name(task))).await.unwrap();
    }
    assert!(bench.tasks.is_empty());
    assert_eq!(bench.host.holders(), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_out_of_order_say_why() {
    let bench = Bench::new();
    let one = name("one");
    assert_eq!(bench.tasks.start(&one).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(bench.tasks.snapshot(&one).unwrap_err().kind, ErrorKind::NotFound);
    bench.create("one", What::Single(pod(), parts())).await.unwrap();
    assert_eq!(bench.create("one", What::Pod(pod())).await.unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(bench.tasks.usage(&one).await.unwrap_err().kind, ErrorKind::State);
    bench.tasks.start(&one).await.unwrap();
    assert_eq!(bench.tasks.start(&one).await.unwrap_err().kind, ErrorKind::State);
    assert_eq!(bench.tasks.delete(&one).await.unwrap_err().kind, ErrorKind::State);
    bench.tasks.kill(&one, Signal::KILL, true).await.unwrap();
    soon(bench.tasks.wait(&one)).await.unwrap();
    assert_eq!(
        bench.tasks.kill(&one, Signal::KILL, true).await.unwrap_err().kind,
        ErrorKind::NotFound
    );
    bench.tasks.delete(&one).await.unwrap();
    assert_eq!(bench.tasks.delete(&one).await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn tasks_are_bounded() {
    let bench = Bench::new();
    for number in 0..MAX_TASKS {
        bench.create(&format!("pod-{number}"), What::Pod(pod())).await.unwrap();
    }
    assert_eq!(bench.create("one-more", What::Pod(pod())).await.unwrap_err().kind, ErrorKind::Full);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_left_half_way_is_deleted_until_it_is_gone() {
    let bench = Bench::new();
    // Its pod is made, its container is not, and the pod cannot be deleted, twice.
    bench.vm.follow(vec![(0, true), (0, true), (0, true), (0, false)]);
    bench.create("one", What::Single(pod(), parts())).await.unwrap_err();
    assert_eq!(
        bench.create("one", What::Single(pod(), parts())).await.unwrap_err().kind,
        ErrorKind::Exists
    );
    soon(async {
        while !bench.tasks.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!((bench.vm.left(), bench.host.holders()), ((0, 0), 0));
    bench.create("one", What::Single(pod(), parts())).await.unwrap();
}
