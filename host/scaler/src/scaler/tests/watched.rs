//! Frozen instances that are measured again while their VM runs.

use super::{frozen::*, *};

/// The third function, which has the VM of `F`.
const H: FunctionIndex = FunctionIndex(2);

fn measured(number: u64, resident_bytes: u64) -> Event {
    Event::Measured { instance: n(number), resident_bytes }
}

/// A scaler whose VM of `F` runs, because its instance 1 is busy. Instance 0 was frozen at second 2 and holds 30 bytes, and
/// may grow by 10 in ten seconds.
fn with_watched() -> Scaler {
    let squeeze = crate::SqueezePolicy { floor_bytes: 60, ceiling_bytes: 60, ..SQUEEZE };
    let squeeze = crate::SqueezePolicy { processors: 2, ..squeeze };
    let mut scaler = freezing(1000, squeeze, &[vm(), vm()], &[V, W, V]);
    let events = [
        (0, request(0)),
        (0, request(1)),
        (0, Event::VmBooted(V)),
        (0, Event::Started(n(0))),
        (0, Event::Started(n(1))),
        (1, Event::Answered(n(0))),
        (2, Event::Tick),
    ];
    assert_eq!(play(&mut scaler, &events), [Command::Freeze(n(0))]);
    assert_eq!(scaler.worth_measuring(V), [], "it is charged in full");
    play(&mut scaler, &[(2, Event::Frozen { instance: n(0), resident_bytes: 30 })]);
    assert_eq!((scaler.worth_measuring(V), scaler.worth_measuring(W)), (vec![n(0)], vec![]));
    assert_eq!(scaler.budget().committed_bytes(), 10 + 30 + 100);
    scaler
}

#[test]
fn a_frozen_instance_that_grows_a_little_costs_what_it_holds() {
    let mut scaler = with_watched();
    // Whoever holds less than before may well take it back.
    for (seconds, resident_bytes, charged_bytes) in [(12, 50, 50), (22, 40, 50), (32, 55, 55)] {
        assert_eq!(play(&mut scaler, &[(seconds, measured(0, resident_bytes))]), []);
        assert_eq!(scaler.budget().committed_bytes(), 10 + charged_bytes + 100);
    }
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(2), thaw: true };
    assert_eq!(play(&mut scaler, &[(33, request(2))]), [thaw]);
    assert_eq!(play(&mut scaler, &[(33, measured(0, 99))]), [], "it comes too late");
    assert_eq!(scaler.budget().committed_bytes(), 10 + 100 + 100);
}

#[test]
fn a_frozen_instance_may_have_grown_by_more_in_a_longer_time() {
    let mut scaler = with_watched();
    assert_eq!(play(&mut scaler, &[(32, measured(0, 60))]), []);
    assert_eq!(scaler.budget().committed_bytes(), 10 + 60 + 100);
    // It cannot have grown beyond its partition.
    play(&mut scaler, &[(1032, measured(0, u64::MAX))]);
    assert_eq!(scaler.budget().committed_bytes(), 10 + 100 + 100);
    assert_eq!(scaler.worth_measuring(V), [], "there is no more that it could take");
}

#[test]
fn a_frozen_instance_goes_that_grows_where_there_is_no_memory() {
    let mut scaler = with_watched();
    let taken = scaler.budget.free_bytes() - 14;
    assert!(scaler.budget.commit(taken));
    let events = [(12, measured(0, 45))];
    assert_eq!(play(&mut scaler, &events), [stop(0, StopReason::Overdrawn)]);
    assert_eq!(scaler.budget().free_bytes(), 14);
    assert_eq!(scaler.vm_state(V), Some(VmState::Up { empty_since: None }));
}

#[test]
fn what_a_frozen_instance_grows_by_is_not_refused_for_a_quota() {
    let mut scaler = with_watched();
    let quota = TenantPolicy { memory_bytes: Some(140), ..TenantPolicy::default() };
    assert_eq!(scaler.update_tenant(TenantIndex::FIRST, quota), Ok(()));
    assert_eq!(play(&mut scaler, &[(3, Event::Tick), (12, measured(0, 40))]), []);
    assert_eq!(scaler.tenant_counts(TenantIndex::FIRST).promised_bytes, 150);
    assert_eq!(scaler.budget().committed_bytes(), 150);
}

