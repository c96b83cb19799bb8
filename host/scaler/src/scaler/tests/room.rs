//! Making room for queued requests, and requests that wait in vain.

use super::{frozen::*, *};

/// A host with memory for the VM of `F` or that of `G` with one instance, but not for both. The VM of `F` is
/// up, and its instance 0, idle since second 1, has just been stopped.
fn with_one_ending() -> Scaler {
    let mut scaler = with_idle(115, 1);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(2, Event::EvictIdle)]), [evicted]);
    let reclaim = Command::Reclaim { vm: V, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(2, Event::Stopped(n(0)))]), [reclaim]);
    scaler
}

#[test]
fn a_request_waits_as_long_as_others_of_its_function_are_taken() {
    let mut scaler = Scaler::new(Budget::new(1000));
    scaler.add_vm(VmPolicy { max_instances: 1, ..vm() }).unwrap();
    scaler.add_function(TenantIndex::FIRST, function(V)).unwrap();
    let events = [
        (0, request(0)),
        (0, Event::VmBooted(V)),
        (0, Event::Started(n(0))),
        (1, request(1)),
        (2, request(2)),
        (90, Event::Answered(n(0))),
    ];
    assert_eq!(play(&mut scaler, &events), [dispatch(0, 1)]);
    assert_eq!(scaler.next_deadline(), Some(at(190)), "request 2 has waited for 88 s in vain");
    assert_eq!(play(&mut scaler, &[(189, request(3)), (189, Event::Tick)]), []);
    let busy = RejectReason::WaitedTooLong(WaitingFor::Busy);
    assert_eq!(play(&mut scaler, &[(190, Event::Tick)]), [reject(2, busy)]);
    assert_eq!(scaler.next_deadline(), Some(at(289)), "the next one has its own time");
}

#[test]
fn a_request_that_waits_in_vain_is_told_what_for() {
    let reason = |events: &[(u64, Event)], budget| {
        let mut scaler = scaler(budget);
        play(&mut scaler, events);
        let commands = play(&mut scaler, &[(200, Event::Tick)]);
        let rejected = commands.iter().find_map(|command| match command {
            Command::Reject { request: RequestNumber(9), reason } => Some(*reason),
            _ => None,
        });
        rejected.expect("request 9 is rejected")
    };
    let own = [(0, request(9)), (0, Event::VmBooted(V))];
    assert_eq!(reason(&own[..1], 1000), RejectReason::WaitedTooLong(WaitingFor::Vm));
    assert_eq!(reason(&own, 1000), RejectReason::WaitedTooLong(WaitingFor::Start));
    let others = [
        (0, request_to(G, 1)),
        (0, Event::VmBooted(W)),
        (0, Event::Started(n(0))),
        (1, request(9)),
    ];
    assert_eq!(reason(&others, 150), RejectReason::WaitedTooLong(WaitingFor::Memory));
}

#[test]
fn a_vm_that_an_event_has_left_empty_makes_room_with_that_event() {
    let mut scaler = with_one_ending();
    assert_eq!(play(&mut scaler, &[(3, request_to(G, 1))]), [], "the memory is on its way back");
    assert_eq!(play(&mut scaler, &[(4, Event::Reclaimed(n(0)))]), [end(StopReason::Evicted)]);
    assert_eq!(play(&mut scaler, &[(5, Event::VmEnded(V))]), [Command::BootVm(W)]);

    // The same if the guest keeps the memory: it comes back with the VM.
    let mut scaler = with_one_ending();
    let events = [(3, request_to(G, 1)), (4, Event::ReclaimFailed(n(0)))];
    assert_eq!(play(&mut scaler, &events), [end(StopReason::Evicted)]);
}

