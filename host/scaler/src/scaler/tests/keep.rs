use super::*;

/// A scaler whose first function has a minimum.
fn keeping(budget: u64, min_instances: u32) -> Scaler {
    let mut scaler = scaler(budget);
    scaler.update_function(F, FunctionPolicy { min_instances, ..function(V) }).unwrap();
    scaler
}

/// The same, with its minimum of one instance.
fn kept(budget: u64) -> Scaler {
    let mut scaler = keeping(budget, 1);
    play(&mut scaler, &[(0, Event::Tick), (0, Event::VmBooted(V)), (1, Event::Started(n(0)))]);
    scaler
}

fn start(number: u64) -> Command {
    Command::Start { function: F, vm: V, instance: n(number) }
}

#[test]
fn a_minimum_is_started_without_a_call() {
    let mut scaler = keeping(1000, 2);
    assert_eq!(play(&mut scaler, &[(0, Event::Tick)]), [Command::BootVm(V)]);
    assert_eq!(play(&mut scaler, &[(1, Event::VmBooted(V))]), [start(0), start(1)]);
    play(&mut scaler, &[(2, Event::Started(n(0))), (2, Event::Started(n(1)))]);
    let counts = Counts { idle: 2, minimum: 2, promised_bytes: 200, ..Counts::default() };
    assert_eq!(scaler.counts(F), counts);
    assert_eq!(play(&mut scaler, &[(3, request(0))]), [dispatch(1, 0)]);
}

#[test]
fn a_minimum_outlives_its_keep_alive_and_nothing_else_does() {
    let mut scaler = kept(1000);
    play(&mut scaler, &[(2, request(0)), (2, request(1)), (3, Event::Started(n(1)))]);
    play(&mut scaler, &[(4, Event::Answered(n(0))), (5, Event::Answered(n(1)))]);
    assert_eq!(play(&mut scaler, &[(14, Event::Tick)]), [stop(0, StopReason::KeepAliveOver)]);
    play(&mut scaler, &[(14, Event::Stopped(n(0))), (14, Event::Reclaimed(n(0)))]);
    for seconds in [15, 25, 35, 1000] {
        assert_eq!(play(&mut scaler, &[(seconds, Event::Tick)]), []);
        assert!(scaler.next_deadline() > Some(at(seconds)));
    }
    // Nor does what was one of the minimum, and is one too many now.
    play(&mut scaler, &[(1001, request(2)), (1001, request(3)), (1001, Event::Started(n(2)))]);
    play(&mut scaler, &[(1002, Event::Answered(n(2))), (1003, Event::Answered(n(1)))]);
    assert_eq!(play(&mut scaler, &[(1012, Event::Tick)]), [stop(2, StopReason::KeepAliveOver)]);
    // As soon as it is none any more.
    scaler.update_function(F, function(V)).unwrap();
    let over = stop(1, StopReason::KeepAliveOver);
    assert_eq!(play(&mut scaler, &[(1013, Event::Tick)]), [over]);
}

#[test]
fn an_old_one_goes_when_a_later_one_is_enough() {
    let mut scaler = kept(1000);
    // Its keep-alive is over before the other one is there, which then works for long.
    play(&mut scaler, &[(11, Event::Tick), (12, request(0)), (12, request(1))]);
    play(&mut scaler, &[(13, Event::Started(n(1))), (14, Event::Answered(n(0)))]);
    assert_eq!(play(&mut scaler, &[(24, Event::Tick)]), [stop(0, StopReason::KeepAliveOver)]);
}

#[test]
fn one_that_ends_is_replaced_after_a_pause_that_grows_with_every_failure() {
    let mut scaler = kept(1000);
    let (mut now, mut number) = (100, 0);
    for pause in [5, 10, 20, 40, 80, 160, 300, 300] {
        let broken = stop(number, StopReason::Broken);
        assert_eq!(play(&mut scaler, &[(now, Event::Died(n(number)))]), [broken]);
        play(&mut scaler, &[(now, Event::Stopped(n(number))), (now, Event::Reclaimed(n(number)))]);
        let early = scaler.handle(at(now + pause - 1), Event::Tick).unwrap();
        assert!(!early.contains(&start(number + 1)), "{early:?}");
        assert!(scaler.next_deadline() <= Some(at(now + pause)));
        number += 1;
        let commands = play(&mut scaler, &[(now + pause, Event::Tick)]);
        // The VM may have been ended meanwhile, because it was empty.
        if commands != [start(number)] {
            play(&mut scaler, &[(now + pause, Event::VmEnded(V))]);
            let booted = play(&mut scaler, &[(now + pause, Event::VmBooted(V))]);
            assert_eq!(booted, [start(number)]);
        }
        play(&mut scaler, &[(now + pause, Event::Started(n(number)))]);
        now += pause;
    }
    // A failure long after is the first one again.
    now += 1000;
    play(&mut scaler, &[(now, Event::Died(n(number))), (now, Event::Stopped(n(number)))]);
    play(&mut scaler, &[(now, Event::Reclaimed(n(number)))]);
    assert_eq!(play(&mut scaler, &[(now + 5, Event::Tick)]), [start(number + 1)]);
    // Whoever calls waits for no pause.
    let failed = Event::StartFailed(n(number + 1));
    play(&mut scaler, &[(now + 6, failed)]);
    assert_eq!(play(&mut scaler, &[(now + 7, request(0))]), [start(number + 2)]);
}