#[test]
fn what_a_frozen_instance_grows_by_is_not_refused_for_a_vm_that_boots() {
    let mut scaler = with_watched();
    let other = TenantIndex(1);
    assert_eq!(scaler.add_tenant(TenantPolicy::default()), Ok(other));
    let its_vm = scaler.add_vm(vm()).unwrap();
    let its_function = scaler.add_function(other, function(its_vm)).unwrap();
    assert_eq!(play(&mut scaler, &[(3, request_to(its_function, 2))]), [Command::BootVm(its_vm)]);
    let taken = scaler.budget.free_bytes() - 14;
    assert!(scaler.budget.commit(taken));
    assert_eq!(play(&mut scaler, &[(12, measured(0, 40))]), []);
    assert_eq!(scaler.budget().free_bytes(), 4);
}

/// The end of the VM of `F`, whose instance 0 holds this much.
fn kill(resident_bytes: u64) -> Command {
    Command::KillVm { vm: V, instance: n(0), taken_bytes: resident_bytes - 30, resident_bytes }
}

#[test]
fn a_vm_ends_whose_frozen_instance_grows_by_more_and_is_booted_again() {
    let mut scaler = with_watched();
    assert_eq!(play(&mut scaler, &[(12, measured(0, 51))]), [kill(51)]);
    assert_eq!(scaler.vm_state(V), Some(VmState::Ending));
    assert_eq!(scaler.worth_measuring(V), []);
    // Nobody else has its memory, and nothing in it a request, before it has ended.
    assert_eq!(scaler.budget().committed_bytes(), 10 + 30 + 100);
    let events = [(12, request(2)), (12, measured(0, 99)), (13, Event::Answered(n(1)))];
    for event in events {
        assert_eq!(play(&mut scaler, &[event]), []);
    }
    assert_eq!(play(&mut scaler, &[(14, Event::VmEnded(V))]), [Command::BootVm(V)]);
    assert_eq!((scaler.state(n(0)), scaler.state(n(1))), (None, None));
    assert_eq!(scaler.budget().committed_bytes(), 10);
    let start = Command::Start { function: F, vm: V, instance: n(2) };
    assert_eq!(play(&mut scaler, &[(15, Event::VmBooted(V))]), [start]);
}

#[test]
fn whatever_is_reported_of_a_vm_that_is_killed_is_right() {
    let reports = [
        Event::Started(n(2)),
        Event::StartFailed(n(2)),
        Event::Broken(n(1)),
        Event::Died(n(0)),
        Event::Died(n(1)),
        Event::VmUnfit(V),
        Event::EvictIdle,
        Event::Retire(F),
        Event::Tick,
    ];
    for report in reports {
        let mut scaler = with_watched();
        let start = Command::Start { function: H, vm: V, instance: n(2) };
        assert_eq!(play(&mut scaler, &[(3, request_to(H, 2))]), [start]);
        assert_eq!(play(&mut scaler, &[(12, measured(0, 90))]), [kill(90)]);
        assert_eq!(play(&mut scaler, &[(12, report)]), [], "{report:?}");
        // What is still starting then has its request fail, as with any VM that ends.
        let commands = match report {
            Event::Started(_) | Event::StartFailed(_) => Command::BootVm(V),
            _ => reject(2, RejectReason::VmFailed),
        };
        assert_eq!(play(&mut scaler, &[(13, Event::VmEnded(V))]), [commands], "{report:?}");
    }
}

#[test]
fn an_instance_that_is_squeezed_is_not_measured_until_it_rests() {
    let mut scaler = with_watched();
    play(&mut scaler, &[(12, measured(0, 50)), (22, measured(0, 70))]);
    assert_eq!(scaler.worth_measuring(V), [], "it is more than frozen instances may hold");
    assert_eq!(play(&mut scaler, &[(23, measured(0, 99))]), []);
    assert_eq!(scaler.budget().committed_bytes(), 10 + 100 + 100);
    let cpu = Duration::from_millis(10);
    let squeezed = Event::Squeezed { instance: n(0), resident_bytes: 20, cpu };
    play(&mut scaler, &[(24, squeezed)]);
    assert_eq!(scaler.worth_measuring(V), [n(0)]);
    play(&mut scaler, &[(34, measured(0, 40))]);
    assert_eq!(scaler.budget().committed_bytes(), 10 + 40 + 100);
}

#[test]
fn nothing_is_measured_again_in_a_paused_vm() {
    let mut scaler = freezing(1000, SQUEEZE, &[vm()], &[V]);
    assert_eq!(start_and_freeze(&mut scaler, &[15]), [pause(V)]);
    for paused in [false, true] {
        assert_eq!(scaler.worth_measuring(V), []);
        assert_eq!(play(&mut scaler, &[(2, measured(0, 99))]), []);
        assert_eq!(scaler.budget().committed_bytes(), if paused { 19 } else { 25 });
        play(&mut scaler, &[(2, Event::VmPaused { vm: V, resident_bytes: 19 })]);
    }
}
