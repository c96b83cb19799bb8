//! Who gets memory, and who gives it up, when several tenants want it.

use super::*;
use std::num::NonZeroU32;

const T: TenantIndex = TenantIndex::FIRST;
const U: TenantIndex = TenantIndex(1);

/// `F` belongs to `T`, and `G` to `U`. A VM takes 10 bytes, and an instance 100.
fn shared(budget: u64) -> Scaler {
    let mut scaler = Scaler::new(Budget::new(budget));
    assert_eq!(scaler.add_tenant(TenantPolicy::default()), Ok(U));
    for (index, tenant) in [(V, T), (W, U)] {
        let policy = VmPolicy { max_instances: 10, max_starting: 10, ..vm() };
        assert_eq!(scaler.add_vm(policy), Ok(index));
        let policy = FunctionPolicy { max_instances: 10, queue_limit: 100, ..function(index) };
        scaler.add_function(tenant, policy).unwrap();
    }
    scaler
}

/// Has instances with these numbers started for as many calls of a function.
fn busy(scaler: &mut Scaler, function: FunctionIndex, numbers: std::ops::Range<u64>) {
    let vm = if function == F { V } else { W };
    for number in numbers.clone() {
        play(scaler, &[(0, request_to(function, number))]);
    }
    if scaler.vm_state(vm) == Some(VmState::Booting) {
        play(scaler, &[(0, Event::VmBooted(vm))]);
    }
    numbers.for_each(|number| drop(play(scaler, &[(0, Event::Started(n(number)))])));
}

fn evicted(number: u64) -> Command {
    stop(number, StopReason::Evicted)
}

#[test]
fn who_floods_makes_room_before_it_goes_on() {
    let mut scaler = shared(530);
    busy(&mut scaler, F, 0..5);
    let flood = [5, 6, 7].map(|number| (1, request(number)));
    assert_eq!(play(&mut scaler, &flood), []);
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 8))]), [], "no call is ended for it");
    // Its next call has to wait, although this instance could take it.
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), [evicted(0)]);
    // What is on its way is enough, so this one goes on.
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(1)))]), [dispatch(1, 5)]);
    play(&mut scaler, &[(4, Event::Stopped(n(0)))]);
    assert_eq!(play(&mut scaler, &[(4, Event::Reclaimed(n(0)))]), [Command::BootVm(W)]);
    assert_eq!(scaler.budget().free_bytes(), 110);
    assert_eq!(play(&mut scaler, &[(5, request(9))]), [], "the rest is for the VM that boots");
    let start = Command::Start { function: G, vm: W, instance: n(5) };
    assert_eq!(play(&mut scaler, &[(6, Event::VmBooted(W))])[0], start);
}

/// Otherwise each instance would be stopped as soon as it had started, for as long as the call waits.
#[test]
fn a_vm_that_is_emptied_for_another_tenant_starts_nothing() {
    let mut scaler = Scaler::new(Budget::new(350));
    assert_eq!(scaler.add_tenant(TenantPolicy::default()), Ok(U));
    // All memory from boot on.
    let whole = VmPolicy { base_bytes: 300, instance_bytes: 0, ..vm() };
    for (index, tenant, policy) in [(V, T, whole), (W, U, vm())] {
        assert_eq!(scaler.add_vm(policy), Ok(index));
        scaler.add_function(tenant, function(index)).unwrap();
    }
    busy(&mut scaler, F, 0..1);
    play(&mut scaler, &[(1, Event::Answered(n(0)))]);
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 1))]), [evicted(0)]);
    assert_eq!(play(&mut scaler, &[(3, request(2))]), []);
    play(&mut scaler, &[(4, Event::Stopped(n(0)))]);
    let end = Command::EndVm { vm: V, reason: StopReason::Evicted };
    assert_eq!(play(&mut scaler, &[(4, Event::Reclaimed(n(0)))]), [end]);
    assert_eq!(play(&mut scaler, &[(5, Event::VmEnded(V))]), [Command::BootVm(W)]);
}

#[test]
fn warm_instances_stay_while_their_tenant_is_within_its_share() {
    let mut scaler = shared(630);
    busy(&mut scaler, G, 0..2);
    busy(&mut scaler, F, 2..6);
    assert_eq!(scaler.budget().free_bytes(), 10);
    play(&mut scaler, &[(1, Event::Answered(n(0))), (1, Event::Answered(n(1)))]);
    // They are idle, and the flood takes none of them.
    assert_eq!(play(&mut scaler, &[(2, request(6)), (2, request(7))]), []);
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(2)))]), [dispatch(2, 6)]);
    assert_eq!(play(&mut scaler, &[(3, request_to(G, 8))]), [dispatch(1, 8)], "still warm");
}

#[test]
fn a_weight_makes_a_share_larger() {
    let mut scaler = shared(630);
    let policy = TenantPolicy { weight: NonZeroU32::new(3).unwrap(), ..TenantPolicy::default() };
    assert_eq!(scaler.update_tenant(T, policy), Ok(()));
    busy(&mut scaler, G, 0..3);
    busy(&mut scaler, F, 3..5);
    play(&mut scaler, &[(1, Event::Answered(n(0)))]);
    // With 310 bytes for a weight of 3 it has less than the other one, which has 310 for a weight of 1.
    assert_eq!(
        play(&mut scaler, &[(2, request(5))]),
        [Command::Start { function: F, vm: V, instance: n(5) }]
    );
    assert_eq!(play(&mut scaler, &[(2, request(6))]), [evicted(0)]);
}

