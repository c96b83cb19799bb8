//! What must hold whatever happens in whatever order.
//!
//! A model of the world that knows nothing of the scaler's state carries out its commands, lets
//! them end well or badly in any order, and checks every command against what it knows itself.

mod oracle;

use proptest::prelude::*;
use squeezy_runtime::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, InstanceState, Moment,
    RejectReason, RequestNumber, Scaler, SqueezePolicy, StopReason, VmIndex, VmPolicy,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const LIMIT_BYTES: u64 = 1000;
const FUNCTIONS: u32 = 4;
/// The last two functions share a VM.
const VMS: u32 = FUNCTIONS - 1;

/// What may happen next; numbers are taken modulo what there is to choose from.
#[derive(Clone, Debug)]
enum Step {
    Request {
        function: u32,
    },
    /// One command that is being carried out ends; what it is about holds so much then.
    End {
        which: usize,
        well: bool,
        resident_bytes: u64,
    },
    /// An instance ends by itself.
    Die {
        which: usize,
    },
    /// A VM ends by itself.
    Crash {
        which: usize,
    },
    /// A guest turns out to be of no use to further instances.
    Unfit {
        vm: u32,
    },
    Retire {
        function: u32,
    },
    Pass {
        milliseconds: u64,
    },
    /// Everything ends that is under way, but work on requests.
    Settle {
        seed: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        80 => (0..FUNCTIONS).prop_map(|function| Step::Request { function }),
        160 => (any::<usize>(), prop::bool::weighted(0.85), 0..600_u64)
            .prop_map(|(which, well, resident_bytes)| Step::End { which, well, resident_bytes }),
        20 => any::<usize>().prop_map(|which| Step::Die { which }),
        5 => any::<usize>().prop_map(|which| Step::Crash { which }),
        5 => (0..VMS).prop_map(|vm| Step::Unfit { vm }),
        1 => (0..FUNCTIONS).prop_map(|function| Step::Retire { function }),
        60 => prop_oneof![0..4000_u64, 0..600_u64]
            .prop_map(|milliseconds| Step::Pass { milliseconds }),
        20 => any::<u64>().prop_map(|seed| Step::Settle { seed }),
    ];
    prop::collection::vec(step, 0..300)
}

/// Work that ends well, in VMs that may turn out to be unfit.
fn requests_and_unfit_vms() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..FUNCTIONS).prop_map(|function| Step::Request { function }),
        4 => any::<usize>().prop_map(|which| Step::End { which, well: true, resident_bytes: 10 }),
        1 => (0..VMS).prop_map(|vm| Step::Unfit { vm }),
    ];
    prop::collection::vec(step, 1..80)
}

#[derive(Clone, Debug)]
struct Policies {
    reserve_bytes: u64,
    squeeze: Option<SqueezePolicy>,
    vms: Vec<VmPolicy>,
    functions: Vec<FunctionPolicy>,
}

