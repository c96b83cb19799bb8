//! Network interfaces, by rtnetlink(7), and the namespaces that they are in: what the agent and the shim need of both.

mod message;
mod namespace;
#[cfg(test)]
#[path = "../../scripts/skip.rs"]
mod skip;

pub use namespace::{Namespace, apart};

use message::{Table, local_route, route, rule};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage, AddressScope},
    link::{
        InfoData, InfoIpVlan, InfoKind, IpVlanFlags, IpVlanMode, LinkAttribute, LinkFlags,
        LinkInfo, LinkMessage,
    },
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
};
use rustix::{
    io::Errno,
    net::{
        RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send, socket, socket_with,
    },
};
use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

/// The longest datagram of the kernel that is read, in bytes: it makes none above 32 KiB.
const ANSWER_BYTES: usize = 64 << 10;

/// A socket to the kernel's network, in the network namespace in which it was opened.
pub struct Netlink(OwnedFd);

/// The number of a network interface in its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceIndex(u32);

impl InterfaceIndex {
    /// That of the interface of this name in the network namespace of this thread.
    pub fn of(name: &str) -> io::Result<Self> {
        let any = socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None)?;
        Ok(Self(netdevice::name_to_index(any, name)?))
    }

    /// As the kernel counts it.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The name of the interface in the network namespace of this thread.
    pub fn name(self) -> io::Result<String> {
        let any = socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None)?;
        Ok(netdevice::index_to_name(any, self.0)?)
    }
}

