//! Where the daemon listens.

use std::{
    fmt::{self, Display},
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// An address and a port; instead of an address, a name that is resolved when the daemon starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address, without brackets, or the name.
    pub name: String,
    /// The port; 0 for any.
    pub port: u16,
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { name: address.ip().to_string(), port: address.port() });
        }
        let wanted = "must be an address or a name, and a port: 127.0.0.1:3233, [::1]:3233 or localhost:3233";
        let (name, port) = text.rsplit_once(':').ok_or(wanted)?;
        let is_name = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        match port.parse() {
            Ok(port) if is_name => Ok(Self { name: name.to_owned(), port }),
            _ => Err(wanted),
        }
    }
}

impl Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.parse() {
            Ok(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_taken() {
        for right in ["127.0.0.1:3233", "[::1]:0", "localhost:80", "a-b.example:1"] {
            assert_eq!(right.parse::<Listen>().unwrap().to_string(), right);
        }
        for wrong in
            ["", "localhost", ":80", "::1:80x", "a b:80", "localhost:port", "x:65536", "fe80::1:1"]
        {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }
}
