//! OpenWhisk's REST API.
//!
//! <https://github.com/apache/openwhisk/blob/master/docs/rest_api.md>, restricted to actions,
//! without triggers and rules; and web actions.

mod actions;
mod activations;
mod error;
mod images;
pub mod info;
mod missing;
mod namespaces;
mod origin;
mod packages;
mod put;
mod reload;
mod sending;
mod tenants;
mod upload;
mod web_actions;

use super::{
    bodies::{self, Bodies, Held, Part},
    callers::Caller,
    crowd::Place,
    key::random,
    reload::Reloader,
    service::Service,
    strangers::Strangers,
    tenants::Tenants,
};
use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::{DefaultBodyLimit, Extension, Request, State},
    http::{
        Extensions, HeaderMap, Method, StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE, HeaderName},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
pub use error::ApiError;
use http_body_util::BodyExt;
use sending::Recipient;
use squeezy_openwhisk::{MAX_ARGUMENTS_BYTES, size_of_text};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use upload::{MAX_UPLOAD_BYTES, Uploaded};

/// The maximum size of a request's body in bytes, as in OpenWhisk.
const MAX_BODY_BYTES: usize = MAX_ARGUMENTS_BYTES;

/// How much of a larger body is read before it is refused.
const MOST_READ_BYTES: usize = 16 << 20;

/// How long a client may take to send the body, once there is memory for it.
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
    tenants: Arc<Tenants>,
    bodies: Arc<Bodies>,
    strangers: Arc<Strangers>,
}

/// All routes of the API.
pub fn router(
    service: Arc<Service>,
    bodies: Arc<Bodies>,
    strangers: Arc<Strangers>,
    reloader: Arc<Reloader>,
) -> Router {
    let api = Api { tenants: service.tenants.clone(), service, bodies, strangers };
    let action =
        || get(actions::show).put(actions::put).post(actions::invoke).delete(actions::delete);
    let namespace = Router::new()
        .route("/actions", get(actions::list))
        .route("/actions/{name}", action())
        .route("/actions/{name}/", get(packages::actions))
        .route("/actions/{package}/{name}", action())
        .route("/packages", get(packages::list))
        .route("/packages/{name}", get(packages::show).put(packages::put).delete(packages::delete))
        .route("/images", get(images::list).post(images::pull))
        .route("/images/{image}", get(images::show).delete(images::remove))
        .route("/activations", get(activations::list))
        .route("/activations/{id}", get(activations::show))
        .route("/activations/{id}/result", get(activations::result))
        .route("/activations/{id}/logs", get(activations::logs))
        .route("/limits", get(info::limits))
        .merge(missing::router())
        .layer(middleware::from_fn_with_state(api.clone(), namespaces::known));
    let protected = Router::new()
        .route("/namespaces", get(namespaces::list))
        .route("/reload", post(reload::reload).with_state(reloader))
        .merge(tenants::router())
        .merge(missing::feeds())
        .nest("/namespaces/{namespace}", namespace)
        // It has read the body, within limits of its own.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(api.clone(), whole_body))
        .layer(middleware::from_fn_with_state(api.clone(), authenticated))
        .layer(middleware::from_fn(origin::own));
    Router::new()
        .route("/ping", get(|| async { "pong" }))
        .route("/api/v1", get(info::about))
        .route("/api/v1/api-docs", get(description))
        .nest("/api/v1", protected)
        .merge(web_actions::router())
        .fallback(|| async { ApiError::not_found() })
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
        .with_state(api)
}

/// Puts the [`Caller`] into the request's extensions.
async fn authenticated(
    State(api): State<Api>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let caller = api.caller(request.headers(), request.extensions()).await?;
    request.extensions_mut().insert(caller.ok_or_else(ApiError::unauthorized)?);
    Ok(next.run(request).await)
}