impl Netlink {
    /// Opens a socket to the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let family = rustix::net::AddressFamily::NETLINK;
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        Ok(Self(socket_with(family, kind, flags, None)?))
    }

    /// Turns an interface on.
    pub fn turn_on(&self, interface: InterfaceIndex) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface.0;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets the hardware address of an interface.
    pub fn set_hardware_address(
        &self,
        interface: InterfaceIndex,
        address: [u8; 6],
    ) -> io::Result<()> {
        self.change(interface, vec![LinkAttribute::Address(address.to_vec())])
    }

    /// Sets the longest packet that an interface sends, in bytes.
    pub fn set_mtu(&self, interface: InterfaceIndex, bytes: u16) -> io::Result<()> {
        self.change(interface, vec![LinkAttribute::Mtu(bytes.into())])
    }

    /// The longest packet that an interface sends, in bytes.
    pub fn mtu(&self, interface: InterfaceIndex) -> io::Result<u32> {
        let mut message = LinkMessage::default();
        message.header.index = interface.0;
        self.send(RouteNetlinkMessage::GetLink(message), 0)?;
        let mtu = self.receive()?.messages.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => link.attributes.into_iter().find_map(|found| {
                if let LinkAttribute::Mtu(bytes) = found { Some(bytes) } else { None }
            }),
            _ => None,
        });
        mtu.ok_or_else(|| io::Error::other("the kernel names no MTU"))
    }

    /// Moves an interface to another network namespace, where it has this name. It is turned off, and has neither
    /// addresses nor routes any more.
    pub fn move_to(&self, interface: InterfaceIndex, to: impl AsFd, name: &str) -> io::Result<()> {
        let to = LinkAttribute::NetNsFd(to.as_fd().as_raw_fd());
        self.change(interface, vec![to, LinkAttribute::IfName(name.to_owned())])
    }

    fn change(&self, interface: InterfaceIndex, attributes: Vec<LinkAttribute>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface.0;
        message.attributes = attributes;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Makes an interface of this name in another network namespace. It shares the device `parent` of this socket's
    /// namespace with others of its kind, none of which can reach another one: private ipvlan.
    pub fn share(&self, parent: InterfaceIndex, name: &str, to: impl AsFd) -> io::Result<()> {
        let mut message = LinkMessage::default();
        let data = vec![InfoIpVlan::Mode(IpVlanMode::L2), InfoIpVlan::Flags(IpVlanFlags::Private)];
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Link(parent.0),
            LinkAttribute::NetNsFd(to.as_fd().as_raw_fd()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::IpVlan),
                LinkInfo::Data(InfoData::IpVlan(data)),
            ]),
        ];
        self.request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Gives an interface an address, and nobody else on its link.
    pub fn add_address(&self, interface: InterfaceIndex, address: Ipv4Addr) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 32;
        message.header.index = interface.0;
        message.attributes = vec![
            AddressAttribute::Local(address.into()),
            AddressAttribute::Address(address.into()),
        ];
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// The IPv4 addresses by which interfaces are known elsewhere, in the kernel's order.
    pub fn addresses(&self) -> io::Result<Vec<(InterfaceIndex, Ipv4Addr)>> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        let found = self.dump(RouteNetlinkMessage::GetAddress(message))?;
        let address = |message| {
            let RouteNetlinkMessage::NewAddress(found) = message else { return None };
            let local = found.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(std::net::IpAddr::V4(address)) => Some(*address),
                _ => None,
            });
            let is_global = found.header.scope == AddressScope::Universe;
            local.filter(|_| is_global).map(|local| (InterfaceIndex(found.header.index), local))
        };
        Ok(found.into_iter().filter_map(address).collect())
    }

    /// Makes known for good who has an address on the link of an interface.
    pub fn add_neighbour(
        &self,
        interface: InterfaceIndex,
        address: Ipv4Addr,
        hardware: [u8; 6],
    ) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = interface.0;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
            NeighbourAttribute::LinkLayerAddress(hardware.to_vec()),
        ];
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sends what is for this address, or without one for any, over an interface: directly, or to the gateway.
    pub fn add_route(
        &self,
        interface: InterfaceIndex,
        to: Option<Ipv4Addr>,
        gateway: Option<Ipv4Addr>,
    ) -> io::Result<()> {
        let message = route(Table::Main, interface.0, to, gateway);
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// The same directly, before any rule. There must be nothing for this address in the table of local addresses.
    pub fn add_first_route(&self, interface: InterfaceIndex, to: Ipv4Addr) -> io::Result<()> {
        let message = route(Table::Local, interface.0, Some(to), None);
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// What is for an address of an interface is for this machine, as it is when the interface gets the address.
    pub fn add_local(&self, interface: InterfaceIndex, address: Ipv4Addr) -> io::Result<()> {
        let message = local_route(interface.0, address);
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// What is for an address of an interface is not for this machine any more, although the interface has it. No error
    /// if it was not before.
    pub fn remove_local(&self, interface: InterfaceIndex, address: Ipv4Addr) -> io::Result<()> {
        let removed =
            self.request(RouteNetlinkMessage::DelRoute(local_route(interface.0, address)), 0);
        unless(removed, Errno::SRCH)
    }

    /// Drops what comes from an interface, with senders of this network (its address and the length of its prefix) or
    /// without one with any, unless it is for an address in the table of local ones. No error if that is so already.
    ///
    /// Without a network, any such rule of the interface counts as this one for the kernel, whatever its network: add this
    /// one before those that have one.
    pub fn add_drop(&self, interface: &str, senders: Option<(Ipv4Addr, u8)>) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRule(rule(interface, senders));
        unless(self.request(message, NLM_F_CREATE | NLM_F_EXCL), Errno::EXIST)
    }

    /// Ends [`Self::add_drop`]. Without a network it may be one with a network that ends: end those before.
    pub fn remove_drop(&self, interface: &str, senders: Option<(Ipv4Addr, u8)>) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelRule(rule(interface, senders)), 0)
    }

    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        match self.receive()?.messages.first() {
            None => Ok(()),
            Some(other) => Err(io::Error::other(format!("an unexpected answer: {other:?}"))),
        }
    }

    fn dump(&self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.send(message, NLM_F_DUMP)?;
        let mut all = Vec::new();
        loop {
            let Answer { messages, is_last } = self.receive()?;
            all.extend(messages);
            if is_last {
                return Ok(all);
            }
        }
    }

    fn send(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.0, &bytes, SendFlags::empty())?;
        Ok(())
    }

    /// Receives one datagram.
    fn receive(&self) -> io::Result<Answer> {
        let mut bytes = vec![0; ANSWER_BYTES];
        let (_, length) = recv(&self.0, &mut bytes[..], RecvFlags::empty())?;
        let mut rest = bytes.get(..length).unwrap_or_default();
        let mut answer = Answer { messages: Vec::new(), is_last: false };
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
            let message = message.map_err(io::Error::other)?;
            match message.payload {
                NetlinkPayload::Done(_) => answer.is_last = true,
                NetlinkPayload::Error(error) if error.code.is_none() => answer.is_last = true,
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => answer.messages.push(message),
                other => {
                    return Err(io::Error::other(format!("an unexpected answer: {other:?}")));
                }
            }
            let taken = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(answer)
    }
}

/// Takes this error for a success.
fn unless(done: io::Result<()>, harmless: Errno) -> io::Result<()> {
    done.or_else(|error| match Errno::from_io_error(&error) {
        Some(found) if found == harmless => Ok(()),
        _ => Err(error),
    })
}

/// What the kernel answers in one datagram.
struct Answer {
    messages: Vec<RouteNetlinkMessage>,
    /// Whether nothing follows.
    is_last: bool,
}

#[cfg(test)]
mod tests;
