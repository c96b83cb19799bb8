use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const F: FunctionIndex = FunctionIndex(0);
const G: FunctionIndex = FunctionIndex(1);

fn policy() -> SqueezePolicy {
    SqueezePolicy {
        floor_bytes: 100 * MIB,
        ceiling_bytes: 200 * MIB,
        rise: Duration::from_secs(100),
        frozen_for: Duration::from_secs(2),
        processors: 2,
        tolerance_bytes: 10 * MIB,
    }
}

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

fn n(number: u64) -> InstanceNumber {
    InstanceNumber(number)
}

/// One instance of `F` for each size in MiB, all frozen at the start.
fn squeeze_manager(sizes: &[u64]) -> SqueezeManager {
    let mut squeeze_manager = SqueezeManager::new(policy());
    for (number, size) in (0..).zip(sizes) {
        squeeze_manager.frozen(Moment::START, n(number), F, size * MIB);
    }
    squeeze_manager
}

#[test]
fn nobody_is_squeezed_while_there_is_memory() {
    assert_eq!(squeeze_manager(&[50, 50]).choose(at(10), 0), None);
    assert_eq!(squeeze_manager(&[50, 60]).choose(at(5), 0), Some(n(1)));
}

#[test]
fn the_threshold_rises_until_somebody_is_evicted() {
    let mut squeeze_manager = squeeze_manager(&[80, 70]);
    assert_eq!(squeeze_manager.choose(at(49), 0), Some(n(0)));
    assert_eq!(squeeze_manager.choose(at(51), 0), None);
    squeeze_manager.evicted(at(51));
    assert_eq!(squeeze_manager.choose(at(51), 0), Some(n(0)));
    let full = SqueezeManager { held_bytes: 1000 * MIB, ..squeeze_manager };
    assert!(full.choose(at(100_000), 0).is_some(), "it stops at its ceiling");
}

#[test]
fn what_was_at_work_lately_would_find_its_memory() {
    let mut squeeze_manager = squeeze_manager(&[50, 40]);
    squeeze_manager.works(at(5), 910 * MIB, 1000 * MIB);
    assert_eq!(squeeze_manager.choose(at(5), 0), None, "that is exactly what is left");
    squeeze_manager.works(at(5), 911 * MIB, 1000 * MIB);
    assert_eq!(squeeze_manager.choose(at(5), 0), Some(n(0)));
    assert_eq!(squeeze_manager.choose(at(5), 2), None, "no processor is idle");
    // When the burst is over, another one may come.
    squeeze_manager.works(at(6), 0, 1000 * MIB);
    assert_eq!(squeeze_manager.choose(at(6), 0), Some(n(0)));
    squeeze_manager.works(at(105), 0, 1000 * MIB);
    assert_eq!(squeeze_manager.choose(at(105), 0), Some(n(0)));
    squeeze_manager.works(at(200), 0, 1000 * MIB);
    assert_eq!(squeeze_manager.choose(at(200), 0), None, "there was none for a long time");
}

#[test]
fn room_for_a_burst_does_not_raise_the_threshold() {
    let mut squeeze_manager = squeeze_manager(&[50, 60]);
    squeeze_manager.works(at(5), MIB, 1000 * MIB);
    assert_eq!(squeeze_manager.choose(at(5), 0), Some(n(1)));
}

proptest! {
    /// Squeezes that cannot leave it enough leave nothing that could be given back.
    #[test]
    fn whatever_was_at_work_within_the_last_rise_would_find_its_memory(
        sizes in prop::collection::vec(1..200_u64, 1..10),
        works in prop::collection::vec((0..50_u64, 0..1100_u64), 1..20),
    ) {
        let mut squeeze_manager = squeeze_manager(&sizes);
        let (mut now, mut noted) = (policy().frozen_for.as_secs(), Vec::new());
        for (seconds, size) in works {
            now += seconds;
            noted.push((now, size));
            squeeze_manager.works(at(now), size * MIB, 1000 * MIB);
            while let Some(number) = squeeze_manager.choose(at(now), 0) {
                squeeze_manager.begin(number);
                squeeze_manager.squeezed(at(now), number, 0, Duration::from_millis(1));
            }
            let lately = noted.iter().filter(|&&(then, _)| at(now).since(at(then)) < policy().rise);
            let most = lately.map(|&(_, size)| size).max().unwrap_or(0);
            let held_bytes = squeeze_manager.held_bytes;
            prop_assert!(held_bytes == 0 || held_bytes + most * MIB <= 1000 * MIB, "{held_bytes}");
        }
    }
}

