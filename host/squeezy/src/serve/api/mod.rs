//! OpenWhisk's REST API.
//!
//! <https://github.com/apache/openwhisk/blob/master/docs/rest_api.md>, restricted to actions in one
//! namespace, without packages, triggers and rules.

mod actions;
mod activations;
mod error;
pub mod info;
mod missing;
mod put;

use super::{
    bodies::{self, Bodies, Held, NoRoom},
    crowd::Place,
    key::{Key, random},
    service::Service,
};
use axum::body::Body;
use axum::{
    Json, Router,
    body::{Bytes, HttpBody},
    extract::{DefaultBodyLimit, Path, Request, State},
    http::{
        Method, StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE, HeaderName},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use error::ApiError;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::{Value, json};
use squeezy_openwhisk::{action::NAMESPACE, size_of_text};
use squeezy_protocol::MAX_CODE_BYTES;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The maximum size of a request's body in bytes, as in OpenWhisk.
const MAX_BODY_BYTES: usize = 1 << 20;

/// How much of a larger body is read before it is refused.
const MOST_READ_BYTES: usize = 16 << 20;

/// The maximum size of a body with an action's code, in bytes.
const MAX_CODE_BODY_BYTES: usize = MAX_CODE_BYTES;

/// How long a client may take to send the body.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// Memory that a body and what is derived from it occupy, as a multiple of its length: the text,
/// the parsed value, a copy of that for the request to the instance, and that request.
const COPIES: usize = 4;

/// The minimum rate of a body in bytes per second while others wait for memory, after a grace
/// period.
const LEAST_RATE: f64 = 65536.0;
const LEAST_RATE_AFTER: Duration = Duration::from_secs(2);

/// How often the rate is checked while nothing arrives.
const LOOK: Duration = Duration::from_millis(500);

/// The OpenAPI description; `tests/fuzz.rs` tests the API against it.
const DESCRIPTION: &str = include_str!("openapi.json");

/// State that handlers share.
#[derive(Clone)]
pub struct Api {
    service: Arc<Service>,
    key: Arc<Key>,
    bodies: Arc<Bodies>,
}

/// All routes of the API.
pub fn router(service: Arc<Service>, key: Key, bodies: Arc<Bodies>) -> Router {
    let api = Api { service, key: Arc::new(key), bodies };
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
        .merge(missing::router())
        .layer(middleware::from_fn(known_namespace));
    let protected = Router::new()
        .route("/namespaces", get(namespaces))
        .nest("/namespaces/{namespace}", namespace)
        // It has read the body, within limits of its own.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(api.clone(), whole_body))
        .layer(middleware::from_fn_with_state(api.clone(), authenticated));
    Router::new()
        .route("/ping", get(|| async { "pong" }))
        .route("/api/v1", get(info::about))
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
    if !api.key.admits(header) {
        return Err(ApiError::unauthorized());
    }
    if let Some(place) = request.extensions().get::<Arc<Place>>() {
        place.is_known();
    }
    Ok(next.run(request).await)
}

/// Reads the request's whole body, which must not be too large or arrive too slowly, after
/// reserving memory for it. The reservation becomes an extension of the request, for handlers that
/// need it longer than the request lasts.
async fn whole_body(
    State(api): State<Api>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    // Only actions are put.
    let most = if parts.method == Method::PUT { MAX_CODE_BODY_BYTES } else { MAX_BODY_BYTES };
    let place = parts.extensions.get::<Arc<Place>>().cloned();
    if let Some(place) = &place {
        place.waits();
    }
    let body = tokio::time::timeout(BODY_LIMIT, collect(&api.bodies, body, most)).await;
    let (body, mut held) = body.map_err(|_| ApiError::too_slow())??;
    if let Some(place) = &place {
        place.works();
    }
    let more = more_for_values(&body);
    if more > 0 {
        let none_ever = more + reserved(&api.bodies, body.len()) > api.bodies.at_most(usize::MAX);
        let taken = if none_ever { Err(NoRoom::Never) } else { api.bodies.take_now(more) };
        held.push(taken.map_err(|none| ApiError::no_room(none, more + body.len()))?);
    }
    let held: Arc<[Held]> = held.into();
    parts.extensions.insert(held.clone());
    let answer = next.run(Request::from_parts(parts, Body::from(body))).await;
    drop(held);
    Ok(answer)
}

/// Memory to reserve for a body of this length, in bytes. Of a large one nearly all is code, which is not
/// copied; one that exceeds the whole budget is read while no other one is.
fn reserved(bodies: &Bodies, length: usize) -> usize {
    match length {
        ..=MAX_BODY_BYTES => COPIES * length,
        _ => bodies.at_most(length + (COPIES - 1) * MAX_BODY_BYTES),
    }
}

/// How much more memory the values of a body take than is reserved with it, in bytes.
fn more_for_values(body: &[u8]) -> usize {
    // If it is not valid JSON, the handler rejects it.
    let value = size_of_text(body).unwrap_or(0);
    if body.len() <= MAX_BODY_BYTES {
        return (2 * value + 2 * body.len()).saturating_sub(COPIES * body.len());
    }
    // Code is copied if it is a text with escapes.
    let copy = if body.contains(&b'\\') { body.len() } else { 0 };
    let of_strings = body.len() + MAX_BODY_BYTES;
    copy + 2 * value.saturating_sub(of_strings)
}

/// Reads a body of at most `most` bytes into memory that was reserved before. Somewhat more than the limit is read too, for
/// clients that only read the response after sending everything.
async fn collect(
    bodies: &Bodies,
    mut body: Body,
    most: usize,
) -> Result<(Bytes, Vec<Held>), ApiError> {
    if body.is_end_stream() {
        return Ok((Bytes::new(), Vec::new()));
    }
    let expected = body.size_hint().exact();
    let expected =
        expected.map_or(MAX_BODY_BYTES, |length| length.try_into().unwrap_or(usize::MAX));
    // A body that is too large is read but not stored.
    let room = if expected > most { 0 } else { expected };
    let reserved = reserved(bodies, room);
    let held = bodies.take(reserved).await;
    let held = held.map_err(|none| ApiError::no_room(none, reserved))?;
    let begin = Instant::now();
    let (mut whole, mut length) = (Vec::with_capacity(room), 0);
    loop {
        let frame = tokio::time::timeout(LOOK, body.frame()).await;
        let took = begin.elapsed();
        let is_slow = (length as f64) < took.as_secs_f64() * LEAST_RATE;
        if is_slow && took > LEAST_RATE_AFTER && bodies.is_short() {
            return Err(ApiError::too_slow());
        }
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => continue,
        };
        let broken = |_| ApiError::bad_request("The request ends in the middle of its content.");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        length += data.len();
        if length <= room {
            whole.extend_from_slice(&data);
        } else if length > MOST_READ_BYTES.max(most) {
            break;
        }
    }
    if length > room {
        // Without an announced length there is room for an ordinary body.
        let most = if room == 0 { most } else { room.max(MAX_BODY_BYTES) };
        Err(ApiError::too_large(length, most))
    } else {
        Ok((whole.into(), vec![held]))
    }
}

