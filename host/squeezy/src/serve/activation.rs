//! What came of each call, for clients that ask later.

use super::{
    action::{Action, NAMESPACE},
    bodies::cost,
};
use bytes::Bytes;
use bytesize::ByteSize;
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use squeezy_node::{Answer, CallError, InstanceError, WaitedFor};
use squeezy_protocol::MAX_PAYLOAD_BYTES;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Largest result, in bytes.
const MAX_RESULT_BYTES: usize = 5 << 20;

/// How a call ended, with OpenWhisk's code for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Status {
    /// The function answered.
    #[serde(rename = "success")]
    Success = 0,
    /// The function answered with an error of its own.
    #[serde(rename = "application error")]
    ApplicationError = 1,
    /// The function ended, exceeded a limit or did not answer.
    #[serde(rename = "action developer error")]
    DeveloperError = 2,
    /// The platform could not call the function.
    #[serde(rename = "whisk internal error")]
    InternalError = 3,
}

/// One call that has ended.
#[derive(Clone, Debug)]
pub struct Activation {
    /// Its name.
    pub id: String,
    /// The action that was called.
    pub action: String,
    /// The action's version.
    pub version: String,
    /// When it came, in milliseconds since 1970.
    pub start_ms: u64,
    /// How it ended.
    pub status: Status,
    /// The answer, or an object with the field `error`.
    pub result: Value,
    /// How long it waited for an instance.
    pub waited: Duration,
    /// What for; nothing where none has taken it.
    pub waited_for: Option<WaitedFor>,
    /// How long `/init` took, if an instance was started for it.
    pub init: Option<Duration>,
    /// How long the function took.
    pub took: Duration,
    /// What the instance wrote meanwhile, as OpenWhisk has it: moment, stream and line.
    pub logs: Vec<String>,
}

impl Activation {
    /// What came of a call, in OpenWhisk's terms; `explain` says why nobody has taken it. The value of
    /// an answer may take so much memory.
    pub fn of(
        action: &Action,
        id: String,
        start_ms: u64,
        answer: Result<Answer, CallError>,
        most_value_bytes: usize,
        explain: impl Fn(&CallError) -> String,
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
                let (status, result) = judge(&response, most_value_bytes);
                (status, result, waited, took, cold, logs)
            }
            Err(CallError::Failed { reason, waited, took, logs, vm_ended, .. }) => {
                // Only what the function does is its developer's.
                let status = if vm_ended { Status::InternalError } else { Status::DeveloperError };
                let reason = match reason {
                    // The agent passes on more than a result may be, and does not know how much more.
                    InstanceError::AnswerTooLong => {
                        too_long(format_args!("more than {MAX_PAYLOAD_BYTES}"))
                    }
                    other => other.to_string(),
                };
                (status, error(&reason), waited, took, None, logs)
            }
            Err(other) => {
                let error = error(&explain(&other));
                (Status::InternalError, error, none, none, None, Vec::new())
            }
        };
        // The instance's two streams are one pipe, which does not say when what was written.
        let moment = humantime::format_rfc3339_millis(SystemTime::now());
        let logs = lines.iter().map(|line| format!("{moment} stdout: {line}")).collect();
        let (action, version) = (action.name.clone(), action.version());
        Self { id, action, version, start_ms, status, result, waited, waited_for, init, took, logs }
    }

    /// About how much memory the result and the logs take, in bytes.
    fn size(&self) -> usize {
        let line = |line: &String| size_of::<String>() + line.len();
        size(&self.result) + self.logs.iter().map(line).sum::<usize>()
    }

    /// The activation as clients get it; nothing of it is copied.
    pub fn describe(&self) -> Described<'_> {
        Described {
            summary: self.summary(),
            subject: NAMESPACE,
            response: self.response(),
            logs: &self.logs,
        }
    }

    /// The answer as clients get it.
    pub fn response(&self) -> Reply<'_> {
        Reply {
            status: self.status,
            status_code: self.status as u8,
            success: self.status == Status::Success,
            result: &self.result,
        }
    }

    /// The activation as it stands in a list.
    pub fn summary(&self) -> Value {
        let milliseconds = |time: Duration| time.as_millis() as u64;
        let mut annotations = vec![
            json!({ "key": "path", "value": format!("{NAMESPACE}/{}", self.action) }),
            json!({ "key": "kind", "value": "blackbox" }),
            json!({ "key": "waitTime", "value": milliseconds(self.waited) }),
        ];
        if let Some(waited_for) = self.waited_for {
            annotations.push(json!({ "key": "waitedFor", "value": waited_for.name() }));
        }
        if let Some(init) = self.init {
            annotations.push(json!({ "key": "initTime", "value": milliseconds(init) }));
        }
        json!({
            "activationId": self.id,
            "namespace": NAMESPACE,
            "name": self.action,
            "version": self.version,
            "publish": false,
            "start": self.start_ms,
            "end": self.start_ms + milliseconds(self.waited + self.took),
            "duration": milliseconds(self.took),
            "statusCode": self.status as u8,
            "annotations": annotations,
        })
    }
}

