//! The VM's network device, which instances share.

use crate::netlink::Netlink;
use std::{fs, io, path::Path};

/// The device's name.
pub const DEVICE: &str = "eth0";

/// Whether there is one.
pub fn is_there() -> bool {
    Path::new("/sys/class/net").join(DEVICE).exists()
}

/// Turns the device on, if there is one. It gets no address: the machine itself talks to nobody.
pub fn set_up() -> io::Result<()> {
    if !is_there() {
        return Ok(());
    }
    fs::write(format!("/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6"), "1")?;
    let netlink = Netlink::open()?;
    netlink.turn_on(Netlink::index(DEVICE)?)
}
