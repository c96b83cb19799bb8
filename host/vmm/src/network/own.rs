//! The addresses of the host itself.

use super::rules::{Refusal, Rules};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
};

impl Rules {
    /// As [`Self::judge_within`], for an address that may be the host's, which nobody reaches.
    pub fn judge_all(&self, to: SocketAddrV4, own: &Self) -> Result<(), Refusal> {
        self.judge_within(to, own)?;
        if is_own(*to.ip()) { Err(Refusal::Host) } else { Ok(()) }
    }
}

/// Whether this address is one of the host's, or one that means several machines, the host among them. The host is
/// asked each time, because its addresses change: it lets a socket be bound only to such an address. If it cannot be
/// asked, the answer is yes.
fn is_own(address: Ipv4Addr) -> bool {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let bound = socket.and_then(|socket| bind(&socket, &SocketAddrV4::new(address, 0)));
    bound != Err(rustix::io::Errno::ADDRNOTAVAIL)
}

/// Why the host cannot be asked that way, and what to do about it.
pub(super) fn problem() -> Option<String> {
    const SETTING: &str = "/proc/sys/net/ipv4/ip_nonlocal_bind";
    let is_set = fs::read_to_string(SETTING).is_ok_and(|value| value.trim() != "0");
    is_set.then(|| {
        "functions can have no network while net.ipv4.ip_nonlocal_bind is 1, because every address \
         then seems to be the host's: `sysctl net.ipv4.ip_nonlocal_bind=0`"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_host_is_known_as_such() {
        assert!(is_own(Ipv4Addr::LOCALHOST));
        assert!(is_own(Ipv4Addr::new(127, 200, 3, 4)));
        assert!(is_own(Ipv4Addr::BROADCAST));
        if problem().is_none() {
            // Reserved for documentation: nobody has it.
            assert!(!is_own(Ipv4Addr::new(203, 0, 113, 77)));
        }
    }
}
