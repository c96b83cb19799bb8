use super::*;

fn prewarm(function: FunctionIndex, number: u64) -> Event {
    Event::Prewarm { function, request: RequestNumber(number) }
}

fn prewarmed(number: u64) -> Command {
    Command::Prewarmed(RequestNumber(number))
}

#[test]
fn an_instance_comes_ahead_of_calls() {
    let mut scaler = scaler(1000);
    assert_eq!(play(&mut scaler, &[(0, prewarm(F, 7))]), [Command::BootVm(V)]);
    let start = Command::Start { function: F, vm: V, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(1, Event::VmBooted(V))]), [start]);
    assert_eq!(play(&mut scaler, &[(2, Event::Started(n(0)))]), [prewarmed(7)]);
    assert_eq!(scaler.counts(F), Counts { idle: 1, promised_bytes: 100, ..Counts::default() });
    assert_eq!(play(&mut scaler, &[(3, request(8))]), [dispatch(0, 8)]);
    play(&mut scaler, &[(4, Event::Answered(n(0)))]);
    assert_eq!(scaler.next_deadline(), Some(at(14)), "it is kept no longer than any other");
}

#[test]
fn nothing_is_started_if_there_is_an_instance() {
    let mut scaler = with_idle(1000, 1);
    assert_eq!(play(&mut scaler, &[(2, prewarm(F, 1))]), [prewarmed(1)]);
    assert_eq!(play(&mut scaler, &[(3, request(2)), (3, prewarm(F, 3))]), [prewarmed(3)]);
}

#[test]
fn a_call_that_comes_meanwhile_gets_the_instance_and_starts_no_other() {
    let mut scaler = scaler(1000);
    play(&mut scaler, &[(0, prewarm(F, 0)), (1, Event::VmBooted(V))]);
    assert_eq!(play(&mut scaler, &[(2, prewarm(F, 1))]), [reject(1, RejectReason::QueueFull)]);
    // Two are wanted now.
    let start = Command::Start { function: F, vm: V, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(2, request(2))]), [start]);
    let both = [prewarmed(0), dispatch(0, 2)];
    assert_eq!(play(&mut scaler, &[(3, Event::Started(n(0)))]), both);
}

#[test]
fn it_makes_room_as_a_call_would() {
    let mut scaler = with_idle(120, 1);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(2, prewarm(G, 1))]), [evicted]);
    play(&mut scaler, &[(2, Event::Stopped(n(0)))]);
    assert_eq!(play(&mut scaler, &[(3, Event::Reclaimed(n(0)))]), [Command::BootVm(W)]);
}

#[test]
fn it_is_given_up_as_a_call_would_be() {
    let mut scaler = scaler(1000);
    play(&mut scaler, &[(0, prewarm(F, 0))]);
    let failed = [reject(0, RejectReason::VmFailed)];
    assert_eq!(play(&mut scaler, &[(1, Event::VmFailed(V))]), failed);
    play(&mut scaler, &[(2, prewarm(F, 1)), (2, Event::VmBooted(V))]);
    let failed = [stop(0, StopReason::Broken), reject(1, RejectReason::StartFailed)];
    assert_eq!(play(&mut scaler, &[(3, Event::StartFailed(n(0)))]), failed);
    play(&mut scaler, &[(4, prewarm(F, 2))]);
    let too_long = [reject(2, RejectReason::WaitedTooLong(WaitingFor::Start))];
    assert_eq!(play(&mut scaler, &[(104, Event::Tick)])[..1], too_long);
    play(&mut scaler, &[(104, prewarm(G, 3))]);
    assert_eq!(play(&mut scaler, &[(105, Event::Retire(G))]), [reject(3, RejectReason::Retired)]);
    let draining = [reject(4, RejectReason::Draining)];
    assert_eq!(play(&mut scaler, &[(106, Event::Drain), (106, prewarm(F, 4))]), draining);
}

#[test]
fn it_is_no_call_and_takes_no_call_s_place() {
    let mut scaler = Scaler::new(Budget::new(1000));
    scaler.add_vm(vm()).unwrap();
    let policy = TenantPolicy { calls: Some(1), ..TenantPolicy::default() };
    scaler.update_tenant(TenantIndex::FIRST, policy).unwrap();
    let one = FunctionPolicy { queue_limit: 1, ..function(V) };
    scaler.add_function(TenantIndex::FIRST, one).unwrap();
    play(&mut scaler, &[(0, prewarm(F, 0))]);
    assert_eq!(scaler.counts(F).queued, 0);
    assert_eq!(scaler.tenant_counts(TenantIndex::FIRST).queued, 0);
    assert_eq!(play(&mut scaler, &[(1, request(1))]), []);
    assert_eq!(scaler.counts(F).queued, 1);
    assert_eq!(play(&mut scaler, &[(1, request(2))]), [reject(2, RejectReason::TooManyCalls)]);
}

#[test]
fn nothing_is_ended_for_what_would_not_fit_all_the_same() {
    // There is room for one VM with two instances, and one of them is busy.
    let mut scaler = scaler(210);
    play(&mut scaler, &[(0, request(0)), (0, request(1)), (0, Event::VmBooted(V))]);
    play(&mut scaler, &[(1, Event::Started(n(0))), (1, Event::Started(n(1)))]);
    play(&mut scaler, &[(2, Event::Answered(n(0)))]);
    let no_room = [reject(2, RejectReason::NoRoomAhead)];
    assert_eq!(play(&mut scaler, &[(3, prewarm(G, 2))]), no_room);
    // A call waits for the one that runs, and takes what is idle before.
    assert_eq!(play(&mut scaler, &[(4, request_to(G, 3))]), [stop(0, StopReason::Evicted)]);
}
