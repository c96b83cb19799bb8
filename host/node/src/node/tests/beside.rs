//! Instances that serve several calls at a time.

use super::{
    script::{Exceptions, Fate, Operation},
    *,
};
use squeezy_protocol::ExitReason;

/// A node with one function, each instance of which serves two calls at a time.
async fn scene(script: Exceptions) -> Scene {
    Scene::new(vec![World::new(script, 2, true).serving(2)], Setup::default()).await
}

fn reason(result: Result<Answer, CallError>) -> InstanceError {
    match result {
        Err(CallError::Failed { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn two_calls_at_a_time_need_one_instance() {
    let slow = Duration::from_secs(30);
    let script = Exceptions::default().slow(Operation::Call, slow).slow(Operation::Call, slow);
    let scene = scene(script).await;
    let begin = tokio::time::Instant::now();
    let (one, other) = tokio::join!(scene.call(0), scene.call(0));
    assert!(one.is_ok() && other.is_ok() && begin.elapsed() < slow + Duration::from_secs(5));
    assert_eq!(scene.seen.count("starting"), 1);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_dies_costs_all_its_calls_and_no_other() {
    let script = Exceptions::default()
        .slow(Operation::Call, Duration::from_secs(30))
        .with(Operation::Call, Fate::InstanceDies);
    let scene = scene(script).await;
    let (one, other) = tokio::join!(scene.call(0), scene.call(0));
    assert_eq!(
        [one, other].map(reason),
        [(); 2].map(|()| InstanceError::Ended(ExitReason::Exited(3)))
    );
    scene.call(0).await.unwrap();
    assert_eq!(scene.seen.count("starting"), 2);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_ends_costs_all_its_calls() {
    let script = Exceptions::default()
        .slow(Operation::Call, Duration::from_secs(30))
        .with(Operation::Call, Fate::VmDies);
    let scene = scene(script).await;
    let (one, other) = tokio::join!(scene.call(0), scene.call(0));
    assert!([one, other].map(reason).iter().all(|it| matches!(it, InstanceError::VmEnded(_))));
    scene.call(0).await.unwrap();
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_does_not_end_the_one_beside_it() {
    let script = Exceptions::default()
        .with(Operation::Call, Fate::Hangs)
        .slow(Operation::Call, Duration::from_secs(30));
    let scene = scene(script).await;
    let (hangs, other) = tokio::join!(scene.call(0), async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        scene.call(0).await
    });
    assert!(matches!(reason(hangs), InstanceError::CallTooLong(_)));
    other.unwrap();
    assert!(scene.seen.has("stopping: Broken"), "{:#?}", scene.seen.lines());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_end_together_do_not_wait_for_each_other_s_output() {
    let scene = scene(Exceptions::default()).await;
    scene.call(0).await.unwrap();
    let begin = tokio::time::Instant::now();
    let (one, other) = tokio::join!(scene.call(0), scene.call(0));
    let mut lines = [one, other].map(|answer| answer.unwrap().logs.len());
    lines.sort_unstable();
    assert_eq!(lines, [0, 2], "who ends first has the lines of both");
    assert!(begin.elapsed() < Duration::from_millis(50), "{:?}", begin.elapsed());
    assert_eq!(scene.call(0).await.unwrap().logs, ["a line"]);
    scene.end().await;
}
