//! Instances that are started ahead of calls, to take the place of those of another function.

use super::{
    script::{Exceptions, Fate, Operation},
    *,
};
use crate::WaitedFor;
use squeezy_scaler::RejectReason;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

/// Two functions: the second is to take the place of the first, which has an idle instance.
async fn scene(second: Exceptions, setup: Setup) -> Scene {
    let worlds = [Exceptions::default(), second].map(|script| World::new(script, 2, true));
    let scene = Scene::new(worlds.into(), setup).await;
    scene.call(0).await.unwrap();
    scene
}

impl Scene {
    fn prewarm(&self) -> impl Future<Output = Result<Prewarmed, CallError>> + use<> {
        let (node, first, second) = (self.node.clone(), self.functions[0], self.functions[1]);
        async move {
            match node.prewarm(second, first).await {
                Some(ended) => tokio::time::timeout(EVER, ended).await.unwrap(),
                None => Ok(Prewarmed::NothingToRelieve),
            }
        }
    }
}

fn rejected(reason: RejectReason) -> CallError {
    CallError::Rejected(reason)
}

#[tokio::test(start_paused = true)]
async fn the_first_call_waits_for_nothing() {
    let scene = scene(Exceptions::default(), Setup::default()).await;
    let prewarmed = tokio::spawn(scene.prewarm());
    // Meanwhile the other one serves.
    assert_eq!(scene.call(0).await.unwrap().waited_for, WaitedFor::Nothing);
    assert_eq!(prewarmed.await.unwrap(), Ok(Prewarmed::Up));
    assert_eq!(scene.call(1).await.unwrap().waited_for, WaitedFor::Nothing);
    assert_eq!(scene.prewarm().await, Ok(Prewarmed::Up));
    assert_eq!(scene.seen.count("starting"), 2);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_started_in_the_place_of_nothing() {
    let worlds = [(); 2].map(|()| World::new(Exceptions::default(), 2, true));
    let scene = Scene::new(worlds.into(), Setup::default()).await;
    assert_eq!(scene.prewarm().await, Ok(Prewarmed::NothingToRelieve));
    assert!(scene.worlds[1].machines().is_empty());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_there_is_something_to_relieve() {
    for ends in [false, true] {
        let scene =
            scene(Exceptions::default().slow(Operation::Boot, 12 * SECOND), Setup::default()).await;
        let prewarmed = tokio::spawn(scene.prewarm());
        sleep(SECOND).await;
        if ends {
            scene.worlds[0].machines()[0].die();
        }
        let begin = tokio::time::Instant::now();
        assert_eq!(prewarmed.await.unwrap(), Ok(Prewarmed::NothingToRelieve));
        // Its keep-alive is ten seconds.
        assert_eq!(begin.elapsed() < SECOND, ends, "{:?}", begin.elapsed());
        // What has been begun goes on.
        sleep(23 * SECOND / 2).await;
        assert_eq!(scene.call(1).await.unwrap().waited_for, WaitedFor::Nothing);
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_start_is_told_once() {
    for (operation, reason) in [
        (Operation::Boot, RejectReason::VmFailed),
        (Operation::Plug, RejectReason::StartFailed),
        (Operation::Start, RejectReason::StartFailed),
        (Operation::FirstRequest, RejectReason::StartFailed),
    ] {
        let scene = scene(Exceptions::default().with(operation, Fate::Fails), Setup::default());
        let scene = scene.await;
        assert_eq!(scene.prewarm().await, Err(rejected(reason)));
        assert_eq!(scene.seen.count(&format!("not prewarmed: {reason:?}")), 1);
        scene.call(0).await.unwrap();
        scene.call(1).await.unwrap();
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_beside_the_other_one_is_refused_or_gets_it_in_its_place() {
    let limit_bytes = BASE_BYTES + INSTANCE_BYTES;
    let setup = || Setup { limit_bytes, ..Setup::default() };
    // What is idle gives way.
    let idle = scene(Exceptions::default(), setup()).await;
    assert_eq!(idle.prewarm().await, Ok(Prewarmed::NothingToRelieve));
    assert_eq!(idle.call(1).await.unwrap().waited_for, WaitedFor::Boot);
    assert_eq!(idle.seen.count("starting"), 2, "{:#?}", idle.seen.lines());
    idle.end().await;
    // What runs does not.
    let slow = Exceptions::default().slow(Operation::Call, SECOND).slow(Operation::Call, SECOND);
    let worlds = vec![World::new(slow, 2, true), World::new(Exceptions::default(), 2, true)];
    let busy = Scene::new(worlds, setup()).await;
    let calls = async { (busy.call(0).await, busy.call(0).await) };
    let (calls, refused) = tokio::join!(calls, async {
        sleep(SECOND / 2).await;
        busy.prewarm().await
    });
    assert_eq!(refused, Err(rejected(RejectReason::NoRoomAhead)));
    assert!(calls.0.is_ok() && calls.1.is_ok());
    busy.end().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_hears_of_every_end() {
    let slow = || Exceptions::default().slow(Operation::Boot, 5 * SECOND);
    let removed = scene(slow(), Setup::default()).await;
    let prewarmed = tokio::spawn(removed.prewarm());
    sleep(SECOND).await;
    removed.node.remove_function(removed.functions[1]);
    assert_eq!(prewarmed.await.unwrap(), Err(rejected(RejectReason::Retired)));
    assert!(!removed.seen.has("not prewarmed"));
    sleep(10 * SECOND).await;
    assert!(removed.worlds[1].machines().iter().all(|m| crate::Machine::ended(&**m).is_some()));
    removed.end().await;

    let drained = scene(slow(), Setup::default()).await;
    let prewarmed = tokio::spawn(drained.prewarm());
    sleep(SECOND).await;
    drained.node.drain().await;
    assert_eq!(prewarmed.await.unwrap(), Err(rejected(RejectReason::Draining)));
    assert_eq!(drained.prewarm().await, Ok(Prewarmed::NothingToRelieve));
    drained.end().await;
}