fn policies() -> impl Strategy<Value = Policies> {
    let milliseconds = |most: u64| (0..most).prop_map(Duration::from_millis);
    // Some VMs have nothing beside their instances, some all their memory from their boot on.
    let bytes = || prop_oneof![1 => Just(0), 4 => 0..=500_u64];
    let bytes = (bytes(), bytes());
    let vm = (bytes, 1..6_u32, 1..6_u32, prop::option::of(milliseconds(8000))).prop_map(
        |((base_bytes, instance_bytes), max_instances, max_starting, idle_time)| VmPolicy {
            base_bytes,
            instance_bytes: instance_bytes.max(u64::from(base_bytes == 0)),
            max_instances,
            max_starting,
            idle_time,
        },
    );
    let freeze_after = prop::option::weighted(0.8, milliseconds(2000));
    let wait_limit = prop::option::of(milliseconds(20_000));
    let function = (1..6_u32, milliseconds(20_000), freeze_after, 1..6_usize, wait_limit);
    let reserve = prop_oneof![Just(0), 0..=LIMIT_BYTES];
    let vms = prop::collection::vec(vm, VMS as usize);
    let squeeze = (0..100_u64, 0..100_u64, milliseconds(2000), milliseconds(300), 1..9_u32);
    let squeeze = squeeze.prop_map(|(floor_bytes, range, rise, frozen_for, processors)| {
        let ceiling_bytes = floor_bytes + range;
        SqueezePolicy { floor_bytes, ceiling_bytes, rise, frozen_for, processors }
    });
    let functions = prop::collection::vec(function, FUNCTIONS as usize);
    (reserve, prop::option::weighted(0.8, squeeze), vms, functions).prop_map(
        |(reserve_bytes, squeeze, vms, functions)| Policies {
            reserve_bytes,
            squeeze,
            vms,
            functions: (0..)
                .zip(functions)
                .map(|(index, function)| {
                    let (max_instances, keep_alive, freeze_after, queue_limit, wait_limit) =
                        function;
                    FunctionPolicy {
                        vm: VmIndex(u32::min(index, VMS - 1)),
                        max_instances,
                        keep_alive,
                        freeze_after,
                        queue_limit,
                        wait_limit,
                    }
                })
                .collect(),
        },
    )
}

/// A VM as whoever carries out the commands sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    Absent,
    Booting,
    Up,
    /// Stopped, or being stopped.
    Paused,
    Ending,
}

/// An instance as whoever carries out the commands sees it.
#[derive(Debug)]
struct Body {
    function: FunctionIndex,
    vm: VmIndex,
    running: bool,
    frozen: bool,
    request: Option<RequestNumber>,
    dead: bool,
    free_since: Moment,
    charged_bytes: u64,
}

struct World {
    scaler: Scaler,
    policies: Policies,
    now: Moment,
    machines: BTreeMap<VmIndex, Machine>,
    /// Those of them that are to be replaced.
    unfit: BTreeSet<VmIndex>,
    /// What VMs have beside their instances, while they are there.
    charged_bytes: BTreeMap<VmIndex, u64>,
    bodies: BTreeMap<InstanceNumber, Body>,
    /// The VMs of ended instances whose memory the guest kept, and how much of it.
    kept: BTreeMap<InstanceNumber, (VmIndex, u64)>,
    pending: Vec<Command>,
    asked: BTreeSet<RequestNumber>,
    /// Those that nobody has taken yet.
    waiting: BTreeMap<RequestNumber, FunctionIndex>,
    /// When each was asked.
    asked_at: BTreeMap<RequestNumber, Moment>,
    /// When an instance took one of a function's last.
    taken_at: BTreeMap<FunctionIndex, Moment>,
    answered: BTreeSet<RequestNumber>,
}

impl World {
    fn new(policies: &Policies) -> Self {
        let budget = Budget::new(LIMIT_BYTES).with_reserve(policies.reserve_bytes);
        let mut scaler = Scaler::new(budget);
        if let Some(policy) = policies.squeeze {
            scaler = scaler.with_squeezing(policy);
        }
        for &vm in &policies.vms {
            scaler.add_vm(vm).expect("a valid policy");
        }
        for &function in &policies.functions {
            scaler.add_function(function).expect("a valid policy");
        }
        Self {
            scaler,
            policies: policies.clone(),
            now: Moment::START,
            machines: (0..VMS).map(|vm| (VmIndex(vm), Machine::Absent)).collect(),
            unfit: BTreeSet::new(),
            charged_bytes: BTreeMap::new(),
            bodies: BTreeMap::new(),
            kept: BTreeMap::new(),
            pending: Vec::new(),
            asked: BTreeSet::new(),
            waiting: BTreeMap::new(),
            asked_at: BTreeMap::new(),
            taken_at: BTreeMap::new(),
            answered: BTreeSet::new(),
        }
    }

    fn vm_policy(&self, vm: VmIndex) -> VmPolicy {
        self.policies.vms[vm.0 as usize]
    }

    fn function_policy(&self, function: FunctionIndex) -> FunctionPolicy {
        self.policies.functions[function.0 as usize]
    }

