//! Network interfaces of instances, and the VM's network devices behind them.

use squeezy_netlink::{InterfaceIndex, Namespace, Netlink};
use squeezy_protocol::network::{GATEWAY, Network};
use std::{fs, io, net::Ipv4Addr, path::Path};

/// The name of the device that instances share.
pub const DEVICE: &str = "eth0";
/// The name of an interface to the outside in its namespace. The machine's namespace must not have it: the kernel looks
/// for it there.
pub const INTERFACE: &str = "net0";

/// Where the devices of the machine's namespace are.
const DEVICES: &str = "/sys/class/net";

/// Settings in `/proc/sys/net/ipv4` that differ from Linux's defaults.
const SYSCTLS: [(&str, &str); 4] = [
    // The kernel caches metrics of peers in one table for the whole machine.
    ("tcp_no_metrics_save", "1"),
    // Bytes of a connection's buffers (minimum, default, maximum). They are charged to the instance, which
    // has little memory outside its partition, and on the loopback interface larger ones are no faster.
    ("tcp_wmem", "4096 65536 262144"),
    ("tcp_rmem", "4096 131072 524288"),
    // All ports are for whoever is in the namespace, which belongs to the machine's user and to none of theirs.
    ("ip_unprivileged_port_start", "0"),
];

/// Whether there is a device that instances share.
pub fn is_there() -> bool {
    Path::new(DEVICES).join(DEVICE).exists()
        && (0..Network::MAX_COUNT).all(|number| device(number).is_none_or(|name| name != DEVICE))
}

/// Turns the device that instances share on, if there is one. It gets no address: the machine itself talks to nobody.
pub fn set_up() -> io::Result<()> {
    if !is_there() {
        return Ok(());
    }
    close_ipv6(DEVICE)?;
    Netlink::open()?.turn_on(InterfaceIndex::of(DEVICE)?)
}

/// The name of the device that is for the network of this number, if it is in the machine's namespace.
pub fn device(number: u8) -> Option<String> {
    let wanted = Network::device_address(number).to_string();
    let has_it = |name: &String| {
        let address = fs::read_to_string(Path::new(DEVICES).join(name).join("address"));
        address.is_ok_and(|address| address.trim_end() == wanted)
    };
    let names = fs::read_dir(DEVICES).ok()?.flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).find(has_it)
}

/// Moves this thread into a network namespace of its own, which has a loopback interface.
pub fn isolate() -> io::Result<Netlink> {
    Namespace::unshare()?;
    // This is still the agent's /proc, but it shows the network of the thread that opens it.
    for (name, value) in SYSCTLS {
        fs::write(format!("/proc/sys/net/ipv4/{name}"), value)?;
    }
    let own = Netlink::open()?;
    own.turn_on(InterfaceIndex::of("lo")?)?;
    Ok(own)
}

/// Sets up the interface to the outside. The only other machine on its link is the gateway. So the instance cannot fill
/// the table of neighbours, which all instances share.
pub fn connect(own: &Netlink, address: Ipv4Addr) -> io::Result<InterfaceIndex> {
    close_ipv6(INTERFACE)?;
    let interface = InterfaceIndex::of(INTERFACE)?;
    own.add_address(interface, address)?;
    own.turn_on(interface)?;
    own.add_route(interface, Some(GATEWAY), None)?;
    own.add_route(interface, None, Some(GATEWAY))?;
    Ok(interface)
}

fn close_ipv6(interface: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1")
}
