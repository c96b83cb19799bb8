//! Minimum instances.

use super::{
    script::{Exceptions, Fate, Operation},
    *,
};
use crate::WaitedFor;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

async fn keeping(script: Exceptions, mut setup: Setup) -> Scene {
    setup.limits.minimum_instances = 1;
    let scene = Scene::of(script, setup).await;
    sleep(SECOND).await;
    scene
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_there_before_the_first_call_and_long_after_the_last() {
    for setup in [Setup::default(), Setup::overcommit()] {
        let scene = keeping(Exceptions::default(), setup).await;
        assert_eq!(scene.call(0).await.unwrap().waited_for, WaitedFor::Nothing);
        sleep(1000 * SECOND).await;
        let waited_for = scene.call(0).await.unwrap().waited_for;
        assert!(matches!(waited_for, WaitedFor::Nothing | WaitedFor::Thaw), "{waited_for:?}");
        assert_eq!(scene.seen.count("starting"), 1);
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_is_replaced_whatever_it_was() {
    let scene = keeping(Exceptions::default(), Setup::default()).await;
    scene.worlds[0].machines()[0].die();
    sleep(10 * SECOND).await;
    assert_eq!((scene.seen.count("lost"), scene.seen.count("started")), (1, 2));
    scene.node.evict_idle();
    sleep(SECOND).await;
    assert_eq!(scene.call(0).await.unwrap().waited_for, WaitedFor::Nothing);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_start_is_tried_again_with_pauses() {
    for operation in [Operation::Boot, Operation::Start, Operation::FirstRequest] {
        let script =
            (0..3).fold(Exceptions::default(), |script, _| script.with(operation, Fate::Fails));
        let scene = keeping(script, Setup::default()).await;
        sleep(20 * SECOND).await;
        let lines = scene.seen.lines();
        assert!(!lines.contains(&"started".to_owned()), "{operation:?}: {lines:#?}");
        // After 5, 10 and 20 s, and the time that each failure takes.
        sleep(100 * SECOND).await;
        let answer = scene.call(0).await.unwrap();
        assert_eq!(answer.waited_for, WaitedFor::Nothing, "{operation:?}");
        scene.end().await;
    }
}
