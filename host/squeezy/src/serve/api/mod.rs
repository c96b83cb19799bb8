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
    body::Body,
    extract::{Path, Request, State},
    http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use error::ApiError;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Largest body of a request, in bytes, as in OpenWhisk.
const MAX_BODY_BYTES: usize = 1 << 20;

/// How much of one that is larger is read before it is refused.
const MOST_READ_BYTES: usize = 16 << 20;

/// How long a client may take to send it.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// All of it in OpenAPI's terms; `tests/fuzz.rs` holds it to the truth.
const DESCRIPTION: &str = include_str!("openapi.json");

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
        .layer(middleware::from_fn(whole_body))
        .layer(middleware::from_fn_with_state(api.clone(), authenticated));
    Router::new()
        .route("/ping", get(|| async { "pong" }))
        .route("/api/v1", get(about))
        .route("/api/v1/api-docs", get(description))
        .nest("/api/v1", protected)
        .fallback(|| async { ApiError::not_found() })
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
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

/// Waits for the whole of a request's body, which must not be too large or too slow.
async fn whole_body(request: Request, next: Next) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = tokio::time::timeout(BODY_LIMIT, collect(body)).await;
    let body = body.map_err(|_| ApiError::too_slow())??;
    Ok(next.run(Request::from_parts(parts, Body::from(body))).await)
}

/// Reads a body. A little more than there may be is read too, for the sake of clients that only
/// listen once they have sent everything.
async fn collect(mut body: Body) -> Result<Vec<u8>, ApiError> {
    let (mut whole, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let broken = |_| ApiError::bad_request("The request ends in the middle of its content.");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        length += data.len();
        if length <= MAX_BODY_BYTES {
            whole.extend_from_slice(&data);
        } else if length > MOST_READ_BYTES {
            break;
        }
    }
    if length > MAX_BODY_BYTES { Err(ApiError::too_large(length)) } else { Ok(whole) }
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

/// Who clients have to do with.
pub async fn about() -> Json<Value> {
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

async fn description() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION)
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    #[tokio::test]
    async fn a_body_is_read_wholly_or_refused() {
        let body = |bytes| Body::from(vec![b'x'; bytes]);
        assert_eq!(collect(body(MAX_BODY_BYTES)).await.unwrap().len(), MAX_BODY_BYTES);
        for bytes in [MAX_BODY_BYTES + 1, MOST_READ_BYTES + 1] {
            let refused = collect(body(bytes)).await.unwrap_err().into_response();
            assert_eq!(refused.status(), 413);
        }
    }
}
