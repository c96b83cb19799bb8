//! A tap device that the operator has made.

use rustix::{fs::OFlags, io::Errno, net::netdevice::name_to_index};
use serde::{Deserialize, Serialize};
use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    str::FromStr,
};

/// Where the kernel gives out tap devices.
const TUN: &str = "/dev/net/tun";

/// The name of a tap device, such as `tap0`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TapName(String);

/// Why a text is no [`TapName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a network device: 1 to 15 of a-z, A-Z, 0-9, '.', '_' and '-'")]
pub struct InvalidTapName(String);

impl FromStr for TapName {
    type Err = InvalidTapName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let valid = (1..libc::IFNAMSIZ).contains(&text.len())
            && text.bytes().all(known)
            && ![".", ".."].contains(&text);
        match valid {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidTapName(text.chars().take(64).collect())),
        }
    }
}

impl TryFrom<String> for TapName {
    type Error = InvalidTapName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<TapName> for String {
    fn from(name: TapName) -> Self {
        name.0
    }
}

impl fmt::Display for TapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a tap device cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TapError {
    #[error(
        "{TUN} cannot be opened ({0}): load it with `modprobe tun`, and let the daemon read and write it"
    )]
    NoTun(Errno),
    #[error(
        "there is no network device {0}: make it with `ip tuntap add dev {0} mode tap user USER`, where USER runs the daemon"
    )]
    Absent(TapName),
    #[error(
        "the tap device {0} belongs to another user: make it with `ip tuntap add dev {0} mode tap user USER`, where USER runs the daemon"
    )]
    Foreign(TapName),
    #[error("the tap device {0} is in use: a device serves one VM at a time")]
    InUse(TapName),
    #[error(
        "the network device {0} is not a tap device with one queue ({1}): make one with `ip tuntap add dev NAME mode tap`"
    )]
    NoTap(TapName, Errno),
}

impl TapName {
    /// Makes the device, in the network namespace of this thread. It is gone with the last descriptor of it.
    pub fn make(&self) -> io::Result<OwnedFd> {
        let tun = open_tun()?;
        self.attach(&tun)?;
        Ok(tun)
    }

    /// Opens the device, which has to be there: with enough privileges, the kernel would otherwise make one that ends
    /// with the VM and that nothing is connected to.
    pub(crate) fn open(&self) -> Result<OwnedFd, TapError> {
        let tun = open_tun().map_err(TapError::NoTun)?;
        let any = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        );
        any.and_then(|socket| name_to_index(socket, &self.0))
            .map_err(|_| TapError::Absent(self.clone()))?;
        self.attach(&tun).map_err(|error| match error {
            Errno::PERM => TapError::Foreign(self.clone()),
            Errno::BUSY => TapError::InUse(self.clone()),
            error => TapError::NoTap(self.clone(), error),
        })?;
        Ok(tun)
    }

    fn attach(&self, tun: impl AsFd) -> Result<(), Errno> {
        // SAFETY: all-zero bytes are a valid request.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // A name is shorter than the field, which ends with a zero.
        for (to, from) in request.ifr_name.iter_mut().zip(self.0.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: the request is what this operation takes, and lives until it is over.
        let result =
            unsafe { libc::ioctl(tun.as_fd().as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        match result {
            0.. => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }
}

fn open_tun() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(TUN, flags, rustix::fs::Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_network_devices() {
        for name in ["tap0", "squeezy-tap.7", "abcdefghijklmno"] {
            assert_eq!(name.parse::<TapName>().unwrap().to_string(), name);
        }
        for name in ["", "..", "a/b", "a b", "tap,script=x", "abcdefghijklmnop"] {
            let error = name.parse::<TapName>().unwrap_err().to_string();
            assert!(error.contains("is not the name of a network device"), "{error}");
        }
    }

    #[test]
    fn only_a_device_that_is_there_is_opened() {
        let absent: TapName = "squeezy-none".parse().unwrap();
        // Without /dev/net/tun that is the problem.
        match absent.open().unwrap_err() {
            TapError::NoTun(error) => {
                assert!(!std::fs::exists(TUN).unwrap() || error == Errno::ACCESS)
            }
            error => {
                let expected = "there is no network device squeezy-none: make it with `ip tuntap";
                assert!(error.to_string().starts_with(expected), "{error}");
                let loopback = "lo".parse::<TapName>().unwrap().open().unwrap_err();
                let (no_tap, foreign) =
                    ("lo is not a tap device with one queue", "belongs to another user");
                let said = loopback.to_string();
                assert!(said.contains(no_tap) || said.contains(foreign), "{said}");
            }
        }
    }
}
