//! Single decisions by example; `tests/properties.rs` has what must hold for all of them.

use super::*;
use crate::WaitingFor;
use std::time::Duration;

const KEEP_ALIVE: Duration = Duration::from_secs(10);
const F: FunctionIndex = FunctionIndex(0);
const G: FunctionIndex = FunctionIndex(1);
/// The VM of `F`.
const V: VmIndex = VmIndex(0);
/// The VM of `G`.
const W: VmIndex = VmIndex(1);

fn vm() -> VmPolicy {
    VmPolicy {
        base_bytes: 10,
        instance_bytes: 100,
        max_instances: 3,
        max_starting: 3,
        idle_time: Some(Duration::from_secs(60)),
    }
}

fn function(vm: VmIndex) -> FunctionPolicy {
    FunctionPolicy {
        vm,
        max_instances: 3,
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

/// What comes before anything else in the VM of `F` when it is paused.
const RESUME: Command = Command::ResumeVm(V);

/// The end of the VM of `F`.
fn end(reason: StopReason) -> Command {
    Command::EndVm { vm: V, reason }
}

/// Plays events and answers the commands of the last one.
fn play(scaler: &mut Scaler, events: &[(u64, Event)]) -> Vec<Command> {
    let mut commands = Vec::new();
    for &(seconds, event) in events {
        commands = scaler.handle(at(seconds), event).expect("an event that makes sense");
    }
    commands
}

/// A scaler with two functions, each with a VM of its own.
fn scaler(budget: u64) -> Scaler {
    let mut scaler = Scaler::new(Budget::new(budget));
    for index in [V, W] {
        assert_eq!(scaler.add_vm(vm()), Ok(index));
        scaler.add_function(function(index)).unwrap();
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
    assert_eq!(scaler.budget().committed_bytes(), 110, "promised until the host has it back");
    assert_eq!(play(&mut scaler, &[(15, Event::Reclaimed(n(0)))]), []);
    assert_eq!(scaler.budget().committed_bytes(), 10);
    assert_eq!(scaler.next_deadline(), Some(at(75)));
    assert_eq!(play(&mut scaler, &[(75, Event::Tick)]), [end(StopReason::KeepAliveOver)]);
    assert_eq!(play(&mut scaler, &[(76, Event::VmEnded(V))]), []);
    assert_eq!(scaler.budget().committed_bytes(), 0);
    assert!(scaler.is_empty());
}

#[test]
fn no_more_instances_start_at_a_time_than_the_vm_has_processors_for() {
    let mut scaler = Scaler::new(Budget::new(1000));
    scaler.add_vm(VmPolicy { max_starting: 1, ..vm() }).unwrap();
    scaler.add_function(function(V)).unwrap();
    let start = |number| Command::Start { function: F, vm: V, instance: n(number) };
    let events = [(0, request(0)), (0, request(1)), (0, request(2)), (0, Event::VmBooted(V))];
    assert_eq!(play(&mut scaler, &events), [start(0)]);
    assert_eq!(play(&mut scaler, &[(1, Event::Started(n(0)))]), [dispatch(0, 0), start(1)]);
    // Whoever is ready first takes the next one, though another was going to be started for it.
    assert_eq!(play(&mut scaler, &[(2, Event::Answered(n(0)))]), [dispatch(0, 1)]);
    assert_eq!(play(&mut scaler, &[(3, Event::Started(n(1)))]), [dispatch(1, 2)]);
}

#[test]
fn a_function_leaves_the_instances_of_its_vm_that_are_not_its_own_to_others() {
    let mut scaler = Scaler::new(Budget::new(1000));
    scaler.add_vm(vm()).unwrap();
    for max_instances in [2, 1] {
        scaler.add_function(FunctionPolicy { max_instances, ..function(V) }).unwrap();
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
fn a_reserve_is_refilled_by_ending_what_was_used_least_recently() {
    let mut scaler = Scaler::new(Budget::new(400).with_reserve(150));
    scaler.add_vm(vm()).unwrap();
    scaler.add_function(function(V)).unwrap();
    play(&mut scaler, &[(0, request(0)), (0, request(1)), (0, Event::VmBooted(V))]);
    // Both draw on the reserve at once, and nothing is idle.
    assert_eq!(scaler.budget().free_bytes(), 190);
    play(&mut scaler, &[(1, Event::Started(n(0))), (1, Event::Started(n(1)))]);
    assert_eq!(play(&mut scaler, &[(2, Event::Answered(n(1)))]), []);
    assert_eq!(play(&mut scaler, &[(3, request(2))]), [dispatch(1, 2)]);
    assert_eq!(play(&mut scaler, &[(4, Event::Answered(n(0)))]), []);
    // A third one leaves 90 bytes, so the idle one goes before its time.
    play(&mut scaler, &[(5, request(3)), (5, request(4)), (5, Event::Started(n(2)))]);
    assert_eq!(scaler.budget().free_bytes(), 90);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(6, Event::Answered(n(0)))]), [evicted]);
    // What is on its way back counts.
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
    scaler.add_function(FunctionPolicy { freeze_after, ..function(vm) }).unwrap();
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
    let (f, g) =
        (scaler.add_function(function(vm)).unwrap(), scaler.add_function(function(vm)).unwrap());
    play(&mut scaler, &[(0, request_to(f, 0)), (0, Event::VmBooted(vm))]);
    play(&mut scaler, &[(0, Event::Started(n(0))), (0, Event::Answered(n(0)))]);
    let evicted = stop(0, StopReason::Evicted);
    assert_eq!(play(&mut scaler, &[(1, request_to(g, 1))]), [evicted]);
    assert_eq!(play(&mut scaler, &[(1, request_to(g, 2))]), [], "one is on its way already");
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
    assert_eq!(scaler.budget().committed_bytes(), 10, "of the other one");
    assert_eq!(play(&mut scaler, &[(2, request(3))]), [Command::BootVm(V)]);
}

#[test]
fn a_vm_that_ends_by_itself_is_booted_again_for_who_waits() {
    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(2, request(1)), (2, request(2)), (2, request(3))]);
    // Instance 0 has request 1, and 1 and 2 start.
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
    assert_eq!(scaler.add_function(function(V)), Err(PolicyError::NoVm(V)));
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
    assert!(error.to_string().ends_with("makes no sense for an instance that is not there"));
    let error = scaler.handle(at(2), Event::VmBooted(W)).unwrap_err();
    assert!(error.to_string().ends_with("makes no sense for a VM that is Absent"));
    assert_eq!(scaler.counts(F), Counts { idle: 1, promised_bytes: 100, ..Counts::default() });
}

