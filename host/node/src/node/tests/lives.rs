//! What happens when one thing goes wrong, or a few.

use super::{
    script::{Exceptions, Fate, Operation},
    *,
};
use crate::WaitedFor;
use squeezy_protocol::ExitReason;
use squeezy_scaler::RejectReason;
use tokio::time::sleep;

fn rejected(result: Result<Answer, CallError>) -> RejectReason {
    match result {
        Err(CallError::Rejected(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn once(operation: Operation, fate: Fate) -> Exceptions {
    Exceptions::default().with(operation, fate)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_answered_and_its_memory_goes_back() {
    let scene = Scene::of(Exceptions::default(), Setup::default()).await;
    let answer = scene.call(0).await.unwrap();
    assert_eq!((answer.waited_for, answer.logs), (WaitedFor::Boot, vec!["a line".to_owned()]));
    assert_eq!(scene.call(0).await.unwrap().waited_for, WaitedFor::Nothing);
    sleep(Duration::from_secs(11)).await;
    assert!(scene.seen.has("reclaimed: None"));
    assert_eq!(scene.worlds[0].machines()[0].living(), 0);
    sleep(Duration::from_secs(31)).await;
    assert!(scene.seen.has("ended: it is no longer needed"));
    assert_eq!(scene.node.status().await.unwrap().committed_bytes, 0);
    scene.end().await;
}

/// So that what is taken there is counted as its function's.
#[tokio::test(start_paused = true)]
async fn what_an_instance_has_left_is_in_its_own_partition() {
    let scene = Scene::of(once(Operation::Stop, Fate::Fails), Setup::default()).await;
    let (one, two) = tokio::join!(scene.call(0), scene.call(0));
    one.and(two).unwrap();
    sleep(Duration::from_secs(11)).await;
    scene.call(0).await.unwrap();
    sleep(Duration::from_secs(11)).await;
    let mut left = scene.worlds[0].machines()[0].left();
    assert_eq!(left.len(), 3, "{:#?}", scene.seen.lines());
    // The one that could not be stopped did not say where it was.
    assert_eq!(left.iter().filter(|(_, partition)| partition.is_none()).count(), 1);
    left.retain(|(_, partition)| partition.is_some());
    assert!(
        left.iter().all(|(slot, partition)| partition.map(|p| p.0) == Some(slot.0)),
        "{left:?}"
    );
    scene.end().await;
}

/// Its next call is slower for it, so that it is not worth it for one that comes soon.
#[tokio::test(start_paused = true)]
async fn an_instance_is_swept_once_it_has_been_frozen_for_long() {
    let mut setup = Setup::default();
    setup.limits.freeze_after = Some(Duration::from_secs(1));
    setup.limits.keep_alive = Duration::from_secs(600);
    let scene = Scene::of(Exceptions::default(), setup).await;
    let after = async |seconds| {
        sleep(Duration::from_secs(seconds)).await;
        scene.worlds[0].machines()[0].sweeps()
    };
    scene.call(0).await.unwrap();
    assert_eq!(after(50).await, 0);
    scene.call(0).await.unwrap();
    assert_eq!(after(50).await, 0, "a call came first");
    assert_eq!(after(20).await, 1);
    assert_eq!(after(300).await, 1);
    scene.call(0).await.unwrap();
    assert_eq!(after(70).await, 2);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_has_been_ended_is_not_swept() {
    let mut setup = Setup::default();
    setup.limits.freeze_after = Some(Duration::from_secs(1));
    setup.limits.keep_alive = Duration::from_secs(30);
    let scene = Scene::of(Exceptions::default(), Setup { idle_time: None, ..setup }).await;
    scene.call(0).await.unwrap();
    sleep(Duration::from_secs(100)).await;
    let machine = &scene.worlds[0].machines()[0];
    assert_eq!((machine.living(), machine.sweeps()), (0, 0));
    scene.end().await;
}

/// Its pause has taken all that is free.
#[tokio::test(start_paused = true)]
async fn an_instance_of_a_paused_vm_is_not_swept() {
    // More than it holds, so it is not squeezed.
    let squeezing = Some(SqueezePolicy::above(1 << 20, 2));
    let mut setup = Setup { squeezing, ..Setup::overcommit() };
    setup.limits.keep_alive = Duration::from_secs(600);
    let scene = Scene::of(Exceptions::default(), setup).await;
    scene.call(0).await.unwrap();
    sleep(Duration::from_secs(100)).await;
    let lines = scene.seen.lines();
    assert!(scene.seen.has("vm 0 paused") && !scene.seen.has("squeezed"), "{lines:#?}");
    assert_eq!(scene.worlds[0].machines()[0].sweeps(), 0);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_being_stopped_is_not_swept() {
    let mut setup = Setup::default();
    setup.limits.freeze_after = Some(Duration::from_secs(1));
    setup.limits.keep_alive = Duration::from_secs(58);
    let script = Exceptions::default().slow(Operation::Stop, Duration::from_secs(9));
    let scene = Scene::of(script, setup).await;
    scene.call(0).await.unwrap();
    // Frozen for a minute, and told to end some seconds before.
    sleep(Duration::from_secs(64)).await;
    let machine = &scene.worlds[0].machines()[0];
    assert!(scene.seen.has("stopping"), "{:#?}", scene.seen.lines());
    assert_eq!((machine.living(), machine.sweeps()), (1, 0));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_boot_that_fails_costs_the_calls_that_wait_for_it_and_no_later_one() {
    let scene = Scene::of(once(Operation::Boot, Fate::Fails), Setup::default()).await;
    assert_eq!(rejected(scene.call(0).await), RejectReason::VmFailed);
    scene.call(0).await.unwrap();
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_plug_that_is_refused_has_its_vm_replaced() {
    let scene = Scene::of(once(Operation::Plug, Fate::Fails), Setup::default()).await;
    assert_eq!(rejected(scene.call(0).await), RejectReason::StartFailed);
    assert!(scene.seen.has("not started: its memory could not be plugged"));
    assert!(scene.seen.has("takes no more instances"));
    scene.call(0).await.unwrap();
    assert_eq!(scene.worlds[0].machines().len(), 2);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_takes_too_long_is_given_up_and_its_memory_taken_back() {
    let scene = Scene::of(once(Operation::FirstRequest, Fate::Hangs), Setup::default()).await;
    assert_eq!(rejected(scene.call(0).await), RejectReason::StartFailed);
    assert!(scene.seen.has("not started: /start was not answered within"));
    scene.call(0).await.unwrap();
    assert!(scene.seen.has("reclaimed: None"));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_dies_in_a_call_costs_that_call_alone() {
    let scene = Scene::of(once(Operation::Call, Fate::InstanceDies), Setup::default()).await;
    assert_eq!(scene.failed().await, InstanceError::Ended(ExitReason::Exited(3)));
    scene.call(0).await.unwrap();
    assert_eq!(scene.worlds[0].machines().len(), 1);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_does_not_answer_is_stopped() {
    let scene = Scene::of(once(Operation::Call, Fate::Hangs), Setup::default()).await;
    assert!(matches!(scene.failed().await, InstanceError::CallTooLong(_)));
    scene.call(0).await.unwrap();
    assert!(scene.seen.has("reclaimed: None"));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_function_that_is_removed_can_be_ended() {
    let script = once(Operation::Call, Fate::Hangs).with(Operation::Call, Fate::Works);
    let scene = Scene::of(script, Setup::default()).await;
    let function = scene.functions[0];
    let begin = tokio::time::Instant::now();
    let (failed, ()) = tokio::join!(scene.failed(), async {
        sleep(Duration::from_secs(2)).await;
        // The one that hangs has been taken, and the function gets no other.
        scene.node.remove_function(function);
        scene.node.end_calls(TenantIndex::FIRST);
    });
    assert_eq!(failed, InstanceError::Removed);
    assert!(begin.elapsed() < Duration::from_secs(4));
    sleep(Duration::from_secs(40)).await;
    assert_eq!(scene.worlds[0].machines()[0].living(), 0);
    assert_eq!(scene.node.status().await.unwrap().committed_bytes, 0);
    // It is nothing to one that has no calls, or is not there.
    scene.node.end_calls(TenantIndex::FIRST);
    scene.node.end_calls(TenantIndex(7));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_vm_that_holds_more_than_there_is_costs_its_frozen_instances() {
    let limit_bytes = BASE_BYTES + 2 * INSTANCE_BYTES;
    let setup = Setup { limit_bytes, ..Setup::overcommit() };
    let scene = Scene::of(Exceptions::default(), setup).await;
    let much_bytes = BASE_BYTES + INSTANCE_BYTES;
    for (held_bytes, charged_bytes, vms) in [(much_bytes, much_bytes, 1), (limit_bytes + 1, 0, 2)] {
        scene.call(0).await.unwrap();
        scene.worlds[0].machines()[0].holds(held_bytes);
        sleep(Duration::from_secs(5)).await;
        let committed_bytes = scene.node.status().await.unwrap().committed_bytes;
        assert_eq!(committed_bytes, charged_bytes, "{:#?}", scene.seen.lines());
        scene.call(0).await.unwrap();
        assert_eq!(scene.worlds[0].machines().len(), vms, "{:#?}", scene.seen.lines());
    }
    assert!(scene.seen.has("ended: it held more memory than it may"));
    assert!(scene.seen.has("stopping: Overdrawn"));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn memory_that_does_not_come_back_in_time_is_looked_at_again() {
    let script = once(Operation::Reclaim, Fate::Fails).with(Operation::Settle, Fate::Fails);
    let scene = Scene::of(script, Setup { idle_time: None, ..Setup::default() }).await;
    scene.call(0).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    let status = scene.node.status().await.unwrap();
    assert_eq!(status.committed_bytes, BASE_BYTES, "{:#?}", scene.seen.lines());
    scene.call(0).await.unwrap();
    scene.end().await;
}

/// Whatever is under way when a VM ends, the next call is answered, and nothing is left of the old VM.
#[tokio::test(start_paused = true)]
async fn a_vm_that_ends_in_the_middle_of_anything_is_booted_anew() {
    for operation in Operation::OF_ONE {
        // There is a settle only after a reclaim has failed.
        let script = match operation {
            Operation::Settle => once(Operation::Reclaim, Fate::Fails),
            _ => Exceptions::default(),
        };
        let scene = Scene::of(script.with(operation, Fate::VmDies), Setup::overcommit()).await;
        let mut ends = 0;
        for _ in 0..6 {
            if scene.call(0).await.is_err() {
                ends += 1;
            }
            // The instance is frozen and squeezed, its VM paused and resumed; then the VM ends and is booted
            // again.
            sleep(Duration::from_secs(4)).await;
            if scene.call(0).await.is_err() {
                ends += 1;
            }
            sleep(Duration::from_secs(40)).await;
        }
        let lines = scene.seen.lines();
        assert_eq!(
            scene.seen.count("ended: the guest's kernel has panicked"),
            1,
            "{operation:?}: {lines:#?}"
        );
        assert!(ends <= 1, "{operation:?}: {lines:#?}");
        scene.call(0).await.unwrap();
        scene.end().await;
    }
}

/// A VM with a busy instance is not paused, and its other instance is squeezed.
#[tokio::test(start_paused = true)]
async fn a_frozen_instance_is_squeezed_beside_one_that_works() {
    for fate in [Fate::Works, Fate::Fails, Fate::Hangs, Fate::InstanceDies, Fate::VmDies] {
        let script = once(Operation::Squeeze, fate);
        let script = script.slow(Operation::Call, Duration::from_secs(30));
        let scene = Scene::of(script, Setup::overcommit()).await;
        let (slow, other) = tokio::join!(scene.call(0), scene.call(0));
        assert!(other.is_ok());
        assert_eq!(slow.is_ok(), fate != Fate::VmDies);
        let squeezed = scene.seen.count("squeezed: true") > 0;
        assert_eq!(squeezed, fate == Fate::Works, "{fate:?}: {:#?}", scene.seen.lines());
        scene.call(0).await.unwrap();
        scene.end().await;
    }
}

/// Calls at every moment of a pause and of a resume.
#[tokio::test(start_paused = true)]
async fn a_call_that_meets_a_pause_is_answered_by_a_vm_that_runs() {
    let mut thawed = 0;
    for ms in (900..3200).step_by(5) {
        let scene = Scene::of(Exceptions::default(), Setup::overcommit()).await;
        scene.call(0).await.unwrap();
        sleep(Duration::from_millis(ms)).await;
        let answer = scene.call(0).await.unwrap();
        thawed += usize::from(answer.waited_for == WaitedFor::Thaw);
        assert_eq!(scene.seen.count("starting"), 1);
        scene.end().await;
    }
    assert!(thawed > 100, "{thawed}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_or_a_resume_that_fails_costs_no_call() {
    for (operation, fate) in [
        (Operation::DropPageCache, Fate::Fails),
        (Operation::DropPageCache, Fate::Hangs),
        (Operation::Pause, Fate::Fails),
        (Operation::Pause, Fate::Hangs),
        (Operation::Resume, Fate::Fails),
    ] {
        let scene = Scene::of(once(operation, fate), Setup::overcommit()).await;
        for _ in 0..3 {
            scene.call(0).await.unwrap();
            sleep(Duration::from_secs(5)).await;
        }
        assert!(!scene.seen.has("has panicked"), "{operation:?}, {fate:?}");
        scene.end().await;
    }
}

/// There is memory for one VM with one instance, and never more than one call at a time.
#[tokio::test(start_paused = true)]
async fn functions_take_turns_where_there_is_memory_for_one() {
    for gap_ms in [0, 10, 500, 5_000, 9_990, 10_000, 10_010, 12_000] {
        let world = || World::new(Exceptions::default(), 2, true);
        let limit_bytes = BASE_BYTES + INSTANCE_BYTES;
        let setup = Setup { limit_bytes, idle_time: None, ..Setup::default() };
        let scene = Scene::new(vec![world(), world()], setup).await;
        for turn in 0..10 {
            let answer = scene.call(turn % 2).await.unwrap();
            assert!(answer.waited < Duration::from_secs(1), "{:?}", answer.waited);
            let status = scene.node.status().await.unwrap();
            assert!(status.committed_bytes <= limit_bytes);
            sleep(Duration::from_millis(gap_ms)).await;
        }
        scene.end().await;
    }
}

/// Drains at every moment of an instance's life.
#[tokio::test(start_paused = true)]
async fn a_node_that_drains_answers_what_it_has_begun() {
    for ms in 0..60 {
        let scene = Scene::of(Exceptions::default(), Setup::overcommit()).await;
        let call =
            Call { id: "a".to_owned(), value: json!({}), logs: false, trace: None, sent_on: false };
        let begun = scene.node.submit(scene.functions[0], call).await;
        sleep(Duration::from_millis(ms)).await;
        let node = scene.node.clone();
        let drain = tokio::spawn(async move { node.drain().await });
        let answer = tokio::time::timeout(EVER, begun.ok().unwrap()).await.unwrap();
        match answer {
            Ok(_) => {}
            Err(CallError::Rejected(RejectReason::Draining)) => assert!(ms < 50, "{ms} ms"),
            Err(error) => panic!("{ms} ms: {error}"),
        }
        tokio::time::timeout(EVER, drain).await.unwrap().unwrap();
        scene.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_with_another_contract_is_called_by_that() {
    let worlds = vec![World::new(Exceptions::default(), 2, false)];
    let scene = Scene::with(Arc::new(PlainServer), worlds, Setup::default()).await;
    assert_eq!(scene.call(0).await.unwrap().logs.len(), 3, "no line is special");
    let machine = &scene.worlds[0].machines()[0];
    assert_eq!(machine.paths(), ["/", "/run"]);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_function_that_was_removed() {
    let scene = Scene::of(Exceptions::default(), Setup::default()).await;
    let status = scene.node.status().await.unwrap();
    assert_eq!((status.functions.len(), status.vms.len()), (1, 1));
    assert!(scene.node.partitions().await.unwrap().is_empty(), "no VM runs");
    let index = scene.functions[0];
    scene.node.remove_function(index);
    let status = scene.node.status().await.unwrap();
    assert_eq!((status.functions.len(), status.vms.len()), (0, 0));
    let gone = scene.node.update_function(index, Setup::default().limits).await;
    assert_eq!(gone.unwrap_err().to_string(), "there is no function 0");
    scene.end().await;
}
