//! The first process of an instance, by a descriptor: once it is reaped, its id may be somebody else's.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// A process that the agent has started.
#[derive(Debug)]
pub struct Process {
    id: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// The process that this descriptor is of, and its id.
    pub(super) fn new(id: u32, descriptor: OwnedFd) -> Self {
        Self { id, descriptor }
    }

    /// Its id, as the agent sees it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends it a signal, real-time ones included. `ESRCH` once it is reaped.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        signal(self.as_fd(), number)
    }

    /// Whether it is not reaped yet, so that its id is nobody else's.
    pub fn is_there(&self) -> bool {
        self.signal(0).is_ok()
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Sends a signal to the process of a descriptor. Also called between fork and execve.
pub(super) fn signal(process: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: without information about the signal, it touches no memory.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            number,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