#[test]
fn policies_that_could_never_answer_are_refused() {
    let refused = |change: fn(&mut VmPolicy)| {
        let mut policy = vm();
        change(&mut policy);
        Scaler::new(Budget::new(1000)).add_vm(policy).err().map(|e| e.to_string())
    };
    assert!(refused(|p| (p.base_bytes, p.instance_bytes) = (0, 0)).is_some());
    assert!(refused(|p| p.max_instances = 0).is_some());
    assert_eq!(
        refused(|p| p.instance_bytes = 991).unwrap(),
        "a VM with one instance needs 1 MiB, and there are 0 MiB for all: allow more, or give an instance \
         less"
    );
    assert_eq!(refused(|p| p.instance_bytes = 0), None, "a VM may have all from its boot on");
    assert_eq!(refused(|_| ()), None);
    let mut scaler = scaler(1000);
    let none = FunctionPolicy { queue_limit: 0, ..function(V) };
    assert_eq!(scaler.add_function(none), Err(PolicyError::NoQueue));
    assert_eq!(scaler.add_function(function(VmIndex(9))), Err(PolicyError::NoVm(VmIndex(9))));
}

const SQUEEZE: crate::SqueezePolicy = crate::SqueezePolicy {
    floor_bytes: 20,
    ceiling_bytes: 20,
    rise: Duration::from_secs(1),
    frozen_for: Duration::from_secs(1),
    processors: 1,
};