#[test]
fn who_was_frozen_just_now_is_left_alone() {
    let mut squeeze_manager = squeeze_manager(&[90]);
    squeeze_manager.frozen(at(5), n(1), F, 100 * MIB);
    assert_eq!(squeeze_manager.choose(at(1), 0), None);
    assert_eq!(squeeze_manager.deadline(at(1)), Some(at(2)));
    assert_eq!(squeeze_manager.choose(at(6), 0), Some(n(0)));
    assert_eq!(squeeze_manager.deadline(at(6)), Some(at(7)));
    assert_eq!(squeeze_manager.choose(at(7), 0), Some(n(1)));
    assert_eq!(squeeze_manager.deadline(at(7)), None);
}

#[test]
fn an_instance_is_squeezed_until_it_runs() {
    let mut squeeze_manager = squeeze_manager(&[200, 200]);
    squeeze_manager.begin(n(0));
    assert!(!squeeze_manager.is_squeezed(n(0)), "not yet");
    squeeze_manager.squeezed(at(5), n(0), 10 * MIB, Duration::from_millis(10));
    assert!(squeeze_manager.is_squeezed(n(0)) && !squeeze_manager.is_squeezed(n(1)));
    squeeze_manager.thawed(n(0));
    assert!(!squeeze_manager.is_squeezed(n(0)));
    squeeze_manager.frozen(at(9), n(0), F, 200 * MIB);
    assert!(!squeeze_manager.is_squeezed(n(0)));
    squeeze_manager.begin(n(1));
    squeeze_manager.failed(n(1));
    assert!(!squeeze_manager.is_squeezed(n(1)));
}

#[test]
fn processors_that_work_do_not_squeeze() {
    let mut squeeze_manager = squeeze_manager(&[200, 200, 200]);
    assert_eq!(squeeze_manager.choose(at(5), 2), None);
    assert_eq!(squeeze_manager.choose(at(5), 1), Some(n(0)));
    squeeze_manager.begin(n(0));
    assert_eq!(squeeze_manager.choose(at(5), 1), None);
    assert_eq!(squeeze_manager.choose(at(5), 0), Some(n(1)));
}

#[test]
fn what_brings_most_for_its_processor_time_comes_first() {
    let mut squeeze_manager = squeeze_manager(&[300, 300]);
    // Of two unknown instances, the first. After that, gain and cost are known.
    for (number, left_bytes, milliseconds) in [(0, 200 * MIB, 10), (1, 250 * MIB, 10)] {
        assert_eq!(squeeze_manager.choose(at(5), 0), Some(n(number)));
        squeeze_manager.begin(n(number));
        squeeze_manager.squeezed(at(5), n(number), left_bytes, Duration::from_millis(milliseconds));
    }
    assert_eq!(squeeze_manager.choose(at(5), 0), None, "nothing is left to gain");
    // An instance is judged by its own past, a new instance by its function's, a new function by all: 300 MiB
    // less 200, less 212.5, and 320 less 212.5.
    squeeze_manager.frozen(at(6), n(0), F, 300 * MIB);
    squeeze_manager.frozen(at(6), n(2), F, 300 * MIB);
    squeeze_manager.frozen(at(6), n(3), G, 320 * MIB);
    let mut order = Vec::new();
    while let Some(number) = squeeze_manager.choose(at(10), 0) {
        order.push(number);
        squeeze_manager.begin(number);
        squeeze_manager.squeezed(at(5), number, 0, Duration::from_millis(10));
        // These squeezes must not change the profiles under test.
        squeeze_manager.profiles = known();
    }
    assert_eq!(order, [n(3), n(0), n(2)]);
}

