//! Single decisions by example. `tests/properties.rs` checks what must hold for all of them.

mod beside;
mod condemned;
mod frozen;
mod keep;
mod lent;
mod paused;
mod prewarm;
mod room;
mod tenants;
mod unfit;
mod watched;

use super::*;
use crate::{RejectReason, WaitingFor};
use std::{num::NonZeroU16, time::Duration};

const KEEP_ALIVE: Duration = Duration::from_secs(10);
const F: FunctionIndex = FunctionIndex(0);
const G: FunctionIndex = FunctionIndex(1);
/// The VM of `F`.
pub(super) const V: VmIndex = VmIndex(0);
/// The VM of `G`.
const W: VmIndex = VmIndex(1);

pub(super) fn vm() -> VmPolicy {
    VmPolicy {
        base_bytes: 10,
        instance_bytes: 100,
        max_instances: 3,
        max_starting: 3,
        idle_time: Some(Duration::from_secs(60)),
    }
}

pub(super) fn function(vm: VmIndex) -> FunctionPolicy {
    FunctionPolicy {
        vm,
        max_instances: 3,
        requests_per_instance: NonZeroU16::MIN,
        min_instances: 0,
        keep_alive: KEEP_ALIVE,
        freeze_after: None,
        queue_limit: 4,
        wait_limit: Some(Duration::from_secs(100)),
    }
}

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

fn request_to(function: FunctionIndex, number: u64) -> Event {
    Event::Request { function, request: RequestNumber(number) }
}

fn request(number: u64) -> Event {
    request_to(F, number)
}

fn n(number: u64) -> InstanceNumber {
    InstanceNumber(number)
}

fn stop(number: u64, reason: StopReason) -> Command {
    Command::Stop { instance: n(number), reason }
}

fn reject(number: u64, reason: RejectReason) -> Command {
    Command::Reject { request: RequestNumber(number), reason }
}

fn dispatch(instance: u64, request: u64) -> Command {
    Command::Dispatch { instance: n(instance), request: RequestNumber(request), thaw: false }
}

fn pause(vm: VmIndex) -> Command {
    Command::PauseVm { vm, keeps_page_cache: true }
}

fn pause_cold(vm: VmIndex) -> Command {
    Command::PauseVm { vm, keeps_page_cache: false }
}

/// Precedes every other command for the VM of `F` while it is paused.
const RESUME: Command = Command::ResumeVm(V);

/// The end of the VM of `F`.
fn end(reason: StopReason) -> Command {
    Command::EndVm { vm: V, reason }
}

/// Plays events and returns the commands of the last one.
fn play(scaler: &mut Scaler, events: &[(u64, Event)]) -> Vec<Command> {
    let mut commands = Vec::new();
    for &(seconds, event) in events {
        commands = scaler.handle(at(seconds), event).expect("a valid event");
        let at_work = scaler.vms.iter().filter(|&(&vm, _)| scaler.pool.works_in(vm));
        let of_vms: u64 = at_work.map(|(_, vm)| vm.charged_bytes).sum();
        assert_eq!(scaler.working_vms_bytes, of_vms);
    }
    commands
}

/// A scaler with two functions, each with a VM of its own.
fn scaler(budget: u64) -> Scaler {
    let mut scaler = Scaler::new(Budget::new(budget));
    for index in [V, W] {
        assert_eq!(scaler.add_vm(vm()), Ok(index));
        scaler.add_function(TenantIndex::FIRST, function(index)).unwrap();
    }
    scaler
}

/// A scaler with instance 0 of `F` idle since `seconds`.
fn with_idle(budget: u64, seconds: u64) -> Scaler {
    let mut scaler = scaler(budget);
    play(
        &mut scaler,
        &[
            (0, request(0)),
            (0, Event::VmBooted(V)),
            (0, Event::Started(n(0))),
            (seconds, Event::Answered(n(0))),
        ],
    );
    scaler
}

