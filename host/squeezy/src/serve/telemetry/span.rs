//! Spans: what took how long, within what.

use super::clock::Clock;
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::{Span as Message, Status, span, status::StatusCode},
};
pub use span::SpanKind;
use squeezy_node::{SpanId, TraceId};
use squeezy_scaler::Moment;
use std::sync::Arc;

/// How much of an error is sent.
const MAX_ERROR_CHARACTERS: usize = 300;

/// Flags of spans and links: sampled, and it is known whether the other span is in another process.
const FLAGS: u32 = 0x101;
const IS_REMOTE: u32 = 0x200;

/// A span. Its memory is bounded: all texts are short.
#[derive(Debug)]
pub struct Span {
    /// Its trace.
    pub trace: TraceId,
    /// Its ID.
    pub id: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// Whether that is in another process, and what tracing systems have said there.
    pub from: Option<Remote>,
    /// What it is.
    pub name: Name,
    /// Its side of a request, if it is one.
    pub kind: SpanKind,
    /// When it began.
    pub start: Moment,
    /// When it ended.
    pub end: Moment,
    /// What else is known.
    pub attributes: Vec<(&'static str, Value)>,
    /// Spans of other traces that it has to do with.
    pub links: Vec<(TraceId, SpanId)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// That a span's parent is in another process.
#[derive(Debug)]
pub struct Remote {
    /// `tracestate` of the request.
    pub state: Option<Arc<str>>,
}

/// A short text.
#[derive(Clone, Debug)]
pub enum Name {
    /// Of ours.
    Fixed(&'static str),
    /// Of somebody else's.
    Given(Arc<str>),
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text.
    Text(Name),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl Span {
    /// A span without a parent.
    pub fn root(
        trace: TraceId,
        id: SpanId,
        name: &'static str,
        start: Moment,
        end: Moment,
    ) -> Self {
        Self {
            trace,
            id,
            parent: None,
            from: None,
            name: Name::Fixed(name),
            kind: SpanKind::Internal,
            start,
            // It may not end before it began.
            end: end.max(start),
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    /// A span that is a part of another one.
    pub fn within(self, parent: SpanId) -> Self {
        Self { parent: Some(parent), ..self }
    }

    /// With an attribute.
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((key, value.into()));
        self
    }

    /// With why it failed, if it did: the beginning of that, on one line.
    pub fn failed(mut self, error: Option<impl ToString>) -> Self {
        let brief = |text: String| {
            let characters = text.chars().take(MAX_ERROR_CHARACTERS);
            characters.map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        self.error = error.map(|error| brief(error.to_string()));
        self
    }

    /// As it is sent.
    pub fn message(self, clock: &Clock) -> Message {
        let (start, end) = (clock.unix_ns(self.start), clock.unix_ns(self.end));
        let links = self.links.into_iter().map(|(trace, span)| span::Link {
            trace_id: trace.0.to_be_bytes().to_vec(),
            span_id: span.0.to_be_bytes().to_vec(),
            flags: FLAGS,
            ..span::Link::default()
        });
        let attributes = self.attributes.into_iter();
        Message {
            trace_id: self.trace.0.to_be_bytes().to_vec(),
            span_id: self.id.0.to_be_bytes().to_vec(),
            parent_span_id: self.parent.map_or(Vec::new(), |id| id.0.to_be_bytes().to_vec()),
            flags: if self.from.is_some() { FLAGS | IS_REMOTE } else { FLAGS },
            trace_state: self
                .from
                .and_then(|from| from.state)
                .map_or(String::new(), |state| state.to_string()),
            name: self.name.into(),
            kind: self.kind.into(),
            start_time_unix_nano: start,
            end_time_unix_nano: end,
            attributes: attributes.map(|(key, value)| attribute(key, value)).collect(),
            links: links.collect(),
            status: self.error.map(|message| Status { message, code: StatusCode::Error.into() }),
            ..Message::default()
        }
    }
}

/// An attribute as it is sent.
pub fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    let value = match value.into() {
        Value::Text(text) => any_value::Value::StringValue(text.into()),
        Value::Number(number) => any_value::Value::IntValue(number),
        Value::Flag(flag) => any_value::Value::BoolValue(flag),
    };
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        match name {
            Name::Fixed(text) => text.to_owned(),
            Name::Given(text) => text.to_string(),
        }
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::Text(Name::Given(text))
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Name::Fixed(text))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number.try_into().unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}
