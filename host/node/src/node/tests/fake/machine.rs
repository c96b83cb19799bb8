//! A fake machine, without a VM.

use super::{
    super::script::{Fate, Operation, Step},
    AGENT_LIMIT, World,
    guest::{FakeGuest, RESIDENT_BYTES},
};
use crate::{Guest, Machine, MachineDetails, ResizeOutcome};
use squeezy_protocol::{ExitReason, InstanceId, InstanceSpec, Partition, PartitionNumber};
use squeezy_vmm::{
    AcceleratorKind, BoxFuture, MemoryUse, Result, VmError,
    mechanism::{Slot, Slots},
};
use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// A fake machine, without a VM.
pub(in super::super) struct FakeMachine {
    pub(super) world: Arc<World>,
    own: Weak<Self>,
    details: MachineDetails,
    slots: Slots,
    state: Mutex<State>,
    /// Serializes pauses, resumes and what is done in between.
    pub(super) changing: tokio::sync::Mutex<()>,
    end: watch::Sender<Option<VmError>>,
    /// What its guest asks for, and has not been asked about.
    asked: watch::Sender<Option<u64>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) wants_pause: bool,
    pub(super) paused: bool,
    /// It was told to resume and does not: whoever wants something of it has to wait.
    stuck: bool,
    /// Slots whose memory is plugged (`true`) or being plugged (`false`).
    plugged: BTreeMap<u16, bool>,
    pub(super) instances: BTreeMap<InstanceId, FakeInstance>,
    /// What was reclaimed, and which partition was said to be that.
    left: Vec<(Slot, Option<PartitionNumber>)>,
    /// How often an instance that has been frozen for long was swept.
    pub(super) sweeps: usize,
    /// What its guest was lent, each time.
    lent: Vec<u64>,
    /// The most it lends at a time, whatever it is told; absent if that is all.
    lends: Option<u64>,
    /// Host memory behind it, in bytes.
    resident_bytes: u64,
    /// Host memory behind each of its instances, in bytes; absent if that is not known.
    pub(super) instance_bytes: Option<u64>,
    /// What that was when a measurement of it began, and when it ended, each time.
    pub(super) measured: Vec<(Option<u64>, Option<u64>)>,
    /// A measurement that begins now never ends.
    pub(super) measures_for_ever: bool,
    /// The paths of requests to instances' servers.
    pub(super) paths: Vec<String>,
}

pub(super) struct FakeInstance {
    pub(super) slot: Slot,
    pub(super) end: watch::Sender<Option<ExitReason>>,
    pub(super) frozen: bool,
    pub(super) calls: u16,
    /// What it has written.
    pub(super) log: String,
    pub(super) doomed: bool,
    /// It has lost its memory.
    pub(super) condemned: bool,
    /// A stop failed, so it may go on after it.
    pub(super) was_not_stopped: bool,
}

impl FakeMachine {
    pub(super) fn new(world: Arc<World>) -> Arc<Self> {
        let details = MachineDetails {
            accelerator: AcceleratorKind::Tcg,
            accelerator_reason: String::new(),
            vmm_version: "none".to_owned(),
            kernel: "none".to_owned(),
            instance_bytes: 128 << 20,
        };
        Arc::new_cyclic(|own| Self {
            slots: Slots::new(world.slots),
            world,
            own: own.clone(),
            details,
            state: Mutex::new(State { instance_bytes: Some(RESIDENT_BYTES), ..State::default() }),
            changing: tokio::sync::Mutex::default(),
            end: watch::channel(None).0,
            asked: watch::channel(None).0,
        })
    }

    /// Ends like a VM that fails.
    pub(in super::super) fn die(&self) {
        self.seal(VmError::Panicked("it was told to".to_owned()));
    }

    /// The number of instances that have not ended.
    pub(in super::super) fn living(&self) -> usize {
        let state = self.lock();
        state.instances.values().filter(|instance| instance.end.borrow().is_none()).count()
    }

    /// The paths of requests to instances' servers.
    pub(in super::super) fn paths(&self) -> Vec<String> {
        self.lock().paths.clone()
    }