    fn tell(&mut self, event: Event) {
        let commands = self.scaler.handle(self.now, event).expect("the world makes sense");
        // Nobody else's call is lost because of one that could not be served.
        let fails = matches!(event, Event::StartFailed(_) | Event::VmFailed(_) | Event::VmEnded(_));
        for command in commands {
            if let Command::Reject { reason, .. } = command {
                let failed = [RejectReason::StartFailed, RejectReason::VmFailed].contains(&reason);
                assert!(fails || !failed, "rejected by {event:?}: {reason:?}");
            }
            self.check(command);
            if !matches!(command, Command::Reject { .. } | Command::ResumeVm(_)) {
                self.pending.push(command);
            }
        }
        self.check_budget();
        if self.is_at_rest() {
            let in_vain = self.in_vain();
            let (machines, bodies, kept) = (&self.machines, &self.bodies, &self.kept);
            assert!(in_vain.is_none(), "{in_vain:?}: {machines:?}, {bodies:?}, {kept:?}");
            for &vm in &self.unfit {
                assert!(self.works(vm), "{vm:?} is not replaced: {machines:?}, {bodies:?}");
            }
        }
    }

    fn check(&mut self, command: Command) {
        match command {
            Command::BootVm(vm) => {
                assert_eq!(self.machines.insert(vm, Machine::Booting), Some(Machine::Absent));
                self.charged_bytes.insert(vm, self.vm_policy(vm).base_bytes);
            }
            Command::PauseVm(vm) => {
                assert_eq!(self.machines.insert(vm, Machine::Paused), Some(Machine::Up));
                let rest = self.bodies.values().filter(|b| b.vm == vm).all(|b| b.frozen);
                assert!(rest && self.kept.values().all(|&(v, _)| v != vm), "paused at work");
            }
            Command::ResumeVm(vm) => {
                assert_eq!(self.machines.insert(vm, Machine::Up), Some(Machine::Paused));
                self.pending.retain(|command| *command != Command::PauseVm(vm));
                self.charged_bytes.insert(vm, self.vm_policy(vm).base_bytes);
            }
            Command::EndVm { vm, .. } => {
                let before = self.machines.insert(vm, Machine::Ending);
                match before {
                    Some(Machine::Paused) => {
                        self.pending.retain(|command| *command != Command::PauseVm(vm));
                    }
                    _ => {
                        assert_eq!(before, Some(Machine::Up));
                        assert!(self.bodies.values().all(|b| b.vm != vm), "ended with instances");
                    }
                }
            }
            Command::Start { function, vm, instance } => {
                assert_eq!(self.machines[&vm], Machine::Up, "an instance without a VM");
                assert_eq!(self.function_policy(function).vm, vm);
                assert!(!self.unfit.contains(&vm), "an instance in a VM that is to be replaced");
                self.use_again(vm);
                let body = Body {
                    function,
                    vm,
                    running: false,
                    frozen: false,
                    request: None,
                    dead: false,
                    free_since: self.now,
                    charged_bytes: self.vm_policy(vm).instance_bytes,
                };
                assert!(self.bodies.insert(instance, body).is_none(), "a number used twice");
                let vms =
                    self.bodies.values().map(|b| b.vm).chain(self.kept.values().map(|&(vm, _)| vm));
                let count = vms.filter(|&v| v == vm).count();
                let most = self.vm_policy(vm).max_instances as usize;
                assert!(count <= most, "more instances than allowed");
                let own = self.bodies.values().filter(|b| b.function == function).count();
                let most = self.function_policy(function).max_instances as usize;
                assert!(own <= most, "more instances of a function than allowed");
                let in_vm = |c: &&Command| matches!(c, Command::Start { vm: v, .. } if *v == vm);
                let starting = self.pending.iter().filter(in_vm).count() + 1;
                let most = self.vm_policy(vm).max_starting as usize;
                assert!(starting <= most, "more starts at a time than allowed");
            }
            Command::Dispatch { instance, request, thaw } => {
                let body = self.bodies.get_mut(&instance).expect("a dispatch to nobody");
                assert_eq!(self.waiting.remove(&request), Some(body.function));
                self.taken_at.insert(body.function, self.now);
                assert!(body.running, "a dispatch to what does not run");
                assert!(!body.dead, "a dispatch to the dead");
                assert!(!self.unfit.contains(&body.vm), "a VM that is to be replaced is kept");
                assert_eq!(
                    self.machines[&body.vm],
                    Machine::Up,
                    "a dispatch to a VM that is stopped"
                );
                assert_eq!(body.request.replace(request), None, "two requests in one instance");
                assert_eq!(std::mem::take(&mut body.frozen), thaw, "frozen with a request");
                body.charged_bytes = self.policies.vms[body.vm.0 as usize].instance_bytes;
                self.forget_rest(instance);
            }
            Command::Squeeze(instance) => {
                let body = self.bodies.get_mut(&instance).expect("nobody squeezed");
                assert!(body.frozen && !body.dead, "squeezed at work");
                assert_eq!(
                    self.machines[&body.vm],
                    Machine::Up,
                    "squeezed in a VM that is stopped"
                );
                body.charged_bytes = self.policies.vms[body.vm.0 as usize].instance_bytes;
                assert!(!self.pending.contains(&command), "squeezed twice");
            }
            Command::Freeze(instance) => {
                let body = self.bodies.get_mut(&instance).expect("nobody frozen");
                assert!(body.running && body.request.is_none(), "frozen in mid-request");
                assert!(!std::mem::replace(&mut body.frozen, true), "frozen twice");
            }
            Command::Stop { instance, reason } => {
                let body = &self.bodies[&instance];
                assert_eq!(body.request, None, "stopped in mid-request");
                assert_eq!(self.machines[&body.vm], Machine::Up, "stopped in a VM that is stopped");
                if reason == StopReason::KeepAliveOver {
                    let keep_alive = self.function_policy(body.function).keep_alive;
                    assert!(self.now.since(body.free_since) >= keep_alive, "stopped too early");
                }
                self.forget_rest(instance);
            }
            Command::Reclaim { instance, vm } => {
                // Stranded memory, asked for again, has no body any more.
                assert!(self.bodies.get(&instance).is_none_or(|b| !b.running && b.vm == vm));
            }
            Command::Reject { request, reason } => {
                if let RejectReason::WaitedTooLong(_) = reason {
                    assert!(self.has_waited_too_long(request), "given up too early");
                }
                self.waiting.remove(&request);
                self.answer(request);
            }
        }
    }

