//! Networks that several instances are in, each with a network device of the VM to itself.
//!
//! A device is in the namespace of its network from when that is made until it is removed, whether instances run in it
//! or not, and in the machine's otherwise, turned off and without an address.

use crate::{
    error::ApiError,
    network::{INTERFACE, connect, device, isolate},
};
use squeezy_netlink::{InterfaceIndex, Namespace, Netlink, apart};
use squeezy_protocol::{
    ErrorCode,
    network::{GATEWAY, Network},
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

/// The networks of the VM.
#[derive(Debug, Default)]
pub struct Networks {
    /// By their numbers.
    known: RefCell<BTreeMap<u8, Known>>,
}

#[derive(Debug)]
struct Known {
    namespace: Namespace,
    /// The name that its device has in the machine's namespace.
    device: String,
}

impl Networks {
    /// Makes a network.
    pub fn add(&self, number: u8, network: Network) -> Result<(), ApiError> {
        if !network.is_valid() {
            return Err(ApiError::invalid(format!("network {number}: {network:?} is none")));
        }
        let mut known = self.known.borrow_mut();
        if known.contains_key(&number) {
            let message = format!("there is already a network {number}");
            return Err(ApiError::new(ErrorCode::Exists, message));
        }
        let device = device(number).ok_or_else(|| {
            ApiError::invalid(format!("network {number}: this VM has no device for it"))
        })?;
        let namespace = make(number, network, &device).map_err(|error| failed(number, error))?;
        known.insert(number, Known { namespace, device });
        Ok(())
    }

    /// Removes a network. Instances that are still in it reach nobody outside any more.
    pub fn remove(&self, number: u8) -> Result<(), ApiError> {
        let mut known = self.known.borrow_mut();
        let found = known.get(&number).ok_or_else(|| no_network(number))?;
        Namespace::own()
            .and_then(|machine| give_back(&found.namespace, &machine, &found.device))
            .map_err(|error| failed(number, error))?;
        known.remove(&number);
        Ok(())
    }

    /// The namespace of a network.
    pub fn namespace(&self, number: u8) -> Result<OwnedFd, ApiError> {
        let known = self.known.borrow();
        let found = known.get(&number).ok_or_else(|| no_network(number))?;
        found.namespace.as_fd().try_clone_to_owned().map_err(|error| failed(number, error))
    }
}

/// Makes the namespace of a network, with this device of the machine's in it. If that fails, the device is still there.
fn make(number: u8, network: Network, device: &str) -> io::Result<Namespace> {
    let (machine, devices) = (Namespace::own()?, Netlink::open()?);
    let index = InterfaceIndex::of(device)?;
    apart(|| {
        let own = isolate()?;
        let namespace = Namespace::own()?;
        devices.move_to(index, &namespace, INTERFACE)?;
        let connected = connect(&own, network.address).and_then(|interface| {
            // The host may reach its loopback interface, as it does that of a container of its own.
            fs::write(format!("/proc/sys/net/ipv4/conf/{INTERFACE}/route_localnet"), "1")?;
            own.set_mtu(interface, network.mtu)?;
            let gateway = Network::gateway_address(number);
            own.add_neighbour(interface, GATEWAY, gateway.0)
        });
        connected.inspect_err(|_| {
            let _ = give_back(&namespace, &machine, device);
        })?;
        Ok(namespace)
    })
}

/// Moves the device of a network to the machine's namespace, under the name that it has there.
fn give_back(from: &Namespace, machine: &Namespace, device: &str) -> io::Result<()> {
    from.run(|| Netlink::open()?.move_to(InterfaceIndex::of(INTERFACE)?, machine, device))
}

fn no_network(number: u8) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is no network {number}"))
}

fn failed(number: u8, error: io::Error) -> ApiError {
    ApiError::internal(&format!("network {number}"), error)
}