#[test]
fn a_vm_whose_start_failed_makes_room_with_that_event() {
    let mut scaler = scaler(115);
    let events = [(0, request(0)), (0, Event::VmBooted(V)), (0, request_to(G, 1))];
    assert_eq!(play(&mut scaler, &events), []);
    play(&mut scaler, &[(1, Event::StartFailed(n(0))), (1, Event::Stopped(n(0)))]);
    assert_eq!(play(&mut scaler, &[(2, Event::Reclaimed(n(0)))]), [end(StopReason::Evicted)]);
}

#[test]
fn a_vm_that_has_its_memory_from_its_boot_on_makes_room_when_all_in_it_are_idle() {
    let mut scaler = Scaler::new(Budget::new(500));
    scaler.add_vm(VmPolicy { base_bytes: 400, instance_bytes: 0, ..vm() }).unwrap();
    scaler.add_vm(vm()).unwrap();
    scaler.add_function(TenantIndex::FIRST, function(V)).unwrap();
    scaler.add_function(TenantIndex::FIRST, function(W)).unwrap();
    let events = [
        (0, request(0)),
        (0, request(1)),
        (0, Event::VmBooted(V)),
        (0, Event::Started(n(0))),
        (0, Event::Started(n(1))),
        (1, Event::Answered(n(1))),
        (2, request_to(G, 2)),
    ];
    assert_eq!(play(&mut scaler, &events), [], "one of them is busy");
    let evicted = |number| stop(number, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), [evicted(1), evicted(0)]);
    let events = [
        (4, Event::Stopped(n(0))),
        (4, Event::Reclaimed(n(0))),
        (4, Event::Stopped(n(1))),
        (4, Event::Reclaimed(n(1))),
    ];
    assert_eq!(play(&mut scaler, &events), [end(StopReason::Evicted)]);
    assert_eq!(play(&mut scaler, &[(5, Event::VmEnded(V))]), [Command::BootVm(W)]);
}

#[test]
fn the_vm_of_the_last_idle_instance_counts_as_memory_on_its_way() {
    // Both VMs have 10 bytes of base memory and an instance of 100. A third VM needs 5 and an instance of
    // 100.
    let mut scaler = scaler(220);
    let third = scaler.add_vm(VmPolicy { base_bytes: 5, ..vm() }).unwrap();
    let other = scaler.add_function(TenantIndex::FIRST, function(third)).unwrap();
    let events = [
        (0, request(0)),
        (0, Event::VmBooted(V)),
        (0, Event::Started(n(0))),
        (1, Event::Answered(n(0))),
        (1, request_to(G, 1)),
        (1, Event::VmBooted(W)),
        (1, Event::Started(n(1))),
        (2, Event::Answered(n(1))),
    ];
    assert_eq!(play(&mut scaler, &events), []);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(3, request_to(other, 2))]), [evicted], "only this one");
    let events = [(4, Event::Stopped(n(0))), (5, Event::Reclaimed(n(0)))];
    assert_eq!(play(&mut scaler, &events), [end(StopReason::Evicted)], "and only its VM");
    assert_eq!(play(&mut scaler, &[(6, Event::VmEnded(V))]), [Command::BootVm(third)]);
}

#[test]
fn memory_that_the_guest_keeps_is_counted_until_it_is_used() {
    let mut scaler = with_frozen(1000);
    let events = [
        (2, Event::EvictIdle),
        (2, Event::Stopped(n(0))),
        (3, Event::ReclaimFailed(n(0))),
        (3, request(1)),
    ];
    let taken = scaler.budget.free_bytes() - 75;
    assert!(scaler.budget.commit(taken));
    // It had 30 bytes and the next one needs 100, so 70 of the 75 are taken. The VM already has its 10.
    assert_eq!(play(&mut scaler, &events[..3]), []);
    assert_eq!(scaler.budget().free_bytes(), 75);
    let start = Command::Start { function: F, vm: V, instance: n(1) };
    assert_eq!(play(&mut scaler, &events[3..]), [start]);
    assert_eq!(scaler.budget().free_bytes(), 5);

    let mut scaler = with_frozen(1000);
    let taken = scaler.budget.free_bytes() - 65;
    assert!(scaler.budget.commit(taken));
    assert_eq!(play(&mut scaler, &events), [], "there is not enough");
    assert_eq!(scaler.budget().free_bytes(), 65);
    assert!(matches!(scaler.state(n(0)), Some(InstanceState::Stranded { .. })));
}

