//! The terminal of an instance: the agent's end of it.

use crate::init::TERMINALS;
use rustix::{
    io::Errno,
    termios::{Winsize, tcsetwinsize},
};
use squeezy_protocol::TerminalSize;
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::io::unix::AsyncFd;

/// The agent's end. The other one hangs up when this is gone.
#[derive(Debug)]
pub struct Terminal(AsyncFd<File>);

impl Terminal {
    /// Makes both ends.
    pub fn start(size: TerminalSize) -> io::Result<(Rc<Self>, OwnedFd)> {
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let own = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(format!("{TERMINALS}/ptmx"))?;
        let unlocked: libc::c_int = 0;
        // SAFETY: the kernel reads the number.
        check(unsafe { libc::ioctl(own.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) })?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: this one takes flags, and returns a new descriptor, which nobody else has.
        let other = unsafe {
            let other = check(libc::ioctl(own.as_raw_fd(), libc::TIOCGPTPEER, flags))?;
            OwnedFd::from_raw_fd(other)
        };
        // SAFETY: the file has its descriptor until it is dropped, and is registered for no longer.
        let terminal = Self(unsafe { AsyncFd::register(own) }?);
        terminal.resize(size)?;
        Ok((Rc::new(terminal), other))
    }

    /// Sets its size; whoever is in its foreground is told.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.0.get_ref(), size)?)
    }

    /// Reads what was written to the other end; nothing once nobody has that open any more.
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            if let Ok(read) = ready.try_io(|own| own.get_ref().read(bytes)) {
                return Poll::Ready(match read {
                    Err(error) if has_hung_up(&error) => Ok(0),
                    other => other,
                });
            }
        }
    }

    /// Writes all of this for the other end to read; `false` if nobody has that open any more.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|own| own.get_ref().write(bytes)) {
                Ok(Err(error)) if has_hung_up(&error) => return Ok(false),
                Ok(written) => bytes = &bytes[written?..],
                // It was not ready after all.
                Err(_) => {}
            }
        }
        Ok(true)
    }
}

fn has_hung_up(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
