//! OpenWhisk features that this daemon does not have: triggers, rules and packages.

use super::{Api, error::ApiError};
use axum::{
    Json, Router,
    extract::Path,
    http::StatusCode,
    routing::{any, get},
};
use serde_json::{Value, json};

/// Routes below a namespace.
pub fn router() -> Router<Api> {
    let mut router = Router::new();
    for (kind, one) in [("triggers", "trigger"), ("rules", "rule"), ("packages", "package")] {
        let named = get(move || async move { not_found(one) })
            .delete(move || async move { not_found(one) })
            .put(move || async move { not_implemented(kind) })
            .post(move || async move { not_implemented(kind) });
        // Clients list all of them before they know better.
        router = router
            .route(&format!("/{kind}"), get(nothing))
            .route(&format!("/{kind}/{{name}}"), named);
    }
    router.route("/actions/{package}/{name}", any(in_package))
}

async fn nothing() -> Json<Value> {
    Json(json!([]))
}

fn not_found(one: &str) -> ApiError {
    let message =
        format!("There is no such {one}: this daemon supports only actions and activations.");
    ApiError::new(StatusCode::NOT_FOUND, message)
}

fn not_implemented(kind: &str) -> ApiError {
    let message = format!("This daemon has no {kind}, only actions and activations.");
    ApiError::new(StatusCode::NOT_IMPLEMENTED, message)
}

async fn in_package(Path((_, package, name)): Path<(String, String, String)>) -> ApiError {
    let message = format!(
        "There is no package {package:?}: packages are not supported, and the action {name:?} can only be outside one."
    );
    ApiError::new(StatusCode::NOT_FOUND, message)
}
