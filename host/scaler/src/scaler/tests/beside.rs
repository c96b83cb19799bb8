//! Instances that serve several requests at a time.

use super::*;

/// A scaler whose function `F` has instances for two requests each, with two in instance 0.
fn with_two(budget: u64) -> Scaler {
    let mut scaler = scaler(budget);
    let requests_per_instance = NonZeroU16::new(2).unwrap();
    scaler.update_function(F, FunctionPolicy { requests_per_instance, ..function(V) }).unwrap();
    let commands = play(
        &mut scaler,
        &[(0, request(0)), (0, request(1)), (0, Event::VmBooted(V)), (1, Event::Started(n(0)))],
    );
    assert_eq!(commands, [dispatch(0, 0), dispatch(0, 1)]);
    scaler
}

#[test]
fn an_instance_takes_as_many_as_it_may() {
    let mut scaler = with_two(1000);
    assert_eq!(scaler.counts(F).busy, 1);
    assert_eq!(scaler.tenant_counts(TenantIndex::FIRST).running, 2);
    let start = Command::Start { function: F, vm: V, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(2, request(2))]), [start]);
    assert_eq!(play(&mut scaler, &[(2, request(3))]), [], "it will take two");
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), [dispatch(0, 2)]);
    assert_eq!(play(&mut scaler, &[(4, Event::Started(n(1)))]), [dispatch(1, 3)]);
    play(&mut scaler, &[(5, Event::Answered(n(0)))]);
    assert_eq!(scaler.next_deadline(), None, "neither is idle");
    assert_eq!(play(&mut scaler, &[(6, Event::Answered(n(0)))]), []);
    assert_eq!(scaler.next_deadline(), Some(at(16)));
}

#[test]
fn the_fullest_with_room_comes_first() {
    let mut scaler = with_two(1000);
    play(&mut scaler, &[(2, request(2)), (3, Event::Started(n(1))), (4, Event::Answered(n(1)))]);
    play(&mut scaler, &[(5, Event::Answered(n(0)))]);
    assert_eq!(play(&mut scaler, &[(6, request(3))]), [dispatch(0, 3)], "the other is idle");
    assert_eq!(play(&mut scaler, &[(6, request(4))]), [dispatch(1, 4)]);
}

#[test]
fn one_that_has_failed_at_a_request_answers_the_others_and_is_stopped() {
    let mut scaler = with_two(1000);
    assert_eq!(play(&mut scaler, &[(2, Event::Broken(n(0)))]), []);
    let start = Command::Start { function: F, vm: V, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(2, request(2))]), [start], "it takes no more");
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), [stop(0, StopReason::Broken)]);
}

#[test]
fn one_that_cannot_start_is_the_end_of_all_that_it_was_meant_for() {
    let mut scaler = scaler(1000);
    let requests_per_instance = NonZeroU16::new(3).unwrap();
    let policy = FunctionPolicy { requests_per_instance, queue_limit: 9, ..function(V) };
    scaler.update_function(F, policy).unwrap();
    play(&mut scaler, &(0..5).map(|number| (0, request(number))).collect::<Vec<_>>());
    assert_eq!(play(&mut scaler, &[(0, Event::VmBooted(V))]).len(), 2);
    // The other one will take three of the five.
    let commands = play(&mut scaler, &[(1, Event::StartFailed(n(0)))]);
    let failed = |number| reject(number, RejectReason::StartFailed);
    assert_eq!(commands, [stop(0, StopReason::Broken), failed(0), failed(1)]);
    let commands = play(&mut scaler, &[(1, Event::StartFailed(n(1)))]);
    assert_eq!(commands, [stop(1, StopReason::Broken), failed(2), failed(3), failed(4)]);
}

#[test]
fn one_in_an_unfit_vm_takes_no_more() {
    let mut scaler = with_two(1000);
    play(&mut scaler, &[(2, Event::VmUnfit(V)), (3, Event::Answered(n(0)))]);
    assert_eq!(play(&mut scaler, &[(3, request(2))]), []);
    assert_eq!(play(&mut scaler, &[(4, Event::Answered(n(0)))]), [stop(0, StopReason::Broken)]);
}

#[test]
fn one_takes_no_more_while_another_tenant_is_to_have_its_memory() {
    let mut scaler = Scaler::new(Budget::new(300));
    let other = scaler.add_tenant(TenantPolicy::default()).unwrap();
    let requests_per_instance = NonZeroU16::new(2).unwrap();
    for (index, tenant) in [(V, TenantIndex::FIRST), (W, other)] {
        assert_eq!(scaler.add_vm(vm()), Ok(index));
        let policy = FunctionPolicy { requests_per_instance, ..function(index) };
        scaler.add_function(tenant, policy).unwrap();
    }
    let events = [
        (0, request(0)),
        (0, request(1)),
        (0, request(2)),
        (0, Event::VmBooted(V)),
        (1, Event::Started(n(0))),
        (1, Event::Started(n(1))),
        (2, request_to(G, 3)),
    ];
    assert_eq!(play(&mut scaler, &events), [], "there is memory for one of them");
    assert_eq!(play(&mut scaler, &[(3, request(4))]), [], "or the other would wait for ever");
    let commands = play(&mut scaler, &[(4, Event::Answered(n(1)))]);
    assert_eq!(commands, [stop(1, StopReason::Evicted)]);
}