/// Reads the request's whole body, which must not be too large or arrive too slowly, after
/// reserving memory for it, which its sender pays for. The reservation is released with the body, and also becomes an
/// extension of the request, for handlers that need it for longer. Whoever is not known any more by then is refused.
async fn whole_body(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let part = api.bodies.part(api.tenants.payer(&caller.namespace));
    let place = parts.extensions.get::<Arc<Place>>().cloned();
    let recipient = Recipient { part, place };
    // Nothing else that is put is so large.
    let most = if parts.method == Method::PUT { MAX_UPLOAD_BYTES } else { MAX_BODY_BYTES };
    let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let (body, held, uploaded) = match length {
        Some(length) if length > MAX_BODY_BYTES && length <= most => {
            let (rest, held, uploaded) =
                upload::read(&api.service, &recipient, body, length).await?;
            (rest, Some(held), uploaded)
        }
        _ => {
            let limits = BodyLimits { most, head_bytes: 0, copies: COPIES };
            let (body, held) = read(&recipient, body, limits, more_for_values).await?;
            (body, held, Uploaded::default())
        }
    };
    if !api.tenants.knows(&caller) {
        return Err(ApiError::unauthorized());
    }
    let held = held.map(Arc::new);
    parts.extensions.insert(held.clone());
    parts.extensions.insert(recipient);
    parts.extensions.insert(uploaded);
    let body = Body::from(bodies::held(body, held));
    Ok(next.run(Request::from_parts(parts, body)).await)
}

/// The reservation for a request's body, if it has one.
pub type HeldForBody = Option<Arc<Held>>;

/// How much is reserved for a request, and how much of it is read.
#[derive(Clone, Copy)]
struct BodyLimits {
    /// The longest body, in bytes.
    most: usize,
    /// What is reserved for the head, in bytes.
    head_bytes: usize,
    /// What is reserved for the body and what is made of it, as a multiple of its length.
    copies: usize,
}

/// Reads the whole body of a request into memory of its sender's part. `more` says how much more
/// what is made of a body takes than is reserved with it, in bytes.
async fn read(
    Recipient { part, place }: &Recipient,
    body: Body,
    limits: BodyLimits,
    more: impl FnOnce(&[u8]) -> usize,
) -> Result<(Vec<u8>, Option<Held>), ApiError> {
    let waits = || {
        if let Some(place) = place {
            place.waits();
        }
    };
    let (body, mut held) = collect(part, body, limits, waits).await?;
    if let Some(place) = place {
        place.works();
    }
    let more = more(&body);
    if let Some(held) = held.as_mut().filter(|_| more > 0) {
        let grown = held.grow_now(more);
        grown.map_err(|none| ApiError::no_room(none, more + body.len()))?;
    }
    Ok((body, held))
}

/// Reserves memory for a body of this length.
async fn reserve(part: &Part, length: usize, limits: BodyLimits) -> Result<Held, ApiError> {
    let bytes = limits.head_bytes + limits.copies * length;
    let held = part.take_for_request(bytes).await;
    held.map_err(|none| ApiError::no_room(none, bytes))
}

/// How much more memory the values of a body take than is reserved with it, in bytes.
fn more_for_values(body: &[u8]) -> usize {
    // If it is not valid JSON, the handler rejects it.
    let value = size_of_text(body).unwrap_or(0);
    (2 * value + 2 * body.len()).saturating_sub(COPIES * body.len())
}

/// What comes of a body, which has to come in time.
struct Frames {
    body: Body,
    begin: Instant,
    limit: Duration,
    /// What has come so far, in bytes.
    length: usize,
}

impl Frames {
    fn new(body: Body, limit: Duration) -> Self {
        Self { body, begin: Instant::now(), limit, length: 0 }
    }

    /// What comes next; `None` at the end. Whoever is too slow keeps memory that others wait for no longer.
    async fn next(&mut self, held: &Held) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = tokio::time::timeout(LOOK, self.body.frame()).await;
            let took = self.begin.elapsed();
            let is_slow = (self.length as f64) < took.as_secs_f64() * LEAST_RATE;
            let is_too_slow = is_slow && took > LEAST_RATE_AFTER && held.is_wanted();
            // Whoever has the turn of all leaves it in time for those who wait for it.
            let limit = if held.is_turn_wanted() { self.limit / 3 } else { self.limit };
            if is_too_slow || took > limit {
                return Err(ApiError::too_slow());
            }
            let frame = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(_) => continue,
            };
            let broken =
                |_| ApiError::bad_request("The request ends in the middle of its content.");
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                self.length += data.len();
                return Ok(Some(data));
            }
        }
    }
}

