//! The network of an instance: a loopback interface.

use rustix::net::{AddressFamily, SocketType};
use std::{fs, io, os::fd::AsRawFd};

/// Settings in `/proc/sys/net/ipv4` that differ from Linux's defaults.
const SYSCTLS: [(&str, &str); 3] = [
    // The kernel caches metrics of peers in one table for the whole machine.
    ("tcp_no_metrics_save", "1"),
    // Bytes of a connection's buffers (minimum, default, maximum). They are charged to the instance, which
    // has little memory outside its partition, and on the loopback interface larger ones are no faster.
    ("tcp_wmem", "4096 65536 262144"),
    ("tcp_rmem", "4096 131072 524288"),
];

/// Sets up the network namespace of this process.
pub fn set_up() -> io::Result<()> {
    // This is still the agent's /proc, but it shows the network of the process that opens it.
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
