//! Calls of actions, and what came of them.

use super::{Service, ServiceError, lock};
use crate::serve::{action::Action, activations::Selection, bodies::Held, key::random};
use serde_json::{Map, Value};
use squeezy_node::{Call, CallError, InstanceError};
use squeezy_openwhisk::{
    activation::{Activation, ValueSize},
    now_ms, size_of_text,
};
use squeezy_scaler::RejectReason;
use std::sync::Arc;
use tokio::{sync::oneshot, task::JoinHandle};

/// Bytes of an activation's id.
const ID_BYTES: usize = 16;

impl Service {
    /// A new activation's id.
    pub fn new_id(&self) -> Result<String, ServiceError> {
        random(ID_BYTES).map_err(|error| ServiceError::Internal(error.to_string()))
    }

    /// Calls an action and remembers what came of it. Runs to its end even when nobody waits, and has
    /// the memory for its arguments until then; the first of what this returns fails when the call is
    /// turned away at once.
    pub fn call(
        self: &Arc<Self>,
        action: Arc<Action>,
        id: String,
        arguments: Map<String, Value>,
        held: Arc<[Held]>,
    ) -> (oneshot::Receiver<()>, JoinHandle<Result<Arc<Activation>, ServiceError>>) {
        let (accept, accepted) = oneshot::channel();
        let answer = self.clone().answer(action, id, arguments, accept);
        let call = tokio::spawn(async move {
            let activation = answer.await;
            drop(held);
            activation
        });
        (accepted, call)
    }

    async fn answer(
        self: Arc<Self>,
        mut action: Arc<Action>,
        id: String,
        arguments: Map<String, Value>,
        accept: oneshot::Sender<()>,
    ) -> Result<Arc<Activation>, ServiceError> {
        let start_ms = now_ms();
        let mut accept = Some(accept);
        let answer = loop {
            let value = action.arguments(arguments.clone());
            let logs = action.body.limits().wants_logs();
            let call = Call { id: id.clone(), value, logs };
            let answer = match self.node.submit(action.index, call).await {
                Ok(answer) => {
                    accept.take().map(|accept| accept.send(()));
                    answer.await
                }
                Err(error) => Err(error),
            };
            // Whoever changes an action does not turn away those who have called it.
            match (&answer, self.action(&action.name)) {
                (Err(CallError::Rejected(RejectReason::Retired)), Some(changed))
                    if changed.index != action.index =>
                {
                    action = changed;
                }
                _ => break answer,
            }
        };
        let refused = match &answer {
            Err(CallError::Rejected(RejectReason::QueueFull)) => Some(ServiceError::Busy),
            Err(CallError::Ended | CallError::Rejected(RejectReason::Draining)) => {
                Some(ServiceError::Ending)
            }
            Err(CallError::Rejected(RejectReason::Retired)) => Some(ServiceError::NotFound),
            _ => None,
        };
        let most_bytes = self.bodies.at_most(usize::MAX);
        let body = answer.as_ref().map(|answer| answer.response.body());
        let bytes = body.map_or(0, |body| size_of_text(body).unwrap_or(0));
        // Before its text becomes a value, which may take many times as much.
        let (answer, _held) = match answer {
            Ok(answer) => match self.bodies.take(bytes.min(most_bytes)).await {
                Ok(held) => (Ok(answer), Some(held)),
                Err(_) => (Err(no_memory(answer)), None),
            },
            failed => (failed, None),
        };
        let explain = |error: &CallError| self.failure_reasons.explain(action.index, error);
        let activation = Activation::of(
            id,
            action.name.clone(),
            action.version(),
            start_ms,
            answer,
            ValueSize { bytes, most_bytes },
            explain,
        );
        let activation = Arc::new(activation);
        // Whoever was told the id may ask for it.
        if refused.is_none() || accept.is_none() {
            lock(&self.activations).push(activation.clone());
        }
        refused.map_or(Ok(activation), Err)
    }

    /// The activation of this id.
    pub fn activation(&self, id: &str) -> Option<Arc<Activation>> {
        lock(&self.activations).get(id)
    }

    /// Activations, the latest first.
    pub fn activations(
        &self,
        selection: &Selection,
        skip: usize,
        limit: usize,
    ) -> Vec<Arc<Activation>> {
        lock(&self.activations).list(selection).skip(skip).take(limit).cloned().collect()
    }

    /// How many activations there are.
    pub fn count_activations(&self, selection: &Selection) -> usize {
        lock(&self.activations).list(selection).count()
    }
}

/// What comes of an answer that there is no memory for.
fn no_memory(answer: squeezy_node::Answer) -> CallError {
    CallError::Failed {
        reason: InstanceError::NoAnswer(
            "there is not enough memory for its answer at the moment, because of other requests and answers"
                .to_owned(),
        ),
        waited: answer.waited,
        waited_for: answer.waited_for,
        took: answer.took,
        cold: answer.cold.is_some(),
        // Neither is this the function's doing.
        vm_ended: true,
        logs: answer.logs,
    }
}