    /// Whether a request has waited for as long as it may without any of its function's being taken.
    fn has_waited_too_long(&self, request: RequestNumber) -> bool {
        let function = self.waiting[&request];
        let taken = self.taken_at.get(&function).copied().unwrap_or(Moment::START);
        let waited = self.now.since(self.asked_at[&request].max(taken));
        self.function_policy(function).wait_limit.is_some_and(|limit| waited >= limit)
    }

    /// An instance that starts takes memory first that the guest has kept and nobody is asking back.
    fn use_again(&mut self, vm: VmIndex) {
        let asked = |instance| self.pending.contains(&Command::Reclaim { vm, instance });
        let mut kept = self.kept.iter().filter(|&(&n, &(v, _))| v == vm && !asked(n));
        if let Some((&number, _)) = kept.next() {
            self.kept.remove(&number);
        }
    }

    /// What is being done about an instance that rests is of no account any more.
    fn forget_rest(&mut self, instance: InstanceNumber) {
        let rest = [Command::Freeze(instance), Command::Squeeze(instance)];
        self.pending.retain(|command| !rest.contains(command));
    }

    fn answer(&mut self, request: RequestNumber) {
        assert!(self.asked.contains(&request));
        assert!(self.answered.insert(request), "a request answered twice");
    }

    /// What has memory is what the budget has promised.
    fn check_budget(&self) {
        let bytes = self.taken_bytes();
        assert!(bytes <= LIMIT_BYTES, "over budget");
        assert_eq!(bytes, self.scaler.budget().committed_bytes());
    }