/// A scaler with these VMs, and functions in these of them whose instances freeze after a second.
fn freezing(
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
        scaler.add_function(FunctionPolicy { freeze_after, ..function(vm) }).unwrap();
    }
    scaler
}

/// Boots the VM of `F` with an instance of it for each of these, which answers at second 1, is frozen at
/// second 2 and then holds so much; the last commands.
fn start_and_freeze(scaler: &mut Scaler, resident_bytes: &[u64]) -> Vec<Command> {
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

/// A scaler with instance 0 of `F` frozen at second 2, which then holds 30 bytes in a paused VM that holds
/// all its 10 beside.
fn with_frozen(budget: u64) -> Scaler {
    let mut scaler = freezing(budget, SQUEEZE, &[vm(), vm()], &[V, W]);
    assert_eq!(start_and_freeze(&mut scaler, &[30]), [Command::PauseVm(V)]);
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
    assert_eq!(scaler.budget().committed_bytes(), 110, "it runs meanwhile");
    let cpu = Duration::from_millis(10);
    let squeezed = Event::Squeezed { instance: n(0), resident_bytes: 10, cpu };
    assert_eq!(play(&mut scaler, &[(4, squeezed)]), [Command::PauseVm(V)]);
    assert_eq!(scaler.budget().committed_bytes(), 20);
}

#[test]
fn a_request_does_not_wait_for_the_end_of_a_squeeze() {
    let mut scaler = with_frozen(1000);
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(1), thaw: true };
    assert_eq!(play(&mut scaler, &[(3, Event::Tick), (3, request(1))]), [thaw]);
    let cpu = Duration::from_millis(10);
    let late = Event::Squeezed { instance: n(0), resident_bytes: 10, cpu };
    assert_eq!(play(&mut scaler, &[(4, late)]), []);
    assert_eq!(scaler.budget().committed_bytes(), 110, "it works");
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
    // A VM with an instance of 100 and a frozen one of 30, another VM with an instance: 150 of 160.
    let mut scaler = with_frozen(160);
    let start = Command::Start { function: G, vm: W, instance: n(1) };
    let events = [(2, request_to(G, 1)), (2, Event::VmBooted(W))];
    assert_eq!(play(&mut scaler, &events), [start]);
    let events = [(2, Event::Started(n(1))), (2, request(2))];
    assert_eq!(play(&mut scaler, &events), [], "the other one works");
    let events = [(2, Event::Answered(n(1)))];
    assert_eq!(play(&mut scaler, &events), [Command::Freeze(n(1))], "that may do");
    let evicted = stop(1, StopReason::Evicted);
    let frozen = Event::Frozen { instance: n(1), resident_bytes: 99 };
    assert_eq!(play(&mut scaler, &[(2, frozen)]), [evicted], "it does not");
    let reclaim = Command::Reclaim { vm: W, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(2, Event::Stopped(n(1)))]), [reclaim]);
    let thaw = Command::Dispatch { instance: n(0), request: RequestNumber(2), thaw: true };
    let paused = Command::PauseVm(W);
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
    assert_eq!(play(&mut scaler, &[(2, frozen)]), [RESUME, thaw, Command::PauseVm(W)]);
    assert_eq!(scaler.budget().committed_bytes(), 160);
}

