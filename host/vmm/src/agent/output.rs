//! What an instance writes, as the host reads it.

use bytes::{Buf, Bytes};
use hyper::body::{Body, Incoming};
use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

/// One of the streams of an instance's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

impl fmt::Display for OutputStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Output => "stdout",
            Self::Error => "stderr",
        })
    }
}

/// Reads what an instance writes to one of its streams. Whoever writes waits for it. It fails if the VM ends.
#[derive(Debug)]
pub struct OutputReader {
    body: Incoming,
    rest: Bytes,
}

impl OutputReader {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl AsyncBufRead for OutputReader {
    fn poll_fill_buf(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<&[u8]>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(frame) => {
                    self.rest = frame.map_err(io::Error::other)?.into_data().unwrap_or_default();
                }
                None => break,
            }
        }
        Poll::Ready(Ok(&self.get_mut().rest))
    }

    fn consume(mut self: Pin<&mut Self>, length: usize) {
        self.rest.advance(length);
    }
}

impl AsyncRead for OutputReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = ready!(self.as_mut().poll_fill_buf(context))?;
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..length]);
        self.consume(length);
        Poll::Ready(Ok(()))
    }
}
