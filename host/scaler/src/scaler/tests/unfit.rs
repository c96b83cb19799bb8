//! Unfit VMs, which have to be replaced.

use super::*;

/// A VM that has become unfit, with a busy instance and one that was idle.
fn with_unfit() -> (Scaler, Vec<Command>) {
    let mut scaler = scaler(1000);
    let events = [
        (0, request(0)),
        (0, Event::VmBooted(V)),
        (0, request(1)),
        (1, Event::Started(n(0))),
        (1, Event::Started(n(1))),
        (2, Event::Answered(n(1))),
    ];
    play(&mut scaler, &events);
    let commands = play(&mut scaler, &[(3, Event::VmUnfit(V))]);
    (scaler, commands)
}

#[test]
fn an_unfit_vm_is_replaced_when_its_calls_are_answered() {
    let (mut scaler, commands) = with_unfit();
    assert_eq!(commands, [stop(1, StopReason::Broken)]);
    let events = [(4, Event::Stopped(n(1))), (4, Event::Reclaimed(n(1)))];
    assert!(!play(&mut scaler, &events).contains(&end(StopReason::Broken)), "one is busy");
    assert_eq!(play(&mut scaler, &[(5, request(2))]), [], "it waits for the next VM");
    assert_eq!(play(&mut scaler, &[(6, Event::Answered(n(0)))]), [stop(0, StopReason::Broken)]);
    play(&mut scaler, &[(7, Event::Stopped(n(0)))]);
    let commands = play(&mut scaler, &[(7, Event::Reclaimed(n(0)))]);
    assert_eq!(commands, [end(StopReason::Broken)]);
    assert_eq!(play(&mut scaler, &[(8, Event::VmEnded(V))]), [Command::BootVm(V)]);
    let start = Command::Start { function: F, vm: V, instance: n(2) };
    assert_eq!(play(&mut scaler, &[(9, Event::VmBooted(V))]), [start]);
    assert_eq!(play(&mut scaler, &[(9, Event::Started(n(2)))]), [dispatch(2, 2)]);
}

#[test]
fn a_call_outlives_the_vm_that_could_not_start_its_instance() {
    let mut scaler = scaler(1000);
    let events = [
        (0, request(0)),
        (0, Event::VmBooted(V)),
        (1, Event::Started(n(0))),
        (1, request(1)),
        (2, Event::VmUnfit(V)),
    ];
    play(&mut scaler, &events);
    let commands = play(&mut scaler, &[(2, Event::StartFailed(n(1)))]);
    assert_eq!(commands, [stop(1, StopReason::Broken)], "the call is kept");
    let events = [
        (3, Event::Stopped(n(1))),
        (3, Event::Reclaimed(n(1))),
        (3, Event::Answered(n(0))),
        (4, Event::Stopped(n(0))),
        (4, Event::Reclaimed(n(0))),
        (5, Event::VmEnded(V)),
        (6, Event::VmBooted(V)),
    ];
    let start = Command::Start { function: F, vm: V, instance: n(2) };
    assert_eq!(play(&mut scaler, &events), [start]);
    // The call does not wait for yet another VM if nothing has ever started in this one.
    let events = [(7, Event::VmUnfit(V)), (7, Event::StartFailed(n(2)))];
    let commands = play(&mut scaler, &events);
    assert!(commands.contains(&reject(1, RejectReason::StartFailed)), "{commands:?}");
}
