//! Reserves ports of this machine.

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt},
};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// A port of this machine that nobody else is given while this exists. A server that sets
/// `SO_REUSEADDR`, as restartable servers do, can listen on it.
#[derive(Debug)]
pub(super) struct Port {
    /// Its address.
    pub(super) address: SocketAddr,
    /// Bound, but never listening.
    _held: OwnedFd,
}

impl Port {
    /// Reserves any free port.
    pub(super) fn reserve() -> std::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let held = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&held, true)?;
        bind(&held, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address = getsockname(&held)?.try_into()?;
        Ok(Self { address, _held: held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_port_is_nobody_elses_and_can_be_listened_on() {
        let port = Port::reserve().unwrap();
        let others: Vec<_> = (0..1000).map_while(|_| Port::reserve().ok()).collect();
        assert!(!others.is_empty() && others.iter().all(|other| other.address != port.address));
        // Rust's listeners set SO_REUSEADDR too.
        let listener = std::net::TcpListener::bind(port.address).unwrap();
        TcpStream::connect(port.address).unwrap();
        drop(listener);
    }
}
