//! The connections of a VMM, which end when what they lead to is closed.

use super::pacing;
use rustix::{
    io::Errno,
    net::{Shutdown, shutdown},
};
use std::{
    collections::HashMap,
    net::SocketAddrV4,
    os::fd::{OwnedFd, RawFd},
};

/// Where each TCP socket of a VMM was last connected to, by its descriptor. There are no more than the VMM can have
/// descriptors.
#[derive(Debug, Default)]
pub(super) struct Connections(HashMap<RawFd, SocketAddrV4>);

impl Connections {
    /// Remembers one, in place of what had this descriptor before.
    pub(super) fn insert(&mut self, socket: RawFd, to: SocketAddrV4) {
        self.0.insert(socket, to);
    }

    /// Ends all but those that stay. `duplicate` gets them from the VMM; what it does not get now is left for the next
    /// time. Returns whether nothing is.
    pub(super) fn retain(
        &mut self,
        stays: impl Fn(SocketAddrV4) -> bool,
        duplicate: impl Fn(RawFd) -> Result<OwnedFd, Errno>,
    ) -> bool {
        let mut is_done = true;
        self.0.retain(|&socket, &mut to| {
            if stays(to) {
                return true;
            }
            match duplicate(socket) {
                Ok(connection) => end(&connection),
                // The VMM has closed it.
                Err(Errno::BADF) => {}
                // The daemon has no descriptor left, for one.
                Err(_) => {
                    is_done = false;
                    return true;
                }
            }
            false
        });
        is_done
    }
}

/// Ends a connection. If the VMM has closed it, its descriptor may be something else by now, but no other connection,
/// which would be remembered in its place. A socket that is yet to be connected would be of no use if it was shut down.
fn end(connection: &OwnedFd) {
    if pacing::is_open(connection) == Ok(true) {
        // It may have ended by itself.
        let _ = shutdown(connection, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    use std::{
        io::{ErrorKind, Read, Write},
        net::{Ipv4Addr, TcpListener, TcpStream},
        os::unix::net::UnixStream,
    };

    const OPEN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1), 80);
    const CLOSED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 2, 0, 1), 80);

    fn stays(to: SocketAddrV4) -> bool {
        to == OPEN
    }

    #[test]
    fn what_cannot_be_ended_now_is_ended_the_next_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let mut connections = Connections::default();
        connections.insert(7, CLOSED);
        connections.insert(8, OPEN);
        for error in [Errno::MFILE, Errno::NFILE, Errno::PERM] {
            assert!(!connections.retain(stays, |_| Err(error)), "{error}");
        }
        other.set_nonblocking(true).unwrap();
        assert_eq!(other.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(connections.retain(stays, |socket| {
            assert_eq!(socket, 7);
            Ok(stream.try_clone().unwrap().into())
        }));
        other.set_nonblocking(false).unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "it has ended");
        assert!(connections.retain(stays, |_| Err(Errno::MFILE)), "nothing is left to be ended");
        assert!(!connections.retain(|_| false, |_| Err(Errno::MFILE)), "but for the other one");
        assert!(connections.retain(|_| false, |_| Err(Errno::BADF)));
    }

    #[test]
    fn what_has_the_descriptor_of_a_closed_one_goes_on() {
        let mut connections = Connections::default();
        let mut end_former = |socket: &dyn Fn() -> OwnedFd| {
            connections.insert(7, CLOSED);
            assert!(connections.retain(stays, |_| Ok(socket())));
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let next = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        end_former(&|| next.try_clone().unwrap());
        connect(&next, &listener.local_addr().unwrap()).unwrap();
        TcpStream::from(next).write_all(b"x").unwrap();
        let (mut local, _other) = UnixStream::pair().unwrap();
        end_former(&|| OwnedFd::from(local.try_clone().unwrap()));
        local.write_all(b"x").unwrap();
    }
}
