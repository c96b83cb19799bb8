//! Frozen instances that take memory while their VM runs.

use super::{
    script::{Exceptions, Fate, Operation},
    *,
};
use tokio::time::sleep;

/// One of two instances has a call that takes 50 s, so their VM is not paused. What the other one does meanwhile, which is
/// frozen after its own call, is up to `act`, and the rest to `script`. Returns the end of the long call.
async fn beside_a_long_call(
    script: Exceptions,
    setup: Setup,
    act: impl AsyncFnOnce(&Scene),
) -> (Scene, Result<Answer, CallError>) {
    let script = script.slow(Operation::Call, Duration::from_secs(50));
    let scene = Scene::of(script, setup).await;
    let (long, ()) = tokio::join!(scene.call(0), async {
        scene.call(0).await.unwrap();
        act(&scene).await;
    });
    (scene, long)
}

/// From second 15 on, each instance holds `bytes`, or it is not known how much. Before, it is 5.
async fn grow(setup: Setup, bytes: Option<u64>) -> (Scene, Result<Answer, CallError>) {
    beside_a_long_call(Exceptions::default(), setup, async |scene: &Scene| {
        sleep(Duration::from_secs(15)).await;
        scene.worlds[0].machines()[0].instances_hold(bytes);
    })
    .await
}

fn overcommit() -> Setup {
    let mut setup = Setup::overcommit();
    setup.limits.keep_alive = Duration::from_secs(1000);
    setup
}

#[tokio::test(start_paused = true)]
async fn a_vm_whose_frozen_instance_takes_memory_is_ended_and_booted_again() {
    let (scene, long) = grow(overcommit(), Some(9)).await;
    let lines = scene.seen.lines();
    let Err(CallError::Failed { reason, vm_ended: true, .. }) = &long else { panic!("{long:?}") };
    let (reason, why) = (reason.to_string(), "is frozen and has taken 4 B of memory, 9 B in all");
    assert!(reason.contains(why), "{reason}");
    assert_eq!(scene.seen.count(&format!("vm 0 ended: {reason}")), 1, "{lines:#?}");
    assert_eq!(scene.seen.count("lost"), 2, "{lines:#?}");
    assert_eq!(scene.node.status().await.unwrap().committed_bytes, 0);
    scene.call(0).await.unwrap();
    assert_eq!(scene.worlds[0].machines().len(), 2);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_lives_on_whose_frozen_instance_holds_no_more_or_an_unknown_amount() {
    for bytes in [Some(6), Some(3), None] {
        let (scene, long) = grow(overcommit(), bytes).await;
        long.unwrap();
        assert_eq!(scene.seen.count(" ended"), 0, "{:#?}", scene.seen.lines());
        let measured = scene.worlds[0].machines()[0].measured();
        let looks = measured.iter().filter(|&&held| held == (bytes, bytes)).count();
        assert!(looks >= 3, "{measured:?}");
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_measured_again_where_frozen_instances_are_charged_in_full() {
    let mut setup = Setup::default();
    setup.limits.freeze_after = Some(Duration::from_secs(1));
    setup.limits.keep_alive = Duration::from_secs(1000);
    let (scene, long) = grow(setup, Some(9)).await;
    long.unwrap();
    assert_eq!(scene.seen.count(" ended"), 0, "{:#?}", scene.seen.lines());
    assert!(scene.worlds[0].machines()[0].measured().is_empty());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_frozen_instance_is_charged_for_what_it_grows_by() {
    let limit_bytes = BASE_BYTES + 2 * INSTANCE_BYTES;
    let setup = Setup { limit_bytes, ..overcommit() };
    let grow = async |scene: &Scene| {
        for bytes in [5, 6, 7] {
            scene.worlds[0].machines()[0].instances_hold(Some(bytes));
            sleep(Duration::from_secs(12)).await;
            let committed_bytes = scene.node.status().await.unwrap().committed_bytes;
            assert_eq!(committed_bytes, BASE_BYTES + INSTANCE_BYTES + bytes);
        }
    };
    let (scene, long) = beside_a_long_call(Exceptions::default(), setup, grow).await;
    long.unwrap();
    scene.end().await;
}

/// As it may on a host without `cachestat`, as long as a QEMU does something to the file.
#[tokio::test(start_paused = true)]
async fn a_measurement_that_does_not_end_is_not_the_last_one() {
    let hang = async |scene: &Scene| {
        sleep(Duration::from_secs(5)).await;
        let machine = &scene.worlds[0].machines()[0];
        machine.measures_for_ever(true);
        sleep(Duration::from_secs(10)).await;
        machine.measures_for_ever(false);
        machine.instances_hold(Some(9));
    };
    let (scene, long) = beside_a_long_call(Exceptions::default(), overcommit(), hang).await;
    let lines = scene.seen.lines();
    assert!(matches!(long, Err(CallError::Failed { vm_ended: true, .. })), "{lines:#?}");
    scene.end().await;
}

/// Its agent was to freeze it again, and could not.
#[tokio::test(start_paused = true)]
async fn who_is_not_frozen_after_a_squeeze_is_charged_in_full_and_may_take_that() {
    let script = Exceptions::default().with(Operation::Freeze, Fate::Works);
    let script = script.with(Operation::Freeze, Fate::Fails);
    let grow = async |scene: &Scene| {
        sleep(Duration::from_secs(5)).await;
        assert_eq!(scene.seen.count("squeezed: false"), 1, "{:#?}", scene.seen.lines());
        scene.worlds[0].machines()[0].instances_hold(Some(9));
        sleep(Duration::from_secs(20)).await;
        let committed_bytes = scene.node.status().await.unwrap().committed_bytes;
        assert_eq!(committed_bytes, BASE_BYTES + 2 * INSTANCE_BYTES);
    };
    let (scene, long) = beside_a_long_call(script, overcommit(), grow).await;
    long.unwrap();
    assert_eq!(scene.seen.count(" ended"), 0, "{:#?}", scene.seen.lines());
    scene.end().await;
}

/// A call at any moment around a look, also while it measures.
#[tokio::test(start_paused = true)]
async fn who_is_called_may_take_its_memory_back() {
    let mut met = 0;
    for ms in (9_500..10_500).step_by(5) {
        let call = async |scene: &Scene| {
            sleep(Duration::from_millis(ms)).await;
            let (answer, ()) = tokio::join!(scene.call(0), async {
                sleep(Duration::from_millis(1)).await;
                scene.worlds[0].machines()[0].instances_hold(Some(INSTANCE_BYTES));
            });
            answer.unwrap();
        };
        let (scene, long) = beside_a_long_call(Exceptions::default(), overcommit(), call).await;
        long.unwrap();
        assert_eq!(scene.seen.count(" ended"), 0, "after {ms} ms");
        let measured = scene.worlds[0].machines()[0].measured();
        met += measured.iter().filter(|(before, after)| before < after).count();
        scene.end().await;
    }
    assert!(met > 0, "no call came during a look");
}
