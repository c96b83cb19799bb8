//! What must hold whatever happens in whatever order.
//!
//! A model of the world that knows nothing of the scaler's state carries out its commands, lets
//! them end well or badly in any order, and checks every command against what it knows itself.

use proptest::prelude::*;
use squeezy_runtime::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, InstanceState, Moment,
    RequestNumber, Scaler, StopReason,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const LIMIT_BYTES: u64 = 1000;

/// What may happen next; numbers are taken modulo what there is to choose from.
#[derive(Clone, Debug)]
enum Step {
    Request {
        function: usize,
    },
    /// One command that is being carried out ends.
    End {
        which: usize,
        well: bool,
    },
    Die {
        which: usize,
    },
    Pass {
        milliseconds: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3_usize).prop_map(|function| Step::Request { function }),
        8 => (any::<usize>(), prop::bool::weighted(0.85))
            .prop_map(|(which, well)| Step::End { which, well }),
        1 => any::<usize>().prop_map(|which| Step::Die { which }),
        3 => (0..4000_u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
    ];
    prop::collection::vec(step, 0..300)
}

fn policies() -> impl Strategy<Value = Vec<FunctionPolicy>> {
    let policy = (1..=LIMIT_BYTES, 1..6_u32, 0..8000_u64, 1..6_usize).prop_map(
        |(instance_bytes, max_instances, keep_alive_ms, queue_limit)| FunctionPolicy {
            instance_bytes,
            max_instances,
            keep_alive: Duration::from_millis(keep_alive_ms),
            queue_limit,
        },
    );
    prop::collection::vec(policy, 3)
}

/// An instance as whoever carries out the commands sees it.
struct Body {
    function: usize,
    plugged: bool,
    running: bool,
    request: Option<RequestNumber>,
    dead: bool,
    free_since: Moment,
}

struct World {
    scaler: Scaler,
    policies: Vec<FunctionPolicy>,
    now: Moment,
    bodies: BTreeMap<InstanceNumber, Body>,
    /// The functions of ended instances whose memory the guest kept.
    kept: BTreeMap<InstanceNumber, usize>,
    pending: Vec<Command>,
    asked: BTreeSet<RequestNumber>,
    answered: BTreeSet<RequestNumber>,
}

impl World {
    fn new(policies: &[FunctionPolicy]) -> Self {
        Self {
            scaler: Scaler::new(Budget::new(LIMIT_BYTES), policies).expect("valid policies"),
            policies: policies.to_vec(),
            now: Moment::START,
            bodies: BTreeMap::new(),
            kept: BTreeMap::new(),
            pending: Vec::new(),
            asked: BTreeSet::new(),
            answered: BTreeSet::new(),
        }
    }

    fn tell(&mut self, event: Event) {
        let commands = self.scaler.handle(self.now, event).expect("the world makes sense");
        for command in commands {
            self.check(command);
            if !matches!(command, Command::Reject { .. }) {
                self.pending.push(command);
            }
        }
        self.check_budget();
    }

    fn check(&mut self, command: Command) {
        match command {
            Command::Plug { function, instance } => {
                let body = Body {
                    function: function.0,
                    plugged: false,
                    running: false,
                    request: None,
                    dead: false,
                    free_since: self.now,
                };
                assert!(self.bodies.insert(instance, body).is_none(), "a number used twice");
                self.kept.retain(|&number, _| self.scaler.state(number).is_some());
                let functions = self.bodies.values().map(|b| &b.function).chain(self.kept.values());
                let count = functions.filter(|&&f| f == function.0).count();
                let max = self.policies[function.0].max_instances as usize;
                assert!(count <= max, "more instances than allowed");
            }
            Command::Start { instance, .. } => {
                assert!(self.bodies[&instance].plugged, "an instance without its memory");
            }
            Command::Dispatch { instance, request } => {
                let body = self.bodies.get_mut(&instance).expect("a dispatch to nobody");
                assert!(body.plugged && body.running, "a dispatch to what does not run");
                assert!(!body.dead, "a dispatch to the dead");
                assert_eq!(body.request.replace(request), None, "two requests in one instance");
            }
            Command::Stop { instance, reason } => {
                let body = &self.bodies[&instance];
                assert_eq!(body.request, None, "stopped in mid-request");
                if reason == StopReason::KeepAliveOver {
                    let keep_alive = self.policies[body.function].keep_alive;
                    assert!(self.now.since(body.free_since) >= keep_alive, "stopped too early");
                }
            }
            Command::Reclaim { instance, .. } => {
                // Stranded memory, asked for again, has no body any more.
                assert!(self.bodies.get(&instance).is_none_or(|b| !b.running), "still running");
            }
            Command::Reject { request, .. } => self.answer(request),
        }
    }