    /// What was reclaimed, and which partition was said to be that.
    pub(in super::super) fn left(&self) -> Vec<(Slot, Option<PartitionNumber>)> {
        self.lock().left.clone()
    }

    /// How often an instance that has been frozen for long was swept.
    pub(in super::super) fn sweeps(&self) -> usize {
        self.lock().sweeps
    }

    /// Its guest lacks memory.
    pub(in super::super) fn ask(&self, bytes: u64) {
        self.asked.send_replace(Some(bytes));
    }

    /// What its guest was lent, each time.
    pub(in super::super) fn lent(&self) -> Vec<u64> {
        self.lock().lent.clone()
    }

    /// It lends no more than this at a time from now on.
    pub(in super::super) fn lends_at_most(&self, bytes: u64) {
        self.lock().lends = Some(bytes);
    }

    /// Each of its instances holds so much host memory from now on, or it is not known how much.
    pub(in super::super) fn instances_hold(&self, bytes: Option<u64>) {
        self.lock().instance_bytes = bytes;
    }

    /// What each of its instances held when a measurement of it began, and when it ended.
    pub(in super::super) fn measured(&self) -> Vec<(Option<u64>, Option<u64>)> {
        self.lock().measured.clone()
    }

    /// Whether a measurement that begins from now on never ends.
    pub(in super::super) fn measures_for_ever(&self, for_ever: bool) {
        self.lock().measures_for_ever = for_ever;
    }

    /// It holds so much host memory from now on.
    pub(in super::super) fn holds(&self, bytes: u64) {
        self.lock().resident_bytes = bytes;
    }

    fn seal(&self, reason: VmError) {
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert(reason);
            first
        });
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) async fn gone(&self) -> VmError {
        let mut end = self.end.subscribe();
        let end = end.wait_for(Option::is_some).await.unwrap().clone();
        end.unwrap()
    }

    /// Performs an operation as the script says, unless the VM ends in the meantime. Complains about
    /// operations in a paused VM.
    pub(super) async fn perform(&self, operation: Operation, limit: Duration) -> Result<Fate> {
        let complain = |when: &str| {
            let state = self.lock();
            if operation.is_in_guest() && state.paused && !state.stuck && self.ended().is_none() {
                self.world.complain(format!("{operation:?} {when} a paused VM"));
            }
        };
        complain("begun in");
        let Step { after, fate } = self.world.next(operation);
        let work = async {
            sleep(after).await;
            if fate == Fate::Hangs {
                pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            reason = self.gone() => return Err(reason),
            done = timeout(limit, work) => if done.is_err() {
                return Err(VmError::AgentLost(format!("{operation:?} was not answered in time")));
            },
        }
        // These may be overtaken by a call and by the next freeze and pause.
        if !matches!(operation, Operation::Freeze | Operation::Squeeze | Operation::Doom) {
            complain("done in");
        }
        if fate == Fate::VmDies {
            self.die();
            return Err(self.gone().await);
        }
        Ok(fate)
    }

    /// Performs a resize. A failed one is one that the guest did not follow.
    async fn resize(&self, operation: Operation, requested: u64, plugged: u64) -> ResizeOutcome {
        let limit = Duration::from_secs(20);
        let late = |after| VmError::Resize { requested, plugged, after, reason: String::new() };
        let error = match self.perform(operation, limit).await {
            Ok(Fate::Works | Fate::InstanceDies) => None,
            Ok(_) | Err(VmError::AgentLost(_)) => Some(late(limit)),
            Err(error) => Some(error),
        };
        ResizeOutcome { latency: Some(Duration::ZERO), resident_drop_bytes: 0, taken: None, error }
    }
}

impl Machine for FakeMachine {
    fn details(&self) -> &MachineDetails {
        &self.details
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug(&self, slot: Slot) -> BoxFuture<'_, ResizeOutcome> {
        if self.lock().plugged.insert(slot.0, false).is_some() {
            self.world.complain(format!("{slot:?} is plugged twice"));
        }
        Box::pin(async move {
            let outcome = self.resize(Operation::Plug, 1, 0).await;
            if outcome.error.is_some() {
                self.lock().plugged.remove(&slot.0);
                self.slots.free(slot).unwrap();
            } else {
                self.lock().plugged.insert(slot.0, true);
            }
            outcome
        })
    }

