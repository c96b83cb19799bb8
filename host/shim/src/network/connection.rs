//! The connection of a pod's network namespace with a network device of the VM.
//!
//! The pod's address stays with its interface, but is not the namespace's own any more: what is for it is routed to the
//! tap device, and ARP is answered for it. What comes from there is routed on as from the pod. The guest has an address,
//! one neighbour and one route, whatever the pod's network is made of, and the tap device takes nothing from it that has
//! another sender.
//!
//! 127.0.0.1 is the guest's, too, for whoever is in the namespace: containerd connects there to forward a port of the
//! pod. Nobody else gets there, as the kernel takes no address of 127.0.0.0/8 from another interface, and what the guest
//! sends from or to one reaches the namespace itself alone.

use super::{
    settings::{Settings, interfaces, number},
    traffic::listen,
};
use socket2::Socket;
use squeezy_netlink::{InterfaceIndex, Namespace, Netlink};
use squeezy_protocol::network::{GATEWAY, Network};
use std::{io, net::Ipv4Addr};

/// The interface that has [`Ipv4Addr::LOCALHOST`] in every namespace.
const LOOPBACK: &str = "lo";
/// The network whose addresses stay on a machine: 127.0.0.0/8.
const LOOPBACK_NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(127, 0, 0, 0), 8);

/// The interface that a pod was given.
#[derive(Debug)]
pub(super) struct Uplink {
    interface: InterfaceIndex,
    name: String,
    network: Network,
}

impl Uplink {
    /// The first interface of this thread's namespace that has an IPv4 address by which others know it. What a server
    /// that was killed has left in the namespace is no obstacle.
    pub(super) fn find() -> io::Result<Option<Self>> {
        let netlink = Netlink::open()?;
        let addresses = netlink.addresses()?;
        if addresses.iter().any(|(_, address)| *address == GATEWAY) {
            return Err(io::Error::other("it is that of another pod"));
        }
        let Some((interface, address)) = addresses.into_iter().next() else {
            return Ok(None);
        };
        let mtu = u16::try_from(netlink.mtu(interface)?).unwrap_or(u16::MAX);
        let network = Network { address, mtu };
        Ok(Some(Self { interface, name: interface.name()?, network }))
    }
}

/// A connection, while there is one.
#[derive(Debug)]
pub struct Connection {
    number: u8,
    tap: String,
    pod: Namespace,
    uplink: Uplink,
    settings: Settings,
}

impl Connection {
    /// Connects a pod's namespace with the tap device of this number and name, which is in the namespace `spare`. If
    /// that fails, both are as they were.
    pub(super) fn make(
        number: u8,
        tap: String,
        pod: Namespace,
        uplink: Uplink,
        spare: &Namespace,
    ) -> io::Result<Self> {
        spare.run(|| Netlink::open()?.move_to(InterfaceIndex::of(&tap)?, &pod, &tap))?;
        let mut settings = Settings::default();
        let set_up = pod.run(|| set_up(number, &tap, &uplink, &mut settings));
        let connection = Self { number, tap, pod, uplink, settings };
        match set_up {
            Ok(()) => Ok(connection),
            Err(error) => {
                let _ = connection.end(spare);
                Err(error)
            }
        }
    }

    /// The number of its network device.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// What the guest makes of it.
    pub fn network(&self) -> Network {
        self.uplink.network
    }

    /// A socket that sees the pod's [`Traffic`](super::Traffic) from now on.
    ///
    /// # Errors
    /// There are no resources for it.
    pub fn listen(&self) -> io::Result<Socket> {
        self.pod.run(|| listen(InterfaceIndex::of(&self.tap)?))
    }

    /// Moves the tap device to the namespace `spare`. The pod's namespace is as it was before, whether that succeeds or
    /// not.
    pub(super) fn end(self, spare: &Namespace) -> io::Result<()> {
        let Self { tap, pod, uplink, settings, .. } = self;
        pod.run(|| {
            let netlink = Netlink::open()?;
            // Its addresses, neighbours and routes go with that.
            let moved = InterfaceIndex::of(&tap)
                .and_then(|tap_index| netlink.move_to(tap_index, spare, &tap));
            // Either may be missing if it was never set up to its end.
            let _ = netlink.remove_drop(&uplink.name, None);
            let _ = netlink.remove_drop(&tap, Some(LOOPBACK_NETWORK));
            let _ = netlink.add_local(uplink.interface, uplink.network.address);
            let _ = InterfaceIndex::of(LOOPBACK)
                .and_then(|loopback| netlink.add_local(loopback, Ipv4Addr::LOCALHOST));
            settings.restore();
            moved
        })
    }
}

/// Sets up this thread's namespace, in which the tap device is.
fn set_up(number: u8, tap: &str, uplink: &Uplink, settings: &mut Settings) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let (index, pod) = (InterfaceIndex::of(tap)?, &uplink.name);
    let Network { address, mtu } = uplink.network;
    // Nothing comes from the interface but for the pod and for the namespace itself: nobody outside can send on from here
    // what he sends to others.
    netlink.add_drop(pod, None)?;
    // Nor does the pod send to others from its loopback interface.
    netlink.add_drop(tap, Some(LOOPBACK_NETWORK))?;
    let interfaces = interfaces()?;
    check_senders(tap, &interfaces, settings)?;
    for (name, value) in [
        (format!("ipv4/conf/{tap}/forwarding"), "1"),
        (format!("ipv4/conf/{pod}/forwarding"), "1"),
        // For an address that is routed to another interface. At once, not after a pause.
        (format!("ipv4/conf/{pod}/proxy_arp"), "1"),
        (format!("ipv4/neigh/{pod}/proxy_delay"), "0"),
    ] {
        settings.change(name, value)?;
    }
    // Packets from and to the loopback interface pass the tap device, and nothing else that is there or comes later, though
    // nodes may have it otherwise for all that is made on them.
    for interface in &interfaces {
        let value = if interface == tap { "1" } else { "0" };
        settings.change(format!("ipv4/conf/{interface}/route_localnet"), value)?;
    }
    match settings.change(format!("ipv6/conf/{tap}/disable_ipv6"), "1") {
        // The host has none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        done => done?,
    }
    netlink.set_mtu(index, mtu)?;
    // Errors of the kernel come from this address, which is the guest's only neighbour.
    netlink.add_address(index, GATEWAY)?;
    netlink.turn_on(index)?;
    for (interface, address) in
        [(uplink.interface, address), (InterfaceIndex::of(LOOPBACK)?, Ipv4Addr::LOCALHOST)]
    {
        netlink.add_neighbour(index, address, Network::device_address(number).0)?;
        netlink.remove_local(interface, address)?;
        netlink.add_first_route(index, address)?;
    }
    Ok(())
}

/// From the tap device comes nothing with another sender than the pod's, and from other interfaces what came before. The
/// kernel does what the greater of an interface's setting and that of `all` says, and 2, which nodes may have for all, lets
/// through more than 1. So the others have the greater one for themselves, and `all` has none.
fn check_senders(tap: &str, interfaces: &[String], settings: &mut Settings) -> io::Result<()> {
    let setting = |interface: &str| format!("ipv4/conf/{interface}/rp_filter");
    let of_all = number(&setting("all"))?;
    for interface in interfaces {
        let setting = setting(interface);
        let value = match interface.as_str() {
            "all" => continue,
            name if name == tap => 1,
            _ => number(&setting)?.max(of_all),
        };
        settings.change(setting, &value.to_string())?;
    }
    settings.change(setting("all"), "0")
}
