//! Single decisions by example; `tests/properties.rs` has what must hold for all of them.

use super::*;

const KEEP_ALIVE: Duration = Duration::from_secs(10);
const F: FunctionIndex = FunctionIndex(0);

fn policy() -> FunctionPolicy {
    FunctionPolicy { instance_bytes: 100, max_instances: 3, keep_alive: KEEP_ALIVE, queue_limit: 4 }
}

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

fn request(number: u64) -> Event {
    Event::Request { function: F, request: RequestNumber(number) }
}

fn n(number: u64) -> InstanceNumber {
    InstanceNumber(number)
}

/// Plays events and answers the commands of the last one.
fn play(scaler: &mut Scaler, events: &[(u64, Event)]) -> Vec<Command> {
    let mut commands = Vec::new();
    for &(seconds, event) in events {
        commands = scaler.handle(at(seconds), event).expect("an event that makes sense");
    }
    commands
}

/// A scaler with instance 0 idle since `seconds`.
fn with_idle(budget: u64, seconds: u64) -> Scaler {
    let mut scaler = Scaler::new(Budget::new(budget), &[policy(), policy()]).unwrap();
    play(
        &mut scaler,
        &[
            (0, request(0)),
            (0, Event::Plugged(n(0))),
            (0, Event::Started(n(0))),
            (seconds, Event::Answered(n(0))),
        ],
    );
    scaler
}

#[test]
fn a_request_goes_all_the_way() {
    let mut scaler = Scaler::new(Budget::new(1000), &[policy()]).unwrap();
    let instance = n(0);
    let function = F;
    assert_eq!(play(&mut scaler, &[(0, request(7))]), [Command::Plug { function, instance }]);
    assert_eq!(scaler.budget().committed_bytes(), 100);
    assert_eq!(
        play(&mut scaler, &[(1, Event::Plugged(instance))]),
        [Command::Start { function, instance }]
    );
    let request = RequestNumber(7);
    assert_eq!(
        play(&mut scaler, &[(2, Event::Started(instance))]),
        [Command::Dispatch { instance, request }]
    );
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(instance))]), []);
    assert_eq!(scaler.next_deadline(), Some(at(13)));
    assert_eq!(play(&mut scaler, &[(12, Event::Tick)]), []);
    let reason = StopReason::KeepAliveOver;
    assert_eq!(play(&mut scaler, &[(13, Event::Tick)]), [Command::Stop { instance, reason }]);
    assert_eq!(
        play(&mut scaler, &[(14, Event::Stopped(instance))]),
        [Command::Reclaim { function, instance }]
    );
    assert_eq!(scaler.budget().committed_bytes(), 100, "promised until the host has it back");
    assert_eq!(play(&mut scaler, &[(15, Event::Reclaimed(instance))]), []);
    assert_eq!(scaler.budget().committed_bytes(), 0);
    assert!(scaler.is_empty());
}

#[test]
fn an_idle_instance_is_used_before_a_new_one_is_started() {
    let mut scaler = with_idle(1000, 1);
    let dispatch = Command::Dispatch { instance: n(0), request: RequestNumber(1) };
    assert_eq!(play(&mut scaler, &[(2, request(1))]), [dispatch]);
}

#[test]
fn a_burst_starts_one_instance_a_request_up_to_the_limit() {
    let mut scaler = Scaler::new(Budget::new(1000), &[policy()]).unwrap();
    let plugs: usize = (0..4).map(|i| play(&mut scaler, &[(0, request(i))]).len()).sum();
    assert_eq!(plugs, 3);
    let counts = Counts { starting: 3, queued: 4, ..Counts::default() };
    assert_eq!(scaler.counts(F), counts);
    let reject = Command::Reject { request: RequestNumber(4), reason: RejectReason::QueueFull };
    assert_eq!(play(&mut scaler, &[(0, request(4))]), [reject]);
}

#[test]
fn a_full_budget_evicts_the_least_recently_used_and_waits_for_its_memory() {
    let mut scaler = with_idle(100, 1);
    let other = FunctionIndex(1);
    let request = Event::Request { function: other, request: RequestNumber(1) };
    let reason = StopReason::Evicted;
    assert_eq!(play(&mut scaler, &[(2, request)]), [Command::Stop { instance: n(0), reason }]);
    let reclaim = Command::Reclaim { function: F, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(2, Event::Stopped(n(0)))]), [reclaim]);
    let plug = Command::Plug { function: other, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(3, Event::Reclaimed(n(0)))]), [plug]);
}

