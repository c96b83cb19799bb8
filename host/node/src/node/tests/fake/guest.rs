//! The guest of a fake machine.

use super::{
    super::script::{Fate, Operation},
    AGENT_LIMIT,
    machine::{FakeInstance, FakeMachine},
};
use crate::{GoesOn, Guest, Machine, node::tests::contracts::END_OF_OUTPUT};
use bytes::Bytes;
use http::{Request, Response};
use squeezy_protocol::{
    ErrorBody, ErrorCode, ExitReason, INSTANCE_HEADER, Instance, InstanceId, InstanceSpec,
    InstanceState, PartitionNumber, Squeezed,
};
use squeezy_vmm::{BoxFuture, Grain, Result, Taken, VmError, mechanism::Slot};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::sync::watch;

/// Resident memory of an instance on the host, in bytes, unless a test says otherwise.
pub(super) const RESIDENT_BYTES: u64 = 5;

/// How long it takes to measure that.
const MEASURE_LATENCY: Duration = Duration::from_millis(10);

/// The guest of a fake machine, as seen from one slot.
pub(super) struct FakeGuest {
    pub(super) machine: Arc<FakeMachine>,
    pub(super) slot: Slot,
}

impl FakeGuest {
    fn describe(&self, id: &InstanceId) -> Result<Instance> {
        let state = self.machine.lock();
        let not_found = || VmError::Agent {
            request: id.to_string(),
            code: ErrorCode::NotFound,
            message: String::new(),
        };
        let instance = state.instances.get(id).ok_or_else(not_found)?;
        let state = match *instance.end.borrow() {
            Some(reason) => InstanceState::Ended(reason),
            None => InstanceState::Running,
        };
        let (id, frozen) = (id.clone(), instance.frozen);
        // A partition whose number is that of its slot.
        let partition = Some(PartitionNumber(self.slot.0));
        let (pid, start_ns, partition_wait_ns) = (1, 0, 0);
        Ok(Instance { id, state, frozen, partition, pid, start_ns, partition_wait_ns })
    }

    fn change<T>(&self, id: &InstanceId, change: impl FnOnce(&mut FakeInstance) -> T) -> Option<T> {
        self.machine.lock().instances.get_mut(id).map(change)
    }

    fn end(&self, id: &InstanceId, reason: ExitReason) {
        self.change(id, |instance| {
            instance.end.send_if_modified(|end| {
                let first = end.is_none();
                end.get_or_insert(reason);
                first
            });
        });
    }

    /// Waits until an instance has ended.
    async fn ended(&self, id: &InstanceId) {
        match self.change(id, |instance| instance.end.subscribe()) {
            Some(mut end) => drop(end.wait_for(Option::is_some).await),
            None => pending().await,
        }
    }

    /// Performs an operation on an instance, which may die of it.
    async fn perform(
        &self,
        id: &InstanceId,
        operation: Operation,
        limit: Duration,
    ) -> Result<Fate> {
        let fate = self.machine.perform(operation, limit).await?;
        if fate == Fate::InstanceDies {
            self.end(id, ExitReason::Exited(3));
        }
        Ok(fate)
    }
}

fn agent_says(code: ErrorCode) -> Response<Bytes> {
    let body = ErrorBody { code, message: "the agent says so".to_owned() };
    Response::builder().status(502).body(serde_json::to_vec(&body).unwrap().into()).unwrap()
}

fn refused(operation: Operation) -> VmError {
    let (request, message) = (format!("{operation:?}"), "it was told to fail".to_owned());
    VmError::Agent { request, code: ErrorCode::Internal, message }
}

impl Guest for FakeGuest {
    fn start<'a>(&'a self, spec: &'a InstanceSpec) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async {
            let id = &spec.id;
            let instance = FakeInstance {
                slot: self.slot,
                end: watch::channel(None).0,
                frozen: false,
                calls: 0,
                log: String::new(),
                doomed: false,
                condemned: false,
                was_not_stopped: false,
            };
            if self.machine.lock().instances.insert(id.clone(), instance).is_some() {
                self.machine.world.complain(format!("{id} was started twice"));
            }
            let limit = AGENT_LIMIT + Duration::from_millis(spec.wait_ms.into());
            match self.perform(id, Operation::Start, limit).await {
                Ok(Fate::Works | Fate::InstanceDies) => self.describe(id),
                Ok(_) => {
                    self.end(id, ExitReason::Exited(1));
                    Err(refused(Operation::Start))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn instance<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async { self.machine.ended().map_or_else(|| self.describe(id), Err) })
    }

