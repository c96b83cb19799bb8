//! Properties that hold whatever machines do, at any time, while calls come in.

use super::{
    script::{Fate, Operation, Step},
    *,
};
use proptest::prelude::*;
use squeezy_load::Random;
use tokio::time::sleep;

/// Anything may happen, but most operations succeed quickly.
struct Anything(Random);

impl Script for Anything {
    fn next(&mut self, operation: Operation) -> Step {
        let drawn = self.0.unit();
        let fate = match operation {
            // A boot only works or fails: there is no VM yet that could do anything else.
            Operation::Boot if drawn < 0.1 => Fate::Fails,
            Operation::Boot => Fate::Works,
            _ if drawn < 0.86 => Fate::Works,
            _ if drawn < 0.91 => Fate::Fails,
            _ if drawn < 0.94 => Fate::Hangs,
            _ if drawn < 0.98 => Fate::InstanceDies,
            _ => Fate::VmDies,
        };
        let most = if self.0.unit() < 0.8 { 50 } else { 5_000 };
        Step { after: self.0.time(Duration::from_millis(most)), fate }
    }
}

/// What may happen from outside the machines.
#[derive(Clone, Copy, Debug)]
enum Act {
    Call(usize),
    /// One function is to take the place of the other.
    Prewarm(usize),
    Wait(u64),
    /// A VM ends by itself.
    Die(usize),
    /// What a VM's instances hold grows, or it is not known any more.
    Grow(usize, Option<u64>),
    EvictIdle,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..2_usize).prop_map(Act::Call),
        1 => (0..2_usize).prop_map(Act::Prewarm),
        6 => prop_oneof![0..100_u64, 0..3_000_u64, 0..20_000_u64].prop_map(Act::Wait),
        1 => (0..2_usize).prop_map(Act::Die),
        1 => (0..2_usize, prop::option::of(5..INSTANCE_BYTES))
            .prop_map(|(world, bytes)| Act::Grow(world, bytes)),
        1 => Just(Act::EvictIdle),
    ];
    prop::collection::vec(act, 1..60)
}

/// Plays the acts. Every call is answered or rejected, the budget is kept, and nothing is left at the end.
async fn play(acts: Vec<Act>, seed: u64, overcommit: bool, limit_bytes: u64, beside_plug: bool) {
    let mut setup = if overcommit { Setup::overcommit() } else { Setup::default() };
    setup.limit_bytes = limit_bytes;
    let script = |n| Anything(Random::new(seed.wrapping_mul(2) + n));
    let world = |(n, calls)| World::new(script(n), 3, beside_plug).serving(calls);
    let worlds = [(0, 1), (1, 3)].map(world).to_vec();
    let scene = Scene::new(worlds, setup).await;
    let (mut calls, mut prewarms) = (Vec::new(), Vec::new());
    for act in acts {
        match act {
            Act::Call(function) => {
                let call = Call {
                    id: "a".to_owned(),
                    value: json!({}),
                    logs: true,
                    trace: None,
                    sent_on: false,
                };
                let (node, function) = (scene.node.clone(), scene.functions[function]);
                calls.push(tokio::spawn(async move { node.call(function, call).await }));
            }
            Act::Prewarm(function) => {
                let (node, of) = (scene.node.clone(), scene.functions.clone());
                let prewarm = node.prewarm(of[function], of[1 - function]).await;
                prewarms.extend(prewarm.map(tokio::spawn));
            }
            Act::Wait(ms) => sleep(Duration::from_millis(ms)).await,
            Act::Die(world) => {
                if let Some(machine) = scene.worlds[world].machines().last() {
                    machine.die();
                }
            }
            Act::Grow(world, bytes) => {
                if let Some(machine) = scene.worlds[world].machines().last() {
                    machine.instances_hold(bytes);
                }
            }
            Act::EvictIdle => scene.node.evict_idle(),
        }
        let status = scene.node.status().await.unwrap();
        assert!(status.committed_bytes <= limit_bytes, "{status:?}");
    }
    for call in calls {
        let answer = tokio::time::timeout(EVER, call).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer: {:#?}", scene.seen.lines()));
        assert_ne!(answer.unwrap().err(), Some(CallError::Ended));
    }
    for prewarm in prewarms {
        let ended = tokio::time::timeout(EVER, prewarm).await;
        let ended = ended.unwrap_or_else(|_| panic!("no end: {:#?}", scene.seen.lines()));
        assert_ne!(ended.unwrap().err(), Some(CallError::Ended));
    }
    scene.end().await;
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_call_has_an_end_and_nothing_is_left(
        acts in acts(),
        seed in any::<u64>(),
        overcommit in any::<bool>(),
        room in 1..8_u64,
        beside_plug in any::<bool>(),
    ) {
        let limit_bytes = BASE_BYTES + INSTANCE_BYTES * room * room;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(acts, seed, overcommit, limit_bytes, beside_plug));
    }
}
