//! Requests waiting for an instance.

use super::{Scaler, Waiting, deadlines::Subject};
use crate::{Command, FunctionIndex, Moment, RejectReason, RequestNumber};

impl Scaler {
    /// Queues a call, or rejects it. A new one needs a place in the queue.
    pub(super) fn enqueue(
        &mut self,
        now: Moment,
        function: FunctionIndex,
        request: RequestNumber,
        is_new: bool,
        commands: &mut Vec<Command>,
    ) {
        let idle = self.pool.counts(function).idle;
        let queued = self.queued_calls(function);
        let tenant = self.tenant_of(function);
        let in_flight = tenant.map_or(0, |tenant| tenant.queued + tenant.running);
        let most = tenant.and_then(|tenant| tenant.policy.calls);
        let fits = self.function(function).is_some_and(|f| self.fits_quota(f.policy.vm));
        let reason = match self.functions.get_mut(&function) {
            _ if self.draining => RejectReason::Draining,
            None => RejectReason::Retired,
            Some(function) if function.retired => RejectReason::Retired,
            Some(_) if most.is_some_and(|most| in_flight >= most) => RejectReason::TooManyCalls,
            Some(_) if !fits => RejectReason::OverQuota,
            // An idle instance may have to wait for memory, too.
            Some(f) if is_new && queued >= f.policy.queue_limit.saturating_add(idle) => {
                RejectReason::QueueFull
            }
            Some(f) => {
                let tenant = f.tenant;
                f.queue.push_back(Waiting { request, since: now, is_call: true });
                self.waiting.insert(function);
                self.tenants.entry(tenant).and_modify(|tenant| tenant.queued += 1);
                self.set_waiting_deadline(function);
                return;
            }
        };
        commands.push(Command::Reject { request, reason });
    }

    /// Rejects the request that a failed instance was meant for. Otherwise a function that cannot start would
    /// be started for ever.
    pub(super) fn give_up_one(
        &mut self,
        function: FunctionIndex,
        reason: RejectReason,
        commands: &mut Vec<Command>,
    ) {
        if let Some(request) = self.next_waiting(function) {
            commands.push(Command::Reject { request, reason });
        }
    }

    /// Takes the oldest request off a function's queue.
    pub(super) fn next_waiting(&mut self, index: FunctionIndex) -> Option<RequestNumber> {
        self.take_waiting(index, 0)
    }

    /// Takes the request in this place off a function's queue.
    pub(super) fn take_waiting(
        &mut self,
        index: FunctionIndex,
        place: usize,
    ) -> Option<RequestNumber> {
        let function = self.functions.get_mut(&index)?;
        let taken = function.queue.remove(place)?;
        if function.queue.is_empty() {
            self.waiting.remove(&index);
        }
        let tenant = self.tenants.entry(function.tenant);
        if taken.is_call {
            tenant.and_modify(|tenant| tenant.queued -= 1);
        } else {
            self.prewarming.remove(&index);
            tenant.and_modify(|tenant| tenant.prewarming -= 1);
        }
        self.set_waiting_deadline(index);
        Some(taken.request)
    }

    pub(super) fn reject_all(
        &mut self,
        function: FunctionIndex,
        reason: RejectReason,
        commands: &mut Vec<Command>,
    ) {
        while let Some(request) = self.next_waiting(function) {
            commands.push(Command::Reject { request, reason });
        }
    }

    pub(super) fn set_waiting_deadline(&mut self, index: FunctionIndex) {
        self.deadlines.set(Subject::Waiting(index), self.waiting_deadline(index));
    }
}