#[test]
fn a_request_goes_all_the_way() {
    let mut scaler = scaler(1000);
    assert_eq!(play(&mut scaler, &[(0, request(7))]), [Command::BootVm(V)]);
    assert_eq!(scaler.budget().committed_bytes(), 10);
    let start = Command::Start { function: F, vm: V, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(1, Event::VmBooted(V))]), [start]);
    assert_eq!(scaler.budget().committed_bytes(), 110);
    assert_eq!(play(&mut scaler, &[(2, Event::Started(n(0)))]), [dispatch(0, 7)]);
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), []);
    assert_eq!(scaler.next_deadline(), Some(at(13)));
    assert_eq!(play(&mut scaler, &[(12, Event::Tick)]), []);
    assert_eq!(play(&mut scaler, &[(13, Event::Tick)]), [stop(0, StopReason::KeepAliveOver)]);
    let reclaim = Command::Reclaim { vm: V, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(14, Event::Stopped(n(0)))]), [reclaim]);
    assert_eq!(scaler.budget().committed_bytes(), 110, "charged until the host has it back");
    assert_eq!(play(&mut scaler, &[(15, Event::Reclaimed(n(0)))]), []);
    assert_eq!(scaler.budget().committed_bytes(), 10);
    assert_eq!(scaler.next_deadline(), Some(at(75)));
    assert_eq!(play(&mut scaler, &[(75, Event::Tick)]), [end(StopReason::KeepAliveOver)]);
    assert_eq!(play(&mut scaler, &[(76, Event::VmEnded(V))]), []);
    assert_eq!(scaler.budget().committed_bytes(), 0);
    assert!(scaler.is_empty());
}

#[test]
fn how_long_empty_vms_are_kept_may_change() {
    let mut scaler = with_idle(1000, 3);
    play(
        &mut scaler,
        &[(13, Event::Tick), (14, Event::Stopped(n(0))), (15, Event::Reclaimed(n(0)))],
    );
    assert_eq!(scaler.next_deadline(), Some(at(75)));
    scaler.keep_empty_vms(None);
    assert_eq!(scaler.next_deadline(), None);
    scaler.keep_empty_vms(Some(Duration::from_secs(5)));
    assert_eq!(scaler.next_deadline(), Some(at(20)));
    assert_eq!(play(&mut scaler, &[(30, Event::Tick)]), [end(StopReason::KeepAliveOver)]);
}

#[test]
fn no_more_instances_start_at_a_time_than_the_vm_has_processors_for() {
    let mut scaler = Scaler::new(Budget::new(1000));
    scaler.add_vm(VmPolicy { max_starting: 1, ..vm() }).unwrap();
    scaler.add_function(TenantIndex::FIRST, function(V)).unwrap();
    let start = |number| Command::Start { function: F, vm: V, instance: n(number) };
    let events = [(0, request(0)), (0, request(1)), (0, request(2)), (0, Event::VmBooted(V))];
    assert_eq!(play(&mut scaler, &events), [start(0)]);
    assert_eq!(play(&mut scaler, &[(1, Event::Started(n(0)))]), [dispatch(0, 0), start(1)]);
    // The next request goes to the first instance that is ready, although another is starting for it.
    assert_eq!(play(&mut scaler, &[(2, Event::Answered(n(0)))]), [dispatch(0, 1)]);
    assert_eq!(play(&mut scaler, &[(3, Event::Started(n(1)))]), [dispatch(1, 2)]);
}

#[test]
fn a_function_leaves_the_instances_of_its_vm_that_are_not_its_own_to_others() {
    let mut scaler = Scaler::new(Budget::new(1000));
    scaler.add_vm(vm()).unwrap();
    for max_instances in [2, 1] {
        scaler
            .add_function(TenantIndex::FIRST, FunctionPolicy { max_instances, ..function(V) })
            .unwrap();
    }
    let start = |number, function| Command::Start { function, vm: V, instance: n(number) };
    let events = [(0, request(0)), (0, request(1)), (0, request(2)), (1, Event::VmBooted(V))];
    assert_eq!(play(&mut scaler, &events), [start(0, F), start(1, F)]);
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 3))]), [start(2, G)]);
}

#[test]
fn an_idle_instance_is_used_before_a_new_one_is_started() {
    let mut scaler = with_idle(1000, 1);
    assert_eq!(play(&mut scaler, &[(2, request(1))]), [dispatch(0, 1)]);
}

#[test]
fn a_queue_without_a_bound_takes_calls_beside_an_idle_instance() {
    let mut scaler = with_idle(1000, 1);
    let policy = FunctionPolicy { queue_limit: usize::MAX, ..function(V) };
    assert_eq!(scaler.update_function(F, policy), Ok(()));
    assert_eq!(play(&mut scaler, &[(2, request(1))]), [dispatch(0, 1)]);
}