/// The same, whose instance holds 15 bytes and its VM 4 of its 10 beside.
fn with_paused(budget: u64) -> Scaler {
    let mut scaler = with_frozen(budget);
    play(&mut scaler, &[(2, request(1)), (2, Event::Answered(n(0))), (3, Event::Tick)]);
    let frozen = Event::Frozen { instance: n(0), resident_bytes: 15 };
    assert_eq!(play(&mut scaler, &[(3, frozen)]), [Command::PauseVm(V)]);
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

#[test]
fn an_empty_vm_is_paused_until_it_is_ended() {
    let mut scaler = with_paused(1000);
    let stops = [RESUME, stop(0, StopReason::Evicted)];
    assert_eq!(play(&mut scaler, &[(3, Event::EvictIdle)]), stops);
    let events = [(3, Event::Stopped(n(0))), (4, Event::Reclaimed(n(0)))];
    assert_eq!(play(&mut scaler, &events), [Command::PauseVm(V)]);
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

/// A paused VM with one frozen instance, of which a second function wants another, in a host that has so
/// many bytes left.
fn wanted_in_paused_vm(free_bytes: u64) -> Vec<Command> {
    let mut scaler = with_paused(1000);
    let other = scaler.add_function(function(V)).unwrap();
    let taken = scaler.budget.free_bytes() - free_bytes;
    assert!(scaler.budget.commit(taken));
    play(&mut scaler, &[(4, request_to(other, 2))])
}

#[test]
fn what_is_frozen_in_a_vm_makes_room_for_another_instance_in_it() {
    let start = Command::Start { function: FunctionIndex(2), vm: V, instance: n(1) };
    assert_eq!(wanted_in_paused_vm(106), [RESUME, start]);
    assert_eq!(wanted_in_paused_vm(105), [RESUME, stop(0, StopReason::Evicted)]);
    assert_eq!(wanted_in_paused_vm(5), [], "neither could it run, nor would its end do");
}

/// A host with memory for the VM of `F` with an instance or that of `G` with one, but not for both; the VM
/// of `F` is up, and its instance 0, idle since second 1, has just been told to end.
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
    scaler.add_function(function(V)).unwrap();
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
        rejected.expect("request 9 is given up")
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
    assert_eq!(play(&mut scaler, &[(3, request_to(G, 1))]), [], "the memory is on its way");
    assert_eq!(play(&mut scaler, &[(4, Event::Reclaimed(n(0)))]), [end(StopReason::Evicted)]);
    assert_eq!(play(&mut scaler, &[(5, Event::VmEnded(V))]), [Command::BootVm(W)]);

    // Also when the guest keeps the memory: with its VM it comes back.
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
    scaler.add_function(function(V)).unwrap();
    scaler.add_function(function(W)).unwrap();
    let events = [
        (0, request(0)),
        (0, request(1)),
        (0, Event::VmBooted(V)),
        (0, Event::Started(n(0))),
        (0, Event::Started(n(1))),
        (1, Event::Answered(n(1))),
        (2, request_to(G, 2)),
    ];
    assert_eq!(play(&mut scaler, &events), [], "one of them works");
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
    // Both VMs have 10 beside an instance of 100, and one of 105 is wanted in a third.
    let mut scaler = scaler(220);
    let third = scaler.add_vm(VmPolicy { base_bytes: 5, ..vm() }).unwrap();
    let other = scaler.add_function(function(third)).unwrap();
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
    assert_eq!(play(&mut scaler, &[(3, request_to(other, 2))]), [evicted], "this one alone");
    let events = [(4, Event::Stopped(n(0))), (5, Event::Reclaimed(n(0)))];
    assert_eq!(play(&mut scaler, &events), [end(StopReason::Evicted)], "and its VM alone");
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
    // It had 30 bytes, and the next one wants 100: of the 75 its VM has taken 10 - 10 to run.
    assert_eq!(play(&mut scaler, &events[..3]), []);
    assert_eq!(scaler.budget().free_bytes(), 75);
    let start = Command::Start { function: F, vm: V, instance: n(1) };
    assert_eq!(play(&mut scaler, &events[3..]), [start]);
    assert_eq!(scaler.budget().free_bytes(), 5);

    let mut scaler = with_frozen(1000);
    let taken = scaler.budget.free_bytes() - 65;
    assert!(scaler.budget.commit(taken));
    assert_eq!(play(&mut scaler, &events), [], "there is too little");
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
    assert_eq!(scaler.budget().free_bytes(), 1, "and 6 are missing for it to run");
    let another = FunctionIndex(2);
    assert_eq!(play(&mut scaler, &[(4, request_to(another, 2))]), [Command::Freeze(n(1))]);
    let frozen = Event::Frozen { instance: n(1), resident_bytes: 15 };
    let commands = [RESUME, stop(0, StopReason::Evicted), Command::PauseVm(W)];
    assert_eq!(play(&mut scaler, &[(4, frozen)]), commands);
}

/// A VM that holds 20 of its 100 bytes and two frozen instances of 80 and 60 of their 100, while another
/// one's instance works; there are so many bytes besides.
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
    // An instance holds 30 of its 100 bytes, and the guest has kept those of another one.
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

/// An instance at work in a VM that has become unfit, and another one that was idle.
fn with_unfit() -> (Scaler, Vec<Command>) {
    let mut scaler = scaler(1000);
    let events = [
        (0, request(0)),
        (0, Event::VmBooted(V)),
        (0, request(1)),
        (1, Event::Started(n(0))),
        (1, Event::Started(n(1))),
        (2, Event::Answered(n(1))),
    ];
    play(&mut scaler, &events);
    let commands = play(&mut scaler, &[(3, Event::VmUnfit(V))]);
    (scaler, commands)
}

#[test]
fn an_unfit_vm_is_replaced_when_its_calls_are_answered() {
    let (mut scaler, commands) = with_unfit();
    assert_eq!(commands, [stop(1, StopReason::Broken)]);
    let events = [(4, Event::Stopped(n(1))), (4, Event::Reclaimed(n(1)))];
    assert!(!play(&mut scaler, &events).contains(&end(StopReason::Broken)), "one works");
    assert_eq!(play(&mut scaler, &[(5, request(2))]), [], "it waits for the next VM");
    assert_eq!(play(&mut scaler, &[(6, Event::Answered(n(0)))]), [stop(0, StopReason::Broken)]);
    play(&mut scaler, &[(7, Event::Stopped(n(0)))]);
    let commands = play(&mut scaler, &[(7, Event::Reclaimed(n(0)))]);
    assert_eq!(commands, [end(StopReason::Broken)]);
    assert_eq!(play(&mut scaler, &[(8, Event::VmEnded(V))]), [Command::BootVm(V)]);
    let start = Command::Start { function: F, vm: V, instance: n(2) };
    assert_eq!(play(&mut scaler, &[(9, Event::VmBooted(V))]), [start]);
    assert_eq!(play(&mut scaler, &[(9, Event::Started(n(2)))]), [dispatch(2, 2)]);
}

#[test]
fn a_call_outlives_the_vm_that_could_not_start_its_instance() {
    let mut scaler = scaler(1000);
    let events = [
        (0, request(0)),
        (0, Event::VmBooted(V)),
        (1, Event::Started(n(0))),
        (1, request(1)),
        (2, Event::VmUnfit(V)),
    ];
    play(&mut scaler, &events);
    let commands = play(&mut scaler, &[(2, Event::StartFailed(n(1)))]);
    assert_eq!(commands, [stop(1, StopReason::Broken)], "the call is kept");
    let events = [
        (3, Event::Stopped(n(1))),
        (3, Event::Reclaimed(n(1))),
        (3, Event::Answered(n(0))),
        (4, Event::Stopped(n(0))),
        (4, Event::Reclaimed(n(0))),
        (5, Event::VmEnded(V)),
        (6, Event::VmBooted(V)),
    ];
    let start = Command::Start { function: F, vm: V, instance: n(2) };
    assert_eq!(play(&mut scaler, &events), [start]);
    // One in which nothing has ever started is not waited for again.
    let events = [(7, Event::VmUnfit(V)), (7, Event::StartFailed(n(2)))];
    let commands = play(&mut scaler, &events);
    assert!(commands.contains(&reject(1, RejectReason::StartFailed)), "{commands:?}");
}
