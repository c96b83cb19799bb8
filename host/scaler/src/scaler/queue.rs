//! Requests waiting for an instance.

use super::{Scaler, Waiting, deadlines::Subject};
use crate::{Command, FunctionIndex, Moment, RejectReason, RequestNumber};

impl Scaler {
    pub(super) fn enqueue(
        &mut self,
        now: Moment,
        function: FunctionIndex,
        request: RequestNumber,
        commands: &mut Vec<Command>,
    ) {
        let idle = self.pool.counts(function).idle;
        let reason = match self.functions.get_mut(&function) {
            _ if self.draining => RejectReason::Draining,
            None => RejectReason::Retired,
            Some(function) if function.retired => RejectReason::Retired,
            Some(f) if idle == 0 && f.queue.len() >= f.policy.queue_limit => {
                RejectReason::QueueFull
            }
            Some(f) => {
                f.queue.push_back(Waiting { request, since: now });
                self.waiting.insert(function);
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
        let queue = &mut self.functions.get_mut(&index)?.queue;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&index);
        }
        self.set_waiting_deadline(index);
        next.map(|waiting| waiting.request)
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
