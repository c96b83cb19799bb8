//! The FIFOs through which containerd reads what a process writes, and writes what it reads.
//!
//! The rules for output, each of which loses output or hangs a pod's end if it is broken:
//! - The writing end is opened for writing only, which waits until containerd reads. Opened for both, it would not wait,
//!   and what a short process writes would be gone with it before anybody looks.
//! - A reading end is kept beside it, so that writing is no error while containerd restarts.
//! - Both are closed when the process has ended and everything is read, not earlier: what is in a FIFO that nobody has open
//!   is gone. And not later: containerd reads to the end before it deletes the container.
//!
//! For input there is one: a writing end is kept until containerd says that nothing more comes. Otherwise input would end
//! with whoever was the first to write something.

use crate::error::{Error, Result};
use rustix::io::{Errno, ioctl_fionread};
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

/// How long containerd may take to open its end.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked for.
const OPEN_INTERVAL: Duration = Duration::from_millis(5);
/// How long nobody may read once the process has ended, before the rest of its output is given up.
const STALL_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether what was written last has been read.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

/// Until when what a process has written is taken from the guest; nothing while the process runs.
pub type Deadline = watch::Receiver<Option<Instant>>;

/// A FIFO that containerd writes.
#[derive(Debug)]
pub struct InputFifo {
    /// What there is to read, to the end.
    pub reader: pipe::Receiver,
    /// While this is there, nothing ends.
    pub keep: pipe::Sender,
}

impl InputFifo {
    /// Opens what containerd names as a process's input; nothing if it has none. containerd may open the other end
    /// later.
    ///
    /// # Errors
    /// It is no FIFO.
    pub fn open(name: &str) -> Result<Option<Self>> {
        if name.is_empty() {
            return Ok(None);
        }
        let path = path_of(name)?;
        let failed = |error: io::Error| cannot_open(name, &error);
        let reader = pipe::OpenOptions::new().open_receiver(path).map_err(failed)?;
        let keep = pipe::OpenOptions::new().open_sender(path).map_err(failed)?;
        Ok(Some(Self { reader, keep }))
    }
}

/// The path of a FIFO that containerd names.
fn path_of(name: &str) -> Result<&Path> {
    let path = Path::new(name.strip_prefix("fifo://").unwrap_or(name));
    if path.is_absolute() {
        return Ok(path);
    }
    Err(Error::unsupported(format_args!(
        "the stream {name:?}: only FIFOs, as containerd makes them by default, are supported"
    )))
}

fn cannot_open(name: &str, error: &dyn std::fmt::Display) -> Error {
    Error::failed(format_args!("cannot open {name}: {error}"))
}

/// A FIFO that containerd reads.
#[derive(Debug)]
pub struct Fifo {
    path: PathBuf,
    writer: pipe::Sender,
    reader: pipe::Receiver,
}

impl Fifo {
    /// Opens what containerd names as a container's output; nothing if it does not want it.
    ///
    /// # Errors
    /// It is no FIFO, or nobody opens the other end in time.
    pub async fn open(name: &str) -> Result<Option<Self>> {
        if name.is_empty() {
            return Ok(None);
        }
        let path = path_of(name)?;
        let failed = |error: &dyn std::fmt::Display| cannot_open(name, error);
        let limit = Instant::now() + OPEN_LIMIT;
        let writer = loop {
            match pipe::OpenOptions::new().open_sender(path) {
                Ok(writer) => break writer,
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                    if Instant::now() >= limit {
                        return Err(failed(&format_args!(
                            "nobody reads from it within {OPEN_LIMIT:?}"
                        )));
                    }
                    sleep(OPEN_INTERVAL).await;
                }
                Err(error) => return Err(failed(&error)),
            }
        };
        let reader =
            pipe::OpenOptions::new().open_receiver(path).map_err(|error| failed(&error))?;
        Ok(Some(Self { path: path.to_owned(), writer, reader }))
    }
}

/// Writes what a process writes to its FIFO until the end, then closes it; without a FIFO it is discarded. A reader that
/// is slow makes the process wait, not this lose anything. Only when `deadline` says that the process has ended, what has
/// not come by then is given up, and what nobody has read any of for `STALL_LIMIT`.
pub async fn copy(from: impl AsyncBufRead + Unpin, mut to: Option<Fifo>, mut deadline: Deadline) {
    let copied = copy_all(from, &mut to, &mut deadline).await;
    if let Err(error) = copied {
        let name = to
            .as_ref()
            .map_or_else(|| "discarded output".to_owned(), |fifo| fifo.path.display().to_string());
        tracing::warn!("{name}: the rest of the output is lost: {error}");
    }
}

async fn copy_all(
    mut from: impl AsyncBufRead + Unpin,
    to: &mut Option<Fifo>,
    deadline: &mut Deadline,
) -> io::Result<()> {
    // Most processes write nothing most of the time: there is no buffer for each.
    let all = loop {
        let chunk = match in_time(from.fill_buf(), deadline).await {
            Ok([]) => break Ok(()),
            Ok(chunk) => chunk,
            Err(error) => break Err(error),
        };
        if let Some(fifo) = to {
            fifo.write_all(chunk, deadline).await?;
        }
        let length = chunk.len();
        from.consume(length);
    };
    // What has come is not lost with what has not.
    if let Some(fifo) = to {
        fifo.is_read(deadline).await?;
    }
    all
}

impl Fifo {
    async fn write_all(&mut self, mut rest: &[u8], deadline: &mut Deadline) -> io::Result<()> {
        while !rest.is_empty() {
            let written = unless_stalled(self.writer.write(rest), deadline).await?;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Waits until all that was written is read.
    async fn is_read(&self, deadline: &mut Deadline) -> io::Result<()> {
        let mut left = ioctl_fionread(&self.reader)?;
        while left > 0 {
            let read = async {
                loop {
                    sleep(DRAIN_INTERVAL).await;
                    let now = ioctl_fionread(&self.reader)?;
                    if now < left {
                        return Ok(now);
                    }
                }
            };
            left = unless_stalled(read, deadline).await?;
        }
        Ok(())
    }
}

/// Waits for the next piece of the guest's until the deadline, and takes none after it: a guest may always have one.
async fn in_time<T>(
    piece: impl Future<Output = io::Result<T>>,
    deadline: &mut Deadline,
) -> io::Result<T> {
    tokio::select! {
        biased;
        () = passes(deadline) => Err(io::Error::new(io::ErrorKind::TimedOut, "the guest has not come to its end in time")),
        piece = piece => piece,
    }
}

/// Returns when the deadline has passed.
async fn passes(deadline: &mut Deadline) {
    let until = deadline.wait_for(Option::is_some).await.ok().and_then(|until| *until);
    // Whoever does not tell any more will not tell of an end either.
    if let Some(until) = until {
        sleep_until(until).await;
    }
}

/// Waits until the reader takes the next piece, but not for ever once the process has ended.
async fn unless_stalled<T>(
    piece: impl Future<Output = io::Result<T>>,
    deadline: &mut Deadline,
) -> io::Result<T> {
    tokio::select! {
        biased;
        piece = piece => piece,
        () = stalls(deadline) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("nobody has read it for {STALL_LIMIT:?}"))),
    }
}

/// Returns [`STALL_LIMIT`] after the process has ended or this was called, whichever is later.
async fn stalls(deadline: &mut Deadline) {
    let _ = deadline.wait_for(Option::is_some).await;
    sleep(STALL_LIMIT).await;
}

#[cfg(test)]
mod tests;