    /// What has memory, by the world's own count.
    fn taken_bytes(&self) -> u64 {
        let kept = self.kept.values().map(|&(_, bytes)| bytes);
        let bytes: u64 = self.bodies.values().map(|b| b.charged_bytes).chain(kept).sum();
        bytes + self.charged_bytes.values().sum::<u64>()
    }

    fn end(&mut self, which: usize, well: bool, resident_bytes: u64) {
        if self.pending.is_empty() {
            return;
        }
        let command = self.pending.swap_remove(which % self.pending.len());
        let event = match command {
            Command::BootVm(vm) => {
                self.machines.insert(vm, if well { Machine::Up } else { Machine::Absent });
                if !well {
                    self.charged_bytes.remove(&vm);
                }
                if well { Event::VmBooted(vm) } else { Event::VmFailed(vm) }
            }
            Command::PauseVm(vm) => {
                let resident_bytes = if well { resident_bytes } else { u64::MAX };
                let instances = self.bodies.values().filter(|body| body.vm == vm);
                let beside =
                    resident_bytes.saturating_sub(instances.map(|body| body.charged_bytes).sum());
                let charged = self.charged_bytes.get_mut(&vm).unwrap();
                *charged = beside.min(*charged);
                Event::VmPaused { vm, resident_bytes }
            }
            Command::EndVm { vm, .. } => {
                self.machines.insert(vm, Machine::Absent);
                self.unfit.remove(&vm);
                self.charged_bytes.remove(&vm);
                self.kept.retain(|_, kept| kept.0 != vm);
                self.bodies.retain(|_, body| body.vm != vm);
                Event::VmEnded(vm)
            }
            Command::Start { instance, .. } => {
                let now = self.now;
                let body = self.bodies.get_mut(&instance).unwrap();
                body.running = well;
                body.free_since = now;
                if well { Event::Started(instance) } else { Event::StartFailed(instance) }
            }
            Command::Dispatch { instance, request, .. } => {
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
                    self.kept.insert(instance, (body.vm, body.charged_bytes));
                }
                if well {
                    self.kept.remove(&instance);
                }
                if well { Event::Reclaimed(instance) } else { Event::ReclaimFailed(instance) }
            }
            Command::Freeze(instance) => {
                if self.policies.squeeze.is_none() {
                    return;
                }
                // It may not be known what it holds.
                let resident_bytes = if well { resident_bytes } else { u64::MAX };
                self.rests(instance, resident_bytes);
                Event::Frozen { instance, resident_bytes }
            }
            Command::Squeeze(instance) if well => {
                self.rests(instance, resident_bytes);
                let cpu = Duration::from_millis(resident_bytes % 7);
                Event::Squeezed { instance, resident_bytes, cpu }
            }
            Command::Squeeze(instance) => Event::SqueezeFailed(instance),
            Command::Reject { .. } | Command::ResumeVm(_) => unreachable!("it is not pending"),
        };
        self.tell(event);
    }

    fn rests(&mut self, instance: InstanceNumber, resident_bytes: u64) {
        let body = self.bodies.get_mut(&instance).expect("nobody rests");
        body.charged_bytes = body.charged_bytes.min(resident_bytes);
    }

    /// Takes a VM away with all that is in it.
    fn crash(&mut self, which: usize) {
        let there = |(&vm, &machine): (&VmIndex, &Machine)| {
            let there = [Machine::Up, Machine::Paused, Machine::Ending].contains(&machine);
            there.then_some(vm)
        };
        let vms: Vec<_> = self.machines.iter().filter_map(there).collect();
        let Some(&vm) = vms.get(which % vms.len().max(1)) else { return };
        self.machines.insert(vm, Machine::Absent);
        self.unfit.remove(&vm);
        self.charged_bytes.remove(&vm);
        let gone: BTreeSet<_> =
            self.bodies.iter().filter(|(_, b)| b.vm == vm).map(|(&n, _)| n).collect();
        for number in &gone {
            if let Some(request) = self.bodies.remove(number).and_then(|body| body.request) {
                self.answer(request);
            }
        }
        self.pending.retain(|command| match command {
            Command::PauseVm(index)
            | Command::EndVm { vm: index, .. }
            | Command::Reclaim { vm: index, .. } => *index != vm,
            Command::Start { instance, .. }
            | Command::Dispatch { instance, .. }
            | Command::Freeze(instance)
            | Command::Squeeze(instance)
            | Command::Stop { instance, .. } => !gone.contains(instance),
            _ => true,
        });
        self.kept.retain(|_, kept| kept.0 != vm);
        self.tell(Event::VmEnded(vm));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Request { function } => {
                let request = RequestNumber(self.asked.len() as u64);
                self.asked.insert(request);
                self.asked_at.insert(request, self.now);
                self.waiting.insert(request, FunctionIndex(function));
                self.tell(Event::Request { function: FunctionIndex(function), request });
            }
            Step::End { which, well, resident_bytes } => self.end(which, well, resident_bytes),
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
            Step::Crash { which } => self.crash(which),
            Step::Settle { seed } => self.settle(seed),
            Step::Unfit { vm } => {
                let vm = VmIndex(vm);
                // Of one that is not there it can be told late; so it can again of one that is.
                if [Machine::Up, Machine::Paused].contains(&self.machines[&vm]) {
                    self.unfit.insert(vm);
                }
                self.tell(Event::VmUnfit(vm));
            }
            Step::Retire { function } => self.tell(Event::Retire(FunctionIndex(function))),
            Step::Pass { milliseconds } => {
                self.now = self.now + Duration::from_millis(milliseconds);
                // One tick may freeze what the next one stops, or have a VM run in which more is due.
                for _ in 0..4 {
                    self.tell(Event::Tick);
                }
                self.check_deadlines();
            }
        }
    }

    /// After a tick nobody has been idle, or has waited, for longer than allowed, and the next tick lies
    /// ahead.
    fn check_deadlines(&self) {
        for (number, body) in &self.bodies {
            if let Some(InstanceState::Idle { since, frozen }) = self.scaler.state(*number) {
                let policy = self.function_policy(body.function);
                let idle = self.now.since(since);
                // A VM that is stopped may have not the memory to end its instances one by one.
                let paused = self.machines[&body.vm] == Machine::Paused;
                assert!(idle < policy.keep_alive || paused);
                assert!(frozen || policy.freeze_after.is_none_or(|after| idle < after));
            }
        }
        assert!(!self.waiting.keys().any(|&request| self.has_waited_too_long(request)));
        assert!(self.scaler.next_deadline().is_none_or(|deadline| deadline > self.now));
    }
}

