//! Whole lives of instances on fake machines without VMs, in virtual time.

mod beside;
mod condemned;
mod contracts;
mod fake;
mod keep;
mod lives;
mod prewarm;
mod properties;
mod script;
mod starving;
mod watched;

use super::*;
use crate::{InstanceError, NodeEvent, plan::tests::plan};
use contracts::{PlainServer, StartThenCall};
use fake::{FakeBlueprint, World};
use script::Script;
use serde_json::json;
use squeezy_scaler::{Moment, TenantIndex};
use std::sync::Mutex;

/// Memory of a VM without instances, and of one instance, in bytes.
const BASE_BYTES: u64 = 100;
const INSTANCE_BYTES: u64 = 10;

/// How long anything may take before it counts as hung, in virtual time.
const EVER: Duration = Duration::from_secs(3600);

/// Records events as text.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Seen {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn has(&self, part: &str) -> bool {
        self.lines().iter().any(|line| line.contains(part))
    }

    /// How many lines contain `part`.
    fn count(&self, part: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(part)).count()
    }
}

impl Observer for Seen {
    fn observe(&self, _: Moment, event: NodeEvent<'_>) {
        let line = match event {
            NodeEvent::Booted { vm, .. } => format!("vm {vm} booted"),
            NodeEvent::Paused { vm, .. } => format!("vm {vm} paused"),
            NodeEvent::Resumed { vm } => format!("vm {vm} resumed"),
            NodeEvent::Ended { vm, reason } => format!("vm {vm} ended: {reason}"),
            NodeEvent::Starting { .. } => "starting".to_owned(),
            NodeEvent::Started { result: Ok(_), .. } => "started".to_owned(),
            NodeEvent::Started { result: Err(error), .. } => format!("not started: {error}"),
            NodeEvent::Frozen { .. } => "frozen".to_owned(),
            NodeEvent::Squeezed { result, .. } => format!("squeezed: {}", result.is_ok()),
            NodeEvent::Condemned { instance, freed_bytes, .. } => {
                format!("{instance} condemned: {freed_bytes}")
            }
            NodeEvent::Stopping { instance, reason, .. } => {
                format!("{instance} stopping: {reason:?}")
            }
            NodeEvent::Died { reason, .. } => format!("died: {reason:?}"),
            NodeEvent::Lost { .. } => "lost".to_owned(),
            NodeEvent::Reclaimed { outcome, .. } => format!("reclaimed: {:?}", outcome.error),
            NodeEvent::NotPrewarmed { reason, .. } => format!("not prewarmed: {reason:?}"),
            NodeEvent::Note(note) => note.to_owned(),
            _ => return,
        };
        self.0.lock().unwrap().push(line);
    }
}

/// The configuration of a node under test.
struct Setup {
    /// Memory for everything, in bytes.
    limit_bytes: u64,
    squeezing: Option<SqueezePolicy>,
    limits: FunctionLimits,
    /// How long an empty VM is kept.
    idle_time: Option<Duration>,
}

impl Default for Setup {
    fn default() -> Self {
        let keep_alive = Duration::from_secs(10);
        Self {
            limit_bytes: u64::MAX,
            squeezing: None,
            limits: FunctionLimits {
                keep_alive,
                freeze_after: None,
                queue: 100,
                minimum_instances: 0,
            },
            idle_time: Some(Duration::from_secs(30)),
        }
    }
}

impl Setup {
    /// Instances are frozen after a second, measured and squeezed, and VMs paused.
    fn overcommit() -> Self {
        let second = Duration::from_secs(1);
        let squeezing = SqueezePolicy {
            floor_bytes: 0,
            ceiling_bytes: 1,
            rise: second,
            frozen_for: second,
            processors: 2,
            tolerance_bytes: 1,
        };
        let mut setup = Self { squeezing: Some(squeezing), ..Self::default() };
        setup.limits.freeze_after = Some(second);
        setup
    }
}

/// A node with one fake machine per function.
struct Scene {
    node: Node,
    seen: Arc<Seen>,
    worlds: Vec<Arc<World>>,
    functions: Vec<FunctionIndex>,
}

impl Scene {
    async fn new(worlds: Vec<Arc<World>>, setup: Setup) -> Self {
        Self::with(Arc::new(StartThenCall), worlds, setup).await
    }

    async fn with(contract: Arc<dyn Contract>, worlds: Vec<Arc<World>>, setup: Setup) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (mut function, _) = plan(&directory, "f");
        function.image = "f.erofs".into();
        let seen = Arc::new(Seen::default());
        let begin = tokio::time::Instant::now().into_std();
        let budget = Budget::new(setup.limit_bytes);
        let node = Node::start(budget, setup.squeezing, begin, seen.clone());
        let mut functions = Vec::new();
        for world in &worlds {
            function.function.concurrency = world.slots;
            function.function.calls_per_instance = world.calls;
            let policy = VmPolicy {
                base_bytes: BASE_BYTES,
                instance_bytes: INSTANCE_BYTES,
                max_instances: world.slots.into(),
                max_starting: world.slots.into(),
                idle_time: setup.idle_time,
            };
            let blueprint = Arc::new(FakeBlueprint(world.clone()));
            let vm = node.add_machine(blueprint, policy).await.unwrap();
            let index = node
                .add_function(
                    vm,
                    TenantIndex::FIRST,
                    function.clone(),
                    contract.clone(),
                    setup.limits,
                )
                .await;
            functions.push(index.unwrap());
        }
        Self { node, seen, worlds, functions }
    }

    /// A node with one function, whose machine follows the script.
    async fn of(script: impl Script + 'static, setup: Setup) -> Self {
        Self::new(vec![World::new(script, 2, true)], setup).await
    }

    /// Calls a function, with a limit on the wait.
    async fn call(&self, function: usize) -> Result<Answer, CallError> {
        let call =
            Call { id: "a".to_owned(), value: json!({}), logs: true, trace: None, sent_on: false };
        let answer = self.node.call(self.functions[function], call);
        tokio::time::timeout(EVER, answer).await.expect("a call has its answer")
    }

    /// Makes a call that fails after an instance took it, and returns why.
    async fn failed(&self) -> InstanceError {
        match self.call(0).await {
            Err(CallError::Failed { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Drains the node and checks that nothing is left.
    async fn end(self) {
        tokio::time::timeout(EVER, self.node.drain()).await.expect("the node ends");
        for world in &self.worlds {
            assert_eq!(world.complaints(), [""; 0], "{:#?}", self.seen.lines());
            for machine in world.machines() {
                assert!(crate::Machine::ended(&*machine).is_some(), "a VM is left");
            }
        }
        assert_eq!(self.seen.count("internal error"), 0, "{:#?}", self.seen.lines());
    }
}
