//! What the kernel holds back of a TCP connection.

use rustix::{fd::AsFd, io::Errno};
use std::os::fd::AsRawFd;

/// So much of what a connection has not sent yet may be in the kernel. That goes on when the connection has been
/// closed, where nobody can slow it down any more.
const MOST_UNSENT_BYTES: u32 = 16 << 10;

/// `TCP_CLOSE` of `net/tcp_states.h`: a socket that is not connected.
const CLOSE: u8 = 7;
/// Where `struct tcp_info` has the state (`tcpi_state`).
const STATE_OFFSET: usize = 0;
/// Where it has the bytes that were received (`tcpi_bytes_received`, Linux 4.1).
const RECEIVED_OFFSET: usize = 128;
/// Where it has the bytes that were sent (`tcpi_bytes_sent`, Linux 4.19).
const SENT_OFFSET: usize = 200;

/// What a connection has carried, in bytes: data, sent again if it got lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Carried {
    /// What was carried since there was this.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(earlier.sent),
            received: self.received.saturating_sub(earlier.received),
        }
    }
}

/// Limits how much a connection sends in a second, from now on, and how much it may have in the kernel to send.
pub(super) fn begin(socket: impl AsFd, bytes_per_second: u64) -> Result<(), Errno> {
    set(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &MOST_UNSENT_BYTES.to_ne_bytes())?;
    limit(socket, bytes_per_second)
}

/// Limits how much a connection sends in a second, retransmissions included, headers not. The kernel does this by
/// itself, whatever queue the interface has. 0 would mean no limit.
pub(super) fn limit(socket: impl AsFd, bytes_per_second: u64) -> Result<(), Errno> {
    let rate = bytes_per_second.max(1).to_ne_bytes();
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate)
}

/// How much a connection has carried. Fails only if it is not a TCP socket.
pub(super) fn carried(socket: impl AsFd) -> Result<Carried, Errno> {
    let info = info(socket)?;
    let number = |offset: usize| u64::from_ne_bytes(std::array::from_fn(|i| info[offset + i]));
    Ok(Carried { sent: number(SENT_OFFSET), received: number(RECEIVED_OFFSET) })
}

/// Whether a connection is there or being made. Fails only if it is not a TCP socket.
pub(super) fn is_open(socket: impl AsFd) -> Result<bool, Errno> {
    Ok(info(socket)?[STATE_OFFSET] != CLOSE)
}

/// The beginning of its `struct tcp_info`.
fn info(socket: impl AsFd) -> Result<[u8; SENT_OFFSET + 8], Errno> {
    let mut info = [0; SENT_OFFSET + 8];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(info) } else { Err(last_error()) }
}

fn set(socket: impl AsFd, level: i32, option: i32, value: &[u8]) -> Result<(), Errno> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel copies so many bytes of `value`.
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value.as_ptr().cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