#[test]
fn a_full_vm_that_is_paused_gets_the_memory_to_make_room() {
    let vms = [VmPolicy { max_instances: 1, ..vm() }, vm()];
    let mut scaler = freezing(130, SQUEEZE, &vms, &[V, W, V]);
    start_and_freeze(&mut scaler, &[15]);
    let events = [
        (2, Event::VmPaused { vm: V, resident_bytes: 19 }),
        (3, request_to(G, 1)),
        (3, Event::VmBooted(W)),
        (3, Event::Started(n(1))),
        (4, Event::Answered(n(1))),
    ];
    play(&mut scaler, &events);
    assert_eq!(scaler.budget().free_bytes(), 1, "and it lacks 6 to run");
    let another = FunctionIndex(2);
    assert_eq!(play(&mut scaler, &[(4, request_to(another, 2))]), [Command::Freeze(n(1))]);
    let frozen = Event::Frozen { instance: n(1), resident_bytes: 15 };
    let commands = [RESUME, stop(0, StopReason::Evicted), pause(W)];
    assert_eq!(play(&mut scaler, &[(4, frozen)]), commands);
}

/// The commands when an instance is needed in a paused VM. The VM holds 20 of its 100 bytes, and its two
/// frozen instances 80 and 60 of their 100. Another VM's instance is busy, and `free_bytes` are left.
fn wanted_while_others_work(free_bytes: u64) -> Vec<Command> {
    let squeeze = crate::SqueezePolicy { floor_bytes: 1000, ceiling_bytes: 1000, ..SQUEEZE };
    let vms = [VmPolicy { base_bytes: 100, ..vm() }, vm()];
    let mut scaler = freezing(270 + free_bytes, squeeze, &vms, &[V, W, V]);
    start_and_freeze(&mut scaler, &[80, 60]);
    let events = [
        (2, Event::VmPaused { vm: V, resident_bytes: 160 }),
        (3, request_to(G, 2)),
        (3, Event::VmBooted(W)),
        (3, Event::Started(n(2))),
    ];
    play(&mut scaler, &events);
    assert_eq!(scaler.budget().free_bytes(), free_bytes);
    play(&mut scaler, &[(4, request_to(FunctionIndex(2), 3))])
}

#[test]
fn nobody_waits_for_who_works_where_the_end_of_a_paused_vm_does() {
    assert_eq!(wanted_while_others_work(50), [end(StopReason::Evicted)]);
    assert_eq!(wanted_while_others_work(39), [], "it could not be booted again");
}

#[test]
fn who_lacks_memory_that_the_guest_has_kept_starts_anew_in_that() {
    // An instance holds 30 of its 100 bytes, and the guest has kept the memory of another one.
    let mut scaler = freezing(210, SQUEEZE, &[vm()], &[V]);
    let events = [
        (0, request(0)),
        (0, request(1)),
        (0, Event::VmBooted(V)),
        (0, Event::Started(n(0))),
        (0, Event::Started(n(1))),
        (1, Event::Broken(n(1))),
        (1, Event::Stopped(n(1))),
        (1, Event::ReclaimFailed(n(1))),
        (1, Event::Answered(n(0))),
        (2, Event::Tick),
        (2, Event::Frozen { instance: n(0), resident_bytes: 30 }),
    ];
    play(&mut scaler, &events);
    let taken = scaler.budget.free_bytes() - 69;
    assert!(scaler.budget.commit(taken));
    let start = Command::Start { function: F, vm: V, instance: n(2) };
    let commands = [stop(0, StopReason::Evicted), start];
    assert_eq!(play(&mut scaler, &[(2, request(2))]), commands, "it lacks 70, and 69 are left");
}
