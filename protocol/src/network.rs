//! The network that a VM's instances share.

use serde::{Deserialize, Serialize};
use std::{fmt, net::Ipv4Addr, str::FromStr};

/// What network an instance has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    /// None but a loopback interface of its own.
    #[default]
    None,
    /// It can open connections to what the host lets its VM reach.
    Outbound,
}

impl fmt::Display for NetworkAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Outbound => "outbound",
        })
    }
}

impl FromStr for NetworkAccess {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "outbound" => Ok(Self::Outbound),
            _ => Err("must be none or outbound"),
        }
    }
}

/// The VM's network, out of a range that is set aside for tests of network devices (RFC 2544), so that it hides nobody
/// whom a function may want to reach. QEMU answers for every address in it that is not an instance's.
pub const NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The length of its prefix in bits.
pub const NETWORK_PREFIX: u8 = 16;
/// Where instances send what is for others.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Whom instances ask for names: QEMU, which asks the host's name server.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);

/// How many addresses there are for instances.
pub const ADDRESSES: u16 = u16::MAX - 256;

/// The instance's address with this number, below [`ADDRESSES`]. The first 256 of the network are QEMU's, and the last
/// is for broadcasts.
pub fn address(number: u16) -> Ipv4Addr {
    let number = number.min(ADDRESSES - 1);
    Ipv4Addr::from(u32::from(NETWORK) + 256 + u32::from(number))
}

/// A network that instances are in together ([`InstanceSpec::in_network`](crate::InstanceSpec::in_network)), with a network
/// device of the VM to itself: the one with its number. Nobody but the host is at the other end of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Its address, which the host delivers to it.
    pub address: Ipv4Addr,
    /// The longest packet that is sent, in bytes.
    pub mtu: u16,
}

impl Network {
    /// Most networks of a VM, which are numbered from 0: one for each of 32 pods.
    pub const MAX_COUNT: u8 = 32;
    /// The least that Linux sends IPv4 with, in bytes.
    pub const MIN_MTU: u16 = 68;

    /// Whether it can be one.
    pub fn is_valid(&self) -> bool {
        let Self { address, mtu } = self;
        let is_nobodys = address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || address.is_broadcast();
        !is_nobodys && *address != GATEWAY && *mtu >= Self::MIN_MTU
    }

    /// The hardware address of the network device with this number.
    pub fn device_address(number: u8) -> HardwareAddress {
        HardwareAddress([0x02, b's', b'q', b'z', 0, number])
    }

    /// The hardware address of [`GATEWAY`] behind that.
    pub fn gateway_address(number: u8) -> HardwareAddress {
        HardwareAddress([0x02, b's', b'q', b'z', 1, number])
    }
}

/// The hardware address of a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareAddress(pub [u8; 6]);

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_access_read_back_as_they_are_written() {
        for access in [NetworkAccess::None, NetworkAccess::Outbound] {
            assert_eq!(access.to_string().parse(), Ok(access));
            assert_eq!(serde_json::to_value(access).unwrap(), access.to_string());
        }
        assert!("inbound".parse::<NetworkAccess>().is_err());
    }

    #[test]
    fn addresses_of_instances_are_in_the_network_and_nobody_elses() {
        assert_eq!(address(0), Ipv4Addr::new(198, 18, 1, 0));
        assert_eq!(address(ADDRESSES - 1), Ipv4Addr::new(198, 18, 255, 254));
        assert_eq!(address(u16::MAX), address(ADDRESSES - 1));
    }

    #[test]
    fn a_network_has_an_address_of_its_own() {
        let is_valid = |address: [u8; 4], mtu| Network { address: address.into(), mtu }.is_valid();
        assert!(is_valid([10, 1, 2, 3], 1500) && is_valid([10, 1, 2, 3], 68));
        assert!(!is_valid([10, 1, 2, 3], 67));
        for address in [[0; 4], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4], GATEWAY.octets()] {
            assert!(!is_valid(address, 1500), "{address:?}");
        }
    }

    #[test]
    fn hardware_addresses_are_nobody_elses() {
        assert_eq!(Network::device_address(31).to_string(), "02:73:71:7a:00:1f");
        assert_eq!(Network::gateway_address(0).to_string(), "02:73:71:7a:01:00");
    }
}
