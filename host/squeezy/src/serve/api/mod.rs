//! OpenWhisk's REST API.
//!
//! <https://github.com/apache/openwhisk/blob/master/docs/rest_api.md>, as far as there are actions of
//! one namespace and no packages, triggers and rules.

mod actions;
mod activations;
mod error;

use super::{
    action::NAMESPACE,
    key::{Key, random},
    service::Service,
};
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Request, State},
    http::header::AUTHORIZATION,
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use error::ApiError;
use serde_json::{Value, json};
use std::sync::Arc;

/// Largest body of a request, in bytes, as in OpenWhisk.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Everything a handler needs.
#[derive(Clone)]
pub struct Api {
    service: Arc<Service>,
    key: Arc<Key>,
}

/// The whole of it.
pub fn router(service: Arc<Service>, key: Key) -> Router {
    let api = Api { service, key: Arc::new(key) };
    let namespace = Router::new()
        .route("/actions", get(actions::list))
        .route(
            "/actions/{name}",
            get(actions::show).put(actions::put).post(actions::invoke).delete(actions::delete),
        )
        .route("/activations", get(activations::list))
        .route("/activations/{id}", get(activations::show))
        .route("/activations/{id}/result", get(activations::result))
        .route("/activations/{id}/logs", get(activations::logs))
        // Clients ask for these before they know better.
        .route("/triggers", get(nothing))
        .route("/rules", get(nothing))
        .route("/packages", get(nothing))
        .layer(middleware::from_fn(known_namespace));
    let protected = Router::new()
        .route("/namespaces", get(namespaces))
        .nest("/namespaces/{namespace}", namespace)
        .layer(middleware::from_fn_with_state(api.clone(), authenticated));
    Router::new()
        .route("/", get(about))
        .route("/ping", get(|| async { "pong" }))
        .route("/api/v1", get(about))
        .nest("/api/v1", protected)
        .fallback(|| async { ApiError::not_found() })
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(api)
}

async fn authenticated(
    State(api): State<Api>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let header = request.headers().get(AUTHORIZATION).and_then(|header| header.to_str().ok());
    if api.key.admits(header) { Ok(next.run(request).await) } else { Err(ApiError::unauthorized()) }
}

async fn known_namespace(
    Path(parameters): Path<Vec<(String, String)>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let namespace =
        parameters.iter().find(|(name, _)| name == "namespace").map(|(_, n)| n.as_str());
    match namespace {
        Some("_" | NAMESPACE) => Ok(next.run(request).await),
        _ => Err(ApiError::forbidden()),
    }
}

async fn about() -> Json<Value> {
    Json(json!({
        "description": "OpenWhisk",
        "support": { "implementation": "squeezy" },
        "api_version": "1.0.0",
        "api_paths": ["/api/v1"],
        "runtimes": {
            "blackbox": [{ "kind": "blackbox", "default": true, "deprecated": false }],
        },
        "build": env!("CARGO_PKG_VERSION"),
    }))
}

async fn namespaces() -> Json<Value> {
    Json(json!([NAMESPACE]))
}

async fn nothing() -> Json<Value> {
    Json(json!([]))
}

/// A code by which an answer can be found again in a log.
fn code() -> String {
    random(16).unwrap_or_default()
}