    fn reclaim(&self, slot: Slot, left: Option<PartitionNumber>) -> BoxFuture<'_, ResizeOutcome> {
        let lives = |instance: &&FakeInstance| {
            instance.slot == slot && instance.end.borrow().is_none() && !instance.was_not_stopped
        };
        let mut state = self.lock();
        if state.instances.values().any(|instance| lives(&instance)) && self.ended().is_none() {
            self.world.complain(format!("{slot:?} is taken from an instance that lives"));
        }
        state.left.push((slot, left));
        if state.plugged.remove(&slot.0) != Some(true) {
            self.world.complain(format!("{slot:?} is taken back without being plugged"));
        }
        drop(state);
        Box::pin(self.resize(Operation::Reclaim, 0, 1))
    }

    fn has_settled(&self) -> BoxFuture<'_, ResizeOutcome> {
        Box::pin(self.resize(Operation::Settle, 0, 1))
    }

    fn guest(&self, slot: Slot) -> Option<Arc<dyn Guest>> {
        Some(Arc::new(FakeGuest { machine: self.own.upgrade()?, slot }))
    }

    fn place(&self, _: Slot, _: &mut InstanceSpec) {}

    fn is_unfit_after(&self, error: &VmError) -> bool {
        error.is_unfit()
    }

    fn starts_beside_plug(&self) -> bool {
        self.world.beside_plug
    }

    fn memory(&self) -> BoxFuture<'_, Result<MemoryUse>> {
        let state = self.lock();
        let mut memory =
            MemoryUse { plugged_bytes: state.plugged.len() as u64, ..MemoryUse::default() };
        memory.resident.resident_bytes = state.resident_bytes;
        Box::pin(async move { self.ended().map_or(Ok(memory), Err) })
    }

    fn occupied(&self) -> BoxFuture<'_, Result<u64>> {
        let bytes = self.lock().resident_bytes;
        Box::pin(async move { self.ended().map_or(Ok(bytes), Err) })
    }

    fn starved(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            let mut asked = self.asked.subscribe();
            asked.wait_for(Option::is_some).await.expect("the machine has the sender");
            self.asked.send_replace(None).expect("nobody else takes it")
        })
    }

    fn lend(&self, most_bytes: u64) -> BoxFuture<'_, Result<u64>> {
        let mut state = self.lock();
        let bytes = state.lends.map_or(most_bytes, |most| most.min(most_bytes));
        state.lent.push(bytes);
        Box::pin(async move { Ok(bytes) })
    }

    fn drop_page_cache(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.perform(Operation::DropPageCache, AGENT_LIMIT).await.map(drop) })
    }

    fn want_paused(&self, paused: bool) {
        self.lock().wants_pause = paused;
    }

    fn settle(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let _changing = self.changing.lock().await;
            let (wanted, is) = {
                let state = self.lock();
                (state.wants_pause, state.paused)
            };
            if wanted == is {
                return Ok(());
            }
            let operation = if wanted { Operation::Pause } else { Operation::Resume };
            let result = self.perform(operation, AGENT_LIMIT).await;
            let works = matches!(result, Ok(Fate::Works | Fate::InstanceDies));
            let mut state = self.lock();
            state.stuck = !works && is;
            if !works {
                return Err(result.err().unwrap_or(VmError::Hung(AGENT_LIMIT)));
            }
            state.paused = wanted;
            // Before anybody else gets to the guest.
            for instance in state.instances.values().filter(|i| i.condemned && !wanted) {
                instance.end.send_modify(|end| *end = end.or(Some(ExitReason::Stopped)));
            }
            Ok(())
        })
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn ended(&self) -> Option<VmError> {
        self.end.borrow().clone()
    }

    fn wait(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { drop(self.gone().await) })
    }

    fn kill(&self, reason: VmError) {
        self.seal(reason);
    }

    fn end(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let result = self.perform(Operation::End, AGENT_LIMIT).await;
            self.seal(VmError::Stopped);
            result.map(drop)
        })
    }
}
