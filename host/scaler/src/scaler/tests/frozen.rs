//! Frozen instances, and squeezing them.

use super::*;

pub(super) const SQUEEZE: crate::SqueezePolicy = crate::SqueezePolicy {
    floor_bytes: 20,
    ceiling_bytes: 20,
    rise: Duration::from_secs(1),
    frozen_for: Duration::from_secs(1),
    processors: 1,
    tolerance_bytes: 10,
};

/// A scaler with VMs `vms` and one function in each of the VMs `of`. Instances freeze after a second.
pub(super) fn freezing(
    budget: u64,
    squeeze: crate::SqueezePolicy,
    vms: &[VmPolicy],
    of: &[VmIndex],
) -> Scaler {
    let mut scaler = Scaler::new(Budget::new(budget)).with_squeezing(squeeze);
    for &vm in vms {
        scaler.add_vm(vm).unwrap();
    }
    let freeze_after = Some(Duration::from_secs(1));
    for &vm in of {
        scaler
            .add_function(TenantIndex::FIRST, FunctionPolicy { freeze_after, ..function(vm) })
            .unwrap();
    }
    scaler
}

/// Boots the VM of `F` and starts one instance of `F` for each of `resident_bytes`. It answers at second 1,
/// is frozen at second 2, and then holds that much. Returns the last commands.
pub(super) fn start_and_freeze(scaler: &mut Scaler, resident_bytes: &[u64]) -> Vec<Command> {
    let each = |what: fn(usize, u64) -> (u64, Event)| {
        resident_bytes.iter().enumerate().map(move |(number, &bytes)| what(number, bytes))
    };
    let mut events: Vec<_> = each(|number, _| (0, request(number as u64))).collect();
    events.push((0, Event::VmBooted(V)));
    events.extend(each(|number, _| (0, Event::Started(n(number as u64)))));
    events.extend(each(|number, _| (1, Event::Answered(n(number as u64)))));
    events.push((2, Event::Tick));
    events.extend(each(|number, resident_bytes| {
        (2, Event::Frozen { instance: n(number as u64), resident_bytes })
    }));
    play(scaler, &events)
}

/// A scaler whose instance 0 of `F` was frozen at second 2 and holds 30 bytes. Its paused VM holds all its 10
/// bytes of base memory.
pub(super) fn with_frozen(budget: u64) -> Scaler {
    let mut scaler = freezing(budget, SQUEEZE, &[vm(), vm()], &[V, W]);
    assert_eq!(start_and_freeze(&mut scaler, &[30]), [pause(V)]);
    play(&mut scaler, &[(2, Event::VmPaused { vm: V, resident_bytes: 40 })]);
    scaler
}

#[test]
fn a_frozen_instance_costs_what_it_holds() {
    let mut scaler = with_frozen(1000);
    assert_eq!(scaler.budget().committed_bytes(), 40);
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(1), thaw: true };
    assert_eq!(play(&mut scaler, &[(2, request(1))]), [RESUME, thaw]);
    assert_eq!(scaler.budget().committed_bytes(), 110);
}

#[test]
fn a_frozen_instance_is_squeezed_and_costs_less() {
    let mut scaler = with_frozen(1000);
    assert_eq!(scaler.next_deadline(), Some(at(3)));
    assert_eq!(play(&mut scaler, &[(3, Event::Tick)]), [RESUME, Command::Squeeze(n(0))]);
    assert_eq!(scaler.budget().committed_bytes(), 110, "it runs while it is squeezed");
    let cpu = Duration::from_millis(10);
    let squeezed = Event::Squeezed { instance: n(0), resident_bytes: 10, cpu };
    assert_eq!(play(&mut scaler, &[(4, squeezed)]), [pause_cold(V)]);
    assert_eq!(scaler.budget().committed_bytes(), 20);
}

/// The commands a second after three instances were frozen that hold so much each. They had 310 of 400 bytes together with
/// their VM while they worked.
fn after_a_burst(resident_bytes: u64) -> Vec<Command> {
    let rise = Duration::from_secs(60);
    let squeeze = crate::SqueezePolicy { floor_bytes: 200, ceiling_bytes: 200, rise, ..SQUEEZE };
    let mut scaler = freezing(400, squeeze, &[vm()], &[V]);
    assert_eq!(start_and_freeze(&mut scaler, &[resident_bytes; 3]), [pause(V)]);
    play(&mut scaler, &[(3, Event::Tick)])
}

