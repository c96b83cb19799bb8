//! The result of each call, for clients that ask later.

use crate::{Namespace, QualifiedName, sequence::SEQUENCE, size_of_value};
use bytes::Bytes;
use bytesize::ByteSize;
use http::{Response, StatusCode};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use squeezy_node::{Answer, CallError, InstanceError, WaitedFor};
use squeezy_protocol::MAX_PAYLOAD_BYTES;
use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

/// Maximum size of a result, in bytes.
const MAX_RESULT_BYTES: usize = 5 << 20;

/// What a result of a call without the key may take to be kept, in bytes.
const MOST_KEPT_BYTES: usize = 16 << 10;

/// How a call ended, with OpenWhisk's code for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The function answered.
    Success = 0,
    /// The function reported an error.
    ApplicationError = 1,
    /// The function crashed, exceeded a limit or did not answer.
    DeveloperError = 2,
    /// The platform could not call the function.
    InternalError = 3,
}

impl Status {
    /// The status with this code; `None` if OpenWhisk has none.
    pub fn of_code(code: u64) -> Option<Self> {
        let all =
            [Self::Success, Self::ApplicationError, Self::DeveloperError, Self::InternalError];
        all.into_iter().find(|status| *status as u64 == code)
    }

    /// OpenWhisk's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ApplicationError => "application error",
            Self::DeveloperError => "action developer error",
            Self::InternalError => "whisk internal error",
        }
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How much memory the value of an answer takes, and may take; see [`crate::size_of_text`].
#[derive(Clone, Copy, Debug)]
pub struct ValueSize {
    /// What it takes, in bytes; 0 if there is no value.
    pub bytes: usize,
    /// What it may take, in bytes.
    pub most_bytes: usize,
}

/// The action that was called.
#[derive(Clone, Debug)]
pub struct Called {
    /// Its name.
    pub action: QualifiedName,
    /// Its version.
    pub version: String,
    /// Its kind.
    pub kind: &'static str,
}

/// Why no instance took a call.
#[derive(Clone, Debug)]
pub struct Explained {
    /// One sentence.
    pub text: String,
    /// Whether the action's code is why, rather than the platform.
    pub by_code: bool,
    /// What an instance wrote that could not be started.
    pub lines: Vec<String>,
}

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct Activation {
    /// Its ID.
    pub id: String,
    /// The action that was called.
    pub action: QualifiedName,
    /// The action's version.
    pub version: String,
    /// The action's kind.
    pub kind: Cow<'static, str>,
    /// When the call came, in milliseconds since 1970.
    pub start_ms: u64,
    /// How it ended.
    pub status: Status,
    /// The answer, or an object with the field `error`.
    pub result: Value,
    /// How long it waited for an instance.
    pub waited: Duration,
    /// What it waited for; absent if no instance took it.
    pub waited_for: Option<WaitedFor>,
    /// How long `/init` took, if an instance was started for it.
    pub init: Option<Duration>,
    /// How long the function took.
    pub took: Duration,
    /// What the instance wrote during the call, in OpenWhisk's format: timestamp, stream and line.
    pub logs: Vec<String>,
    /// The activation of the sequence that this call was a part of, if it was.
    pub cause: Option<String>,
    /// The limits of a sequence, and the memory of the largest of its components that were called.
    pub limits: Option<Value>,
    /// Whether the caller had no key: it goes first when there is no memory to keep all that is not written yet. It
    /// is not in the file.
    pub by_stranger: bool,
}

impl Activation {
    /// The result of a call in OpenWhisk's terms. `explain` says why no instance took the call; `value` is
    /// the size of the answer's value.
    pub fn of(
        id: String,
        Called { action, version, kind }: Called,
        start_ms: u64,
        answer: Result<Answer, CallError>,
        value: ValueSize,
        explain: impl Fn(&CallError) -> Explained,
    ) -> Self {
        let error = |text: &str| json!({ "error": text });
        let none = Duration::ZERO;
        let waited_for = match &answer {
            Ok(Answer { waited_for, .. }) | Err(CallError::Failed { waited_for, .. }) => {
                Some(*waited_for)
            }
            Err(_) => None,
        };
        let (status, result, waited, took, init, lines) = match answer {
            Ok(Answer { response, waited, took, cold, logs, .. }) => {
                let (status, result) = judge(&response, value);
                (status, result, waited, took, cold, logs)
            }
            Err(CallError::Failed { reason, waited, took, logs, vm_ended, .. }) => {
                // Only what the function did is the developer's error.
                let status = if vm_ended { Status::InternalError } else { Status::DeveloperError };
                let reason = match reason {
                    // The agent's limit is higher than that for a result, and it does not know by how much
                    // the answer exceeds it.
                    InstanceError::AnswerTooLong => {
                        too_long(format_args!("more than {MAX_PAYLOAD_BYTES}"))
                    }
                    other => other.to_string(),
                };
                (status, error(&reason), waited, took, None, logs)
            }
            Err(other) => {
                let Explained { text, by_code, lines } = explain(&other);
                let status = if by_code { Status::DeveloperError } else { Status::InternalError };
                (status, error(&text), none, none, None, lines)
            }
        };
        // The instance's two streams share one pipe, which does not record when a line was written.
        let moment = humantime::format_rfc3339_millis(SystemTime::now());
        let logs = lines.iter().map(|line| format!("{moment} stdout: {line}")).collect();
        Self {
            id,
            action,
            version,
            kind: kind.into(),
            start_ms,
            status,
            result,
            waited,
            waited_for,
            init,
            took,
            logs,
            cause: None,
            limits: None,
            by_stranger: false,
        }
    }

