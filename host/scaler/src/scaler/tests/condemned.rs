//! Instances of paused VMs that lose their memory, without their VM.

use super::{frozen::*, *};

fn condemned(number: u64, freed_bytes: u64) -> Event {
    Event::Condemned { instance: n(number), freed_bytes }
}

/// A scaler with a paused VM of `F` and of function 2 that holds its 10 bytes of base memory and two frozen instances
/// of `F` that hold 40 and 30 bytes and can be condemned. There are `free_bytes` left.
fn with_doomed(free_bytes: u64) -> Scaler {
    let squeeze = crate::SqueezePolicy { floor_bytes: 1000, ceiling_bytes: 1000, ..SQUEEZE };
    let vms = [VmPolicy { max_instances: 2, ..vm() }, vm()];
    let mut scaler = freezing(1000, squeeze, &vms, &[V, W, V]);
    assert_eq!(start_and_freeze(&mut scaler, &[40, 30]), [pause(V)]);
    let doomed = [(2, Event::Doomed(n(0))), (2, Event::Doomed(n(1)))];
    assert_eq!(play(&mut scaler, &doomed), []);
    play(&mut scaler, &[(2, Event::VmPaused { vm: V, resident_bytes: 80 })]);
    let taken = scaler.budget.free_bytes() - free_bytes;
    assert!(scaler.budget.commit(taken));
    scaler
}

/// The same, with its first instance condemned for the VM of `G`, which needs 110 bytes.
fn with_condemned(free_bytes: u64) -> Scaler {
    let mut scaler = with_doomed(free_bytes);
    assert_eq!(play(&mut scaler, &[(3, request_to(G, 9))]), [Command::Condemn(n(0))]);
    scaler
}

#[test]
fn the_least_recently_used_instance_of_a_paused_vm_goes_alone() {
    let mut scaler = with_condemned(70);
    assert_eq!(play(&mut scaler, &[(3, Event::Tick)]), [], "the memory is on its way");
    assert_eq!(play(&mut scaler, &[(3, condemned(0, 40))]), [Command::BootVm(W)]);
    assert_eq!(scaler.vm_state(V), Some(VmState::Paused { since: at(1) }));
    let counts = Counts { idle: 1, frozen: 1, condemned: 1, ..Counts::default() };
    assert_eq!(scaler.counts(F), Counts { promised_bytes: 30, ..counts });
    // It is stopped before anything else when its VM runs again, and the other one serves the request.
    play(&mut scaler, &[(3, Event::VmFailed(W))]);
    let thaw = Command::Dispatch { instance: n(1), request: RequestNumber(5), thaw: true };
    let commands = [RESUME, stop(0, StopReason::Evicted), thaw];
    assert_eq!(play(&mut scaler, &[(4, request(5))]), commands);
    let reclaim = Command::Reclaim { vm: V, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(4, Event::Stopped(n(0)))]), [reclaim]);
    play(&mut scaler, &[(4, Event::Reclaimed(n(0)))]);
    assert_eq!(scaler.state(n(0)), None);
}

#[test]
fn what_a_condemned_instance_has_not_given_back_stays_charged() {
    let mut scaler = with_condemned(70);
    assert_eq!(play(&mut scaler, &[(3, condemned(0, 15))]), [end(StopReason::Evicted)]);
    assert_eq!(scaler.budget().free_bytes(), 85);
    play(&mut scaler, &[(4, Event::VmEnded(V))]);
    assert_eq!(scaler.budget().free_bytes(), 150 - 10, "the other VM has its base");
}

#[test]
fn the_last_one_ends_with_its_vm() {
    let mut scaler = with_doomed(69);
    assert_eq!(play(&mut scaler, &[(3, request_to(G, 9))]), [end(StopReason::Evicted)]);
    assert_eq!(scaler.counts(F).stopping, 2);
    assert_eq!(play(&mut scaler, &[(4, Event::VmEnded(V))]), [Command::BootVm(W)]);
}

#[test]
fn who_cannot_be_condemned_ends_with_the_vm() {
    let mut scaler = with_condemned(70);
    let failed = [(3, Event::CondemnFailed(n(0)))];
    assert_eq!(play(&mut scaler, &failed), [end(StopReason::Evicted)], "and nobody waits");
    assert_eq!(play(&mut scaler, &[(4, Event::VmEnded(V))]), [Command::BootVm(W)]);

    // What is doomed is so until the VM is resumed.
    let mut scaler = with_doomed(300);
    let events =
        [(3, request(5)), (3, Event::Doomed(n(0))), (3, Event::Answered(n(1))), (4, Event::Tick)];
    play(&mut scaler, &events);
    let frozen = Event::Frozen { instance: n(1), resident_bytes: 30 };
    assert_eq!(play(&mut scaler, &[(4, frozen)]), [pause(V)]);
    play(&mut scaler, &[(4, Event::VmPaused { vm: V, resident_bytes: 80 })]);
    let taken = scaler.budget.free_bytes() - 70;
    assert!(scaler.budget.commit(taken));
    assert_eq!(play(&mut scaler, &[(5, request_to(G, 9))]), [end(StopReason::Evicted)]);
}