#[test]
fn a_reserve_is_refilled_by_ending_what_was_used_least_recently() {
    let mut scaler = Scaler::new(Budget::new(400).with_reserve(150));
    scaler.add_vm(vm()).unwrap();
    scaler.add_function(TenantIndex::FIRST, function(V)).unwrap();
    play(&mut scaler, &[(0, request(0)), (0, request(1)), (0, Event::VmBooted(V))]);
    // Both use the reserve at once, and nothing is idle.
    assert_eq!(scaler.budget().free_bytes(), 190);
    play(&mut scaler, &[(1, Event::Started(n(0))), (1, Event::Started(n(1)))]);
    assert_eq!(play(&mut scaler, &[(2, Event::Answered(n(1)))]), []);
    assert_eq!(play(&mut scaler, &[(3, request(2))]), [dispatch(1, 2)]);
    assert_eq!(play(&mut scaler, &[(4, Event::Answered(n(0)))]), []);
    // A third one leaves 90 bytes, so the idle one is ended early.
    play(&mut scaler, &[(5, request(3)), (5, request(4)), (5, Event::Started(n(2)))]);
    assert_eq!(scaler.budget().free_bytes(), 90);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(6, Event::Answered(n(0)))]), [evicted]);
    // Memory on its way back counts as free.
    assert_eq!(play(&mut scaler, &[(7, Event::Answered(n(1)))]), []);
}

#[test]
fn a_function_can_be_changed_while_it_is_in_use() {
    let mut scaler = with_idle(1000, 1);
    let policy = FunctionPolicy { keep_alive: Duration::from_secs(2), ..function(V) };
    assert_eq!(scaler.update_function(F, policy), Ok(()));
    assert_eq!(scaler.next_deadline(), Some(at(3)));
    assert_eq!(scaler.update_function(F, function(W)), Err(PolicyError::NoVm(W)));
    let nobody = FunctionIndex(9);
    assert_eq!(scaler.update_function(nobody, policy), Err(PolicyError::NoFunction(nobody)));
}

#[test]
fn an_idle_instance_is_frozen_and_thawed() {
    let mut scaler = Scaler::new(Budget::new(1000));
    let vm = scaler.add_vm(vm()).unwrap();
    let freeze_after = Some(Duration::from_secs(3));
    scaler
        .add_function(TenantIndex::FIRST, FunctionPolicy { freeze_after, ..function(vm) })
        .unwrap();
    play(&mut scaler, &[(0, request(0)), (0, Event::VmBooted(V)), (0, Event::Started(n(0)))]);
    play(&mut scaler, &[(1, Event::Answered(n(0)))]);
    assert_eq!(scaler.next_deadline(), Some(at(4)));
    assert_eq!(play(&mut scaler, &[(4, Event::Tick)]), [Command::Freeze(n(0))]);
    assert_eq!(
        scaler.counts(F),
        Counts { idle: 1, frozen: 1, promised_bytes: 100, ..Counts::default() }
    );
    assert_eq!(scaler.next_deadline(), Some(at(11)));
    let request_number = RequestNumber(1);
    let thawed = Command::Dispatch { instance: n(0), request: request_number, thaw: true };
    assert_eq!(play(&mut scaler, &[(5, request(1))]), [thawed]);
}

#[test]
fn a_burst_starts_one_instance_a_request_up_to_the_limit() {
    let mut scaler = scaler(1000);
    play(&mut scaler, &[(0, request(0)), (0, request(1)), (0, request(2)), (0, request(3))]);
    assert_eq!(play(&mut scaler, &[(1, Event::VmBooted(V))]).len(), 3);
    assert_eq!(
        scaler.counts(F),
        Counts { starting: 3, queued: 4, promised_bytes: 300, ..Counts::default() }
    );
    assert_eq!(play(&mut scaler, &[(1, request(4))]), [reject(4, RejectReason::QueueFull)]);
}

#[test]
fn a_call_that_has_had_a_place_in_another_queue_has_one_here() {
    let mut scaler = scaler(1000);
    play(&mut scaler, &[(0, request(0)), (0, request(1)), (0, request(2)), (0, request(3))]);
    assert_eq!(play(&mut scaler, &[(1, request(4))]), [reject(4, RejectReason::QueueFull)]);
    let sent_on = Event::SentOn { function: F, request: RequestNumber(5) };
    assert_eq!(play(&mut scaler, &[(1, sent_on)]), []);
    assert_eq!(scaler.counts(F).queued, 5);
}