/// Reads a body of at most `most` bytes into memory that was reserved before; says when it begins to wait for the client.
/// Somewhat more than the limit is read too, for clients that only read the response after sending everything.
async fn collect(
    part: &Part,
    body: Body,
    limits: BodyLimits,
    waits: impl FnOnce(),
) -> Result<(Vec<u8>, Option<Held>), ApiError> {
    let BodyLimits { most, head_bytes, copies } = limits;
    if body.is_end_stream() {
        let held = if head_bytes > 0 { Some(reserve(part, 0, limits).await?) } else { None };
        return Ok((Vec::new(), held));
    }
    let expected = body.size_hint().exact();
    let expected =
        expected.map_or(MAX_BODY_BYTES, |length| length.try_into().unwrap_or(usize::MAX));
    // A body that is too large is read but not stored.
    let room = if expected > most { 0 } else { expected };
    let mut held = reserve(part, room, limits).await?;
    waits();
    let (mut frames, mut whole) = (Frames::new(body, BODY_LIMIT), Vec::with_capacity(room));
    while let Some(data) = frames.next(&held).await? {
        if frames.length <= room {
            whole.extend_from_slice(&data);
        } else if frames.length > MOST_READ_BYTES.max(most) {
            break;
        }
    }
    let length = frames.length;
    if length > room {
        // Without an announced length there is room for an ordinary body.
        let most = if room == 0 { most } else { room.max(MAX_BODY_BYTES) };
        Err(ApiError::too_large(length, most))
    } else {
        if length < room {
            held.shrink_to(head_bytes + copies * length);
        }
        Ok((whole, Some(held)))
    }
}

impl Api {
    /// Who sends a request; `None` for a client without a key. From then on, the connection of one with a key
    /// counts as such a client's, unless its namespace has too many.
    async fn caller(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Option<Caller>, ApiError> {
        let header = headers.get(AUTHORIZATION).and_then(|header| header.to_str().ok());
        let Some(caller) = self.tenants.caller(header) else { return Ok(None) };
        if let Some(place) = extensions.get::<Arc<Place>>() {
            place.is_known(&caller).await.map_err(|_| ApiError::no_place())?;
        }
        Ok(Some(caller))
    }
}

fn internal(_: serde_json::Error) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "an internal error")
}

/// The response to a request for another host.
pub fn misdirected(host: &str) -> Response {
    let host: String = host.chars().take(100).collect();
    let message = format!(
        "This daemon is not {host:?}: address it as localhost or by its address; a proxy in front of it has to send that in Host."
    );
    ApiError::new(StatusCode::MISDIRECTED_REQUEST, message).into_response()
}

async fn description() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION)
}

/// A code to find an error response in a log.
fn code() -> String {
    random(16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::bodies::Payer;
    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    const SMALL_BODY: BodyLimits =
        BodyLimits { most: MAX_BODY_BYTES, head_bytes: 0, copies: COPIES };

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
        let part = Bodies::new(64 << 20).part(Payer::alone());
        let body = |bytes| Body::from(vec![b'x'; bytes]);
        let (whole, held) = collect(&part, body(MAX_BODY_BYTES), SMALL_BODY, || {}).await.unwrap();
        assert!(whole.len() == MAX_BODY_BYTES && held.is_some());
        for bytes in [MAX_BODY_BYTES + 1, MOST_READ_BYTES + 1] {
            let refused = collect(&part, body(bytes), SMALL_BODY, || {}).await.err().unwrap();
            assert_eq!(refused.into_response().status(), 413);
        }
    }

    #[tokio::test]
    async fn who_is_slow_goes_when_others_wait_for_memory() {
        let part = Bodies::new(24 << 20).part(Payer::alone());
        let begin = Instant::now();
        let (first, second) =
            tokio::join!(collect(&part, Body::new(Endless), SMALL_BODY, || {}), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let taken = part.take_for_request(6 << 20).await;
                drop(taken.unwrap());
                let second = collect(&part, Body::new(Endless), SMALL_BODY, || {});
                tokio::time::timeout(Duration::from_secs(3), second).await
            });
        assert_eq!(first.err().unwrap().into_response().status(), 408);
        assert!(begin.elapsed() < Duration::from_secs(8));
        // Now nobody waits for memory.
        assert!(second.is_err());
    }
}
