//! The network of an instance: a loopback interface.

use rustix::net::{AddressFamily, SocketType};
use std::{fs, io, os::fd::AsRawFd};

/// What differs from Linux's own, in `/proc/sys/net/ipv4`.
const SYSCTLS: [(&str, &str); 3] = [
    // What the kernel remembers of peers is in one table for the whole machine.
    ("tcp_no_metrics_save", "1"),
    // Bytes that a connection sends before they are read: at least, at first, at most. Until then they are
    // memory of the instance, which has little outside of its partition; and on the loopback interface
    // more makes nothing faster.
    ("tcp_wmem", "4096 65536 262144"),
    ("tcp_rmem", "4096 131072 524288"),
];

/// Sets up the network namespace of this process.
pub fn set_up() -> io::Result<()> {
    // This is still the agent's /proc, but whose network it shows depends on who looks.
    for (name, value) in SYSCTLS {
        fs::write(format!("/proc/sys/net/ipv4/{name}"), value)?;
    }
    loopback_up()
}

fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: `request` is a valid ifreq with a terminated name, which SIOCSIFFLAGS only reads.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
