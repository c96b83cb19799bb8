//! gRPC over a Unix socket: calls with one message each way.

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::{path::Path, time::Duration};
use tokio::{net::UnixStream, time::timeout};

/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// A message has before it whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A connection to a server.
pub(super) struct Connection(http2::SendRequest<Full<Bytes>>);

impl Connection {
    pub(super) async fn open(socket: &Path) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| error.to_string())?;
        // Calls say it when it ends.
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Calls a method, such as `runtime.v1.RuntimeService/Version`.
    pub(super) async fn call<A: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
        limit: Duration,
    ) -> Result<A, String> {
        let answer = timeout(limit, self.exchange(method, message)).await;
        let answer = answer.map_err(|_| format!("no answer within {limit:?}"))??;
        A::decode(answer).map_err(|error| error.to_string())
    }

    async fn exchange(&self, method: &str, message: &impl Message) -> Result<Bytes, String> {
        let request = Request::post(format!("http://localhost/{method}"))
            .header(CONTENT_TYPE, "application/grpc")
            .header("te", "trailers")
            .body(Full::new(framed(message)?))
            .map_err(|error| error.to_string())?;
        let response = self.0.clone().send_request(request).await;
        let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?;
        // Without a message, the status is among the headers.
        let trailers = body.trailers().unwrap_or(&head.headers);
        let text = |name| trailers.get(name).and_then(|value| value.to_str().ok());
        match text("grpc-status") {
            Some("0") => unframed(body.to_bytes()),
            status => Err(match text("grpc-message") {
                Some(reason) => reason.to_owned(),
                None => format!("status {} of HTTP, {status:?} of gRPC", head.status),
            }),
        }
    }
}

fn framed(message: &impl Message) -> Result<Bytes, String> {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).map_err(|error| error.to_string())?);
    message.encode(&mut frame).map_err(|error| error.to_string())?;
    Ok(frame.freeze())
}

fn unframed(mut frame: Bytes) -> Result<Bytes, String> {
    let prefix = (frame.len() >= PREFIX_BYTES).then(|| frame.split_to(PREFIX_BYTES));
    match prefix.as_deref() {
        Some([0, length @ ..]) if length == (frame.len() as u32).to_be_bytes() => Ok(frame),
        _ => Err("the answer is not one message that is not compressed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::messages::Id, *};

    #[test]
    fn a_message_is_framed_and_anything_else_is_refused() {
        let id = Id { id: "pod".to_owned() };
        let frame = framed(&id).unwrap();
        assert_eq!(frame[..PREFIX_BYTES], [0, 0, 0, 0, 5]);
        assert_eq!(Id::decode(unframed(frame.clone()).unwrap()), Ok(id));
        let compressed = [&[1], &frame[1..]].concat();
        for wrong in [&frame[..4], &frame[..9], &[&frame[..], b"x"].concat(), &compressed, &[]] {
            assert!(unframed(Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn who_is_not_there_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Connection::open(&directory.path().join("none")).await.is_err());
    }
}
