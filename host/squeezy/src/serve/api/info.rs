//! What the daemon offers, in OpenWhisk's words.

use super::Api;
use crate::serve::service::Service;
use axum::{
    Json,
    extract::{Extension, State},
};
use serde_json::{Map, Value, json};
use squeezy_node::function::{MAX_CALLS_PER_INSTANCE, MAX_MEMORY_BYTES, MIN_MEMORY_BYTES};
use squeezy_openwhisk::{
    MAX_LOGS_MIB, MAX_TIMEOUT_MS, Namespace,
    kind::{self, KINDS},
    sequence::MOST_ACTIONS,
};

/// Identifies the server to clients: the kinds of actions whose runtimes have been built, and the limits.
pub async fn about(State(api): State<Api>) -> Json<Value> {
    describe(&api.service)
}

/// The same, for whoever has no API.
pub fn describe(service: &Service) -> Json<Value> {
    let image = json!({ "kind": kind::IMAGE, "default": true, "deprecated": false });
    let mut runtimes = Map::from_iter([(kind::IMAGE.to_owned(), json!([image]))]);
    for kind in KINDS.iter().filter(|kind| service.has_runtime(kind)) {
        runtimes.insert(kind.family().to_owned(), json!([kind.describe()]));
    }
    Json(json!({
        "description": "OpenWhisk",
        "support": { "implementation": "squeezy" },
        "api_version": "1.0.0",
        "api_paths": ["/api/v1"],
        "runtimes": runtimes,
        // Without those for rates, which each namespace has of its own, and for triggers, which there are none of.
        "limits": {
            "sequence_length": MOST_ACTIONS,
            "min_action_duration": 1,
            "max_action_duration": MAX_TIMEOUT_MS,
            "min_action_memory": MIN_MEMORY_BYTES,
            "max_action_memory": MAX_MEMORY_BYTES,
            "min_action_logs": 0,
            "max_action_logs": MAX_LOGS_MIB << 20,
        },
        "build": env!("CARGO_PKG_VERSION"),
    }))
}

/// The limits of a namespace's calls and of its actions. A rate that has no bound is left out.
pub async fn limits(
    State(api): State<Api>,
    Extension(namespace): Extension<Namespace>,
) -> Json<Value> {
    let quotas = api.tenants.quotas(&namespace);
    let mut limits = json!({
        // There are no triggers.
        "firesPerMinute": 0,
        "actionMemoryMin": MIN_MEMORY_BYTES >> 20,
        "actionMemoryMax": MAX_MEMORY_BYTES >> 20,
        "actionLogsMin": 0,
        "actionLogsMax": MAX_LOGS_MIB,
        "actionDurationMin": 1,
        "actionDurationMax": MAX_TIMEOUT_MS,
        "actionConcurrencyMin": 1,
        "actionConcurrencyMax": MAX_CALLS_PER_INSTANCE,
    });
    for (name, quota) in [
        ("invocationsPerMinute", quotas.calls_per_minute),
        ("concurrentInvocations", quotas.concurrent_calls),
    ] {
        if let Some(quota) = quota {
            limits[name] = quota.into();
        }
    }
    Json(limits)
}