#[test]
fn who_has_nothing_at_work_may_take_what_is_idle_of_anybody() {
    let mut scaler = shared(330);
    let third = scaler.add_tenant(TenantPolicy::default()).unwrap();
    let large = scaler.add_vm(VmPolicy { base_bytes: 100, instance_bytes: 150, ..vm() }).unwrap();
    let large = scaler.add_function(third, function(large)).unwrap();
    busy(&mut scaler, F, 0..1);
    busy(&mut scaler, G, 1..2);
    play(&mut scaler, &[(1, Event::Answered(n(0))), (2, Event::Answered(n(1)))]);
    // It exceeds its share, a third of all.
    assert_eq!(play(&mut scaler, &[(3, request_to(large, 2))]), [evicted(0), evicted(1)]);
}

#[test]
fn while_there_is_memory_everybody_has_any_amount_of_it() {
    let mut scaler = shared(1020);
    busy(&mut scaler, F, 0..9);
    assert_eq!(scaler.tenant_counts(T).promised_bytes, 910);
    assert_eq!(play(&mut scaler, &[(1, request_to(G, 9))]), [Command::BootVm(W)]);
}

#[test]
fn a_vm_has_functions_of_one_tenant() {
    let mut scaler = shared(1000);
    let refused = scaler.add_function(U, function(V)).unwrap_err();
    assert_eq!(refused, PolicyError::OtherTenant(V));
    let message =
        "VM 0 belongs to another tenant; functions of different tenants cannot share a VM";
    assert_eq!(refused.to_string(), message);
    let nobody = TenantIndex(9);
    assert_eq!(scaler.add_function(nobody, function(V)), Err(PolicyError::NoTenant(nobody)));
}

#[test]
fn a_tenant_goes_with_its_last_function() {
    let mut scaler = shared(1000);
    scaler.remove_tenant(U);
    assert_eq!(scaler.tenants().count(), 2);
    assert_eq!(scaler.add_function(U, function(W)), Err(PolicyError::NoTenant(U)));
    play(&mut scaler, &[(1, Event::Retire(G))]);
    assert_eq!(scaler.tenants().collect::<Vec<_>>(), [T]);
}

#[test]
fn a_quota_bounds_the_calls_of_all_functions_of_a_tenant() {
    let mut scaler = shared(1000);
    let policy = TenantPolicy { calls: Some(2), ..TenantPolicy::default() };
    assert_eq!(scaler.update_tenant(T, policy), Ok(()));
    let none = TenantPolicy { calls: Some(0), ..policy };
    assert_eq!(scaler.update_tenant(T, none), Err(PolicyError::NoCall));
    busy(&mut scaler, F, 0..1);
    let commands = play(&mut scaler, &[(1, request(1)), (1, request(2))]);
    assert_eq!(commands, [reject(2, RejectReason::TooManyCalls)]);
    assert_eq!(
        scaler.tenant_counts(T),
        TenantCounts { queued: 1, running: 1, promised_bytes: 210 }
    );
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 3))]), [Command::BootVm(W)], "its own calls");
    play(&mut scaler, &[(3, Event::Answered(n(0)))]);
    assert_eq!(play(&mut scaler, &[(3, request(4))]), [], "one is done");
}

#[test]
fn a_quota_bounds_memory_and_others_do_not_pay_for_it() {
    let mut scaler = shared(1000);
    let quota =
        |memory_bytes| TenantPolicy { memory_bytes: Some(memory_bytes), ..TenantPolicy::default() };
    assert_eq!(scaler.update_tenant(T, quota(215)), Ok(()));
    busy(&mut scaler, F, 0..2);
    assert_eq!(play(&mut scaler, &[(1, request(2))]), []);
    assert_eq!(
        play(&mut scaler, &[(1, request_to(G, 3))]),
        [Command::BootVm(W)],
        "it need not wait"
    );
    assert_eq!(play(&mut scaler, &[(2, Event::Answered(n(0)))]), [dispatch(0, 2)]);
    // With a smaller one, what is idle goes, and what cannot fit is refused.
    play(&mut scaler, &[(3, Event::Answered(n(1)))]);
    assert_eq!(scaler.update_tenant(T, quota(120)), Ok(()));
    assert_eq!(play(&mut scaler, &[(4, Event::Tick)]), [evicted(1)]);
    assert_eq!(scaler.update_tenant(T, quota(109)), Ok(()));
    let commands = play(&mut scaler, &[(5, request(4))]);
    assert_eq!(commands, [reject(4, RejectReason::OverQuota)]);
    let refused = scaler.add_function(T, function(V)).unwrap_err();
    assert_eq!(refused, PolicyError::OverQuota { needed_bytes: 110, quota_bytes: 109 });
}

#[test]
fn who_waited_for_its_quota_is_told_so() {
    let mut scaler = shared(1000);
    let other = scaler.add_vm(vm()).unwrap();
    let other = scaler.add_function(T, function(other)).unwrap();
    let quota = TenantPolicy { memory_bytes: Some(150), ..TenantPolicy::default() };
    assert_eq!(scaler.update_tenant(T, quota), Ok(()));
    busy(&mut scaler, F, 0..1);
    play(&mut scaler, &[(1, request_to(other, 1))]);
    let reason = RejectReason::WaitedTooLong(WaitingFor::Quota);
    assert_eq!(play(&mut scaler, &[(101, Event::Tick)]), [reject(1, reason)]);
}