#[test]
fn nobody_waits_for_an_instance_that_is_being_condemned() {
    let mut scaler = with_condemned(70);
    play(&mut scaler, &[(3, Event::Retire(G))]);
    let thaw = Command::Dispatch { instance: n(1), request: RequestNumber(5), thaw: true };
    let commands = [RESUME, stop(0, StopReason::Evicted), thaw];
    assert_eq!(play(&mut scaler, &[(3, request(5))]), commands);
    let committed = scaler.budget().committed_bytes();
    for late in [condemned(0, 40), Event::CondemnFailed(n(0))] {
        assert_eq!(play(&mut scaler, &[(3, late)]), []);
        assert_eq!(scaler.state(n(0)), Some(InstanceState::Stopping));
        assert_eq!(scaler.budget().committed_bytes(), committed);
    }
    play(&mut scaler, &[(4, Event::Stopped(n(0))), (4, Event::Reclaimed(n(0)))]);
    assert_eq!(play(&mut scaler, &[(4, condemned(0, 40))]), []);
}

/// Pauses a VM with a frozen instance of `F`, which is doomed, and one of another function, of 40 bytes each, and leaves
/// 70 bytes free.
fn pause_two(scaler: &mut Scaler, other: FunctionIndex, resident_bytes: u64) {
    let frozen = |number| Event::Frozen { instance: n(number), resident_bytes: 40 };
    let events = [
        (0, request(0)),
        (0, request_to(other, 1)),
        (0, Event::VmBooted(V)),
        (0, Event::Started(n(0))),
        (0, Event::Started(n(1))),
        (1, Event::Answered(n(0))),
        (1, Event::Answered(n(1))),
        (2, Event::Tick),
        (2, frozen(0)),
        (2, frozen(1)),
        (2, Event::Doomed(n(0))),
        (2, Event::VmPaused { vm: V, resident_bytes }),
    ];
    play(scaler, &events);
    let taken = scaler.budget.free_bytes() - 70;
    assert!(scaler.budget.commit(taken));
}

#[test]
fn a_vm_runs_again_to_end_a_condemned_instance_in_the_way_of_another() {
    // Either there is one instance of the function at a time, or the VM has two.
    for (most, most_in_vm) in [(1, 3), (2, 2)] {
        let vms = [VmPolicy { max_instances: most_in_vm, ..vm() }, vm()];
        let mut scaler = freezing(1000, SQUEEZE, &vms, &[V, W, V]);
        let other = FunctionIndex(2);
        let policy = scaler.function(F).unwrap().policy;
        scaler.update_function(F, FunctionPolicy { max_instances: most, ..policy }).unwrap();
        pause_two(&mut scaler, other, 90);
        let events = [(2, request_to(G, 2)), (2, condemned(0, 40)), (2, Event::VmFailed(W))];
        assert_eq!(play(&mut scaler, &events[..1]), [Command::Condemn(n(0))]);
        play(&mut scaler, &events[1..]);
        let evicted = [RESUME, stop(0, StopReason::Evicted)];
        assert_eq!(play(&mut scaler, &[(2, request(3))]), evicted);
        play(&mut scaler, &[(2, Event::Stopped(n(0)))]);
        let start = Command::Start { function: F, vm: V, instance: n(2) };
        assert_eq!(play(&mut scaler, &[(2, Event::Reclaimed(n(0)))]), [start]);
    }
}

#[test]
fn what_is_left_of_a_condemned_instance_is_memory_for_others_in_its_vm() {
    let mut scaler = with_condemned(70);
    play(&mut scaler, &[(3, Event::Retire(G)), (3, condemned(0, 15))]);
    let taken = scaler.budget.free_bytes() - 50;
    assert!(scaler.budget.commit(taken));
    let commands = [RESUME, stop(0, StopReason::Evicted)];
    assert_eq!(play(&mut scaler, &[(4, request(5))]), commands, "which needs 70");
    play(&mut scaler, &[(4, Event::Stopped(n(0)))]);
    let thaw = Command::Dispatch { instance: n(1), request: RequestNumber(5), thaw: true };
    assert_eq!(play(&mut scaler, &[(4, Event::Reclaimed(n(0)))]), [thaw]);
}

