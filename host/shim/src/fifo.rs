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
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::watch,
    time::{Instant, sleep},
};

/// How long containerd may take to open its end.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked for.
const OPEN_INTERVAL: Duration = Duration::from_millis(5);
/// How long nobody may read once the process has ended, before the rest of its output is given up.
pub const STALL_LIMIT: Duration = Duration::from_secs(5);
/// How long the guest may take for the next piece of what a container has written that has ended, with all that it had
/// started: it has the end, too, and is late only where it or the host is too busy for anything.
pub const GUEST_LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked whether what was written last has been read.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);
/// How much is written at a time, in bytes: what a FIFO holds.
const CHUNK_BYTES: usize = 64 << 10;

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
/// is slow makes the process wait, not this lose anything. Only when `has_ended` says that the process has ended, nobody
/// waits for longer without progress than [`STALL_LIMIT`] for the reader, and `from_limit` for what there is to read.
pub async fn copy(
    from: impl AsyncRead + Unpin,
    mut to: Option<Fifo>,
    mut has_ended: watch::Receiver<bool>,
    from_limit: Duration,
) {
    let copied = copy_all(from, &mut to, &mut has_ended, from_limit).await;
    if let Err(error) = copied {
        let name = to
            .as_ref()
            .map_or_else(|| "discarded output".to_owned(), |fifo| fifo.path.display().to_string());
        tracing::warn!("{name}: the rest of the output is lost: {error}");
    }
}

async fn copy_all(
    mut from: impl AsyncRead + Unpin,
    to: &mut Option<Fifo>,
    has_ended: &mut watch::Receiver<bool>,
    from_limit: Duration,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = within(from_limit, has_ended, from.read(&mut chunk)).await?;
        match to {
            Some(fifo) if length == 0 => return fifo.is_read(has_ended).await,
            Some(fifo) => fifo.write_all(&chunk[..length], has_ended).await?,
            None if length == 0 => return Ok(()),
            None => {}
        }
    }
}

impl Fifo {
    async fn write_all(
        &mut self,
        mut rest: &[u8],
        has_ended: &mut watch::Receiver<bool>,
    ) -> io::Result<()> {
        while !rest.is_empty() {
            let written = within(STALL_LIMIT, has_ended, self.writer.write(rest)).await?;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Waits until all that was written is read.
    async fn is_read(&self, has_ended: &mut watch::Receiver<bool>) -> io::Result<()> {
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
            left = within(STALL_LIMIT, has_ended, read).await?;
        }
        Ok(())
    }
}

/// Waits for the next piece, but not for ever once the process has ended.
async fn within<T>(
    limit: Duration,
    has_ended: &mut watch::Receiver<bool>,
    piece: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::select! {
        biased;
        piece = piece => piece,
        () = stall(limit, has_ended) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing has moved for {limit:?}"))),
    }
}

/// Returns so long after the process has ended or this was called, whichever is later.
async fn stall(limit: Duration, has_ended: &mut watch::Receiver<bool>) {
    // Whoever does not tell any more will not tell of an end either.
    let _ = has_ended.wait_for(|ended| *ended).await;
    sleep(limit).await;
}

#[cfg(test)]
mod tests;