fn known() -> Profiles {
    let mut profiles = Profiles::default();
    for (number, left_bytes) in [(0, 200 * MIB), (1, 250 * MIB)] {
        profiles.learn(n(number), F, Profile { left_bytes, cpu: Duration::from_millis(10) });
    }
    profiles
}

#[test]
fn what_costs_little_comes_before_what_brings_more() {
    let mut squeeze_manager = squeeze_manager(&[300]);
    squeeze_manager.frozen(Moment::START, n(1), G, 200 * MIB);
    for (number, function, milliseconds) in [(0, F, 100), (1, G, 10)] {
        let cpu = Duration::from_millis(milliseconds);
        squeeze_manager.profiles.learn(n(number), function, Profile { left_bytes: 100 * MIB, cpu });
    }
    assert_eq!(squeeze_manager.choose(at(5), 0), Some(n(1)));
}

#[test]
fn nobody_is_squeezed_twice_without_a_request_between() {
    let mut squeeze_manager = squeeze_manager(&[300, 300]);
    squeeze_manager.begin(n(0));
    squeeze_manager.squeezed(at(5), n(0), 290 * MIB, Duration::from_millis(1));
    squeeze_manager.begin(n(1));
    squeeze_manager.squeezed(at(5), n(1), 290 * MIB, Duration::from_millis(1));
    assert_eq!(squeeze_manager.choose(at(5), 0), None);
    squeeze_manager.thawed(n(0));
    squeeze_manager.frozen(at(6), n(0), F, 300 * MIB);
    assert_eq!(squeeze_manager.choose(at(8), 0), Some(n(0)));
}

#[test]
fn who_could_not_be_squeezed_is_left_alone_for_good() {
    let mut squeeze_manager = squeeze_manager(&[300]);
    squeeze_manager.begin(n(0));
    squeeze_manager.failed(n(0));
    squeeze_manager.frozen(at(10), n(0), F, 300 * MIB);
    assert_eq!(squeeze_manager.choose(at(20), 0), None);
}

#[test]
fn no_more_are_squeezed_than_it_takes() {
    let mut squeeze_manager = squeeze_manager(&[110, 30]);
    squeeze_manager.begin(n(0));
    assert_eq!(squeeze_manager.choose(at(5), 0), None, "the running squeeze frees enough");
}

#[test]
fn what_is_gone_leaves_nothing() {
    let mut squeeze_manager = squeeze_manager(&[300, 300, 300]);
    squeeze_manager.begin(n(0));
    squeeze_manager.failed(n(1));
    squeeze_manager.squeezed(at(5), n(2), 1, Duration::ZERO);
    (0..3).for_each(|number| squeeze_manager.gone(n(number)));
    assert_eq!(squeeze_manager.held_bytes, 0);
    let SqueezeManager { frozen, ready, running, failed, .. } = &squeeze_manager;
    assert!(frozen.is_empty() && ready.is_empty() && running.is_empty() && failed.is_empty());
}

#[test]
fn who_is_measured_again_may_have_grown_by_so_much_a_time() {
    let mut squeeze_manager = squeeze_manager(&[50]);
    squeeze_manager.frozen(at(5), n(0), F, 50 * MIB);
    assert_eq!(squeeze_manager.measured(at(5), n(0), 50 * MIB), 10 * MIB);
    assert_eq!(squeeze_manager.measured(at(15), n(0), 49 * MIB), 20 * MIB);
    assert_eq!(squeeze_manager.measured(at(315), n(0), 60 * MIB), 310 * MIB);
    // What it is squeezed for is what it holds by now.
    assert_eq!(squeeze_manager.held_bytes, 60 * MIB);
    squeeze_manager.begin(n(0));
    squeeze_manager.squeezed(at(320), n(0), 20 * MIB, Duration::ZERO);
    assert_eq!(squeeze_manager.measured(at(330), n(0), 20 * MIB), 20 * MIB);
    squeeze_manager.thawed(n(0));
    assert_eq!(squeeze_manager.held_bytes, 0);
}