    fn wait<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async {
            tokio::select! {
                biased;
                reason = self.machine.gone() => Err(reason),
                () = self.ended(id) => self.describe(id),
            }
        })
    }

    fn http<'a>(
        &'a self,
        id: &'a InstanceId,
        request: Request<Bytes>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Response<Bytes>>> {
        Box::pin(async move {
            let is_call = request.uri().path() == "/run";
            self.machine.lock().paths.push(request.uri().path().to_owned());
            let operation = if is_call { Operation::Call } else { Operation::FirstRequest };
            let begun = self.change(id, |instance| {
                if instance.condemned {
                    self.machine.world.complain(format!("{id} has a call and no memory"));
                }
                (instance.frozen, instance.doomed) = (false, false);
                if instance.end.borrow().is_some() {
                    return false;
                }
                instance.calls += 1;
                if instance.calls > self.machine.world.calls.get() {
                    self.machine.world.complain(format!("{id} has {} calls", instance.calls));
                }
                true
            });
            if begun != Some(true) {
                return Ok(agent_says(ErrorCode::Unavailable));
            }
            let fate = tokio::select! {
                biased;
                fate = self.perform(id, operation, limit) => fate,
                () = self.ended(id) => Ok(Fate::InstanceDies),
            };
            self.change(id, |instance| {
                instance.calls -= 1;
                if is_call {
                    instance.log += &format!("a line\n{END_OF_OUTPUT}\n{END_OF_OUTPUT}\n");
                }
            });
            match fate? {
                Fate::Works => {
                    let answer = Response::builder().header(INSTANCE_HEADER, id.as_str());
                    Ok(answer.body(Bytes::from("{}")).unwrap())
                }
                Fate::InstanceDies => Ok(agent_says(ErrorCode::Unavailable)),
                _ => Ok(agent_says(ErrorCode::BadAnswer)),
            }
        })
    }

    fn log_from<'a>(
        &'a self,
        id: &'a InstanceId,
        from: u64,
    ) -> BoxFuture<'a, Result<(String, u64)>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let log = self.change(id, |instance| instance.log.clone()).unwrap_or_default();
            let text = log[from as usize..].to_owned();
            self.machine.ended().map_or(Ok((text, log.len() as u64)), Err)
        })
    }

    fn freeze<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async {
            match self.perform(id, Operation::Freeze, AGENT_LIMIT).await? {
                Fate::Works => {
                    let is_busy = self.change(id, |instance| {
                        instance.frozen = instance.calls == 0;
                        !instance.frozen
                    });
                    match is_busy {
                        Some(true) => Err(VmError::Agent {
                            request: id.to_string(),
                            code: ErrorCode::Unavailable,
                            message: "it has a request to answer".to_owned(),
                        }),
                        _ => self.describe(id),
                    }
                }
                _ => Err(refused(Operation::Freeze)),
            }
        })
    }

    fn squeeze<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Squeezed>> {
        Box::pin(async {
            // An agent that cannot freeze it again says no more than that.
            self.change(id, |instance| instance.frozen = false);
            match self.perform(id, Operation::Squeeze, AGENT_LIMIT).await? {
                Fate::Works => Ok(Squeezed {
                    instance: self.describe(id)?,
                    heap: None,
                    heap_problem: None,
                    reported_bytes: 0,
                    report_problem: Some("it is not frozen".to_owned()),
                }),
                _ => Err(refused(Operation::Squeeze)),
            }
        })
    }

    fn doom<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Option<Result<PartitionNumber>>> {
        Box::pin(async move {
            if !self.machine.lock().wants_pause {
                self.machine.world.complain(format!("{id} is doomed for nothing"));
            }
            let fate = self.perform(id, Operation::Doom, AGENT_LIMIT).await;
            let frozen = self.change(id, |instance| {
                instance.doomed = instance.frozen && instance.calls == 0 && fate == Ok(Fate::Works);
                instance.doomed
            });
            Some(match (fate, frozen) {
                (Ok(_), Some(true)) => Ok(PartitionNumber(self.slot.0)),
                (Err(error), _) => Err(error),
                _ => Err(refused(Operation::Doom)),
            })
        })
    }

    fn condemn(&self, partition: PartitionNumber) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let _standing = self.machine.changing.lock().await;
            let refused = |why| Err(VmError::NotCondemned { partition, why });
            if !self.machine.lock().paused {
                return refused("its VM is not paused");
            }
            let fate = self.machine.perform(Operation::Condemn, AGENT_LIMIT).await?;
            let mut state = self.machine.lock();
            let lives = |i: &&mut FakeInstance| i.slot.0 == partition.0 && i.end.borrow().is_none();
            match state.instances.values_mut().find(lives).filter(|i| i.doomed) {
                Some(instance) if fate != Fate::Fails => {
                    instance.condemned = true;
                    match fate {
                        Fate::Works => Ok(RESIDENT_BYTES),
                        _ => Err(VmError::System { what: "a discard", reason: String::new() }),
                    }
                }
                _ => refused("it is not doomed"),
            }
        })
    }

    fn take_free<'a>(
        &'a self,
        _: &'a Instance,
        _: Grain,
        _: GoesOn,
    ) -> BoxFuture<'a, Option<Result<Taken>>> {
        Box::pin(async { Some(Ok(Taken::default())) })
    }

    fn sweep<'a>(&'a self, instance: &'a Instance, goes_on: GoesOn) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let frozen = self.change(&instance.id, |instance| instance.frozen);
            if frozen != Some(true) || !goes_on() || self.is_paused() {
                let problem = "swept and not frozen, is to end, or is in a paused VM";
                self.machine.world.complain(format!("{} is {problem}", instance.id));
            }
            self.machine.lock().sweeps += 1;
        })
    }

    fn is_paused(&self) -> bool {
        self.machine.lock().paused
    }

    fn stop<'a>(&'a self, id: &'a InstanceId, grace: Duration) -> BoxFuture<'a, Result<Instance>> {
        Box::pin(async move {
            self.describe(id)?;
            self.change(id, |instance| instance.was_not_stopped = true);
            match self.perform(id, Operation::Stop, AGENT_LIMIT + grace).await? {
                Fate::Works | Fate::InstanceDies => {
                    self.end(id, ExitReason::Stopped);
                    self.describe(id)
                }
                _ => Err(refused(Operation::Stop)),
            }
        })
    }

    fn resident<'a>(&'a self, _: &'a Instance) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async {
            let (before, never_ends) = {
                let state = self.machine.lock();
                (state.instance_bytes, state.measures_for_ever)
            };
            if never_ends {
                pending::<()>().await;
            }
            tokio::time::sleep(MEASURE_LATENCY).await;
            let mut state = self.machine.lock();
            let after = state.instance_bytes;
            state.measured.push((before, after));
            after
        })
    }

    fn ended(&self) -> Option<VmError> {
        self.machine.ended()
    }
}