fn too_long(length: impl std::fmt::Display) -> String {
    format!(
        "The action produced a response that exceeded the allowed length: {length} > {MAX_RESULT_BYTES} bytes."
    )
}

/// An activation as clients get it.
#[derive(Serialize)]
pub struct Described<'a> {
    #[serde(flatten)]
    summary: Value,
    subject: &'static str,
    response: Reply<'a>,
    logs: &'a [String],
}

/// An answer as clients get it.
#[derive(Serialize)]
pub struct Reply<'a> {
    status: Status,
    #[serde(rename = "statusCode")]
    status_code: u8,
    success: bool,
    result: &'a Value,
}

/// An instance's answer: an object, with the field `error` if the function says so.
fn judge(response: &Response<Bytes>, most_value_bytes: usize) -> (Status, Value) {
    let length = response.body().len();
    if length > MAX_RESULT_BYTES {
        return (Status::DeveloperError, json!({ "error": too_long(length) }));
    }
    let value_bytes = cost(response.body()).unwrap_or(0);
    if value_bytes > most_value_bytes {
        let problem = format!(
            "The action produced a response that takes too much memory: its values take {} of at most {}.",
            ByteSize(value_bytes as u64),
            ByteSize(most_value_bytes as u64)
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
        // Its server has failed, and says why.
        Ok(Value::Object(answer)) if answer.contains_key("error") => {
            (Status::DeveloperError, Value::Object(answer))
        }
        _ => {
            let problem = format!(
                "The function answered with status {} and no JSON object.",
                response.status().as_u16()
            );
            (Status::DeveloperError, json!({ "error": problem }))
        }
    }
}

/// Which activations are meant.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Of this action.
    pub action: Option<String>,
    /// Not older than this, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Not newer than this.
    pub upto_ms: Option<i64>,
}

impl Selection {
    fn admits(&self, activation: &Activation) -> bool {
        let start_ms = i64::try_from(activation.start_ms).unwrap_or(i64::MAX);
        self.action.as_ref().is_none_or(|action| *action == activation.action)
            && self.since_ms.is_none_or(|since| start_ms >= since)
            && self.upto_ms.is_none_or(|upto| start_ms <= upto)
    }
}

/// The latest activations.
pub struct Activations {
    most: usize,
    most_bytes: usize,
    /// What all of them take, see [`Activation::size`].
    bytes: usize,
    order: VecDeque<Arc<Activation>>,
    by_id: HashMap<String, Arc<Activation>>,
}

