//! The virtio-serial port, as a byte stream for each host that connects.

mod frames;

use frames::{FRAME_HEADER_BYTES, Frames, PREFACE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squeezy_protocol::PORT_NAME;
use std::{
    cell::RefCell,
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, unix::AsyncFd};

/// How often to look for the port at boot, and for a host when none is connected. The driver has no other
/// signal for a new host that works several times in a row.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long the device may take to announce its ports after boot.
const FIND_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes to skip in search of a preface.
const MAX_SKIPPED_BYTES: usize = 64 << 20;

/// The open port. It is never closed, because that would throw away what a newly connected host has already
/// sent.
#[derive(Debug)]
pub struct Port {
    file: File,
    /// Bytes read past the end of one host's connection: the start of the next one's.
    ahead: Ahead,
}

type Ahead = Rc<RefCell<VecDeque<u8>>>;

impl Port {
    /// Waits for the port to appear and opens it.
    pub async fn open() -> io::Result<Self> {
        let found = tokio::time::timeout(FIND_TIMEOUT, async {
            loop {
                if let Some(path) = find() {
                    return path;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        let path = found.await.map_err(|_| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("no virtio-serial port is named {PORT_NAME}: start the VM with one"),
            )
        })?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(Self { file, ahead: Ahead::default() })
    }

    /// Waits for a host and the start of its HTTP/2 connection, skipping what an earlier host left
    /// unfinished.
    pub async fn connection(&self) -> io::Result<Connection> {
        loop {
            self.host().await?;
            // SAFETY: the file stays open, and is not replaced by another, as long as `AsyncFd` has it.
            let file = unsafe { AsyncFd::register(self.file.try_clone()?)? };
            let mut stream = Stream { file, ahead: Rc::clone(&self.ahead) };
            if find_preface(&mut stream).await? {
                let frames = Frames::default();
                return Ok(Connection { preface: PREFACE, stream, frames, replaced: false });
            }
        }
    }
}

impl Port {
    /// Waits until a host is connected. Discards what can be read before that: it comes from hosts that are
    /// gone, and an answer to it would reach the next one.
    async fn host(&self) -> io::Result<()> {
        let mut stale = [0; 4096];
        while hung_up(&self.file)? {
            self.ahead.borrow_mut().clear();
            let count = match (&self.file).read(&mut stale) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                other => other?,
            };
            if !hung_up(&self.file)? {
                // A host has just connected, and these may be its first bytes.
                self.ahead.borrow_mut().extend(&stale[..count]);
            } else if count == 0 {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

fn find() -> Option<PathBuf> {
    std::fs::read_dir("/sys/class/virtio-ports").ok()?.flatten().find_map(|entry| {
        let name = std::fs::read_to_string(entry.path().join("name")).ok()?;
        (name.trim() == PORT_NAME).then(|| PathBuf::from("/dev").join(entry.file_name()))
    })
}

fn hung_up(file: &File) -> io::Result<bool> {
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents().contains(PollFlags::HUP))
}

/// Reads up to and including the first [`PREFACE`]; `false` if the stream ends before one.
async fn find_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<bool> {
    let mut latest = [0; PREFACE.len()];
    for _ in 0..MAX_SKIPPED_BYTES {
        // A byte at a time, so that nothing after it is consumed; it takes just 24 bytes except in the rarest
        // cases.
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            return Ok(false);
        }
        latest.rotate_left(1);
        latest[PREFACE.len() - 1] = byte[0];
        if latest == PREFACE {
            return Ok(true);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the host does not send HTTP/2"))
}

/// The port while one host is connected.
struct Stream {
    file: AsyncFd<File>,
    ahead: Ahead,
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut ahead = self.ahead.borrow_mut();
        if !ahead.is_empty() {
            let count = ahead.len().min(buffer.remaining());
            ahead.drain(..count).for_each(|byte| buffer.put_slice(&[byte]));
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut guard = ready!(self.file.poll_read_ready(context))?;
            let closed = guard.ready().is_read_closed();
            match guard.try_io(|file| file.get_ref().read(buffer.initialize_unfilled())) {
                Ok(result) => return Poll::Ready(result.map(|count| buffer.advance(count))),
                // The host disconnected and another has connected since: the old one's stream is over. (The
                // readiness "closed" is never cleared, so trying again would spin.)
                Err(_) if closed => return Poll::Ready(Ok(())),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.file.poll_write_ready(context))?;
            let closed = guard.ready().is_write_closed();
            match guard.try_io(|file| file.get_ref().write(bytes)) {
                Ok(result) => return Poll::Ready(result),
                // Without a host the driver returns "would block" for ever.
                Err(_) if closed => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Err(_) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// One host's HTTP/2 connection, including its preface.
///
/// A host that reconnects at once leaves no trace in the driver, so the next host's preface may follow in the
/// same stream of bytes. It comes where a frame would begin (`Frames`), and ends this connection for reading
/// and writing.
pub struct Connection {
    /// The part of the preface that is still to be returned to the reader.
    preface: &'static [u8],
    stream: Stream,
    frames: Frames,
    /// Whether another host has taken this one's place.
    replaced: bool,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.replaced {
            return Poll::Ready(Ok(()));
        }
        if !this.preface.is_empty() {
            let (now, later) = this.preface.split_at(this.preface.len().min(buffer.remaining()));
            buffer.put_slice(now);
            this.preface = later;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if let Some(end) = this.frames.next_preface(&buffer.filled()[before..]) {
            this.replaced = true;
            let mut ahead = this.stream.ahead.borrow_mut();
            // Before what is left in `ahead`, if the read came from there.
            let rest = &buffer.filled()[before + end..];
            for byte in PREFACE[..FRAME_HEADER_BYTES].iter().chain(rest).rev() {
                ahead.push_front(*byte);
            }
            drop(ahead);
            buffer.set_filled(before);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.replaced {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn skips_to_the_preface() {
        let mut bytes = b"junk PRI * HTTPRI * HTTP/2.0\r\n".to_vec();
        bytes.extend_from_slice(PREFACE);
        bytes.extend_from_slice(b"rest");
        let mut rest = bytes.as_slice();
        assert!(find_preface(&mut rest).await.unwrap());
        assert_eq!(rest, b"rest");
        assert!(!find_preface(&mut rest).await.unwrap());
    }
}
