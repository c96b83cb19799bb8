//! Paused VMs.

use super::{frozen::*, *};

/// As [`with_frozen`], but the instance holds 15 bytes, and the VM 4 of its 10 bytes of base memory.
fn with_paused(budget: u64) -> Scaler {
    let mut scaler = with_frozen(budget);
    play(&mut scaler, &[(2, request(1)), (2, Event::Answered(n(0))), (3, Event::Tick)]);
    let frozen = Event::Frozen { instance: n(0), resident_bytes: 15 };
    assert_eq!(play(&mut scaler, &[(3, frozen)]), [pause(V)]);
    play(&mut scaler, &[(3, Event::VmPaused { vm: V, resident_bytes: 19 })]);
    assert_eq!(scaler.vm_state(V), Some(VmState::Paused { since: at(2) }));
    scaler
}

#[test]
fn a_vm_in_which_nothing_runs_is_paused_and_costs_what_it_holds() {
    let mut scaler = with_paused(1000);
    assert_eq!(scaler.budget().committed_bytes(), 19);
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(2), thaw: true };
    assert_eq!(play(&mut scaler, &[(3, request(2))]), [RESUME, thaw]);
    assert_eq!(scaler.budget().committed_bytes(), 110);
    let late = Event::VmPaused { vm: V, resident_bytes: 1 };
    assert_eq!(play(&mut scaler, &[(3, late)]), []);
    assert_eq!(scaler.budget().committed_bytes(), 110, "it runs");
}

/// A VM with 10 bytes of base memory, and a frozen instance that is charged 15 bytes, because that is what is in the
/// partition that its guest has named.
fn with_liar(budget: u64, resident_bytes: u64) -> (Scaler, Vec<Command>) {
    let mut scaler = freezing(budget, SQUEEZE, &[vm(), vm()], &[V, W]);
    assert_eq!(start_and_freeze(&mut scaler, &[15]), [pause(V)]);
    let commands = play(&mut scaler, &[(3, Event::VmPaused { vm: V, resident_bytes })]);
    (scaler, commands)
}

#[test]
fn a_paused_vm_is_charged_for_all_that_it_holds_whatever_its_guest_says() {
    let (mut scaler, commands) = with_liar(300, 180);
    assert_eq!((commands, scaler.budget().committed_bytes()), (vec![], 180));
    // When it runs, it is charged for what it may take.
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(2), thaw: true };
    assert_eq!(play(&mut scaler, &[(4, request(2))]), [RESUME, thaw]);
    assert_eq!(scaler.budget().committed_bytes(), 110);
    // It makes room for others with all of that.
    let (mut scaler, _) = with_liar(200, 180);
    assert_eq!(play(&mut scaler, &[(4, request_to(G, 2))]), [end(StopReason::Evicted)]);
    assert_eq!(play(&mut scaler, &[(5, Event::VmEnded(V))]), [Command::BootVm(W)]);
}

#[test]
fn a_paused_vm_that_holds_more_than_there_is_for_it_is_ended() {
    let (mut scaler, commands) = with_liar(200, 201);
    assert_eq!(commands, [end(StopReason::Overdrawn)]);
    assert_eq!(scaler.counts(F).stopping, 1);
    play(&mut scaler, &[(4, Event::VmEnded(V))]);
    assert_eq!((scaler.budget().committed_bytes(), scaler.state(n(0))), (0, None));
    // What is not known is charged in full, as before.
    let (scaler, commands) = with_liar(200, u64::MAX);
    assert_eq!((commands, scaler.budget().committed_bytes()), (vec![], 25));
}

#[test]
fn an_empty_vm_is_paused_until_it_is_ended() {
    let mut scaler = with_paused(1000);
    let stops = [RESUME, stop(0, StopReason::Evicted)];
    assert_eq!(play(&mut scaler, &[(3, Event::EvictIdle)]), stops);
    let events = [(3, Event::Stopped(n(0))), (4, Event::Reclaimed(n(0)))];
    assert_eq!(play(&mut scaler, &events), [pause(V)]);
    play(&mut scaler, &[(4, Event::VmPaused { vm: V, resident_bytes: 3 })]);
    assert_eq!(scaler.budget().committed_bytes(), 3);
    assert_eq!(play(&mut scaler, &[(64, Event::Tick)]), [end(StopReason::KeepAliveOver)]);
    play(&mut scaler, &[(64, Event::VmEnded(V))]);
    assert_eq!(scaler.budget().committed_bytes(), 0);
}

