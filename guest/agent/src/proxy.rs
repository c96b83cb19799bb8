//! Proxies requests to the HTTP server in an instance.

use crate::{
    body::{Body, BoxError},
    error::ApiError,
    instance::Entry,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, Uri,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::TokioIo;
use squeezy_protocol::{ErrorCode, INSTANCE_HEADER, MAX_PAYLOAD_BYTES, MAX_REQUEST_BYTES};
use std::{io, net::SocketAddr, rc::Rc, time::Duration};
use tokio::net::{TcpSocket, TcpStream};

/// How long to wait for an instance's server to listen. Interpreters start slowly under emulation; the host
/// can give up earlier by cancelling its call.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(120);
/// Pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Maximum bytes of one answer that the agent buffers, including the header.
const BUFFER_BYTES: usize = 16 << 10;

/// Sends `request` to `/path` of the instance and streams back its server's answer.
pub async fn pass(
    instance: Rc<Entry>,
    path: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let port = instance.port().ok_or_else(|| {
        ApiError::invalid(format!("instance {} was started without a port", instance.id()))
    })?;
    if request.body().size_hint().lower() > MAX_REQUEST_BYTES as u64 {
        return Err(request_too_long());
    }
    let request = rewrite(request, path, port)?;
    let under_way = instance.request().await?;
    let exchange = async {
        let stream = connect(&instance, port).await?;
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| unavailable(&instance, e))?;
        tokio::task::spawn_local(async move {
            // Its errors also surface in the request or in the answer's body.
            let _ = connection.await;
        });
        sender.send_request(request).await.map_err(|e| failed(&instance, e))
    };
    // If an instance ends while its server owes an answer, the kernel closes its sockets. But one that never
    // listened has no sockets, so its end is awaited too.
    let response = tokio::select! {
        response = exchange => response?,
        ended = instance.ended() => {
            return Err(ApiError::new(
                ErrorCode::Unavailable,
                format!("instance {} ended: {:?}", instance.id(), ended.state),
            ));
        }
    };
    if response.body().size_hint().lower() > MAX_PAYLOAD_BYTES as u64 {
        let problem = format!("the answer is longer than {} MiB", MAX_PAYLOAD_BYTES >> 20);
        return Err(ApiError::new(ErrorCode::AnswerTooLong, problem));
    }
    let (mut parts, body) = response.into_parts();
    drop_hop_by_hop(&mut parts.headers);
    let id = HeaderValue::from_str(instance.id().as_str()).expect("ids are letters and digits");
    parts.headers.insert(INSTANCE_HEADER, id);
    // The request is under way until the last byte of the answer. An answer of unknown length passes through
    // here piece by piece; the host cuts it off if it is too long, and so knows why it ended.
    let body = body.map_err(BoxError::from).map_frame(move |frame| {
        let _ = &under_way;
        frame
    });
    Ok(Response::from_parts(parts, Box::pin(body)))
}

type Payload = http_body_util::combinators::MapErr<Limited<Incoming>, fn(BoxError) -> BoxError>;

fn limited(body: Incoming) -> Payload {
    Limited::new(body, MAX_REQUEST_BYTES).map_err(|e| e)
}

fn rewrite(
    request: Request<Incoming>,
    path: &str,
    port: u16,
) -> Result<Request<Payload>, ApiError> {
    let (mut parts, body) = request.into_parts();
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    parts.uri = format!("/{path}{query}")
        .parse::<Uri>()
        .map_err(|e| ApiError::invalid(format!("the path: {e}")))?;
    parts.version = http::Version::HTTP_11;
    drop_hop_by_hop(&mut parts.headers);
    let host = HeaderValue::from_str(&format!("127.0.0.1:{port}")).expect("digits and dots");
    parts.headers.insert(HOST, host);
    parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(CONTENT_LENGTH, length.into());
    }
    Ok(Request::from_parts(parts, limited(body)))
}

/// Drops headers that apply to one connection only (RFC 9110, 7.6.1).
fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "te", "trailer", "upgrade"] {
        headers.remove(name);
    }
}

/// Connects to the instance's server, waiting until it listens.
async fn connect(instance: &Entry, port: u16) -> Result<TcpStream, ApiError> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let attempts = async {
        let mut pause = FIRST_PAUSE;
        loop {
            match socket(instance)?.connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(e) => return Err(unavailable(instance, e)),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    tokio::time::timeout(LISTEN_TIMEOUT, attempts).await.unwrap_or_else(|_| {
        Err(ApiError::new(
            ErrorCode::Unavailable,
            format!(
                "instance {} does not listen on port {port} after {} s",
                instance.id(),
                LISTEN_TIMEOUT.as_secs()
            ),
        ))
    })
}

fn socket(instance: &Entry) -> Result<TcpSocket, ApiError> {
    instance
        .in_network(TcpSocket::new_v4)
        .map_err(|e| ApiError::internal("opening a socket in the instance's network", e))
}

fn unavailable(instance: &Entry, error: impl std::fmt::Display) -> ApiError {
    ApiError::new(
        ErrorCode::Unavailable,
        format!("the server of instance {}: {error}", instance.id()),
    )
}

/// The error for an exchange that broke off after the server took it, because of our limit or the instance.
fn failed(instance: &Entry, error: hyper::Error) -> ApiError {
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        if cause.is::<http_body_util::LengthLimitError>() {
            return request_too_long();
        }
        source = cause.source();
    }
    ApiError::new(
        ErrorCode::BadAnswer,
        format!("the server of instance {} did not answer in HTTP: {error}", instance.id()),
    )
}

fn request_too_long() -> ApiError {
    ApiError::invalid(format!("the request is longer than {} MiB", MAX_REQUEST_BYTES >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_stay_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("connection", "close, x-hop"), ("x-hop", "1"), ("keep-alive", "5"), ("x-end", "2")]
        {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        drop_hop_by_hop(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["x-end"], "2");
    }
}
