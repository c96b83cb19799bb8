//! Calls of actions and their results.

use super::{Service, ServiceError};
use crate::serve::{action::Action, bodies::Held, key::random};
use serde_json::{Map, Value};
use squeezy_node::{Call, CallError, InstanceError};
use squeezy_openwhisk::{
    activation::{Activation, Called, Explained, ValueSize},
    now_ms, size_of_text,
};
use squeezy_scaler::RejectReason;
use squeezy_store::Running;
use std::sync::Arc;
use tokio::{sync::oneshot, task::JoinHandle};

/// Length of an activation's id.
const ID_BYTES: usize = 16;

impl Service {
    /// Generates an activation's id.
    pub fn new_id(&self) -> Result<String, ServiceError> {
        random(ID_BYTES).map_err(|error| ServiceError::Internal(error.to_string()))
    }

    /// Calls an action and records the activation. The call completes even if nobody waits for it,
    /// and keeps the reservation for its arguments until then. The first future that is returned
    /// resolves to an error if the call is refused immediately; drop it if nobody hears the ID before
    /// the result.
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
                Ok(answer) => match accept.take() {
                    Some(accept) => {
                        let Called { action: name, version, kind } = action.called();
                        let running = Running {
                            id: id.clone(),
                            action: name,
                            version,
                            kind: kind.into(),
                            start_ms,
                        };
                        if accept.is_closed() {
                            self.store.start_unheard(running);
                            answer.await
                        } else {
                            // Whoever hears the ID finds the call after a restart.
                            let started = self.store.start(running);
                            let accept = async {
                                started.wait().await;
                                let _ = accept.send(());
                            };
                            tokio::join!(answer, accept).0
                        }
                    }
                    None => answer.await,
                },
                Err(error) => Err(error),
            };
            // Changing an action must not cause its waiting calls to be refused.
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
        // Reserved before the text is parsed, because the value may take many times as much memory.
        let (answer, _held) = match answer {
            Ok(answer) => match self.bodies.take(bytes.min(most_bytes)).await {
                Ok(held) => (Ok(answer), Some(held)),
                Err(_) => (Err(no_memory(answer)), None),
            },
            failed => (failed, None),
        };
        let explain = |error: &CallError| {
            let (text, by_instance) = self.failure_reasons.explain(action.index, error);
            // The rest of an instance that runs code is ours.
            Explained { text, by_code: by_instance && action.code.is_some() }
        };
        let activation = Activation::of(
            id,
            action.called(),
            start_ms,
            answer,
            ValueSize { bytes, most_bytes },
            explain,
        );
        let activation = Arc::new(activation);
        // A client that was told the id may ask for the activation. One that hears the result finds
        // the same one after a restart.
        if refused.is_none() || accept.is_none() {
            self.store.end(activation.clone()).wait().await;
        }
        refused.map_or(Ok(activation), Err)
    }
}

/// The error for a result that there is no memory for.
fn no_memory(answer: squeezy_node::Answer) -> CallError {
    CallError::Failed {
        reason: InstanceError::NoAnswer(
            "there is not enough memory for its answer at the moment, because of other requests and responses"
                .to_owned(),
        ),
        waited: answer.waited,
        waited_for: answer.waited_for,
        took: answer.took,
        cold: answer.cold.is_some(),
        // The function is not to blame for this either.
        vm_ended: true,
        logs: answer.logs,
    }
}