impl Activations {
    /// Remembers so many, as far as their results and logs take so much memory together.
    pub fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, bytes: 0, order: VecDeque::new(), by_id: HashMap::new() }
    }

    /// Takes in one, and forgets the oldest if there are too many.
    pub fn push(&mut self, activation: Arc<Activation>) {
        self.bytes += activation.size();
        while self.order.len() >= self.most || self.bytes > self.most_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= oldest.size();
            self.by_id.remove(&oldest.id);
        }
        self.by_id.insert(activation.id.clone(), activation.clone());
        self.order.push_back(activation);
    }

    /// The one of this name.
    pub fn get(&self, id: &str) -> Option<Arc<Activation>> {
        self.by_id.get(id).cloned()
    }

    /// The latest first.
    pub fn list(&self, selection: &Selection) -> impl Iterator<Item = &Arc<Activation>> {
        self.order.iter().rev().filter(|activation| selection.admits(activation))
    }
}

/// About how much memory a value takes, in bytes.
fn size(value: &Value) -> usize {
    let entry = |(key, value): (&String, &Value)| 2 * size_of::<String>() + key.len() + size(value);
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(size).sum(),
            Value::Object(entries) => entries.iter().map(entry).sum(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_BYTES: usize = 64 << 20;

    fn activation(id: &str, action: &str) -> Arc<Activation> {
        Arc::new(Activation {
            id: id.to_owned(),
            action: action.to_owned(),
            version: "0.0.1".to_owned(),
            start_ms: 1000,
            status: Status::Success,
            result: json!({ "a": 1 }),
            waited: Duration::from_millis(5),
            waited_for: Some(WaitedFor::Start),
            init: Some(Duration::from_millis(3)),
            took: Duration::from_millis(7),
            logs: Vec::new(),
        })
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut activations = Activations::new(2, MOST_BYTES);
        for id in ["1", "2", "3"] {
            activations.push(activation(id, "f"));
        }
        assert!(activations.get("1").is_none());
        let all = Selection::default();
        let listed: Vec<_> = activations.list(&all).map(|a| a.id.as_str()).collect();
        assert_eq!(listed, ["3", "2"]);
    }

    #[test]
    fn activations_are_selected_by_action_and_time() {
        let mut activations = Activations::new(2, MOST_BYTES);
        activations.push(activation("1", "f"));
        let count = |action: Option<&str>, since_ms, upto_ms| {
            let action = action.map(str::to_owned);
            activations.list(&Selection { action, since_ms, upto_ms }).count()
        };
        assert_eq!(count(Some("f"), Some(1000), Some(1000)), 1);
        assert_eq!(count(Some("g"), None, None), 0);
        assert_eq!(count(None, Some(1001), None), 0);
        assert_eq!(count(None, Some(-1), Some(999)), 0);
    }

    #[test]
    fn answers_are_judged_as_openwhisk_does() {
        let judged = |status: u16, body: &str| {
            let body = Bytes::from(body.to_owned());
            judge(&Response::builder().status(status).body(body).unwrap(), 1 << 20)
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
    fn large_results_are_forgotten_sooner_but_not_the_latest() {
        let mut activations = Activations::new(100, MOST_BYTES);
        let large = |id: &str, bytes| {
            let result = json!({ "text": "x".repeat(bytes), "list": [1, { "a": null }] });
            Arc::new(Activation { result, ..(*activation(id, "f")).clone() })
        };
        for id in ["1", "2", "3", "4"] {
            activations.push(large(id, MOST_BYTES / 3));
        }
        assert_eq!(activations.list(&Selection::default()).count(), 2);
        activations.push(large("5", MOST_BYTES));
        assert_eq!(activations.list(&Selection::default()).count(), 1);
        assert!(activations.get("5").is_some() && activations.get("4").is_none());
        activations.push(activation("6", "f"));
        assert_eq!(activations.bytes, size(&activation("6", "f").result));
    }

    #[test]
    fn an_activation_is_what_openwhisk_says_it_is() {
        let described = json!(activation("1", "f").describe());
        assert_eq!(described["response"]["status"], "success");
        assert_eq!((&described["duration"], &described["end"]), (&json!(7), &json!(1012)));
        let right =
            json!([{ "key": "waitedFor", "value": "start" }, { "key": "initTime", "value": 3 }]);
        assert_eq!(
            described["annotations"].as_array().unwrap()[3..],
            right.as_array().unwrap()[..]
        );
    }
}
