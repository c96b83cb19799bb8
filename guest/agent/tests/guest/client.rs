//! A minimal client for the host's side of the port.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::de::DeserializeOwned;
use squeezy_protocol::{ErrorBody, Instance};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::AbortHandle,
};

/// A connection, whose clones make concurrent calls. It is closed with the last clone: by default, HTTP/2
/// keeps a connection for a while after a call was cancelled, and the port has only one.
#[derive(Clone)]
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    _connection: Arc<AbortOnDrop>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Client {
    pub async fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let connection = AbortOnDrop(tokio::spawn(connection).abort_handle());
        Self { sender, _connection: Arc::new(connection) }
    }

    pub async fn try_call(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, hyper::Error> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://agent{path}"))
            .body(Full::new(body.into()))
            .unwrap();
        let response = self.sender.clone().send_request(request).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    pub async fn call(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        // The first one waits for the boot, too.
        tokio::time::timeout(Duration::from_secs(300), self.try_call(method, path, body))
            .await
            .unwrap_or_else(|_| panic!("{method} {path}: no answer"))
            .unwrap_or_else(|e| panic!("{method} {path}: {e:?}"))
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        self.call("GET", path, "").await.json()
    }

    pub async fn start(&self, spec: serde_json::Value) -> Result<Instance, ErrorBody> {
        let answer = self.call("POST", "/v1/instances", spec.to_string()).await;
        if answer.status == StatusCode::CREATED { Ok(answer.json()) } else { Err(answer.error()) }
    }

    pub async fn delete(&self, id: &str, grace_ms: u32) -> Instance {
        self.call("DELETE", &format!("/v1/instances/{id}?grace_ms={grace_ms}"), "").await.json()
    }

    pub async fn log(&self, id: &str) -> String {
        let answer = self.call("GET", &format!("/v1/instances/{id}/log"), "").await;
        String::from_utf8_lossy(&answer.body).into_owned()
    }
}

impl Answer {
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{}: {e}: {:?}", self.status, self.body))
    }

    /// The body of an answer that must be an error, with a one-line message.
    pub fn error(&self) -> ErrorBody {
        assert!(self.status.as_u16() >= 400, "{self:?}");
        let error: ErrorBody = self.json();
        assert!(!error.message.is_empty() && !error.message.contains('\n'), "{error:?}");
        error
    }
}
