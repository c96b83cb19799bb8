//! Calls in every order, several at once, over a VM that is slow, fails and dies.

use super::*;
use crate::spec::Limits;
use proptest::prelude::*;
use tokio::{task::JoinSet, time::sleep};

/// Two pods, three containers in them, and two that are both; and processes that are added to some, and to a pod, which
/// takes none.
const NAMES: [&str; 12] = [
    "pod-a",
    "pod-b",
    "in-a",
    "also-in-a",
    "in-b",
    "single-a",
    "single-b",
    "in-a/x",
    "in-a/y",
    "also-in-a/x",
    "single-a/x",
    "pod-a/x",
];

fn what(name: &str) -> What {
    match name {
        "pod-a" | "pod-b" => What::Pod(pod()),
        "in-a" | "also-in-a" => What::Container(id("pod-a"), parts()),
        "in-b" => What::Container(id("pod-b"), parts()),
        _ => What::Single(pod(), parts()),
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(&'static str),
    Start(&'static str),
    Kill(&'static str, u32),
    Delete(&'static str),
    Wait(&'static str),
    Usage(&'static str),
    /// Of the limits of a task, not of what was added to it.
    Update(&'static str),
    Pause(&'static str),
    Resume(&'static str),
    /// Pods are frozen, or thawed.
    Freeze(bool),
    /// Its process ends by itself.
    Exit(&'static str, u8),
    /// All that has begun has these milliseconds to go on.
    Sleep(u64),
    EndVm,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        6 => name().prop_map(Step::Create),
        6 => name().prop_map(Step::Start),
        3 => (name(), prop::sample::select(vec![9, 15, 17, 64])).prop_map(|(name, signal)| Step::Kill(name, signal)),
        4 => name().prop_map(Step::Delete),
        4 => name().prop_map(Step::Wait),
        1 => name().prop_map(Step::Usage),
        2 => name().prop_map(Step::Update),
        3 => name().prop_map(Step::Pause),
        2 => name().prop_map(Step::Resume),
        2 => any::<bool>().prop_map(Step::Freeze),
        4 => (name(), any::<u8>()).prop_map(|(name, status)| Step::Exit(name, status)),
        8 => (0..20_u64).prop_map(Step::Sleep),
        1 => Just(Step::EndVm),
    ]
}

/// Runs the steps, each without waiting for the one before, then ends and deletes everything.
async fn run(steps: Vec<Step>, script: Vec<(u64, bool)>) {
    let bench = Bench::new();
    bench.vm.follow(script);
    let mut calls = JoinSet::new();
    let mut waits = JoinSet::new();
    let watching = {
        let tasks = bench.tasks.clone();
        tokio::spawn(async move { tasks.end_with_vm(async {}).await })
    };
    for step in steps {
        let tasks = bench.tasks.clone();
        match step {
            Step::Create(added) if added.contains('/') => {
                calls.spawn(
                    async move { tasks.add(&name(added), process(), Streams::default()).await },
                );
            }
            Step::Create(task) => {
                let create = Create {
                    id: id(task),
                    what: what(task),
                    bundle: "/b".into(),
                    streams: Streams::default(),
                };
                calls.spawn(async move { tasks.create(create, Vec::new()).await.map(drop) });
            }
            Step::Start(task) => {
                _ = calls.spawn(async move { tasks.start(&name(task)).await.map(drop) })
            }
            Step::Kill(task, signal) => {
                calls.spawn(async move {
                    tasks.kill(&name(task), Signal::new(signal).unwrap(), false).await
                });
            }
            Step::Delete(task) => {
                _ = calls.spawn(async move { tasks.delete(&name(task)).await.map(drop) })
            }
            Step::Usage(task) => {
                _ = calls.spawn(async move {
                    tasks.processes(&name(task)).await?;
                    tasks.usage(&name(task)).await.map(drop)
                })
            }
            Step::Update(task) => {
                let task = Name::from(name(task).task);
                _ = calls.spawn(async move { tasks.update(&task, Limits::default()).await })
            }
            Step::Pause(task) => _ = calls.spawn(async move { tasks.pause(&name(task)).await }),
            Step::Resume(task) => _ = calls.spawn(async move { tasks.resume(&name(task)).await }),
            Step::Freeze(is_frozen) => bench.vm.freeze(is_frozen),
            Step::Wait(task) => {
                _ = waits
                    .spawn(async move { tasks.wait(&name(task)).await.map(|exit| (task, exit)) })
            }
            Step::Exit(task, status) => {
                bench.vm.end_process(&name(task), Ended { status, out_of_memory: status == 137 })
            }
            Step::Sleep(ms) => sleep(Duration::from_millis(ms)).await,
            Step::EndVm => bench.vm.end(),
        }
        // Whoever is ready goes on.
        tokio::task::yield_now().await;
    }
    bench.vm.freeze(false);
    soon(async {
        while let Some(call) = calls.join_next().await {
            let _ = call.expect("the contract is kept");
        }
    })
    .await;
    bench.vm.follow(Vec::new());
    soon(async {
        while !bench.tasks.is_empty() {
            for task in NAMES.iter().rev().map(|task| name(task)) {
                let _ = bench.tasks.kill(&task, Signal::KILL, true).await;
                if bench.tasks.snapshot(&task).is_ok() {
                    bench.tasks.wait(&task).await.expect("it is there");
                    let _ = bench.tasks.delete(&task).await;
                }
            }
        }
    })
    .await;
    // No wait is without an end, and each has an end that was told.
    let seen = bench.seen();
    soon(async {
        while let Some(wait) = waits.join_next().await {
            if let Ok((task, _)) = wait.unwrap() {
                assert!(
                    seen.contains(&format!("exit {task}"))
                        || !seen.contains(&format!("create {task}"))
                );
            }
        }
    })
    .await;
    for task in NAMES {
        if task.contains('/') {
            check_order_of_added(task, &seen);
        } else {
            check_order(task, &seen);
        }
    }
    if !bench.vm.has_ended() {
        assert_eq!(bench.vm.left(), (0, 0));
    }
    assert_eq!(bench.host.holders(), 0);
    let created = seen
        .iter()
        .filter(|event| {
            event.starts_with("create ") && !event.contains(" in-") && !event.contains(" also-")
        })
        .count();
    assert!(bench.host.released().len() >= created, "each pod's place is given back");
    watching.abort();
}

/// Each life of a task is: create, start unless it never came to that, paused and resumed in turn, out of memory perhaps,
/// exit once, delete.
fn check_order(name: &str, seen: &[String]) {
    let mut expected: &[&str] = &["create"];
    for event in seen {
        let Some(event) = event.strip_suffix(name).and_then(|event| event.strip_suffix(' ')) else {
            continue;
        };
        assert!(expected.contains(&event), "{name}: {event} instead of {expected:?} in {seen:?}");
        expected = match event {
            "create" => &["start", "exit"],
            "start" | "resumed" => &["paused", "oom", "exit"],
            "paused" => &["resumed", "oom", "exit"],
            "oom" => &["exit"],
            "exit" => &["delete"],
            _ => &["create"],
        };
    }
    assert_eq!(expected, ["create"], "{name} is not deleted: {seen:?}");
}

/// The same for a process that was added, of whose deletion nobody is told; it begins while its container runs and is not
/// paused, and ends while it is there.
fn check_order_of_added(name: &str, seen: &[String]) {
    let (container, _) = name.split_once('/').unwrap();
    let (mut lives, mut runs, mut has_started) = (false, false, false);
    let mut is_paused = false;
    for event in seen {
        let (what, of) = event.split_once(' ').unwrap();
        let ok = match (what, of == name) {
            ("exec-added", true) => runs && !is_paused && !std::mem::replace(&mut lives, true),
            ("exec-started", true) => {
                runs && !is_paused && lives && !std::mem::replace(&mut has_started, true)
            }
            ("exit", true) => {
                has_started = false;
                runs && std::mem::replace(&mut lives, false)
            }
            (_, true) => false,
            ("start", _) if of == container => !std::mem::replace(&mut runs, true),
            ("paused" | "resumed", _) if of == container => {
                is_paused = what == "paused";
                true
            }
            ("exit", _) if of == container => {
                (runs, is_paused) = (false, false);
                !lives
            }
            _ => true,
        };
        assert!(ok, "{name}: {event} in {seen:?}");
    }
    assert!(!lives, "{name} has not ended: {seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..Default::default() })]

    #[test]
    fn whatever_comes_at_once_each_task_lives_once_in_order_and_leaves_nothing(
        steps in prop::collection::vec(step(), 0..90),
        script in prop::collection::vec((0..15_u64, prop::bool::weighted(0.15)), 0..90),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(run(steps, script));
    }
}
