//! The span of a call, from its acceptance until its activation is kept.

use super::{
    Telemetry, ids,
    span::{Remote, Span, SpanKind, Value},
};
use squeezy_node::{CallTrace, SpanId, TraceContext};
use squeezy_openwhisk::activation::{Activation, Status};
use squeezy_scaler::Moment;
use std::sync::Arc;

/// A call in progress.
pub struct TracedCall {
    /// How it is traced, if it is.
    trace: Option<CallTrace>,
    recorded: Option<Recorded>,
}

/// What the span of a call needs that is recorded.
struct Recorded {
    telemetry: Arc<Telemetry>,
    id: SpanId,
    /// The caller's span, or that of the sequence that it is a part of.
    parent: Option<SpanId>,
    /// Whether its caller is in another process.
    from: Option<Remote>,
    is_part: bool,
    start: Moment,
}

impl TracedCall {
    /// A call that comes now, from a caller with this context. Without telemetry the context is passed on as it is.
    pub fn begin(telemetry: Option<&Arc<Telemetry>>, caller: Option<TraceContext>) -> Self {
        let Some(telemetry) = telemetry else {
            let trace = caller.map(|context| CallTrace { context, call: None });
            return Self { trace, recorded: None };
        };
        let ids = &telemetry.ids;
        let trace = caller.as_ref().map_or_else(|| ids.trace(), |caller| caller.trace);
        let sampled = match &caller {
            Some(caller) => caller.sampled,
            None => ids::is_sampled(trace, telemetry.sampling),
        };
        let state = caller.as_ref().and_then(|caller| caller.state.clone());
        let context = TraceContext { trace, span: ids.span(), sampled, state };
        let recorded = sampled.then(|| Recorded {
            telemetry: telemetry.clone(),
            id: ids.span(),
            parent: caller.as_ref().map(|caller| caller.span),
            from: caller.map(|caller| Remote { state: caller.state }),
            is_part: false,
            start: telemetry.now(),
        });
        let call = recorded.as_ref().map(|recorded| recorded.id);
        Self { trace: Some(CallTrace { context, call }), recorded }
    }

    /// A call that comes now and is a part of this one, which is of a sequence.
    pub fn part(&self) -> Self {
        let (Some(CallTrace { context, .. }), Some(whole)) = (&self.trace, &self.recorded) else {
            return Self { trace: self.trace.clone(), recorded: None };
        };
        let telemetry = whole.telemetry.clone();
        let id = telemetry.ids.span();
        let context = TraceContext { span: telemetry.ids.span(), ..context.clone() };
        let start = telemetry.now();
        let recorded =
            Recorded { telemetry, id, parent: Some(whole.id), from: None, is_part: true, start };
        Self { trace: Some(CallTrace { context, call: Some(id) }), recorded: Some(recorded) }
    }

    /// How it is traced, for the node.
    pub fn trace(&self) -> Option<CallTrace> {
        self.trace.clone()
    }

    /// It has ended, with this activation.
    pub fn end(self, activation: &Activation) {
        let (Some(CallTrace { context, .. }), Some(recorded)) = (self.trace, self.recorded) else {
            return;
        };
        let Recorded { telemetry, id, parent, from, is_part, start } = recorded;
        let name: Arc<str> = activation.action.to_string().into();
        let text = |text: &str| Value::from(Arc::<str>::from(text));
        let mut span = Span::root(context.trace, id, "call", start, telemetry.now());
        span.kind = if is_part { SpanKind::Internal } else { SpanKind::Server };
        (span.parent, span.from) = (parent, from);
        let span = span
            .with("faas.name", name)
            .with("faas.version", text(&activation.version))
            .with("faas.invocation_id", text(&activation.id))
            .with("faas.trigger", if is_part { "other" } else { "http" })
            .with("faas.coldstart", activation.init.is_some())
            .with("squeezy.status", activation.status.name());
        let failed = (activation.status != Status::Success).then(|| activation.status.name());
        telemetry.send([span.failed(failed)]);
    }
}