#[test]
fn a_full_budget_evicts_the_least_recently_used_and_waits_for_its_memory() {
    let mut scaler = with_idle(120, 1);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(2, request_to(G, 1))]), [evicted]);
    let reclaim = Command::Reclaim { vm: V, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(2, Event::Stopped(n(0)))]), [reclaim]);
    assert_eq!(play(&mut scaler, &[(3, Event::Reclaimed(n(0)))]), [Command::BootVm(W)]);
    let start = Command::Start { function: G, vm: W, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(3, Event::VmBooted(W))]), [start]);
}

#[test]
fn an_empty_vm_makes_room_too() {
    let mut scaler = with_idle(115, 1);
    play(&mut scaler, &[(11, Event::Tick), (11, Event::Stopped(n(0)))]);
    play(&mut scaler, &[(12, Event::Reclaimed(n(0)))]);
    assert_eq!(play(&mut scaler, &[(13, request_to(G, 1))]), [end(StopReason::Evicted)]);
    assert_eq!(play(&mut scaler, &[(14, Event::VmEnded(V))]), [Command::BootVm(W)]);
}

#[test]
fn functions_that_share_a_vm_make_room_for_each_other() {
    let mut scaler = Scaler::new(Budget::new(1000));
    let vm = scaler.add_vm(VmPolicy { max_instances: 1, ..vm() }).unwrap();
    let (f, g) = (
        scaler.add_function(TenantIndex::FIRST, function(vm)).unwrap(),
        scaler.add_function(TenantIndex::FIRST, function(vm)).unwrap(),
    );
    play(&mut scaler, &[(0, request_to(f, 0)), (0, Event::VmBooted(vm))]);
    play(&mut scaler, &[(0, Event::Started(n(0))), (0, Event::Answered(n(0)))]);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(1, request_to(g, 1))]), [evicted]);
    assert_eq!(play(&mut scaler, &[(1, request_to(g, 2))]), [], "one is already on its way");
    play(&mut scaler, &[(2, Event::Stopped(n(0)))]);
    let start = Command::Start { function: g, vm, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(2, Event::Reclaimed(n(0)))]), [start]);
}

#[test]
fn stranded_memory_is_used_again_and_asked_for_again() {
    let mut scaler = with_idle(110, 1);
    play(
        &mut scaler,
        &[(11, Event::Tick), (11, Event::Stopped(n(0))), (12, Event::ReclaimFailed(n(0)))],
    );
    assert_eq!(scaler.budget().committed_bytes(), 110);
    assert_eq!(scaler.next_deadline(), Some(at(17)));
    let reclaim = Command::Reclaim { vm: V, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(17, Event::Tick)]), [reclaim]);
    play(&mut scaler, &[(18, Event::ReclaimFailed(n(0)))]);
    let start = Command::Start { function: F, vm: V, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(19, request(1))]), [start]);
    assert_eq!(scaler.budget().committed_bytes(), 110);
}

#[test]
fn an_instance_that_cannot_start_takes_its_request_with_it() {
    let mut scaler = scaler(1000);
    play(&mut scaler, &[(0, request(0)), (0, Event::VmBooted(V))]);
    let commands = [stop(0, StopReason::Broken), reject(0, RejectReason::StartFailed)];
    assert_eq!(play(&mut scaler, &[(1, Event::StartFailed(n(0)))]), commands);
}

#[test]
fn a_vm_that_cannot_boot_takes_its_requests_with_it() {
    let mut scaler = scaler(1000);
    play(&mut scaler, &[(0, request(0)), (0, request(1)), (0, request_to(G, 2))]);
    let commands = [reject(0, RejectReason::VmFailed), reject(1, RejectReason::VmFailed)];
    assert_eq!(play(&mut scaler, &[(1, Event::VmFailed(V))]), commands);
    assert_eq!(scaler.budget().committed_bytes(), 10, "of the other VM");
    assert_eq!(play(&mut scaler, &[(2, request(3))]), [Command::BootVm(V)]);
}

#[test]
fn a_vm_that_ends_by_itself_is_booted_again_for_who_waits() {
    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(2, request(1)), (2, request(2)), (2, request(3))]);
    // Instance 0 has request 1, and instances 1 and 2 are starting.
    let commands = [reject(2, RejectReason::VmFailed), reject(3, RejectReason::VmFailed)];
    assert_eq!(play(&mut scaler, &[(3, Event::VmEnded(V))]), commands);
    assert_eq!((scaler.counts(F), scaler.budget().committed_bytes()), (Counts::default(), 0));
    assert_eq!(play(&mut scaler, &[(4, request(4))]), [Command::BootVm(V)]);
}

