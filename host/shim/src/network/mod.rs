//! The network of pods: in a pod's network namespace, a tap device leads to a network device of the VM.
//!
//! The host's kernel routes in that namespace, between the tap device and the interface that the pod was given
//! (`connection.rs`). So no packet passes through here, and what the cluster says about the pod's address and its
//! interface holds.

mod connection;
mod settings;
#[cfg(test)]
mod tests;
mod traffic;

pub use connection::Connection;
pub use traffic::Traffic;

use crate::mutex::lock;
use connection::Uplink;
use squeezy_netlink::{InterfaceIndex, Namespace, Netlink, apart};
use squeezy_protocol::network::Network;
use squeezy_vmm::network::TapName;
use std::{
    collections::BTreeSet,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Mutex, MutexGuard},
};

/// The tap devices of a VM. Those that no pod has are in a namespace of their own.
#[derive(Debug)]
pub struct Networks {
    spare: Namespace,
    /// Their numbers.
    free: Mutex<BTreeSet<u8>>,
}

impl Networks {
    /// Makes so many tap devices. They are gone with the last of their descriptors, which are returned in order.
    ///
    /// # Errors
    /// They cannot be made, which takes privileges.
    pub fn make(count: u8) -> io::Result<(Self, Vec<OwnedFd>)> {
        apart(|| {
            Namespace::unshare()?;
            let netlink = Netlink::open()?;
            let make = |number| {
                let name = tap(number);
                let made = name.parse::<TapName>().map_err(io::Error::other)?.make()?;
                let address = Network::gateway_address(number);
                netlink.set_hardware_address(InterfaceIndex::of(&name)?, address.0)?;
                Ok(made)
            };
            let made = (0..count).map(make).collect::<io::Result<_>>()?;
            let free = Mutex::new((0..count).collect());
            Ok((Self { spare: Namespace::own()?, free }, made))
        })
    }

    /// Connects the network namespace of a pod with a device of the VM, if an interface in it has an address. If that
    /// fails, it is as it was.
    ///
    /// # Errors
    /// It is the namespace of this process, no device is free ([`io::ErrorKind::QuotaExceeded`]), or the kernel refuses
    /// something.
    pub fn connect(&self, path: &Path) -> io::Result<Option<Connection>> {
        let pod = Namespace::open(path)?;
        if pod.is(&Namespace::own()?)? {
            return Err(io::Error::other("it is the host's own, whose addresses no pod can have"));
        }
        let Some(uplink) = pod.run(Uplink::find)? else { return Ok(None) };
        let number = self.free().pop_first();
        let none =
            || io::Error::new(io::ErrorKind::QuotaExceeded, "the VM has no free network device");
        let number = number.ok_or_else(none)?;
        let made = Connection::make(number, tap(number), pod, uplink, &self.spare);
        made.map(Some).inspect_err(|_| self.give_back(number))
    }

    /// Ends a connection: the namespace is as it was before. Its device is not free yet.
    ///
    /// # Errors
    /// The device is not there any more, as when the namespace is gone.
    pub fn disconnect(&self, connection: Connection) -> io::Result<()> {
        connection.end(&self.spare)
    }

    /// The device of this number is free again, if it is not lost.
    pub fn give_back(&self, number: u8) {
        if self.spare.run(|| InterfaceIndex::of(&tap(number))).is_ok() {
            self.free().insert(number);
        }
    }

    fn free(&self) -> MutexGuard<'_, BTreeSet<u8>> {
        lock(&self.free)
    }
}

/// The name of a tap device, also in the namespace of a pod.
fn tap(number: u8) -> String {
    format!("squeezy{number}")
}
