//! What came of each call, for clients that ask later.

use super::action::NAMESPACE;
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

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
    /// How long `/init` took, if an instance was started for it.
    pub init: Option<Duration>,
    /// How long the function took.
    pub took: Duration,
}

impl Activation {
    /// The activation as clients get it.
    pub fn describe(&self) -> Value {
        let milliseconds = |time: Duration| time.as_millis() as u64;
        let mut annotations = vec![
            json!({ "key": "path", "value": format!("{NAMESPACE}/{}", self.action) }),
            json!({ "key": "kind", "value": "blackbox" }),
            json!({ "key": "waitTime", "value": milliseconds(self.waited) }),
        ];
        if let Some(init) = self.init {
            annotations.push(json!({ "key": "initTime", "value": milliseconds(init) }));
        }
        let length = milliseconds(self.waited + self.took);
        json!({
            "activationId": self.id,
            "namespace": NAMESPACE,
            "subject": NAMESPACE,
            "name": self.action,
            "version": self.version,
            "publish": false,
            "start": self.start_ms,
            "end": self.start_ms + length,
            "duration": milliseconds(self.took),
            "statusCode": self.status as u8,
            "response": {
                "status": self.status,
                "statusCode": self.status as u8,
                "success": self.status == Status::Success,
                "result": self.result,
            },
            "annotations": annotations,
            "logs": [],
        })
    }
}

/// The latest activations.
pub struct Activations {
    most: usize,
    order: VecDeque<Arc<Activation>>,
    by_id: HashMap<String, Arc<Activation>>,
}

impl Activations {
    /// Remembers so many.
    pub fn new(most: usize) -> Self {
        Self { most, order: VecDeque::new(), by_id: HashMap::new() }
    }

    /// Takes in one, and forgets the oldest if there are too many.
    pub fn push(&mut self, activation: Arc<Activation>) {
        while self.order.len() >= self.most {
            let Some(oldest) = self.order.pop_front() else { break };
            self.by_id.remove(&oldest.id);
        }
        self.by_id.insert(activation.id.clone(), activation.clone());
        self.order.push_back(activation);
    }

    /// The one of this name.
    pub fn get(&self, id: &str) -> Option<Arc<Activation>> {
        self.by_id.get(id).cloned()
    }

    /// The latest first, of one action if it is named, not older than `since_ms`.
    pub fn list<'a>(
        &'a self,
        action: Option<&'a str>,
        since_ms: u64,
    ) -> impl Iterator<Item = &'a Arc<Activation>> {
        self.order.iter().rev().filter(move |activation| {
            action.is_none_or(|action| activation.action == action)
                && activation.start_ms >= since_ms
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activation(id: &str, action: &str) -> Arc<Activation> {
        Arc::new(Activation {
            id: id.to_owned(),
            action: action.to_owned(),
            version: "0.0.1".to_owned(),
            start_ms: 1000,
            status: Status::Success,
            result: json!({ "a": 1 }),
            waited: Duration::from_millis(5),
            init: Some(Duration::from_millis(3)),
            took: Duration::from_millis(7),
        })
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut activations = Activations::new(2);
        for id in ["1", "2", "3"] {
            activations.push(activation(id, "f"));
        }
        assert!(activations.get("1").is_none());
        let listed: Vec<_> = activations.list(None, 0).map(|a| a.id.as_str()).collect();
        assert_eq!(listed, ["3", "2"]);
        assert_eq!(activations.list(Some("g"), 0).count(), 0);
        assert_eq!(activations.list(Some("f"), 1001).count(), 0);
    }

    #[test]
    fn an_activation_is_what_openwhisk_says_it_is() {
        let described = activation("1", "f").describe();
        assert_eq!(described["response"]["status"], "success");
        assert_eq!((&described["duration"], &described["end"]), (&json!(7), &json!(1012)));
        assert_eq!(described["annotations"][3], json!({ "key": "initTime", "value": 3 }));
    }
}
