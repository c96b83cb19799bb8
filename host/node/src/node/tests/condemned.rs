//! Instances of paused VMs that lose their memory.

use super::{
    script::{Exceptions, Fate, Operation, Script, Step},
    *,
};
use crate::WaitedFor;
use tokio::time::sleep;

/// A node with memory for one VM with two instances, whose first function's VM follows the script.
async fn scene(script: impl Script + 'static) -> Scene {
    let mut setup = Setup::overcommit();
    setup.limit_bytes = BASE_BYTES + 2 * INSTANCE_BYTES;
    setup.limits.keep_alive = Duration::from_secs(1000);
    let worlds = vec![
        World::new(script, 2, true),
        World::new(Exceptions::default(), 2, true),
        World::new(Exceptions::default(), 2, true),
    ];
    Scene::new(worlds, setup).await
}

/// The same, with two frozen instances in the paused VM of function 0 and one in that of function 2. They hold so much
/// that an instance of function 1 needs the memory of one of them.
async fn tight(script: impl Script + 'static) -> Scene {
    let scene = scene(script).await;
    let (one, other) = tokio::join!(scene.call(0), scene.call(0));
    assert!(one.is_ok() && other.is_ok());
    sleep(Duration::from_secs(20)).await;
    scene.call(2).await.unwrap();
    sleep(Duration::from_secs(20)).await;
    assert!(scene.seen.has("vm 0 paused") && scene.seen.has("vm 2 paused"));
    scene
}

#[tokio::test(start_paused = true)]
async fn a_paused_vm_loses_what_was_used_least_recently_and_nobody_else_notices() {
    let scene = tight(Exceptions::default()).await;
    let resumed = scene.seen.count("vm 0 resumed");
    scene.call(1).await.unwrap();
    let lines = scene.seen.lines();
    assert_eq!(scene.seen.count("0 condemned: 5"), 1, "{lines:#?}");
    assert_eq!(scene.seen.count("stopping: Evicted"), 1, "{lines:#?}");
    assert_eq!(scene.seen.count("vm 0 resumed"), resumed, "its VM need not run for that");
    let machine = &scene.worlds[0].machines()[0];
    assert_eq!(machine.living(), 2);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.call(0).await.unwrap().waited_for, WaitedFor::Thaw);
    assert_eq!(machine.living(), 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.seen.count("reclaimed: None"), 1, "its slot is free again");
    assert_eq!(scene.seen.count("stopping"), 1, "and it was reported as evicted once");
    assert_eq!(scene.seen.count("starting"), 4);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_a_condemnation_no_call_is_lost() {
    for operation in [Operation::Doom, Operation::Condemn] {
        for fate in [Fate::Fails, Fate::Hangs, Fate::InstanceDies, Fate::VmDies] {
            for call_again in [false, true] {
                let script = Exceptions::default().with(operation, fate);
                let scene = match (operation, fate) {
                    // Then there is nothing to condemn.
                    (Operation::Doom, Fate::VmDies) => continue,
                    _ => tight(script).await,
                };
                scene.call(1).await.unwrap();
                if operation == Operation::Condemn {
                    // After a failure in the middle it cannot live on, and what it has given back is not known.
                    let gone = matches!(fate, Fate::Hangs | Fate::InstanceDies);
                    assert_eq!(scene.seen.has("0 condemned: 0"), gone, "{fate:?}");
                    assert_eq!(scene.seen.count("0 condemned: "), usize::from(gone), "{fate:?}");
                    assert_eq!(scene.seen.count("vm 0 ended"), 1, "{fate:?}: its memory is needed");
                }
                sleep(Duration::from_secs(20)).await;
                if call_again {
                    scene.call(0).await.unwrap();
                }
                scene.end().await;
            }
        }
    }
}

/// A call at every moment of a pause and of what is condemned after it.
#[tokio::test(start_paused = true)]
async fn a_call_that_meets_a_condemnation_is_answered() {
    let slow = || {
        let script = Exceptions::default().slow(Operation::Condemn, Duration::from_millis(40));
        script.slow(Operation::Doom, Duration::from_millis(40))
    };
    let mut condemned = 0;
    for ms in (0..120).step_by(3) {
        let scene = tight(slow()).await;
        let later = async {
            sleep(Duration::from_millis(ms)).await;
            scene.call(0).await
        };
        let (new, old) = tokio::join!(scene.call(1), later);
        assert!(new.is_ok() && old.is_ok(), "after {ms} ms: {new:?}, {old:?}");
        condemned += scene.seen.count("condemned: ");
        scene.end().await;
    }
    assert!(condemned > 30, "{condemned}");
    for ms in (900..3500).step_by(10) {
        let scene = scene(slow()).await;
        let (one, other) = tokio::join!(scene.call(0), scene.call(0));
        assert!(one.is_ok() && other.is_ok());
        sleep(Duration::from_millis(ms)).await;
        let (one, other) = tokio::join!(scene.call(0), scene.call(0));
        for answer in [one.unwrap(), other.unwrap()] {
            assert!(answer.waited < Duration::from_millis(100), "{:?}", answer.waited);
        }
        assert_eq!(scene.seen.count("starting"), 2);
        scene.end().await;
    }
}

/// Nobody dooms or condemns.
struct Peaceful(Exceptions);

impl Script for Peaceful {
    fn next(&mut self, operation: Operation) -> Step {
        assert!(![Operation::Doom, Operation::Condemn].contains(&operation), "{operation:?}");
        self.0.next(operation)
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_in_a_vm_is_not_doomed_because_the_vm_would_end_with_it() {
    let scene = scene(Peaceful(Exceptions::default())).await;
    scene.call(0).await.unwrap();
    sleep(Duration::from_secs(20)).await;
    assert!(scene.seen.has("vm 0 paused"));
    scene.call(0).await.unwrap();
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_waits_a_second_at_most_until_all_are_doomed() {
    let paused_after = async |script| {
        let scene = scene(script).await;
        let (one, other) = tokio::join!(scene.call(0), scene.call(0));
        assert!(one.is_ok() && other.is_ok());
        let begin = tokio::time::Instant::now();
        while !scene.seen.has("vm 0 paused") {
            sleep(Duration::from_millis(1)).await;
        }
        scene.end().await;
        begin.elapsed()
    };
    let hangs = paused_after(Exceptions::default().with(Operation::Doom, Fate::Hangs)).await;
    let usual = paused_after(Exceptions::default()).await;
    assert!(hangs.saturating_sub(usual) < Duration::from_millis(1100), "{hangs:?}, {usual:?}");
}