#[test]
fn frozen_instances_are_squeezed_if_the_last_burst_would_not_find_its_memory() {
    assert_eq!(after_a_burst(31), [RESUME, Command::Squeeze(n(0))]);
    assert_eq!(after_a_burst(30), []);
}

#[test]
fn vms_that_run_only_to_be_squeezed_leave_bursts_the_room_that_they_had() {
    let squeeze = crate::SqueezePolicy {
        rise: Duration::from_secs(60),
        frozen_for: Duration::from_secs(5),
        processors: 3,
        ..SQUEEZE
    };
    let vms = [V, W, VmIndex(2)];
    let mut scaler =
        freezing(1000, squeeze, &vms.map(|_| VmPolicy { base_bytes: 100, ..vm() }), &vms);
    let room_bytes = |scaler: &Scaler| scaler.squeeze_manager.as_ref().unwrap().room_bytes();
    // One after the other is used for a second, and paused.
    for (at, vm) in (0..).zip(vms) {
        let instance = n(at);
        let events = [
            (at, request_to(FunctionIndex(vm.0), at)),
            (at, Event::VmBooted(vm)),
            (at, Event::Started(instance)),
            (at, Event::Answered(instance)),
            (at + 1, Event::Tick),
            (at + 1, Event::Frozen { instance, resident_bytes: 40 }),
            (at + 1, Event::VmPaused { vm, resident_bytes: 50 }),
        ];
        play(&mut scaler, &events);
        assert_eq!(room_bytes(&scaler), 800, "a VM and an instance worked at a time");
    }
    let commands = play(&mut scaler, &[(8, Event::Tick)]);
    let squeezed = |number| commands.contains(&Command::Squeeze(n(number)));
    assert!((0..3).all(squeezed), "{commands:?}");
    assert_eq!(scaler.budget().committed_bytes(), 600, "all of them run");
    play(&mut scaler, &[(8, Event::Tick)]);
    assert_eq!(room_bytes(&scaler), 800);
}

#[test]
fn a_request_does_not_wait_for_the_end_of_a_squeeze() {
    let mut scaler = with_frozen(1000);
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(1), thaw: true };
    assert_eq!(play(&mut scaler, &[(3, Event::Tick), (3, request(1))]), [thaw]);
    let cpu = Duration::from_millis(10);
    let late = Event::Squeezed { instance: n(0), resident_bytes: 10, cpu };
    assert_eq!(play(&mut scaler, &[(4, late)]), []);
    assert_eq!(scaler.budget().committed_bytes(), 110, "it is busy");
}

#[test]
fn what_cannot_be_squeezed_is_left_alone_and_costs_all_it_may_take() {
    let mut scaler = with_frozen(1000);
    play(&mut scaler, &[(3, Event::Tick), (4, Event::SqueezeFailed(n(0)))]);
    assert_eq!(scaler.budget().committed_bytes(), 110);
    assert_eq!(play(&mut scaler, &[(5, Event::Tick)]), []);
}

#[test]
fn a_frozen_instance_gets_its_memory_back_before_its_request() {
    // A VM (10) with a frozen instance of 30, and another VM (10) with an instance of 100: 150 of 160.
    let mut scaler = with_frozen(160);
    let start = Command::Start { function: G, vm: W, instance: n(1) };
    let events = [(2, request_to(G, 1)), (2, Event::VmBooted(W))];
    assert_eq!(play(&mut scaler, &events), [start]);
    let events = [(2, Event::Started(n(1))), (2, request(2))];
    assert_eq!(play(&mut scaler, &events), [], "the other instance is busy");
    let events = [(2, Event::Answered(n(1)))];
    assert_eq!(play(&mut scaler, &events), [Command::Freeze(n(1))], "that may be enough");
    let evicted = stop(1, StopReason::Evicted);
    let frozen = Event::Frozen { instance: n(1), resident_bytes: 99 };
    assert_eq!(play(&mut scaler, &[(2, frozen)]), [evicted], "it is not enough");
    let reclaim = Command::Reclaim { vm: W, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(2, Event::Stopped(n(1)))]), [reclaim]);
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(2), thaw: true };
    let paused = pause(W);
    assert_eq!(play(&mut scaler, &[(2, Event::Reclaimed(n(1)))]), [RESUME, thaw, paused]);
    assert_eq!(scaler.budget().committed_bytes(), 120);
}