impl Api {
    /// A JSON response, built once there is memory for it.
    async fn answer(
        &self,
        status: StatusCode,
        value: &impl Serialize,
    ) -> Result<Response, ApiError> {
        let mut length = Length(0);
        serde_json::to_writer(&mut length, value).map_err(internal)?;
        // A response that exceeds the whole budget is built while no other one is.
        let held = self.bodies.take(self.bodies.at_most(length.0)).await;
        let held = held.map_err(|none| ApiError::no_room(none, length.0))?;
        answer_within(held, status, value)
    }
}

/// A JSON response whose memory has been reserved.
fn answer_within(
    held: Held,
    status: StatusCode,
    value: &impl Serialize,
) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(value).map_err(internal)?;
    let kind = [(CONTENT_TYPE, "application/json")];
    Ok((status, kind, bodies::held(text, held)).into_response())
}

fn internal(_: serde_json::Error) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "an internal error")
}

/// Counts the bytes written to it.
struct Length(usize);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The response to a request for another host.
pub fn misdirected(host: &str) -> Response {
    let host: String = host.chars().take(100).collect();
    let message = format!(
        "This daemon is not {host:?}: address it as localhost or by its address; a proxy in front of it has to send that in Host."
    );
    ApiError::new(StatusCode::MISDIRECTED_REQUEST, message).into_response()
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

async fn description() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION)
}

async fn namespaces() -> Json<Value> {
    Json(json!([NAMESPACE]))
}

/// A code to find an error response in a log.
fn code() -> String {
    random(16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    /// A body without a declared length that never sends anything.
    struct Endless;

    impl HttpBody for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_body_is_read_wholly_or_refused() {
        let bodies = Bodies::new(64 << 20);
        let body = |bytes| Body::from(vec![b'x'; bytes]);
        let (whole, held) = collect(&bodies, body(MAX_BODY_BYTES), MAX_BODY_BYTES).await.unwrap();
        assert_eq!((whole.len(), held.len()), (MAX_BODY_BYTES, 1));
        for bytes in [MAX_BODY_BYTES + 1, MOST_READ_BYTES + 1] {
            let refused =
                collect(&bodies, body(bytes), MAX_BODY_BYTES).await.unwrap_err().into_response();
            assert_eq!(refused.status(), 413);
        }
    }

    #[tokio::test]
    async fn code_may_be_larger_and_is_not_copied() {
        let bodies = Bodies::new(64 << 20);
        let body = |bytes| Body::from(vec![b'x'; bytes]);
        let (whole, held) =
            collect(&bodies, body(MAX_CODE_BODY_BYTES), MAX_CODE_BODY_BYTES).await.unwrap();
        assert_eq!(whole.len(), MAX_CODE_BODY_BYTES);
        let left = bodies.at_most(usize::MAX) - reserved(&bodies, MAX_CODE_BODY_BYTES);
        assert!(bodies.take_now(left + 1024).is_err() && bodies.take_now(left).is_ok());
        drop(held);
        let refused = collect(&bodies, body(MAX_CODE_BODY_BYTES + 1), MAX_CODE_BODY_BYTES).await;
        assert_eq!(refused.unwrap_err().into_response().status(), 413);

        let code = |code: &str| json!({ "exec": { "code": code } }).to_string();
        let length = 2 << 20;
        assert_eq!(more_for_values(code(&"x".repeat(length)).as_bytes()), 0);
        assert!(more_for_values(code(&"\n".repeat(length)).as_bytes()) >= length);
        let arrays = format!("[{}]", vec!["[0]"; length].join(","));
        assert!(more_for_values(arrays.as_bytes()) > 20 * length);
    }

    #[tokio::test]
    async fn who_is_slow_goes_when_others_wait_for_memory() {
        let bodies = Bodies::new(16 << 20);
        let begin = Instant::now();
        let (first, second) =
            tokio::join!(collect(&bodies, Body::new(Endless), MAX_BODY_BYTES), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let taken = bodies.take(3 << 20).await;
                drop(taken.unwrap());
                let second = collect(&bodies, Body::new(Endless), MAX_BODY_BYTES);
                tokio::time::timeout(Duration::from_secs(3), second).await
            });
        assert_eq!(first.unwrap_err().into_response().status(), 408);
        assert!(begin.elapsed() < Duration::from_secs(8));
        // Now nobody waits for memory.
        assert!(second.is_err());
    }
}
