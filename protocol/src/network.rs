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
}
