//! The network of an instance: a loopback interface, and one to the outside if it may use that.

use super::NETWORK_FD;
use crate::network::{DEVICE, INTERFACE, connect, isolate};
use squeezy_netlink::{InterfaceIndex, Namespace, Netlink};
use std::{
    io,
    net::Ipv4Addr,
    os::fd::{FromRawFd, OwnedFd},
};

/// Moves this process into a network namespace of its own and sets that up. With an address, it reaches the outside.
pub fn enter(address: Option<Ipv4Addr>) -> io::Result<()> {
    let outside = |_| Ok::<_, io::Error>((Netlink::open()?, InterfaceIndex::of(DEVICE)?));
    let machine = address.map(outside).transpose()?;
    let own = isolate()?;
    match (machine, address) {
        (Some((machine, device)), Some(address)) => {
            machine.share(device, INTERFACE, Namespace::own()?)?;
            connect(&own, address).map(drop)
        }
        _ => Ok(()),
    }
}

/// Moves this process into the network that the agent has passed. To be called once, and only then.
pub fn join() -> io::Result<()> {
    // SAFETY: the agent passes this file with a network, and nothing else in this process owns it.
    Namespace::from(unsafe { OwnedFd::from_raw_fd(NETWORK_FD) }).enter()
}
