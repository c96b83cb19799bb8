//! The standard input of an instance: empty, or what the host sends, through a pipe or its terminal.

use super::terminal::Terminal;
use crate::error::ApiError;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustix::pipe::{PipeFlags, pipe_with};
use squeezy_protocol::ErrorCode;
use std::{cell::RefCell, fs::File, io, os::fd::OwnedFd, rc::Rc};
use tokio::{io::AsyncWriteExt, net::unix::pipe::Sender};

/// The writing end of an instance's standard input, until somebody takes it.
#[derive(Debug)]
pub struct Input(RefCell<Option<Writer>>);

/// Where what the host sends goes to.
#[derive(Debug)]
pub enum Writer {
    /// A pipe, which ends with this.
    Pipe(Sender),
    /// A terminal, which goes on.
    Terminal(Rc<Terminal>),
}

impl Input {
    /// Makes the reading end, and the writing end if the host `sends` something.
    pub fn start(sends: bool) -> io::Result<(Option<Self>, OwnedFd)> {
        if !sends {
            return Ok((None, File::open("/dev/null")?.into()));
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let writer = Writer::Pipe(Sender::from_owned_fd(writer)?);
        Ok((Some(Self(RefCell::new(Some(writer)))), reader))
    }

    /// That of a terminal.
    pub fn of(terminal: Rc<Terminal>) -> Self {
        Self(RefCell::new(Some(Writer::Terminal(terminal))))
    }

    /// Takes the writing end; nobody else can.
    pub fn take(&self) -> Result<Writer, ApiError> {
        self.0.borrow_mut().take().ok_or_else(|| {
            ApiError::new(ErrorCode::Unavailable, "standard input has been sent already")
        })
    }

    /// Closes it, unless somebody has it.
    pub fn close(&self) {
        self.0.take();
    }
}

impl Writer {
    /// Writes all of this; `false` if nobody reads it any more.
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<bool> {
        match self {
            Self::Pipe(pipe) => match pipe.write_all(bytes).await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
                other => other.map(|()| true),
            },
            Self::Terminal(terminal) => terminal.write_all(bytes).await,
        }
    }
}

/// Writes a body to the standard input, and closes it then, unless it is a terminal. The body is read when there is room
/// for it, so that the host waits for whoever reads slowly. No error if nobody reads it any more.
pub async fn pass(mut input: Writer, mut body: Incoming) -> Result<(), ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::invalid(format!("reading the body: {e}")))?;
        let Ok(bytes) = frame.into_data() else { continue };
        let written = input.write_all(&bytes).await;
        if !written.map_err(|e| ApiError::internal("writing the standard input", e))? {
            break;
        }
    }
    Ok(())
}
