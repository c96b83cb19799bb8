//! The HTTP/2 server: dispatches calls. Its interface is described in `squeezy-protocol`.

use crate::{
    body::Body,
    clock,
    error::ApiError,
    instance::{Instances, input, output::Stream},
    memory, page_cache,
    profile::Profiler,
    proxy, squeeze,
};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Serialize, de::DeserializeOwned};
use squeezy_protocol::{ErrorCode, InstanceId, LOG_END_HEADER, MAX_BODY_BYTES, Volume};
use std::{convert::Infallible, rc::Rc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

/// Maximum number of concurrent calls: a wait, three streams or a request, and a stop for each of 255 instances, and some
/// more.
const MAX_CALLS: u32 = 2048;
/// Maximum bytes of one call's body that the agent buffers for a slow reader.
const CALL_WINDOW_BYTES: u32 = 32 << 10;
/// The same over all calls, large enough that an instance that does not read its request cannot block
/// requests to others.
const CONNECTION_WINDOW_BYTES: u32 = MAX_CALLS * CALL_WINDOW_BYTES;
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// How long the host may take to send a JSON body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time an instance may be given to end after SIGTERM.
const MAX_GRACE: Duration = Duration::from_secs(600);
/// The delay between the answer to a shutdown and the end of the VM, so that the host gets the answer.
const SHUTDOWN_DELAY: Duration = Duration::from_millis(50);

/// The state that calls work on.
pub struct State {
    /// The instances.
    pub instances: Rc<Instances>,
    /// Counts calls of kernel functions.
    pub profiler: Profiler,
    /// Ends the VM.
    pub on_shutdown: fn() -> !,
}

/// Serves one host until it disconnects.
pub async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    state: Rc<State>,
) -> hyper::Result<()> {
    let service = hyper::service::service_fn(move |request| {
        let state = Rc::clone(&state);
        async move { Ok::<_, Infallible>(answer(&state, request).await) }
    });
    hyper::server::conn::http2::Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CALLS)
        .initial_stream_window_size(CALL_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(CALL_WINDOW_BYTES as usize)
        .max_header_list_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// Runs hyper's tasks on the agent's only thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

async fn answer(state: &Rc<State>, request: Request<Incoming>) -> Response<Body> {
    match route(state, request).await {
        Ok(response) => response,
        Err(error) => json(error.status(), &error.0),
    }
}

async fn route(state: &Rc<State>, request: Request<Incoming>) -> Result<Response<Body>, ApiError> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let path = path.strip_prefix("/v1/").ok_or_else(|| no_such_path(&path))?;
    let words: Vec<&str> = path.splitn(4, '/').collect();
    match (&method, words.as_slice()) {
        (&Method::GET, ["info"]) => Ok(ok(&memory::info()?)),
        (&Method::GET, ["memory"]) => Ok(ok(&memory::memory()?)),
        (&Method::GET, ["partitions"]) => Ok(ok(&memory::partitions()?)),
        (&Method::POST, ["page-cache", "drop"]) => {
            page_cache::drop().await?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::PUT, ["clock"]) => {
            clock::set(body(request).await?)?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::PUT, ["profile"]) => {
            state.profiler.start(body(request).await?)?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::GET, ["profile"]) => Ok(ok(&state.profiler.read()?)),
        (&Method::POST, ["shutdown"]) => {
            let end = state.on_shutdown;
            tokio::task::spawn_local(async move {
                tokio::time::sleep(SHUTDOWN_DELAY).await;
                end()
            });
            Ok(empty(StatusCode::ACCEPTED))
        }
        (&Method::POST, ["instances"]) => {
            let spec = body(request).await?;
            let instance = state.instances.create(spec).await?;
            Ok(json(StatusCode::CREATED, &instance))
        }
        (&Method::POST, ["layers"]) => {
            state.instances.add_layer(body(request).await?)?;
            Ok(empty(StatusCode::CREATED))
        }
        (&Method::DELETE, ["layers", offset]) => {
            let offset = offset.parse().map_err(|_| no_such_path(path))?;
            state.instances.remove_layer(offset).await?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (method @ (&Method::POST | &Method::PUT), ["volumes", number]) => {
            let number = number.parse().map_err(|_| no_such_path(path))?;
            let volume = body_within(request, Volume::MAX_BODY_BYTES).await?;
            if method == Method::POST {
                state.instances.volumes.add(number, &volume)?;
            } else {
                state.instances.volumes.change(number, &volume)?;
            }
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::GET, ["volumes", number, name]) => {
            let number = number.parse().map_err(|_| no_such_path(path))?;
            let bytes = state.instances.volumes.read(number, name)?;
            Ok(with_type(StatusCode::OK, bytes, "application/octet-stream"))
        }
        (&Method::DELETE, ["volumes", number]) => {
            let number = number.parse().map_err(|_| no_such_path(path))?;
            state.instances.volumes.remove(number).await?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::POST, ["networks", number]) => {
            let number = number.parse().map_err(|_| no_such_path(path))?;
            state.instances.networks.add(number, body(request).await?)?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::DELETE, ["networks", number]) => {
            let number = number.parse().map_err(|_| no_such_path(path))?;
            state.instances.remove_network(number)?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::GET, ["instances"]) => Ok(ok(&state.instances.list())),
        (method, ["instances", id, rest @ ..]) => {
            let id = instance_id(id)?;
            match (method, rest) {
                (&Method::GET, []) => Ok(ok(&state.instances.get(&id)?.description())),
                (&Method::DELETE, []) => {
                    let most = MAX_GRACE.as_millis() as u64;
                    let grace = number(request.uri().query(), "grace_ms", most)?;
                    let grace = Duration::from_millis(grace);
                    Ok(ok(&state.instances.delete(&id, grace).await?))
                }
                (&Method::GET, ["wait"]) => Ok(ok(&state.instances.get(&id)?.ended().await)),
                (&Method::POST, ["freeze"]) => Ok(ok(&state.instances.get(&id)?.freeze().await?)),
                (&Method::POST, ["thaw"]) => {
                    let entry = state.instances.get(&id)?;
                    drop(entry.request().await?);
                    Ok(ok(&entry.description()))
                }
                (&Method::POST, ["doom"]) => Ok(ok(&state.instances.get(&id)?.doom().await?)),
                (&Method::POST, ["squeeze"]) => {
                    Ok(ok(&squeeze::squeeze(&state.instances.get(&id)?).await?))
                }
                (&Method::GET, [name @ ("stdout" | "stderr")]) => {
                    let stream = if *name == "stdout" { Stream::Output } else { Stream::Error };
                    Ok(Response::new(Box::pin(state.instances.get(&id)?.stream(stream)?)))
                }
                (&Method::PUT, ["stdin"]) => {
                    let entry = state.instances.get(&id)?;
                    let input = entry.take_input()?;
                    tokio::select! {
                        passed = input::pass(input, request.into_body()) => passed?,
                        _ = entry.ended() => {}
                    }
                    Ok(empty(StatusCode::NO_CONTENT))
                }
                (&Method::PUT, ["terminal"]) => {
                    let entry = state.instances.get(&id)?;
                    entry.resize(body(request).await?)?;
                    Ok(empty(StatusCode::NO_CONTENT))
                }
                (&Method::POST, ["signal"]) => {
                    let entry = state.instances.get(&id)?;
                    entry.signal(body(request).await?)?;
                    Ok(empty(StatusCode::NO_CONTENT))
                }
                (&Method::PUT, ["limits"]) => {
                    let entry = state.instances.get(&id)?;
                    entry.change_limits(body(request).await?).await?;
                    Ok(empty(StatusCode::NO_CONTENT))
                }
                (&Method::GET, ["usage"]) => Ok(ok(&state.instances.get(&id)?.usage().await?)),
                (&Method::GET, ["busy"]) => Ok(ok(&state.instances.get(&id)?.busy_us()?)),
                (&Method::GET, ["processes"]) => {
                    Ok(ok(&state.instances.get(&id)?.processes().await?))
                }
                (&Method::GET, ["log"]) => {
                    let from = number(request.uri().query(), "from", u64::MAX)?;
                    let log = state.instances.get(&id)?.log(from);
                    let (text, end) =
                        log.map_err(|e| ApiError::internal("reading the instance's log", e))?;
                    let mut response = plain(text);
                    response.headers_mut().insert(LOG_END_HEADER, end.into());
                    Ok(response)
                }
                (_, ["http"] | ["http", _]) => {
                    proxy::pass(state.instances.get(&id)?, rest.get(1).unwrap_or(&""), request)
                        .await
                }
                _ => Err(no_such_path(path)),
            }
        }
        _ => Err(no_such_path(path)),
    }
}

fn no_such_path(path: &str) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("no such call: {}", path.escape_debug()))
}

