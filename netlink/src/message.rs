//! Messages about routes and rules.

use netlink_packet_route::{
    AddressFamily,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
        RouteType,
    },
    rule::{RuleAction, RuleAttribute, RuleMessage},
};
use std::net::Ipv4Addr;

/// The table of local addresses, which is looked into before all others (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u8 = 255;
/// Right after that one.
const RULE_PRIORITY: u32 = 1;

/// A table of routes.
#[derive(Clone, Copy)]
pub(super) enum Table {
    Local,
    Main,
}

pub(super) fn route(
    table: Table,
    interface: u32,
    to: Option<Ipv4Addr>,
    gateway: Option<Ipv4Addr>,
) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = match table {
        Table::Local => LOCAL_TABLE,
        Table::Main => RouteHeader::RT_TABLE_MAIN,
    };
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message.header.scope = if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
    message.header.destination_prefix_length = if to.is_some() { 32 } else { 0 };
    message.attributes = [
        Some(RouteAttribute::Oif(interface)),
        to.map(|to| RouteAttribute::Destination(RouteAddress::Inet(to))),
        gateway.map(|gateway| RouteAttribute::Gateway(RouteAddress::Inet(gateway))),
    ]
    .into_iter()
    .flatten()
    .collect();
    message
}

/// The route that the kernel adds with an address of an interface.
pub(super) fn local_route(interface: u32, address: Ipv4Addr) -> RouteMessage {
    let mut message = route(Table::Local, interface, Some(address), None);
    message.header.protocol = RouteProtocol::Kernel;
    message.header.kind = RouteType::Local;
    message.header.scope = RouteScope::Host;
    message.attributes.push(RouteAttribute::PrefSource(RouteAddress::Inet(address)));
    message
}

/// The rule that drops what comes from an interface: with senders of this network, or with any.
pub(super) fn rule(interface: &str, senders: Option<(Ipv4Addr, u8)>) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.action = RuleAction::Blackhole;
    message.attributes =
        vec![RuleAttribute::Iifname(interface.to_owned()), RuleAttribute::Priority(RULE_PRIORITY)];
    if let Some((network, prefix_length)) = senders {
        message.header.src_len = prefix_length;
        message.attributes.push(RuleAttribute::Source(network.into()));
    }
    message
}
