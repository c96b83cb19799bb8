//! Instances that are wanted ahead of calls.
//!
//! Each is a request in its function's queue that nobody answers: it has its place in line, gets its memory, and is given
//! up, as a call would be. It ends with the first instance that the function has.

use super::{Scaler, Waiting, claim::Claim};
use crate::{Command, FunctionIndex, Moment, RejectReason, RequestNumber};

impl Scaler {
    /// A function's queued calls.
    pub(super) fn queued_calls(&self, index: FunctionIndex) -> usize {
        let all = self.function(index).map_or(0, |function| function.queue.len());
        all - usize::from(self.prewarming.contains(&index))
    }

    /// Queues the wish for an instance of a function. One at a time is enough, whoever has it.
    pub(super) fn prewarm(
        &mut self,
        now: Moment,
        index: FunctionIndex,
        request: RequestNumber,
        commands: &mut Vec<Command>,
    ) {
        let fits = self.function(index).is_some_and(|f| self.fits_quota(f.policy.vm));
        let reason = match self.functions.get_mut(&index) {
            _ if self.draining => RejectReason::Draining,
            None => RejectReason::Retired,
            Some(function) if function.retired => RejectReason::Retired,
            Some(_) if !fits => RejectReason::OverQuota,
            Some(_) if self.prewarming.contains(&index) => RejectReason::QueueFull,
            Some(function) => {
                let tenant = function.tenant;
                function.queue.push_back(Waiting { request, since: now, is_call: false });
                self.waiting.insert(index);
                self.prewarming.insert(index);
                self.tenants.entry(tenant).and_modify(|tenant| tenant.prewarming += 1);
                self.set_waiting_deadline(index);
                return;
            }
        };
        commands.push(Command::Reject { request, reason });
    }

    pub(super) fn is_prewarm(&self, index: FunctionIndex, request: RequestNumber) -> bool {
        let Some(function) = self.function(index).filter(|_| self.prewarming.contains(&index))
        else {
            return false;
        };
        function.queue.iter().any(|waiting| waiting.request == request && !waiting.is_call)
    }

    /// Gives up the wish that a claim is for. Waiting for it would keep memory from calls for long: unlike a call, it
    /// waits for something beside what is there already.
    pub(super) fn give_up_prewarm(&mut self, claim: &Claim, commands: &mut Vec<Command>) {
        let request = claim.shortage.prewarming.and_then(|index| self.take_prewarm(index));
        let reason = RejectReason::NoRoomAhead;
        commands.extend(request.map(|request| Command::Reject { request, reason }));
    }

    /// Ends the wishes of functions that have an instance by now. So none is left when an idle instance is looked for a
    /// request.
    pub(super) fn end_prewarms(&mut self, commands: &mut Vec<Command>) {
        let has_one = |&index: &FunctionIndex| {
            let counts = self.pool.counts(index);
            counts.idle + counts.busy > 0
        };
        for index in self.prewarming.iter().copied().filter(has_one).collect::<Vec<_>>() {
            commands.extend(self.take_prewarm(index).map(Command::Prewarmed));
        }
    }

    fn take_prewarm(&mut self, index: FunctionIndex) -> Option<RequestNumber> {
        let place = self.function(index)?.queue.iter().position(|waiting| !waiting.is_call)?;
        self.take_waiting(index, place)
    }
}
