//! Calls of actions and their results.

use super::{Callable, Callee, Service, ServiceError, WebCall, sequences::Run};
use crate::serve::{
    action::Action,
    bodies::{Held, Part},
    key::random,
    strangers::Strangers,
    telemetry::TracedCall,
};
use serde_json::{Map, Value};
use squeezy_node::{Call, CallError, InstanceError, TraceContext};
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

/// Where a call comes from.
#[derive(Default)]
pub struct CallOrigin {
    /// The caller's span, if that is trusted.
    pub span: Option<TraceContext>,
    /// On what conditions it was admitted, if it is one of a web action.
    pub web: Option<WebCall>,
}

impl CallOrigin {
    fn strangers(&self) -> Option<Arc<Strangers>> {
        self.web.as_ref()?.stranger.as_ref().map(|call| call.strangers().clone())
    }
}

/// A call that has ended.
pub struct Answered {
    pub activation: Arc<Activation>,
    /// The reservation for the activation's result; for a web action also for the answer that is made of it.
    pub held: Option<Held>,
}

/// A call that has been admitted, or a part of one that is of a sequence.
pub(super) struct Invocation {
    /// The activation's ID.
    pub(super) id: String,
    pub(super) arguments: Map<String, Value>,
    /// The reservation for the arguments, if it has one.
    pub(super) held: Option<Arc<Held>>,
    /// Told that the call was taken; closed if nobody hears the ID before the result.
    pub(super) accept: oneshot::Sender<()>,
    /// Where memory for the answer comes from.
    pub(super) part: Part,
    pub(super) traced: TracedCall,
    /// Of a web action; of a component never, because the sequence was admitted.
    pub(super) web: Option<WebCall>,
    /// Those of whom the caller is one, if it is a stranger.
    pub(super) strangers: Option<Arc<Strangers>>,
    /// The activation of the sequence that it is a part of.
    pub(super) cause: Option<String>,
}

impl Service {
    /// Generates an activation's id.
    pub fn new_id(&self) -> Result<String, ServiceError> {
        random(ID_BYTES).map_err(|error| ServiceError::Internal(error.to_string()))
    }

    /// Calls an action and records the activation. The call completes even if nobody waits for it,
    /// and keeps the reservation for its arguments until then; memory for its answer comes from
    /// `part`. The first future that is returned resolves to an error if the call is refused
    /// immediately; drop it if nobody hears the ID before the result.
    pub fn call(
        self: &Arc<Self>,
        callee: impl Into<Callee>,
        id: String,
        arguments: Map<String, Value>,
        origin: CallOrigin,
        held: Option<Arc<Held>>,
        part: Part,
    ) -> (oneshot::Receiver<()>, JoinHandle<Result<Answered, ServiceError>>) {
        let callee = callee.into();
        let strangers = origin.strangers();
        let calling = self.tenants.call(&callee.name().namespace, strangers.is_some());
        let (accept, accepted) = oneshot::channel();
        let service = self.clone();
        let call = tokio::spawn(async move {
            let calling = calling?;
            let CallOrigin { span, web } = origin;
            let traced = TracedCall::begin(service.telemetry.as_ref(), span);
            let invocation = Invocation {
                id,
                arguments,
                held,
                accept,
                part,
                traced,
                web,
                strangers,
                cause: None,
            };
            match callee {
                Callee::Action(callable) => {
                    let answered = service.answer_action(callable, invocation).await;
                    drop(calling);
                    answered
                }
                Callee::Sequence(callable) => {
                    let mut run = Run::default();
                    let answered = service.answer_sequence(callable, invocation, &mut run).await;
                    drop(calling);
                    Ok(answered)
                }
            }
        });
        (accepted, call)
    }