fn instance_id(text: &str) -> Result<InstanceId, ApiError> {
    text.parse().map_err(|e| ApiError::invalid(format!("{e}")))
}

/// The number in a query `name=number`; 0 if there is no query.
fn number(query: Option<&str>, name: &str, most: u64) -> Result<u64, ApiError> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(0) };
    query
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('=')?.parse().ok())
        .filter(|number| *number <= most)
        .ok_or_else(|| {
            ApiError::invalid(format!("the query must be {name}=N, with N at most {most}"))
        })
}

/// Reads and checks a JSON body.
async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, ApiError> {
    body_within(request, MAX_BODY_BYTES).await
}

/// The same of at most so many bytes.
async fn body_within<T: DeserializeOwned>(
    request: Request<Incoming>,
    most: usize,
) -> Result<T, ApiError> {
    let body = request.into_body();
    let too_long = || ApiError::invalid(format!("the body is longer than {} MiB", most >> 20));
    if body.size_hint().lower() > most as u64 {
        return Err(too_long());
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, most).collect())
        .await
        .map_err(|_| ApiError::invalid("the body did not arrive within 30 s"))?;
    let bytes = match collected {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => return Err(too_long()),
        Err(error) => return Err(ApiError::invalid(format!("reading the body: {error}"))),
    };
    serde_json::from_slice(&bytes).map_err(|e| ApiError::invalid(format!("the body: {e}")))
}

fn ok(value: &impl Serialize) -> Response<Body> {
    json(StatusCode::OK, value)
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // Only keys that are not strings could make this fail, and no protocol type has any.
    let text = serde_json::to_vec(value).expect("protocol types serialize");
    with_type(status, text, "application/json")
}

fn plain(text: Vec<u8>) -> Response<Body> {
    with_type(StatusCode::OK, text, "text/plain; charset=utf-8")
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn with_type(status: StatusCode, bytes: Vec<u8>, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(full(bytes.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn full(bytes: Bytes) -> Body {
    Box::pin(Full::new(bytes).map_err(|never| match never {}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_one_bounded_number() {
        let grace = |query| number(query, "grace_ms", 600_000);
        assert_eq!(grace(None).unwrap(), 0);
        assert_eq!(grace(Some("grace_ms=250")).unwrap(), 250);
        for bad in ["grace_ms=", "grace_ms=-1", "grace_ms=600001", "grace=1", "grace_ms=1&x=2"] {
            assert!(grace(Some(bad)).is_err(), "{bad}");
        }
    }
}
