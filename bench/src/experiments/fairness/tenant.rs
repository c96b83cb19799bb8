//! A tenant: a namespace of the daemon, its key, and calls of its actions.

use crate::{
    error::{BenchError, Result},
    rigs::daemon::{Client, Daemon},
};
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The code of every action.
const CODE: &str = include_str!("action.py");

/// How long a namespace that is deleted may take to end its last calls.
const END_LIMIT: Duration = Duration::from_secs(60);
const END_PAUSE: Duration = Duration::from_millis(100);

/// A namespace without quotas: what is to be shown is the sharing, not the bounds that an operator sets besides.
#[derive(Clone)]
pub(super) struct Tenant {
    name: &'static str,
    operator: Client,
    own: Client,
}

/// What a call of an action does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Rounds of an empty loop in Python.
    pub(super) rounds: u64,
    /// Memory that is written to first, in bytes.
    pub(super) bytes: u64,
}

/// How a call has ended.
#[derive(Clone, Debug)]
pub(super) struct Called {
    pub(super) latency: Duration,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// By an instance that was there.
    Warm,
    /// By one that was started for a call, perhaps in a VM that was booted for it.
    Cold,
    /// There were too many calls, or too little memory.
    Refused,
    /// It was answered wrongly, or not at all.
    Failed,
}

impl Tenant {
    /// Makes a namespace.
    pub(super) async fn create(daemon: &Daemon, name: &'static str) -> Result<Self> {
        let operator = daemon.operator()?;
        let none =
            ["memory_mb", "concurrent_calls", "calls_per_minute"].map(|quota| (quota, Value::Null));
        let quotas: serde_json::Map<_, _> =
            none.into_iter().map(|(quota, value)| (quota.to_owned(), value)).collect();
        operator.send(Method::PUT, name, Some(&json!({ "quotas": quotas }))).await?.value()?;
        let key = operator.send(Method::PUT, &format!("{name}/keys/own"), None).await?;
        let key = key.value()?;
        let key = key["key"].as_str().ok_or_else(|| wrong("the key is missing"))?;
        Ok(Self { name, own: daemon.client(key), operator })
    }

    /// Makes an action whose instances have this much memory, in MiB.
    pub(super) async fn put(&self, action: &str, memory_mb: u64) -> Result {
        let body = json!({
            "exec": { "kind": "python:3", "code": CODE },
            "limits": { "memory": memory_mb },
        });
        self.own.send(Method::PUT, &format!("_/actions/{action}"), Some(&body)).await?.value()?;
        Ok(())
    }

    /// Deletes an action.
    pub(super) async fn delete(&self, action: &str) -> Result {
        let path = format!("_/actions/{action}");
        self.own.send(Method::DELETE, &path, None).await?.value()?;
        Ok(())
    }

    /// Calls an action, and waits for its result.
    pub(super) async fn call(&self, action: &str, work: Work) -> Called {
        let path = format!("_/actions/{action}?blocking=true");
        let arguments = json!({ "rounds": work.rounds, "bytes": work.bytes });
        let start = Instant::now();
        match self.own.send(Method::POST, &path, Some(&arguments)).await {
            Ok(response) => {
                let outcome = outcome(response.status, &response.text, work);
                Called { latency: response.latency, outcome }
            }
            Err(_) => Called { latency: start.elapsed(), outcome: Outcome::Failed },
        }
    }

    /// Calls an action and says what is wrong if it does not answer.
    pub(super) async fn must_call(&self, action: &str, work: Work) -> Result<Called> {
        let called = self.call(action, work).await;
        match called.outcome {
            Outcome::Warm | Outcome::Cold => Ok(called),
            outcome => {
                let what = format!("{} of {}: {outcome:?}", action, self.name);
                Err(BenchError::function(what))
            }
        }
    }

    /// Memory that its instances and VMs were promised so far, in GiB times seconds.
    pub(super) async fn promised_gib_seconds(&self) -> Result<f64> {
        let path = format!("{}/usage", self.name);
        let usage = self.operator.send(Method::GET, &path, None).await?.value()?;
        usage["promised_gib_seconds"].as_f64().ok_or_else(|| wrong("the usage is missing"))
    }

    /// Deletes the namespace with its actions; calls that run are ended.
    pub(super) async fn end(self) -> Result {
        let path = format!("{}?force=true", self.name);
        self.operator.send(Method::DELETE, &path, None).await?.value()?;
        let deadline = Instant::now() + END_LIMIT;
        while Instant::now() < deadline {
            let shown = self.operator.send(Method::GET, self.name, None).await?;
            if shown.status == 404 {
                return Ok(());
            }
            tokio::time::sleep(END_PAUSE).await;
        }
        Err(wrong("a namespace that was deleted does not end"))
    }
}

/// What a response to a call says.
fn outcome(status: u16, text: &str, work: Work) -> Outcome {
    if status == 429 || status == 503 {
        return Outcome::Refused;
    }
    let activation: Value = serde_json::from_str(text).unwrap_or_default();
    let total = work.rounds * work.rounds.saturating_sub(1) / 2;
    if status != 200 || activation["response"]["result"]["total"] != total {
        return Outcome::Failed;
    }
    let annotations = activation["annotations"].as_array();
    let waited_for = annotations
        .into_iter()
        .flatten()
        .find(|annotation| annotation["key"] == "waitedFor")
        .and_then(|annotation| annotation["value"].as_str());
    match waited_for {
        Some("start" | "boot") => Outcome::Cold,
        _ => Outcome::Warm,
    }
}

fn wrong(what: &str) -> BenchError {
    BenchError::function(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_activation_says_whether_an_instance_was_started() {
        let work = Work { rounds: 4, bytes: 0 };
        let activation = |total: u64, waited_for: &str| {
            json!({
                "response": { "result": { "total": total } },
                "annotations": [{ "key": "waitedFor", "value": waited_for }],
            })
            .to_string()
        };
        for (status, text, right) in [
            (200, activation(6, "nothing"), Outcome::Warm),
            (200, activation(6, "thaw"), Outcome::Warm),
            (200, activation(6, "start"), Outcome::Cold),
            (200, activation(6, "boot"), Outcome::Cold),
            (200, activation(7, "nothing"), Outcome::Failed),
            (502, activation(6, "nothing"), Outcome::Failed),
            (202, "{\"activationId\": \"a\"}".to_owned(), Outcome::Failed),
            (429, "{}".to_owned(), Outcome::Refused),
            (503, String::new(), Outcome::Refused),
        ] {
            assert_eq!(outcome(status, &text, work), right, "{status} {text}");
        }
    }
}
