//! Where somebody wants to be connected to.

use super::super::reference::split_port;
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The longest name of a host, in bytes.
const MOST_BYTES: usize = 253;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A name in lower case, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Target {
    /// Parses `HOST[:PORT]`; `port` is the one that it has otherwise. `None` if it is something else.
    pub fn parse(text: &str, port: Option<u16>) -> Option<Self> {
        let (host, given) = split_port(text);
        let port = match given {
            // A sign would be taken for nothing.
            Some(given) if given.starts_with('+') => return None,
            Some(given) => given.parse().ok()?,
            None => port?,
        };
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match in_brackets {
            Some(address) => address.parse::<Ipv6Addr>().ok()?.to_string(),
            None if is_name(host) => host.to_ascii_lowercase(),
            None => return None,
        };
        (port > 0).then_some(Self { host, port })
    }

    /// Its address, if it is one and not a name.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether programs in Go, of which skopeo is one, never ask a proxy for it.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.address().is_some_and(|address| address.is_loopback())
    }

    /// Whether it is a name of whichever machine looks it up (RFC 6761).
    pub fn is_localhost(&self) -> bool {
        self.host == "localhost" || self.host.ends_with(".localhost")
    }

    /// Whether it is a name that stands for an address all the same, as `127.1` and `0x7f000001` do.
    pub fn is_disguised(&self) -> bool {
        let last = self.host.rsplit('.').next().unwrap_or_default();
        self.address().is_none() && last.starts_with(|c: char| c.is_ascii_digit())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Whether this is a name of a host, in which many have underscores although none may, or an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_right = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    host.len() <= MOST_BYTES
        && host.split('.').all(|label| !label.is_empty() && label.bytes().all(is_right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_host_has_one_form() {
        for (text, whole) in [
            ("Registry.Example:5000", "registry.example:5000"),
            ("my_bucket.example", "my_bucket.example:443"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[::FFFF:10.0.0.1]:1", "[::ffff:10.0.0.1]:1"),
            ("[0:0::1]", "[::1]:443"),
        ] {
            let target = Target::parse(text, Some(443)).unwrap();
            assert_eq!(target.to_string(), whole);
            assert_eq!(Target::parse(whole, None), Some(target));
        }
        for text in
            ["", ":1", "a", "a:0", "a:65536", "a..b:1", "u@a:1", "a/b:1", "::1:1", "[a]:1", "[::1"]
        {
            assert_eq!(Target::parse(text, None), None, "{text}");
        }
    }

    #[test]
    fn an_address_in_disguise_is_known() {
        for (host, is_disguised) in [
            ("127.1", true),
            ("2130706433", true),
            ("0x7f000001", true),
            ("a.0177", true),
            ("127.0.0.1", false),
            ("[::1]", false),
            ("1.example", false),
        ] {
            let target = Target::parse(host, Some(80)).unwrap();
            assert_eq!(target.is_disguised(), is_disguised, "{host}");
        }
    }

    #[test]
    fn localhost_has_names_below_it() {
        let is_localhost = |host: &str| Target::parse(host, Some(80)).unwrap().is_localhost();
        assert!(["localhost", "LocalHost", "a.b.localhost"].into_iter().all(is_localhost));
        assert!(!["xlocalhost", "localhost.x", "127.0.0.1"].into_iter().any(is_localhost));
    }

    proptest! {
        #[test]
        fn what_is_a_target_has_nothing_in_it_that_ends_a_line(text in "\\PC{0,300}|.{0,40}:[0-9]{1,5}") {
            if let Some(target) = Target::parse(&text, Some(443)) {
                let shown = target.to_string();
                let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:[]".contains(&b);
                prop_assert!(shown.bytes().all(is_plain), "{:?}", shown);
                prop_assert_eq!(Target::parse(&shown, None), Some(target));
            }
        }
    }
}