    /// The activation without its result; `None` if that is no large one.
    pub fn without_large_result(&self) -> Option<Self> {
        let bytes = size_of_value(&self.result);
        if bytes <= MOST_KEPT_BYTES || self.status != Status::Success {
            return None;
        }
        let omitted = format!(
            "results of calls without the key are kept up to {}",
            ByteSize(MOST_KEPT_BYTES as u64)
        );
        Some(Self {
            id: self.id.clone(),
            action: self.action.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
            result: json!({ "omitted": omitted }),
            logs: self.logs.clone(),
            cause: self.cause.clone(),
            limits: self.limits.clone(),
            ..*self
        })
    }

    /// Approximate memory of the result and the logs, in bytes.
    pub fn size(&self) -> usize {
        let line = |line: &String| size_of::<String>() + line.len();
        size_of_value(&self.result) + self.logs.iter().map(line).sum::<usize>()
    }

    /// The activation, as clients receive it. Borrows result and logs.
    pub fn describe(&self) -> Described<'_> {
        Described {
            summary: self.summary(),
            subject: &self.action.namespace,
            response: self.response(),
            logs: &self.logs,
        }
    }

    /// The answer, as clients receive it.
    pub fn response(&self) -> Reply<'_> {
        Reply {
            status: self.status,
            status_code: self.status as u8,
            success: self.status == Status::Success,
            result: &self.result,
        }
    }

    /// The activation, as it appears in a list.
    pub fn summary(&self) -> Value {
        let QualifiedName { namespace, name } = &self.action;
        let milliseconds = |time: Duration| time.as_millis() as u64;
        let mut annotations = vec![
            json!({ "key": "path", "value": format!("{namespace}/{name}") }),
            json!({ "key": "kind", "value": self.kind }),
        ];
        let is_sequence = self.kind == SEQUENCE;
        annotations.push(if is_sequence {
            json!({ "key": "topmost", "value": self.cause.is_none() })
        } else {
            json!({ "key": "waitTime", "value": milliseconds(self.waited) })
        });
        if self.cause.is_some() {
            annotations.push(json!({ "key": "causedBy", "value": SEQUENCE }));
        }
        if let Some(limits) = &self.limits {
            annotations.push(json!({ "key": "limits", "value": limits }));
        }
        if let Some(waited_for) = self.waited_for {
            annotations.push(json!({ "key": "waitedFor", "value": waited_for.name() }));
        }
        if let Some(init) = self.init {
            annotations.push(json!({ "key": "initTime", "value": milliseconds(init) }));
        }
        let mut summary = json!({
            "activationId": self.id,
            "namespace": namespace,
            "name": self.action.entity(),
            "version": self.version,
            "publish": false,
            "start": self.start_ms,
            // The sum of what is said of its parts, which is less than the whole by a millisecond at times.
            "end": self.start_ms + milliseconds(self.waited) + milliseconds(self.took),
            "duration": milliseconds(self.took),
            "statusCode": self.status as u8,
            "annotations": annotations,
        });
        if let Some(cause) = &self.cause {
            summary["cause"] = cause.as_str().into();
        }
        summary
    }
}

fn too_long(length: impl std::fmt::Display) -> String {
    format!(
        "The action produced a response that exceeded the allowed length: {length} > {MAX_RESULT_BYTES} bytes."
    )
}

/// An activation, as clients receive it.
#[derive(Serialize)]
pub struct Described<'a> {
    #[serde(flatten)]
    summary: Value,
    subject: &'a Namespace,
    response: Reply<'a>,
    logs: &'a [String],
}

/// An answer, as clients receive it.
#[derive(Serialize)]
pub struct Reply<'a> {
    status: Status,
    #[serde(rename = "statusCode")]
    status_code: u8,
    success: bool,
    result: &'a Value,
}

