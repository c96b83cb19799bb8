//! The network of an instance: a loopback interface, and one to the outside if it may use that.

use crate::{
    netlink::{Netlink, own_namespace},
    network::DEVICE,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use squeezy_protocol::network::GATEWAY;
use std::{fs, io, net::Ipv4Addr};

/// Settings in `/proc/sys/net/ipv4` that differ from Linux's defaults.
const SYSCTLS: [(&str, &str); 3] = [
    // The kernel caches metrics of peers in one table for the whole machine.
    ("tcp_no_metrics_save", "1"),
    // Bytes of a connection's buffers (minimum, default, maximum). They are charged to the instance, which
    // has little memory outside its partition, and on the loopback interface larger ones are no faster.
    ("tcp_wmem", "4096 65536 262144"),
    ("tcp_rmem", "4096 131072 524288"),
];

/// The name of the interface to the outside. The machine's namespace must not have it: the kernel looks for it there.
const INTERFACE: &str = "net0";

/// Moves this process into a network namespace of its own and sets that up. With an address, it reaches the outside.
pub fn enter(address: Option<Ipv4Addr>) -> io::Result<()> {
    let outside = |_| Ok::<_, io::Error>((Netlink::open()?, Netlink::index(DEVICE)?));
    let machine = address.map(outside).transpose()?;
    // SAFETY: this flag unshares neither the file table nor memory, and there is one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    // This is still the agent's /proc, but it shows the network of the process that opens it.
    for (name, value) in SYSCTLS {
        fs::write(format!("/proc/sys/net/ipv4/{name}"), value)?;
    }
    let own = Netlink::open()?;
    own.turn_on(Netlink::index("lo")?)?;
    match (machine, address) {
        (Some((machine, device)), Some(address)) => {
            machine.share(device, INTERFACE, own_namespace()?)?;
            connect(&own, address)
        }
        _ => Ok(()),
    }
}

/// Sets up the interface to the outside. The only other machine on its link is the gateway. So the instance cannot fill
/// the table of neighbours, which all instances share.
fn connect(own: &Netlink, address: Ipv4Addr) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6"), "1")?;
    let interface = Netlink::index(INTERFACE)?;
    own.add_address(interface, address)?;
    own.turn_on(interface)?;
    own.add_route(interface, Some(GATEWAY), None)?;
    own.add_route(interface, None, Some(GATEWAY))
}
