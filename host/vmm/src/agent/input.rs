//! What the host sends to an instance's standard input.

use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf};

/// How much is read at a time, in bytes.
const CHUNK_BYTES: usize = 8 << 10;

/// A body of what there is to read. It is read when there is room for it on its way to the guest.
pub(super) struct InputBody(Box<dyn AsyncRead + Send + Unpin>);

impl InputBody {
    pub(super) fn new(from: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self(Box::new(from))
    }
}

impl fmt::Debug for InputBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InputBody")
    }
}

impl Body for InputBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut chunk = [0; CHUNK_BYTES];
        let mut chunk = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut chunk))?;
        let read = chunk.filled();
        Poll::Ready((!read.is_empty()).then(|| Ok(Frame::data(Bytes::copy_from_slice(read)))))
    }
}