/// Judges an instance's answer. A valid one is an object; it has the field `error` if the function failed.
fn judge(response: &Response<Bytes>, value: ValueSize) -> (Status, Value) {
    let length = response.body().len();
    if length > MAX_RESULT_BYTES {
        return (Status::DeveloperError, json!({ "error": too_long(length) }));
    }
    if value.bytes > value.most_bytes {
        let problem = format!(
            "The action produced a response that takes too much memory: its values take {} of at most {}.",
            ByteSize(value.bytes as u64),
            ByteSize(value.most_bytes as u64)
        );
        return (Status::DeveloperError, json!({ "error": problem }));
    }
    let right = response.status() == StatusCode::OK;
    match serde_json::from_slice::<Value>(response.body()) {
        Ok(Value::Object(answer)) if right => {
            let failed = answer.contains_key("error");
            let status = if failed { Status::ApplicationError } else { Status::Success };
            (status, Value::Object(answer))
        }
        // The server failed, and says why.
        Ok(Value::Object(answer)) if answer.contains_key("error") => {
            (Status::DeveloperError, Value::Object(answer))
        }
        _ => {
            let problem = format!(
                "The function answered with status {} and without a JSON object.",
                response.status().as_u16()
            );
            (Status::DeveloperError, json!({ "error": problem }))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn activation() -> Activation {
        Activation {
            id: "1".to_owned(),
            action: QualifiedName::guest("f"),
            version: "0.0.1".to_owned(),
            kind: "blackbox".into(),
            start_ms: 1000,
            status: Status::Success,
            result: json!({ "a": 1 }),
            waited: Duration::from_millis(5),
            waited_for: Some(WaitedFor::Start),
            init: Some(Duration::from_millis(3)),
            took: Duration::from_millis(7),
            logs: Vec::new(),
            cause: None,
            limits: None,
            by_stranger: false,
        }
    }

    #[test]
    fn only_large_results_of_success_are_omitted() {
        let of = |status, bytes| {
            let result = json!({ "text": "x".repeat(bytes) });
            let activation = Activation { status, result, ..activation() };
            activation.without_large_result().is_some()
        };
        assert!(of(Status::Success, MOST_KEPT_BYTES) && !of(Status::Success, 1000));
        assert!(!of(Status::ApplicationError, MOST_KEPT_BYTES));
    }

    #[test]
    fn a_status_is_found_by_its_code() {
        assert_eq!(Status::of_code(2).map(Status::name), Some("action developer error"));
        assert_eq!(Status::of_code(4), None);
    }

    #[test]
    fn answers_are_judged_as_openwhisk_does() {
        let judged = |status: u16, body: &str| {
            let bytes = crate::size_of_text(body.as_bytes()).unwrap_or(0);
            let body = Bytes::from(body.to_owned());
            let value = ValueSize { bytes, most_bytes: 1 << 20 };
            judge(&Response::builder().status(status).body(body).unwrap(), value)
        };
        let error = json!({ "error": "e", "more": 1 });
        assert_eq!(judged(200, "{\"a\": 1}"), (Status::Success, json!({ "a": 1 })));
        let said = error.to_string();
        assert_eq!(judged(200, &said), (Status::ApplicationError, error.clone()));
        assert_eq!(judged(502, &said), (Status::DeveloperError, error));
        for (status, body) in [(200, "[1]"), (200, ""), (500, "{\"a\": 1}")] {
            assert_eq!(judged(status, body).0, Status::DeveloperError, "{body}");
        }
        let (status, result) = judged(200, &"x".repeat(MAX_RESULT_BYTES + 1));
        assert_eq!(status, Status::DeveloperError);
        assert!(result.to_string().contains("5242881 > 5242880 bytes"), "{result}");
        let (status, result) = judged(200, &format!("{{\"a\": [{}]}}", ["[0]"; 10_000].join(",")));
        assert_eq!(status, Status::DeveloperError);
        assert!(result.to_string().contains("takes too much memory"), "{result}");
    }

    #[test]
    fn the_parts_of_an_activation_add_up() {
        let part = Duration::from_micros(1600);
        let described = json!(Activation { waited: part, took: part, ..activation() }.describe());
        assert_eq!((&described["end"], &described["duration"]), (&json!(1002), &json!(1)));
        assert_eq!(described["annotations"][2], json!({ "key": "waitTime", "value": 1 }));
    }

    #[test]
    fn an_activation_is_what_openwhisk_says_it_is() {
        let described = json!(activation().describe());
        assert_eq!(described["response"]["status"], "success");
        assert_eq!((&described["duration"], &described["end"]), (&json!(7), &json!(1012)));
        let right =
            json!([{ "key": "waitedFor", "value": "start" }, { "key": "initTime", "value": 3 }]);
        assert_eq!(
            described["annotations"].as_array().unwrap()[3..],
            right.as_array().unwrap()[..]
        );
        assert!(described.get("cause").is_none());
    }

    #[test]
    fn a_sequence_and_its_parts_know_each_other() {
        let value = |activation: &Activation, key: &str| {
            let annotations = activation.summary()["annotations"].take();
            let pairs = annotations.as_array().unwrap();
            pairs.iter().find(|pair| pair["key"] == key).map(|pair| pair["value"].clone())
        };
        let limits = Some(json!({ "memory": 256 }));
        let whole = Activation { kind: SEQUENCE.into(), limits, ..activation() };
        assert_eq!(value(&whole, "topmost"), Some(json!(true)));
        assert_eq!(value(&whole, "limits"), Some(json!({ "memory": 256 })));
        assert_eq!((value(&whole, "waitTime"), value(&whole, "causedBy")), (None, None));
        let part = Activation { cause: Some("7".to_owned()), ..whole };
        assert_eq!(value(&part, "topmost"), Some(json!(false)));
        assert_eq!(value(&part, "causedBy"), Some(json!("sequence")));
        assert_eq!(part.summary()["cause"], "7");
    }
}
