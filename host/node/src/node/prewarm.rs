//! Instances that are started ahead of calls, to take the place of those of another function.

use super::actor::Actor;
use crate::{CallError, NodeEvent};
use squeezy_scaler::{Event, FunctionIndex, RejectReason, RequestNumber};
use tokio::sync::oneshot;

/// How a wait for an instance ahead of calls has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prewarmed {
    /// One is up.
    Up,
    /// The function whose place it takes has no instance any more, so that nobody gains by waiting.
    NothingToRelieve,
}

/// Resolves to the end of a wait for an instance ahead of calls.
pub(super) type PendingPrewarmed = oneshot::Receiver<Result<Prewarmed, CallError>>;

/// A wait for an instance ahead of calls.
pub(super) struct PendingPrewarm {
    function: FunctionIndex,
    /// The function whose place it takes.
    relieves: FunctionIndex,
    end: oneshot::Sender<Result<Prewarmed, CallError>>,
}

impl Actor {
    /// Has an instance of `function` started, unless `relieves` has none.
    pub(super) fn prewarm(
        &mut self,
        function: FunctionIndex,
        relieves: FunctionIndex,
    ) -> Option<PendingPrewarmed> {
        if !self.has_instance(relieves) {
            return None;
        }
        let request = RequestNumber(self.next_request);
        self.next_request += 1;
        let (end, ended) = oneshot::channel();
        self.prewarms.insert(request, PendingPrewarm { function, relieves, end });
        self.event(Event::Prewarm { function, request });
        Some(ended)
    }

    pub(super) fn prewarmed(&mut self, request: RequestNumber) {
        if let Some(prewarm) = self.prewarms.remove(&request) {
            let _ = prewarm.end.send(Ok(Prewarmed::Up));
        }
    }

    /// Ends a wait for an instance that will not come.
    pub(super) fn not_prewarmed(&mut self, prewarm: PendingPrewarm, reason: RejectReason) {
        let PendingPrewarm { function, end, .. } = prewarm;
        // Otherwise nobody wants one any more.
        if !matches!(reason, RejectReason::Retired | RejectReason::Draining) {
            self.tell(NodeEvent::NotPrewarmed { function, reason });
        }
        let _ = end.send(Err(CallError::Rejected(reason)));
    }

    /// Ends the waits that have lost their sense: calls would wait for a start, whichever function they are for. What
    /// has been begun goes on.
    pub(super) fn end_prewarms(&mut self) {
        let lost: Vec<_> = self
            .prewarms
            .iter()
            .filter(|(_, prewarm)| !self.has_instance(prewarm.relieves))
            .map(|(&request, _)| request)
            .collect();
        for prewarm in lost.into_iter().filter_map(|request| self.prewarms.remove(&request)) {
            let _ = prewarm.end.send(Ok(Prewarmed::NothingToRelieve));
        }
    }

    /// Whether a function has an instance that serves calls or is about to.
    fn has_instance(&self, function: FunctionIndex) -> bool {
        let counts = self.scaler.counts(function);
        counts.starting + counts.idle + counts.busy > 0
    }
}