#[test]
fn a_vm_that_cannot_boot_or_ends_is_booted_again_after_a_pause() {
    let mut scaler = keeping(1000, 1);
    assert_eq!(play(&mut scaler, &[(0, Event::Tick), (1, Event::VmFailed(V))]), []);
    assert_eq!(play(&mut scaler, &[(5, Event::Tick)]), []);
    assert_eq!(play(&mut scaler, &[(6, Event::Tick)]), [Command::BootVm(V)]);
    play(&mut scaler, &[(7, Event::VmBooted(V)), (8, Event::Started(n(0)))]);
    assert_eq!(play(&mut scaler, &[(9, Event::VmEnded(V))]), []);
    assert_eq!(play(&mut scaler, &[(19, Event::Tick)]), [Command::BootVm(V)]);
}

#[test]
fn a_minimum_gives_way_to_calls_after_everything_else_that_is_idle() {
    // There is room for both VMs with three instances.
    let mut scaler = kept(320);
    play(&mut scaler, &[(2, request_to(G, 0)), (2, Event::VmBooted(W))]);
    play(&mut scaler, &[(3, Event::Started(n(1))), (4, Event::Answered(n(1)))]);
    play(&mut scaler, &[(5, request_to(G, 1)), (5, request_to(G, 2)), (6, Event::Started(n(2)))]);
    play(&mut scaler, &[(7, Event::Answered(n(1)))]);
    // What is kept has been idle for longer than the other one.
    let third = [(8, request(3)), (8, request(4))];
    assert_eq!(play(&mut scaler, &third), [stop(1, StopReason::Evicted)]);
    play(&mut scaler, &[(9, Event::Stopped(n(1))), (9, Event::Reclaimed(n(1)))]);
    play(&mut scaler, &[(10, Event::Started(n(3))), (10, Event::Answered(n(0)))]);
    play(&mut scaler, &[(10, Event::Answered(n(3)))]);
    // The one that is kept comes last.
    assert_eq!(play(&mut scaler, &[(11, request_to(G, 5))]), [stop(0, StopReason::Evicted)]);
    assert_eq!(play(&mut scaler, &[(11, request_to(G, 6))]), [stop(3, StopReason::Evicted)]);
}

#[test]
fn a_minimum_takes_nothing_that_is_in_use_or_warm_and_comes_back_with_the_memory() {
    let mut scaler = kept(120);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 0))]), [evicted]);
    play(&mut scaler, &[(3, Event::Stopped(n(0)))]);
    assert_eq!(play(&mut scaler, &[(3, Event::Reclaimed(n(0)))]), [Command::BootVm(W)]);
    play(&mut scaler, &[(4, Event::VmBooted(W)), (5, Event::Started(n(1)))]);
    assert_eq!(play(&mut scaler, &[(6, Event::Answered(n(1)))]), []);
    play(&mut scaler, &[(16, Event::Tick), (16, Event::Stopped(n(1)))]);
    let again = start(2);
    assert_eq!(play(&mut scaler, &[(17, Event::Reclaimed(n(1)))]), [again]);
}

#[test]
fn a_minimum_that_could_never_be_is_refused() {
    let mut scaler = scaler(300);
    let minimum = |min_instances| FunctionPolicy { min_instances, ..function(V) };
    let refused = scaler.update_function(F, minimum(4)).unwrap_err();
    assert_eq!(refused, PolicyError::MinimumOverMost { minimum: 4, most: 3 });
    let refused = scaler.update_function(F, minimum(3)).unwrap_err();
    let (needed_bytes, limit_bytes) = (310, 300);
    let over = PolicyError::MinimumOverMemory { minimum: 3, needed_bytes, limit_bytes };
    assert_eq!(refused, over);
    let policy = TenantPolicy { memory_bytes: Some(150), ..TenantPolicy::default() };
    scaler.update_tenant(TenantIndex::FIRST, policy).unwrap();
    assert!(scaler.update_function(F, minimum(2)).is_err());
    assert_eq!(scaler.update_function(F, minimum(1)), Ok(()));
}

#[test]
fn a_quota_bounds_a_minimum_as_everything_else() {
    let mut scaler = keeping(1000, 3);
    let policy = TenantPolicy { memory_bytes: Some(210), ..TenantPolicy::default() };
    scaler.update_tenant(TenantIndex::FIRST, policy).unwrap();
    assert_eq!(play(&mut scaler, &[(0, Event::Tick)]), [Command::BootVm(V)]);
    assert_eq!(play(&mut scaler, &[(1, Event::VmBooted(V))]), [start(0), start(1)]);
}

#[test]
fn nothing_is_kept_of_what_is_removed_or_drained() {
    let mut scaler = kept(1000);
    assert_eq!(play(&mut scaler, &[(2, Event::Retire(F))]), [stop(0, StopReason::Retired)]);
    play(&mut scaler, &[(3, Event::Stopped(n(0))), (3, Event::Reclaimed(n(0)))]);
    play(&mut scaler, &[(4, Event::VmEnded(V))]);
    assert_eq!((scaler.vm_state(V), scaler.has_function(F)), (None, false));
    let mut scaler = kept(1000);
    assert_eq!(play(&mut scaler, &[(2, Event::Drain)]), [stop(0, StopReason::Draining)]);
    play(&mut scaler, &[(3, Event::Stopped(n(0))), (3, Event::Reclaimed(n(0)))]);
    play(&mut scaler, &[(4, Event::VmEnded(V)), (1000, Event::Tick)]);
    assert!(scaler.is_drained());
}
