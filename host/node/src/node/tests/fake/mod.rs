//! Machines without VMs: they follow a script, in virtual time, and complain when a node does what it must
//! not do to a VM.

mod guest;
mod machine;

use super::script::{Fate, Operation, Script, Step};
use crate::{Blueprint, Machine};
use machine::FakeMachine;
use squeezy_vmm::{BootStep, BoxFuture, Result, VmError};
use std::{
    num::NonZeroU16,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::sleep;

/// How long an agent may take for an operation of its own.
const AGENT_LIMIT: Duration = Duration::from_secs(10);

/// What machines are made from, and what they have observed.
pub(in super::super) struct World {
    script: Mutex<Box<dyn Script>>,
    complaints: Mutex<Vec<String>>,
    machines: Mutex<Vec<Arc<FakeMachine>>>,
    /// Slots for instances in each machine.
    pub(in super::super) slots: u16,
    /// How many calls an instance serves at a time.
    pub(in super::super) calls: NonZeroU16,
    /// Whether an instance may be started while its memory is being plugged.
    pub(in super::super) beside_plug: bool,
    images: Vec<PathBuf>,
}

impl World {
    pub(in super::super) fn new(
        script: impl Script + 'static,
        slots: u16,
        beside_plug: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(Box::new(script)),
            complaints: Mutex::default(),
            machines: Mutex::default(),
            slots,
            calls: NonZeroU16::MIN,
            beside_plug,
            images: vec!["f.erofs".into()],
        })
    }

    /// With instances that serve this many calls at a time.
    pub(in super::super) fn serving(self: Arc<Self>, calls: u16) -> Arc<Self> {
        let mut world = Arc::into_inner(self).expect("a new world");
        world.calls = NonZeroU16::new(calls).expect("at least 1");
        Arc::new(world)
    }

    /// Every machine made so far.
    pub(in super::super) fn machines(&self) -> Vec<Arc<FakeMachine>> {
        self.machines.lock().unwrap().clone()
    }

    /// What the node did that it must not do.
    pub(in super::super) fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap().clone()
    }

    fn complain(&self, what: String) {
        self.complaints.lock().unwrap().push(what);
    }

    fn next(&self, operation: Operation) -> Step {
        self.script.lock().unwrap().next(operation)
    }
}

/// Makes the fake machines of one world.
pub(in super::super) struct FakeBlueprint(pub(in super::super) Arc<World>);

impl Blueprint for FakeBlueprint {
    fn images(&self) -> &[PathBuf] {
        &self.0.images
    }

    fn boot<'a>(
        &'a self,
        mut tell: Box<dyn FnMut(BootStep) + Send + 'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn Machine>>> {
        Box::pin(async move {
            tell(BootStep::Kernel);
            let Step { after, fate } = self.0.next(Operation::Boot);
            sleep(after).await;
            match fate {
                Fate::Works => {
                    let machine = FakeMachine::new(self.0.clone());
                    self.0.machines.lock().unwrap().push(machine.clone());
                    Ok(machine as Arc<dyn Machine>)
                }
                _ => Err(VmError::Start("it was told to fail".to_owned())),
            }
        })
    }
}