/// At least 400 cases, and more with `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(400), ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn rules_hold_and_nothing_is_left(policies in policies(), steps in steps()) {
        let mut world = World::new(&policies);
        for step in &steps {
            world.step(step);
        }
        world.tell(Event::Drain);
        while !world.pending.is_empty() {
            world.end(0, true, 10);
        }
        prop_assert!(world.scaler.is_empty(), "something is left");
        prop_assert_eq!(world.scaler.budget().committed_bytes(), 0);
        prop_assert_eq!(&world.asked, &world.answered);
        prop_assert!(world.bodies.is_empty());
    }

    /// Without failures and limits, and with time enough, every accepted request is answered without a
    /// drain, also when VMs have to be replaced meanwhile.
    #[test]
    fn whoever_waits_is_served(mut policies in policies(), steps in requests_and_unfit_vms()) {
        policies.functions.iter_mut().for_each(|function| function.wait_limit = None);
        let mut world = World::new(&policies);
        for step in &steps {
            world.step(step);
        }
        // Where a VM has all its memory from its boot on, room comes with the keep-alive only.
        for _ in 0..400 {
            while !world.pending.is_empty() {
                world.end(0, true, 10);
            }
            world.step(&Step::Pass { milliseconds: 4000 });
        }
        prop_assert_eq!(&world.asked, &world.answered);
    }
}