#[test]
fn a_paused_vm_is_ended_with_all_that_is_frozen_in_it() {
    let mut scaler = with_paused(125);
    let evicted = [end(StopReason::Evicted)];
    assert_eq!(play(&mut scaler, &[(4, request_to(G, 2))]), evicted);
    assert_eq!(scaler.counts(F).stopping, 1);
    assert_eq!(play(&mut scaler, &[(5, Event::VmEnded(V))]), [Command::BootVm(W)]);
    assert_eq!((scaler.state(n(0)), scaler.counts(F).stopping), (None, 0));
}

#[test]
fn an_instance_whose_vm_has_not_the_memory_to_run_is_ended_later() {
    let mut scaler = with_paused(130);
    let start = Command::Start { function: G, vm: W, instance: n(1) };
    let events = [(4, request_to(G, 2)), (5, Event::VmBooted(W))];
    assert_eq!(play(&mut scaler, &events), [start]);
    play(&mut scaler, &[(6, Event::Started(n(1)))]);
    assert_eq!(scaler.budget().free_bytes(), 1);
    assert_eq!(play(&mut scaler, &[(12, Event::Tick)]), []);
    assert_eq!(scaler.next_deadline(), Some(at(17)));
    play(&mut scaler, &[(13, Event::VmEnded(W))]);
    let stops = [RESUME, stop(0, StopReason::KeepAliveOver)];
    assert_eq!(play(&mut scaler, &[(17, Event::Tick)]), stops);
}

/// The commands when a second function needs an instance in a paused VM with one frozen instance, and the
/// host has `free_bytes` left.
fn wanted_in_paused_vm(free_bytes: u64) -> Vec<Command> {
    let mut scaler = with_paused(1000);
    let other = scaler.add_function(TenantIndex::FIRST, function(V)).unwrap();
    let taken = scaler.budget.free_bytes() - free_bytes;
    assert!(scaler.budget.commit(taken));
    play(&mut scaler, &[(4, request_to(other, 2))])
}

#[test]
fn what_is_frozen_in_a_vm_makes_room_for_another_instance_in_it() {
    let start = Command::Start { function: FunctionIndex(2), vm: V, instance: n(1) };
    assert_eq!(wanted_in_paused_vm(106), [RESUME, start]);
    assert_eq!(wanted_in_paused_vm(105), [RESUME, stop(0, StopReason::Evicted)]);
    assert_eq!(wanted_in_paused_vm(5), [], "it cannot run, and ending it is not enough");
}

/// Two VMs are used in turns, so that one of them is always being paused.
#[test]
fn a_call_waits_for_no_pause_that_has_begun_later() {
    let squeeze = crate::SqueezePolicy { floor_bytes: 1000, ceiling_bytes: 1000, ..SQUEEZE };
    let vms: [VmIndex; 4] = std::array::from_fn(|number| VmIndex(number as u32));
    let mut scaler = freezing(1000, squeeze, &vms.map(|_| vm()), &vms);
    let number = |VmIndex(index): VmIndex| n(index.into());
    // It has a request and is frozen afterwards.
    let use_at = |scaler: &mut Scaler, at, vm: VmIndex, request| {
        let (call, frozen) = (request_to(FunctionIndex(vm.0), request), number(vm));
        let frozen = Event::Frozen { instance: frozen, resident_bytes: 40 };
        let events = [(at, call), (at, Event::VmBooted(vm)), (at, Event::Started(number(vm)))];
        let events = if at == 0 { &events[..] } else { &events[..1] };
        play(scaler, events);
        play(scaler, &[(at, Event::Answered(number(vm))), (at + 1, Event::Tick)]);
        play(scaler, &[(at + 1, frozen)])
    };
    let paused = |vm| Event::VmPaused { vm, resident_bytes: 50 };
    for (request, &vm) in (0..3).zip(&vms) {
        assert_eq!(use_at(&mut scaler, 0, vm, request), [pause(vm)]);
        play(&mut scaler, &[(1, paused(vm))]);
    }
    let taken = scaler.budget.free_bytes() - 100;
    assert!(scaler.budget.commit(taken));
    assert_eq!(use_at(&mut scaler, 2, vms[1], 10), [pause(vms[1])]);
    let last = FunctionIndex(3);
    assert_eq!(play(&mut scaler, &[(3, request_to(last, 11))]), [], "its VM needs 110 bytes");
    assert_eq!(use_at(&mut scaler, 3, vms[2], 12), [pause(vms[2])]);
    let evicted = Command::EndVm { vm: vms[0], reason: StopReason::Evicted };
    assert_eq!(play(&mut scaler, &[(4, paused(vms[1]))]), [evicted]);
}
