//! Guests that lack memory.

use super::*;

fn starved(vm: VmIndex, wanted_bytes: u64) -> Event {
    Event::Starved { vm, wanted_bytes }
}

fn lend(vm: VmIndex, bytes: u64) -> Command {
    Command::LendVm { vm, bytes }
}

fn lent(vm: VmIndex, bytes: u64, given_bytes: u64) -> Event {
    Event::Lent { vm, bytes, given_bytes }
}

#[test]
fn a_starving_guest_is_lent_what_is_free_until_its_vm_ends() {
    let mut scaler = with_idle(1000, 1);
    assert_eq!(play(&mut scaler, &[(2, starved(V, 6))]), [lend(V, 6)]);
    assert_eq!(scaler.budget().committed_bytes(), 10 + 100 + 6);
    play(
        &mut scaler,
        &[(11, Event::Tick), (12, Event::Stopped(n(0))), (13, Event::Reclaimed(n(0)))],
    );
    assert_eq!(scaler.budget().committed_bytes(), 10 + 6);
    assert_eq!(play(&mut scaler, &[(73, Event::Tick)]), [end(StopReason::KeepAliveOver)]);
    play(&mut scaler, &[(74, Event::VmEnded(V))]);
    assert_eq!(scaler.budget().committed_bytes(), 0);
}

#[test]
fn a_guest_that_asks_for_ever_gets_no_more_than_an_instance_would() {
    let mut scaler = with_idle(1000, 1);
    let mut lent = 0;
    for _ in 0..1000 {
        for command in play(&mut scaler, &[(2, starved(V, 7)), (2, starved(V, u64::MAX))]) {
            let Command::LendVm { vm: V, bytes } = command else { panic!("{command:?}") };
            lent += bytes;
        }
        assert!(scaler.budget().committed_bytes() <= 10 + 100 + 100);
    }
    assert_eq!((lent, scaler.budget().committed_bytes()), (93, 210));
    // Others have the rest.
    assert_eq!(play(&mut scaler, &[(3, request_to(G, 9))]), [Command::BootVm(W)]);
}

#[test]
fn what_a_guest_is_not_given_is_not_charged_and_can_be_lent_again() {
    let mut scaler = with_idle(1000, 1);
    for _ in 0..100 {
        assert_eq!(play(&mut scaler, &[(2, starved(V, 60))]), [lend(V, 60)]);
        assert_eq!(play(&mut scaler, &[(2, lent(V, 60, 0))]), []);
        assert_eq!(scaler.budget().committed_bytes(), 10 + 100);
    }
    play(&mut scaler, &[(2, starved(V, 60)), (2, lent(V, 60, 20))]);
    assert_eq!(scaler.budget().committed_bytes(), 10 + 100 + 20);
    assert_eq!(play(&mut scaler, &[(2, starved(V, u64::MAX))]), [lend(V, 80)]);
}

#[test]
fn what_a_guest_is_not_given_goes_to_whoever_waits() {
    let mut scaler = with_idle(300, 1);
    play(&mut scaler, &[(1, request(1)), (2, starved(V, 100))]);
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 2))]), [], "90 of 110 bytes are free");
    assert_eq!(play(&mut scaler, &[(3, lent(V, 100, 80))]), [Command::BootVm(W)]);
}

#[test]
fn a_loan_that_a_vm_has_not_got_is_forgotten_with_it() {
    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(2, starved(V, 60)), (3, Event::VmEnded(V)), (3, lent(V, 60, 0))]);
    assert_eq!(scaler.budget().committed_bytes(), 0);
    play(&mut scaler, &[(4, request(1)), (4, lent(V, 60, 0)), (4, lent(VmIndex(7), 60, 0))]);
    assert_eq!(scaler.budget().committed_bytes(), 10);
}

#[test]
fn nobody_is_ended_for_a_starving_guest_and_nobody_who_waits_comes_after_it() {
    let mut scaler = with_idle(205, 1);
    play(&mut scaler, &[(1, request(1))]);
    // There is too little for the other VM, and what there is belongs to it.
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 2))]), []);
    assert_eq!(play(&mut scaler, &[(3, starved(V, 6))]), []);
    let mut scaler = with_idle(110, 1);
    assert_eq!(play(&mut scaler, &[(2, starved(V, 6))]), [], "nothing is free");
}

#[test]
fn only_a_guest_that_runs_is_lent_anything() {
    let mut scaler = scaler(1000);
    assert_eq!(play(&mut scaler, &[(0, starved(V, 6)), (0, starved(VmIndex(7), 6))]), []);
    play(&mut scaler, &[(0, request(0))]);
    assert_eq!(play(&mut scaler, &[(1, starved(V, 6))]), []);
    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(2, Event::Drain)]);
    assert_eq!(play(&mut scaler, &[(3, starved(V, 6))]), []);
}