    fn answer(&mut self, request: RequestNumber) {
        assert!(self.asked.contains(&request));
        assert!(self.answered.insert(request), "a request answered twice");
    }

    /// What has memory, by the world's own count, is what the budget has promised.
    fn check_budget(&mut self) {
        self.kept.retain(|&number, _| self.scaler.state(number).is_some());
        let functions = self.bodies.values().map(|b| b.function).chain(self.kept.values().copied());
        let bytes: u64 = functions.map(|f| self.policies[f].instance_bytes).sum();
        assert!(bytes <= LIMIT_BYTES, "over budget");
        assert_eq!(bytes, self.scaler.budget().committed_bytes());
    }

    fn end(&mut self, which: usize, well: bool) {
        if self.pending.is_empty() {
            return;
        }
        let command = self.pending.swap_remove(which % self.pending.len());
        let event = match command {
            Command::Plug { instance, .. } => {
                self.bodies.get_mut(&instance).unwrap().plugged = well;
                if well { Event::Plugged(instance) } else { Event::PlugFailed(instance) }
            }
            Command::Start { instance, .. } => {
                let body = self.bodies.get_mut(&instance).unwrap();
                body.running = well;
                body.free_since = self.now;
                if well { Event::Started(instance) } else { Event::StartFailed(instance) }
            }
            Command::Dispatch { instance, request } => {
                let now = self.now;
                let body = self.bodies.get_mut(&instance).unwrap();
                body.request = None;
                body.free_since = now;
                let well = well && !body.dead;
                self.answer(request);
                if well { Event::Answered(instance) } else { Event::Broken(instance) }
            }
            Command::Stop { instance, .. } => {
                self.bodies.get_mut(&instance).unwrap().running = false;
                Event::Stopped(instance)
            }
            Command::Reclaim { instance, .. } => {
                if let Some(body) = self.bodies.remove(&instance) {
                    self.kept.insert(instance, body.function);
                }
                if well {
                    self.kept.remove(&instance);
                }
                if well { Event::Reclaimed(instance) } else { Event::ReclaimFailed(instance) }
            }
            Command::Reject { .. } => unreachable!("rejections are not pending"),
        };
        self.tell(event);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Request { function } => {
                let request = RequestNumber(self.asked.len() as u64);
                self.asked.insert(request);
                self.tell(Event::Request { function: FunctionIndex(function), request });
            }
            Step::End { which, well } => self.end(which, well),
            Step::Die { which } => {
                let running: Vec<_> = self
                    .bodies
                    .iter()
                    .filter(|(_, b)| b.running && !b.dead)
                    .map(|(&n, _)| n)
                    .collect();
                if let Some(&number) = running.get(which % running.len().max(1)) {
                    self.bodies.get_mut(&number).unwrap().dead = true;
                    self.tell(Event::Died(number));
                }
            }
            Step::Pass { milliseconds } => {
                self.now = self.now + Duration::from_millis(milliseconds);
                self.tell(Event::Tick);
                self.check_keep_alive();
            }
        }
    }

    /// After a tick nobody has been idle for longer than allowed, and the next tick lies ahead.
    fn check_keep_alive(&self) {
        for (number, body) in &self.bodies {
            if let Some(InstanceState::Idle { since }) = self.scaler.state(*number) {
                assert!(self.now.since(since) < self.policies[body.function].keep_alive);
            }
        }
        assert!(self.scaler.next_deadline().is_none_or(|deadline| deadline > self.now));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_and_nothing_is_left(policies in policies(), steps in steps()) {
        let mut world = World::new(&policies);
        for step in &steps {
            world.step(step);
        }
        world.tell(Event::Drain);
        while !world.pending.is_empty() {
            world.end(0, true);
        }
        prop_assert!(world.scaler.is_empty(), "something is left");
        prop_assert_eq!(world.scaler.budget().committed_bytes(), 0);
        prop_assert_eq!(&world.asked, &world.answered);
        prop_assert!(world.bodies.is_empty());
    }

    /// Without failures and with time enough every accepted request is answered without a drain.
    #[test]
    fn whoever_waits_is_served(policies in policies(), functions in prop::collection::vec(0..3_usize, 1..40)) {
        let mut world = World::new(&policies);
        for function in functions {
            world.step(&Step::Request { function });
        }
        while !world.pending.is_empty() {
            world.end(0, true);
        }
        prop_assert_eq!(&world.asked, &world.answered);
    }
}
