//! OpenWhisk features that this daemon does not have: triggers and rules, and feeds for them.

use super::{Api, error::ApiError};
use axum::{
    Json, Router,
    http::StatusCode,
    routing::{get, post},
};
use serde_json::{Value, json};

/// Routes below a namespace.
pub fn router() -> Router<Api> {
    let mut router = Router::new();
    for (kind, one) in [("triggers", "trigger"), ("rules", "rule")] {
        let named = get(move || async move { not_found(one) })
            .delete(move || async move { not_found(one) })
            .put(move || async move { not_implemented(kind) })
            .post(move || async move { not_implemented(kind) });
        // Clients list all of them before they know better.
        router = router
            .route(&format!("/{kind}"), get(nothing))
            .route(&format!("/{kind}/{{name}}"), named);
    }
    router
}

/// The feed of alarms, in OpenWhisk's own namespace.
pub fn feeds() -> Router<Api> {
    let feed = post(async || not_implemented("feeds"));
    Router::new().route("/namespaces/whisk.system/actions/alarms/{feed}", feed)
}

async fn nothing() -> Json<Value> {
    Json(json!([]))
}

fn not_found(one: &str) -> ApiError {
    let message = format!("There is no such {one}: this daemon has no {one}s.");
    ApiError::new(StatusCode::NOT_FOUND, message)
}

fn not_implemented(kind: &str) -> ApiError {
    let message = format!(
        "This daemon has no {kind}: it keeps no clock and hears of no events. Have cron, a systemd timer or the source of an event call an action."
    );
    ApiError::new(StatusCode::NOT_IMPLEMENTED, message)
}
