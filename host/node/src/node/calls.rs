//! Calls: dispatched to instances, answered, failed or rejected.

use super::{
    actor::Actor,
    message::{Completion, PendingAnswer},
    table::{Assignment, PendingCall},
};
use crate::{Answer, Call, CallError, InstanceError, NodeEvent, Reply, WaitedFor};
use squeezy_scaler::{
    Event, FunctionIndex, InstanceNumber, Moment, RejectReason, RequestNumber, TenantIndex,
};
use std::time::Duration;
use tokio::{sync::oneshot, time::Instant};

impl Actor {
    /// Accepts a call, unless it is rejected at once.
    pub(super) fn call(
        &mut self,
        function: FunctionIndex,
        call: Call,
        taken: oneshot::Sender<Result<PendingAnswer, CallError>>,
    ) {
        let request = RequestNumber(self.next_request);
        self.next_request += 1;
        let (reply, mut answer) = oneshot::channel();
        let came = self.now();
        let tenant = self.functions.get(&function).map(|entry| entry.tenant);
        let (waits, assignment, cut) = (false, None, None);
        let sent_on = call.sent_on;
        let pending = PendingCall { function, tenant, call, reply, came, waits, assignment, cut };
        self.calls.insert(request, pending);
        self.event(match sent_on {
            true => Event::SentOn { function, request },
            false => Event::Request { function, request },
        });
        if let Some(pending) = self.calls.get_mut(&request) {
            pending.waits = pending.assignment.is_none();
        }
        let _ = taken.send(match answer.try_recv() {
            Ok(Err(rejected)) => Err(rejected),
            _ => Ok(answer),
        });
    }

    /// Passes a call to an instance.
    pub(super) fn dispatch(
        &mut self,
        now: Moment,
        instance: InstanceNumber,
        request: RequestNumber,
        thaw: bool,
    ) {
        let (Some(entry), Some(pending)) =
            (self.instances.get_mut(&instance), self.calls.get_mut(&request))
        else {
            return;
        };
        entry.requests.insert(request);
        entry.next_generation();
        let started = entry.ready.filter(|(ready, _)| *ready > pending.came);
        let (waited, cold) = (now.since(pending.came), started.map(|(_, init)| init));
        let booted = self.vms.get(&entry.vm).and_then(|vm| vm.booted);
        let waited_for = match cold {
            Some(_) if booted.is_some_and(|booted| booted > pending.came) => WaitedFor::Boot,
            Some(_) => WaitedFor::Start,
            None if thaw => WaitedFor::Thaw,
            None if pending.waits => WaitedFor::Busy,
            None => WaitedFor::Nothing,
        };
        pending.assignment = Some(Assignment { instance, at: now, waited, waited_for, cold });
        let (cut, told) = oneshot::channel();
        pending.cut = Some(cut);
        let limit = entry.definition.run_timeout;
        let message = entry.contract.call(&entry.definition, &pending.call, limit);
        let wants_logs = pending.call.logs;
        // Whoever of those that it serves at the same time ends first gets what all of them have written.
        let position = entry.log.clone();
        let (called, machine) = (entry.instance(), entry.machine.clone());
        self.begin_in(machine, async move {
            let start = Instant::now();
            let Some(called) = called else {
                let reply = Reply::Failed(InstanceError::NoVm);
                let (took, logs) = (Duration::ZERO, Vec::new());
                return Completion::Called { instance, request, reply, took, logs };
            };
            let reply = tokio::select! {
                reply = called.call(message, limit) => reply,
                Ok(()) = told => Reply::Failed(InstanceError::Removed),
            };
            let took = start.elapsed();
            let logs = match wants_logs {
                true => called.output(&mut *position.lock().await).await,
                false => Vec::new(),
            };
            Completion::Called { instance, request, reply, took, logs }
        });
    }

    pub(super) fn called(
        &mut self,
        instance: InstanceNumber,
        request: RequestNumber,
        reply: Reply,
        took: Duration,
        logs: Vec<String>,
    ) {
        let Some(vm) = self.instances.get(&instance).map(|entry| entry.vm) else { return };
        if matches!(reply, Reply::Failed(_)) && self.has_ended(vm) {
            return;
        }
        // Whether a VM that belongs to this instance alone has ended.
        let mut vm_ended = false;
        if let Some(entry) = self.instances.get_mut(&instance) {
            entry.requests.remove(&request);
            vm_ended = entry.instance().is_none_or(|instance| instance.guest.ended().is_some());
        }
        let event = match reply {
            Reply::Answered(response) => {
                let assignment = self.calls.get(&request).and_then(|call| call.assignment);
                if let Some(Assignment { waited, waited_for, cold, .. }) = assignment {
                    let answer = Answer { response, waited, waited_for, took, cold, logs };
                    self.close(request, Ok(answer));
                }
                Event::Answered(instance)
            }
            Reply::Failed(reason) => {
                self.fail(request, reason, vm_ended, logs);
                Event::Broken(instance)
            }
        };
        self.event(event);
    }

    /// Has the calls of a tenant fail that its instances have.
    pub(super) fn end_calls(&mut self, tenant: TenantIndex) {
        let own = self.calls.values_mut().filter(|call| call.tenant == Some(tenant));
        for cut in own.filter_map(|call| call.cut.take()) {
            let _ = cut.send(());
        }
    }

    /// Fails a call that an instance had taken.
    pub(super) fn fail(
        &mut self,
        request: RequestNumber,
        reason: InstanceError,
        vm_ended: bool,
        logs: Vec<String>,
    ) {
        let assignment = self.calls.get(&request).and_then(|call| call.assignment);
        let waited = assignment.map_or(Duration::ZERO, |taken| taken.waited);
        let took = assignment.map_or(Duration::ZERO, |taken| self.now().since(taken.at));
        let waited_for = assignment.map_or(WaitedFor::Nothing, |taken| taken.waited_for);
        let cold = assignment.is_some_and(|taken| taken.cold.is_some());
        let failed = CallError::Failed { reason, waited, waited_for, took, cold, vm_ended, logs };
        self.close(request, Err(failed));
    }

    /// Rejects a call that no instance will take.
    pub(super) fn reject(&mut self, request: RequestNumber, reason: RejectReason) {
        self.close(request, Err(CallError::Rejected(reason)));
    }

    fn close(&mut self, request: RequestNumber, result: Result<Answer, CallError>) {
        if let Some(call) = self.calls.remove(&request) {
            let instance = call.assignment.map(|taken| taken.instance);
            let PendingCall { function, came, .. } = call;
            let trace = call.call.trace.as_ref();
            self.tell(NodeEvent::Called { function, instance, came, trace, result: &result });
            // The caller may be gone.
            let _ = call.reply.send(result);
        }
    }
}