#[test]
fn an_instance_that_died_gets_no_other_request() {
    let mut scaler = with_idle(1000, 1);
    let broken = stop(0, StopReason::Broken);
    assert_eq!(play(&mut scaler, &[(2, Event::Died(n(0)))]), [broken]);

    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(2, request(1)), (2, Event::Died(n(0)))]);
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), [broken]);
}

#[test]
fn a_retired_function_goes_with_its_vm() {
    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(2, request(1)), (2, request(2))]);
    assert_eq!(play(&mut scaler, &[(3, Event::Retire(F))]), [reject(2, RejectReason::Retired)]);
    assert_eq!(play(&mut scaler, &[(3, request(3))]), [reject(3, RejectReason::Retired)]);
    let retired = |number| stop(number, StopReason::Retired);
    assert_eq!(play(&mut scaler, &[(4, Event::Answered(n(0)))]), [retired(0)]);
    assert_eq!(play(&mut scaler, &[(4, Event::Started(n(1)))]), [retired(1)]);
    for number in [n(0), n(1)] {
        play(&mut scaler, &[(5, Event::Stopped(number))]);
    }
    assert_eq!(play(&mut scaler, &[(6, Event::Reclaimed(n(0)))]), []);
    assert_eq!(play(&mut scaler, &[(6, Event::Reclaimed(n(1)))]), [end(StopReason::Retired)]);
    play(&mut scaler, &[(7, Event::VmEnded(V))]);
    assert_eq!(scaler.vm_state(V), None);
    assert_eq!(scaler.add_function(TenantIndex::FIRST, function(V)), Err(PolicyError::NoVm(V)));
}

#[test]
fn a_retired_function_does_not_wait_for_memory_that_its_vm_brings_back() {
    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(2, Event::Retire(F)), (2, Event::Stopped(n(0)))]);
    assert!(scaler.has_function(F));
    assert_eq!(play(&mut scaler, &[(3, Event::ReclaimFailed(n(0)))]), [end(StopReason::Retired)]);
    play(&mut scaler, &[(4, Event::VmEnded(V))]);
    assert!(!scaler.has_function(F) && scaler.has_function(G));
    assert_eq!((scaler.vm_state(V), scaler.budget().committed_bytes()), (None, 0));
}

#[test]
fn draining_ends_everything() {
    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(1, request(1)), (1, request(2))]);
    assert_eq!(play(&mut scaler, &[(2, Event::Drain)]), [reject(2, RejectReason::Draining)]);
    let draining = |number| stop(number, StopReason::Draining);
    assert_eq!(play(&mut scaler, &[(3, Event::Started(n(1)))]), [draining(1)]);
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), [draining(0)]);
    for number in [n(0), n(1)] {
        play(&mut scaler, &[(4, Event::Stopped(number))]);
    }
    assert_eq!(play(&mut scaler, &[(5, Event::Reclaimed(n(0)))]), []);
    assert_eq!(play(&mut scaler, &[(5, Event::ReclaimFailed(n(1)))]), [end(StopReason::Draining)]);
    play(&mut scaler, &[(6, Event::VmEnded(V))]);
    assert!(scaler.is_empty());
    assert_eq!(scaler.budget().committed_bytes(), 0);
}

#[test]
fn events_that_make_no_sense_change_nothing() {
    let mut scaler = with_idle(1000, 1);
    let error = scaler.handle(at(2), Event::Stopped(n(0))).unwrap_err();
    let state = Some(InstanceState::Idle { since: at(1), frozen: false });
    assert_eq!(error, Unexpected::Instance { event: Event::Stopped(n(0)), state });
    let error = scaler.handle(at(2), Event::Started(n(9))).unwrap_err();
    assert!(error.to_string().ends_with("is not valid: the instance is unknown"));
    let error = scaler.handle(at(2), Event::VmBooted(W)).unwrap_err();
    assert!(error.to_string().ends_with("is not valid: the VM is Absent"));
    assert_eq!(scaler.counts(F), Counts { idle: 1, promised_bytes: 100, ..Counts::default() });
}