#[test]
fn a_vm_without_the_memory_to_run_ends_with_its_condemned_instances() {
    let vms = [VmPolicy { base_bytes: 100, ..vm() }, vm()];
    let mut scaler = freezing(1000, SQUEEZE, &vms, &[V, W]);
    start_and_freeze(&mut scaler, &[90, 80]);
    play(&mut scaler, &[(2, Event::Doomed(n(0)))]);
    play(&mut scaler, &[(2, Event::VmPaused { vm: V, resident_bytes: 190 })]);
    let taken = scaler.budget.free_bytes() - 79;
    assert!(scaler.budget.commit(taken));
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 9))]), [Command::Condemn(n(0))]);
    play(&mut scaler, &[(2, Event::Retire(G)), (2, condemned(0, 0))]);
    // It lacks 80 of its base.
    assert_eq!(play(&mut scaler, &[(2, request(5))]), [end(StopReason::Evicted)]);
}

#[test]
fn a_drain_ends_a_vm_with_condemned_instances() {
    let mut scaler = with_condemned(70);
    play(&mut scaler, &[(3, condemned(0, 40)), (3, Event::VmFailed(W))]);
    let draining = stop(1, StopReason::Draining);
    let commands = [RESUME, stop(0, StopReason::Evicted), draining];
    assert_eq!(play(&mut scaler, &[(4, Event::Drain)]), commands);
}

#[test]
fn who_was_used_last_is_not_worth_dooming() {
    let scaler = with_doomed(500);
    assert_eq!(scaler.worth_dooming(V), [n(0)]);
    assert_eq!(scaler.worth_dooming(W), []);
}

/// A scaler with a paused VM that holds a frozen instance of `F`, which is condemned for the VM of `G`, and one of
/// function 2, which was used later. The VM holds 6 of its 10 bytes of base memory.
fn with_condemned_of_one(done: bool) -> Scaler {
    let squeeze = crate::SqueezePolicy { floor_bytes: 1000, ceiling_bytes: 1000, ..SQUEEZE };
    let mut scaler = freezing(1000, squeeze, &[vm(), vm()], &[V, W, V]);
    let other = FunctionIndex(2);
    let policy = scaler.function(other).unwrap().policy;
    let long = FunctionPolicy { keep_alive: 100 * KEEP_ALIVE, ..policy };
    scaler.update_function(other, long).unwrap();
    pause_two(&mut scaler, other, 86);
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 2))]), [Command::Condemn(n(0))]);
    if done {
        play(&mut scaler, &[(2, condemned(0, 40))]);
    }
    scaler
}

#[test]
fn a_condemned_instance_of_a_retired_function_ends_as_soon_as_its_vm_can_run() {
    for done in [true, false] {
        let mut scaler = with_condemned_of_one(done);
        play(&mut scaler, &[(2, Event::Retire(G))]);
        let commands = play(&mut scaler, &[(3, Event::Retire(F))]);
        assert_eq!(commands, [RESUME, stop(0, StopReason::Evicted)]);
        play(&mut scaler, &[(4, Event::Stopped(n(0))), (4, Event::Reclaimed(n(0)))]);
        assert!(!scaler.has_function(F));
        assert!(scaler.has_function(FunctionIndex(2)));
    }
}

#[test]
fn a_condemned_instance_of_a_retired_function_waits_for_the_memory_that_its_vm_needs() {
    for done in [true, false] {
        let mut scaler = with_condemned_of_one(done);
        // The VM lacks 4 bytes of its base, and there are none.
        let taken = scaler.budget.free_bytes();
        assert!(scaler.budget.commit(taken));
        let retired = [(3, Event::Retire(G)), (3, Event::Retire(F))];
        assert_eq!(play(&mut scaler, &retired), []);
        if !done {
            assert_eq!(play(&mut scaler, &[(3, condemned(0, 0))]), []);
        }
        assert!(scaler.has_function(F));
        assert_eq!(play(&mut scaler, &[(8, Event::Tick)]), []);
        scaler.budget.release(taken);
        let commands = [RESUME, stop(0, StopReason::Evicted)];
        assert_eq!(play(&mut scaler, &[(13, Event::Tick)]), commands);
    }
}

#[test]
fn who_could_not_be_condemned_can_be_squeezed() {
    let squeeze = crate::SqueezePolicy { floor_bytes: 60, ceiling_bytes: 60, ..SQUEEZE };
    let mut scaler = freezing(1000, squeeze, &[vm(), vm()], &[V, W]);
    assert_eq!(start_and_freeze(&mut scaler, &[40, 30]), [pause(V)]);
    let paused = Event::VmPaused { vm: V, resident_bytes: 80 };
    play(&mut scaler, &[(2, Event::Doomed(n(0))), (2, paused)]);
    let taken = scaler.budget.free_bytes() - 70;
    assert!(scaler.budget.commit(taken));
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 9))]), [Command::Condemn(n(0))]);
    let failed = [(2, Event::Retire(G)), (2, Event::CondemnFailed(n(0)))];
    assert_eq!(play(&mut scaler, &failed), []);
    scaler.budget.release(taken);
    // The two hold 70 bytes together.
    let squeezed = [RESUME, Command::Squeeze(n(0))];
    assert_eq!(play(&mut scaler, &[(3, Event::Tick)])[..2], squeezed);
}
