//! Network interfaces, by rtnetlink(7).

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{
        InfoData, InfoIpVlan, InfoKind, IpVlanFlags, IpVlanMode, LinkAttribute, LinkFlags,
        LinkInfo, LinkMessage,
    },
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
        RouteType,
    },
};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::{
    fs, io,
    net::Ipv4Addr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

/// Bytes of an answer: an error, and at most the request that it is about.
const ANSWER_BYTES: usize = 4096;

/// A socket to the kernel's network, in the network namespace in which it was opened.
pub struct Netlink(OwnedFd);

/// The number of a network interface in its namespace.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceIndex(u32);

impl Netlink {
    /// Opens a socket to the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let family = rustix::net::AddressFamily::NETLINK;
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        Ok(Self(socket_with(family, kind, flags, None)?))
    }

    /// The index of this interface in the network namespace of this thread.
    pub fn index(name: &str) -> io::Result<InterfaceIndex> {
        let index = rustix::net::netdevice::name_to_index(
            rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None)?,
            name,
        )?;
        Ok(InterfaceIndex(index))
    }

    /// Turns an interface on.
    pub fn turn_on(&self, interface: InterfaceIndex) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface.0;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
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

    /// Sends what is for this address, or without one for any, over an interface: directly, or to the gateway.
    pub fn add_route(
        &self,
        interface: InterfaceIndex,
        to: Option<Ipv4Addr>,
        gateway: Option<Ipv4Addr>,
    ) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope =
            if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
        message.header.destination_prefix_length = if to.is_some() { 32 } else { 0 };
        let inet = RouteAddress::Inet;
        message.attributes = [
            Some(RouteAttribute::Oif(interface.0)),
            to.map(|to| RouteAttribute::Destination(inet(to))),
            gateway.map(|gateway| RouteAttribute::Gateway(inet(gateway))),
        ]
        .into_iter()
        .flatten()
        .collect();
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.0, &bytes, SendFlags::empty())?;
        let mut answer = vec![0; ANSWER_BYTES];
        let (_, length) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer[..length]);
        match answer.map_err(io::Error::other)?.payload {
            NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            other => Err(io::Error::other(format!("an unexpected answer: {other:?}"))),
        }
    }
}

/// The network namespace of this thread.
pub fn own_namespace() -> io::Result<fs::File> {
    fs::File::open("/proc/thread-self/ns/net")
}