#[test]
fn stranded_memory_is_used_again_and_asked_for_again() {
    let mut scaler = with_idle(100, 1);
    let stop = [(11, Event::Tick), (11, Event::Stopped(n(0))), (12, Event::ReclaimFailed(n(0)))];
    play(&mut scaler, &stop);
    assert_eq!(scaler.budget().committed_bytes(), 100);
    assert_eq!(scaler.next_deadline(), Some(at(12) + STRANDED_RETRY));
    let reclaim = Command::Reclaim { function: F, instance: n(0) };
    assert_eq!(play(&mut scaler, &[(17, Event::Tick)]), [reclaim]);
    play(&mut scaler, &[(18, Event::ReclaimFailed(n(0)))]);
    let plug = Command::Plug { function: F, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(19, request(1))]), [plug]);
    assert_eq!(scaler.budget().committed_bytes(), 100);
}

#[test]
fn an_instance_that_cannot_start_takes_its_request_with_it() {
    let mut scaler = Scaler::new(Budget::new(1000), &[policy()]).unwrap();
    play(&mut scaler, &[(0, request(0)), (0, Event::Plugged(n(0)))]);
    let stop = Command::Stop { instance: n(0), reason: StopReason::Broken };
    let reject = Command::Reject { request: RequestNumber(0), reason: RejectReason::StartFailed };
    assert_eq!(play(&mut scaler, &[(1, Event::StartFailed(n(0)))]), [stop, reject]);
}

#[test]
fn an_instance_that_died_gets_no_other_request() {
    let mut scaler = with_idle(1000, 1);
    let stop = Command::Stop { instance: n(0), reason: StopReason::Broken };
    assert_eq!(play(&mut scaler, &[(2, Event::Died(n(0)))]), [stop]);

    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(2, request(1)), (2, Event::Died(n(0)))]);
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), [stop]);
}

#[test]
fn draining_ends_everything() {
    let mut scaler = with_idle(1000, 1);
    play(&mut scaler, &[(1, request(1)), (1, request(2))]);
    let reject = Command::Reject { request: RequestNumber(2), reason: RejectReason::Draining };
    assert_eq!(play(&mut scaler, &[(2, Event::Drain)]), [reject]);
    let reclaim = Command::Reclaim { function: F, instance: n(1) };
    assert_eq!(play(&mut scaler, &[(3, Event::Plugged(n(1)))]), [reclaim]);
    let stop = Command::Stop { instance: n(0), reason: StopReason::Draining };
    assert_eq!(play(&mut scaler, &[(3, Event::Answered(n(0)))]), [stop]);
    play(
        &mut scaler,
        &[(4, Event::ReclaimFailed(n(1))), (4, Event::Stopped(n(0))), (4, Event::Reclaimed(n(0)))],
    );
    assert!(scaler.is_empty());
    assert_eq!(scaler.budget().committed_bytes(), 0);
}

#[test]
fn events_that_make_no_sense_change_nothing() {
    let mut scaler = with_idle(1000, 1);
    let error = scaler.handle(at(2), Event::Stopped(n(0))).unwrap_err();
    assert_eq!(error.state, Some(InstanceState::Idle { since: at(1) }));
    let error = scaler.handle(at(2), Event::Started(n(9))).unwrap_err();
    assert!(error.to_string().ends_with("makes no sense for an instance that is not there"));
    assert_eq!(scaler.counts(F), Counts { idle: 1, ..Counts::default() });
}

#[test]
fn policies_that_could_never_answer_are_refused() {
    let refused = |change: fn(&mut FunctionPolicy)| {
        let mut policy = policy();
        change(&mut policy);
        Scaler::new(Budget::new(1000), &[policy]).err().map(|e| e.to_string())
    };
    assert!(refused(|p| p.instance_bytes = 0).is_some());
    assert!(refused(|p| p.max_instances = 0).is_some());
    assert!(refused(|p| p.queue_limit = 0).is_some());
    assert_eq!(
        refused(|p| p.instance_bytes = 1001).unwrap(),
        "an instance of function 0 needs 1001 bytes, the host's budget is 1000"
    );
    assert_eq!(refused(|_| ()), None);
}