#[test]
fn nobody_is_ended_for_memory_that_freezing_brings() {
    let mut scaler = with_frozen(160);
    let events = [
        (2, request_to(G, 1)),
        (2, Event::VmBooted(W)),
        (2, Event::Started(n(1))),
        (2, request(2)),
        (2, Event::Answered(n(1))),
    ];
    assert_eq!(play(&mut scaler, &events), [Command::Freeze(n(1))]);
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(2), thaw: true };
    let frozen = Event::Frozen { instance: n(1), resident_bytes: 40 };
    assert_eq!(play(&mut scaler, &[(2, frozen)]), [RESUME, thaw, pause(W)]);
    assert_eq!(scaler.budget().committed_bytes(), 160);
}

/// Two instances are used in turns, so that one of them is always being frozen.
#[test]
fn a_call_waits_for_no_freeze_that_has_begun_later() {
    let squeeze = crate::SqueezePolicy { floor_bytes: 1000, ceiling_bytes: 1000, ..SQUEEZE };
    let (busy, function) = (VmIndex(2), FunctionIndex(2));
    let mut scaler = freezing(1000, squeeze, &[vm(), vm(), vm()], &[V, W, busy]);
    assert_eq!(start_and_freeze(&mut scaler, &[60]), [pause(V)]);
    let events = [
        (2, Event::VmPaused { vm: V, resident_bytes: 70 }),
        (2, request_to(function, 1)),
        (2, request_to(function, 2)),
        (2, Event::VmBooted(busy)),
        (2, Event::Started(n(1))),
        (2, Event::Started(n(2))),
        (3, Event::Answered(n(1))),
    ];
    play(&mut scaler, &events);
    let taken = scaler.budget.free_bytes() - 45;
    assert!(scaler.budget.commit(taken));
    // Its VM needs 110 bytes. Freezing what is idle may be enough.
    assert_eq!(play(&mut scaler, &[(3, request_to(G, 3))]), [Command::Freeze(n(1))]);
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(2)))]), [Command::Freeze(n(2))]);
    let evicted = end(StopReason::Evicted);
    let thaw = Command::Dispatch { instance: n(2), request: RequestNumber(4), thaw: true };
    assert_eq!(play(&mut scaler, &[(3, request_to(function, 4))]), [thaw]);
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(2)))]), [Command::Freeze(n(2))]);
    let frozen = Event::Frozen { instance: n(1), resident_bytes: 99 };
    assert_eq!(play(&mut scaler, &[(4, frozen)]), [evicted], "the other one is still at it");
}

#[test]
fn nobody_waits_for_a_freeze_that_brings_nothing() {
    let squeeze = crate::SqueezePolicy { floor_bytes: 1000, ceiling_bytes: 1000, ..SQUEEZE };
    // The second VM has all its memory from its boot on.
    let whole = VmPolicy { instance_bytes: 0, base_bytes: 100, ..vm() };
    let vms = [vm(), whole, vm()];
    let mut scaler = freezing(1000, squeeze, &vms, &[V, W, VmIndex(2)]);
    assert_eq!(start_and_freeze(&mut scaler, &[60]), [pause(V)]);
    let events = [
        (2, Event::VmPaused { vm: V, resident_bytes: 70 }),
        (2, request_to(G, 1)),
        (2, Event::VmBooted(W)),
        (2, Event::Started(n(1))),
        (3, Event::Answered(n(1))),
        (4, Event::Tick),
    ];
    assert_eq!(play(&mut scaler, &events), [Command::Freeze(n(1))]);
    let taken = scaler.budget.free_bytes() - 45;
    assert!(scaler.budget.commit(taken));
    assert_eq!(
        play(&mut scaler, &[(4, request_to(FunctionIndex(2), 2))]),
        [end(StopReason::Evicted)]
    );
}
