//! Ports of this machine.

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt},
};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// A port of this machine that nobody else is given while this is held. A server may listen on it, as
/// servers do that can be restarted: with `SO_REUSEADDR`.
#[derive(Debug)]
pub(super) struct Port {
    /// Where it is.
    pub(super) address: SocketAddr,
    /// Bound, and never listens.
    _held: OwnedFd,
}

impl Port {
    /// Any that is free.
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
        // Rust's listeners have SO_REUSEADDR, too.
        let listener = std::net::TcpListener::bind(port.address).unwrap();
        TcpStream::connect(port.address).unwrap();
        drop(listener);
    }
}