    pub(super) async fn answer_action(
        self: &Arc<Self>,
        Callable { mut action, packages }: Callable,
        invocation: Invocation,
    ) -> Result<Answered, ServiceError> {
        let Invocation {
            id,
            arguments,
            held: held_for_arguments,
            accept,
            part,
            traced,
            web,
            strangers,
            cause,
        } = invocation;
        let start_ms = now_ms();
        let mut accept = Some(accept);
        let mut sent_on = false;
        let answer = loop {
            let value = action.arguments(&packages, arguments.clone());
            let logs = action.body.limits().wants_logs();
            let call = Call { id: id.clone(), value, logs, trace: traced.trace(), sent_on };
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
                            cause: cause.clone(),
                        };
                        tokio::join!(self.started(running, accept), answer).1
                    }
                    None => answer.await,
                },
                Err(error) => Err(error),
            };
            // Changing an action must not cause its waiting calls to be refused, unless they are not for
            // what it has become.
            let is_admitted = |changed: &Action| {
                web.as_ref().is_none_or(|web| web.is_admitted(changed, &arguments))
            };
            match &answer {
                Err(CallError::Rejected(RejectReason::Retired)) => {
                    let other = self.actions.to_serve(&action.name, is_admitted);
                    match other.filter(|other| other.index != action.index) {
                        Some(other) => (action, sent_on) = (other, true),
                        None => break answer,
                    }
                }
                _ => break answer,
            }
        };
        let refused = match &answer {
            Err(CallError::Rejected(RejectReason::QueueFull)) => Some(ServiceError::Busy),
            Err(CallError::Rejected(RejectReason::TooManyCalls)) => {
                Some(ServiceError::TooManyCalls)
            }
            Err(CallError::Ended | CallError::Rejected(RejectReason::Draining)) => {
                Some(ServiceError::Ending)
            }
            Err(CallError::Rejected(RejectReason::Retired)) => Some(ServiceError::NotFound),
            _ => None,
        };
        // Those who hold a reservation never wait for another.
        drop((arguments, held_for_arguments));
        let most_bytes = part.at_most(usize::MAX);
        let body = answer.as_ref().map(|answer| answer.response.body());
        let bytes = body.map_or(0, |body| size_of_text(body).unwrap_or(0));
        let text_bytes = body.map_or(0, |body| body.len());
        let made_of_it_bytes = match (&cause, &web) {
            // A copy of the value, and the next request or what a web action's client gets.
            (Some(_), _) => bytes + text_bytes,
            // What a web action's client gets is no longer than the two.
            (None, Some(_)) => text_bytes,
            (None, None) => 0,
        };
        let all_bytes = most_bytes.min(bytes + made_of_it_bytes);
        // Reserved before the text is parsed, because the value may take many times as much memory.
        let (answer, held) = match answer {
            Ok(answer) => match part.take_for_text(all_bytes, text_bytes).await {
                Ok(held) => (Ok(answer), Some(held)),
                Err(_) => (Err(no_memory(answer)), None),
            },
            failed => (failed, None),
        };
        let explain = |error: &CallError| {
            let (text, output) = self.failure_reasons.explain(action.index, error);
            // The rest of an instance that runs code is ours.
            let by_code = output.is_some() && action.code.is_some();
            let wants_logs = action.body.limits().wants_logs();
            let lines = output.filter(|_| wants_logs).map(|lines| lines.to_vec());
            Explained { text, by_code, lines: lines.unwrap_or_default() }
        };
        let mut activation = Activation::of(
            id,
            action.called(),
            start_ms,
            answer,
            ValueSize { bytes, most_bytes },
            explain,
        );
        (activation.by_stranger, activation.cause) = (strangers.is_some(), cause);
        let activation = Arc::new(activation);
        // A client that was told the id may ask for the activation. One that hears the result finds
        // the same one after a restart.
        if refused.is_none() || accept.is_none() {
            self.ended(&activation).await;
        }
        traced.end(&activation);
        refused.map_or(Ok(Answered { activation, held }), Err)
    }

    /// Records that a call runs, and accepts it. Whoever hears the ID finds the call after a restart.
    pub(super) async fn started(&self, running: Running, accept: oneshot::Sender<()>) {
        if accept.is_closed() {
            self.store.start_unheard(running);
        } else {
            self.store.start(running).wait().await;
            let _ = accept.send(());
        }
    }

    /// Records how a call has ended.
    pub(super) async fn ended(&self, activation: &Arc<Activation>) {
        let kept = if activation.by_stranger { activation.without_large_result() } else { None };
        let written = self.store.end(kept.map_or_else(|| activation.clone(), Arc::new));
        // Nobody hears of a part before the end of the whole, which is written later.
        if activation.cause.is_none() {
            written.wait().await;
        }
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
