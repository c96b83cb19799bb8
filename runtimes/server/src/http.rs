//! The server's HTTP.

use crate::{body, refused::Refused, server::Server};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use squeezy_protocol::MAX_REQUEST_BYTES;
use std::{convert::Infallible, io, rc::Rc, time::Duration};
use tokio::net::TcpListener;

/// The largest body of a call, in bytes: its arguments may have OpenWhisk's 1 MiB.
const MOST_RUN_BYTES: usize = (1 << 20) + (64 << 10);

/// How long the head of a request may take.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// How long to wait after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, server: Rc<Server>) -> io::Result<()> {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let server = server.clone();
        tokio::task::spawn_local(async move {
            let answer = service_fn(|request| answer(&server, request));
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
            // Whoever has gone away hears no error either.
            let _ = connection.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    server: &Server,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let answer = match (&parts.method, parts.uri.path()) {
        (&Method::POST, "/init") => match body::read(body, MAX_REQUEST_BYTES).await {
            Ok(body) => server.init(&body).await,
            Err(refused) => Err(refused),
        },
        (&Method::POST, "/run") => match body::read(body, MOST_RUN_BYTES).await {
            Ok(body) => server.run(&body).await,
            Err(refused) => Err(refused),
        },
        _ => Err(Refused {
            status: StatusCode::NOT_FOUND,
            text: "There is POST /init and POST /run.".to_owned(),
        }),
    };
    let (status, text) = match answer {
        Ok(text) => (StatusCode::OK, text),
        Err(Refused { status, text }) => {
            (status, json!({ "error": text }).to_string().into_bytes())
        }
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
