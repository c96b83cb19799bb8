//! Where an instance's output goes: to a log, or to the host as two streams, or as the one of its terminal.

use super::{log::Log, terminal::Terminal};
use crate::error::ApiError;
use hyper::body::{Body, Bytes, Frame};
use rustix::pipe::{PipeFlags, pipe_with};
use squeezy_protocol::{ErrorCode, OutputKind};
use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe::Receiver,
};

/// How much of a stream is read at a time, in bytes.
const CHUNK_BYTES: usize = 8 << 10;

/// The reading ends of an instance's output.
#[derive(Debug)]
pub enum Output {
    /// Standard output and error together.
    Log(Log),
    /// Each by itself, until somebody takes it.
    Streams([RefCell<Option<Receiver>>; 2]),
    /// A terminal, until somebody takes what is written to it.
    Terminal(RefCell<Option<Rc<Terminal>>>),
}

/// The writing ends.
pub struct Writers {
    output: OwnedFd,
    /// As `output` if absent.
    error: Option<OwnedFd>,
}

/// One of the streams.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

impl Output {
    /// Makes both ends.
    pub fn start(kind: OutputKind) -> io::Result<(Self, Writers)> {
        match kind {
            OutputKind::Log => {
                let (log, output) = Log::start()?;
                Ok((Self::Log(log), Writers { output, error: None }))
            }
            OutputKind::Streams => {
                let ((output, output_end), (error, error_end)) = (pipe()?, pipe()?);
                let streams = [output, error].map(|end| RefCell::new(Some(end)));
                Ok((Self::Streams(streams), Writers { output: output_end, error: Some(error_end) }))
            }
        }
    }

    /// That of a terminal, and the writing ends, which are the terminal's other end.
    pub fn of(terminal: Rc<Terminal>, other: OwnedFd) -> (Self, Writers) {
        let output = Self::Terminal(RefCell::new(Some(terminal)));
        (output, Writers { output: other, error: None })
    }

    /// Takes a stream, to pass it on.
    pub fn take(&self, stream: Stream) -> Result<StreamBody, ApiError> {
        let taken = match (self, stream) {
            (Self::Log(_), _) => {
                return Err(ApiError::invalid("the output of this instance goes to its log"));
            }
            (Self::Terminal(_), Stream::Error) => {
                return Err(ApiError::invalid("standard error of this instance is its terminal"));
            }
            (Self::Terminal(terminal), Stream::Output) => terminal.take().map(Source::Terminal),
            (Self::Streams(streams), _) => streams[stream as usize].take().map(Source::Pipe),
        };
        taken.map(StreamBody).ok_or_else(|| {
            ApiError::new(ErrorCode::Unavailable, "this stream has been asked for already")
        })
    }
}

impl Writers {
    /// Standard output.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Standard error.
    pub fn error(&self) -> BorrowedFd<'_> {
        self.error.as_ref().unwrap_or(&self.output).as_fd()
    }
}

fn pipe() -> io::Result<(Receiver, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Receiver::from_owned_fd(reader)?, writer))
}

/// Where a stream comes from.
enum Source {
    Pipe(Receiver),
    Terminal(Rc<Terminal>),
}

impl Source {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Pipe(pipe) => {
                let mut buffer = ReadBuf::new(bytes);
                ready!(Pin::new(pipe).poll_read(context, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
            Self::Terminal(terminal) => terminal.poll_read(context, bytes),
        }
    }
}

/// What comes out of a pipe or a terminal, as the body of an answer. It is read when there is room for it on its way to the host, so
/// whoever writes waits for whoever reads.
pub struct StreamBody(Source);

impl Body for StreamBody {
    type Data = Bytes;
    type Error = crate::body::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut buffer = [0; CHUNK_BYTES];
        let length = ready!(self.0.poll_read(context, &mut buffer))?;
        let read = &buffer[..length];
        Poll::Ready((!read.is_empty()).then(|| Ok(Frame::data(Bytes::copy_from_slice(read)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::{fs::File, io::Write};

    #[tokio::test]
    async fn each_stream_is_read_once_from_start_to_end() {
        let (output, writers) = Output::start(OutputKind::Streams).unwrap();
        File::from(writers.output().try_clone_to_owned().unwrap()).write_all(b"out").unwrap();
        File::from(writers.error().try_clone_to_owned().unwrap()).write_all(b"error").unwrap();
        drop(writers);
        for (stream, expected) in [(Stream::Error, "error"), (Stream::Output, "out")] {
            let body = output.take(stream).unwrap();
            assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
            assert_eq!(output.take(stream).err().unwrap().0.code, ErrorCode::Unavailable);
        }
    }
}
