//! Registries in the configuration.

use super::super::registry::is_host;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::{fmt, path::PathBuf};

/// The most hosts in `private_hosts`.
const MOST_HOSTS: usize = 8;

/// A registry from which images may be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryEntry {
    /// Its host, with a port if it has one.
    pub host: String,
    /// Whether it may be asked by plain HTTP.
    pub plain_http: bool,
    /// A file with the certificates in PEM that vouch for it, besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Other hosts that it may send to although their addresses are private: where its tokens or its layers are.
    pub private_hosts: Vec<String>,
}

impl fmt::Display for RegistryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if self.plain_http {
            f.write_str(" (plain_http)")?;
        }
        self.ca_file.iter().try_for_each(|file| write!(f, " (ca_file {})", file.display()))?;
        match &*self.private_hosts {
            [] => Ok(()),
            hosts => write!(f, " (private_hosts {})", hosts.join(", ")),
        }
    }
}

/// The entry in its form as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(deserialize_with = "host")]
    host: String,
    #[serde(default)]
    plain_http: bool,
    ca_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "hosts")]
    private_hosts: Vec<String>,
}

fn host<'d, D: Deserializer<'d>>(from: D) -> Result<String, D::Error> {
    checked(String::deserialize(from)?)
}

fn checked<E: Error>(host: String) -> Result<String, E> {
    if is_host(&host) {
        return Ok(host);
    }
    Err(E::custom("host: must be the host name or address of a registry, and a port if it has one"))
}

fn hosts<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::<String>::deserialize(from)?;
    if hosts.len() <= MOST_HOSTS && hosts.iter().all(|host| is_host(host)) {
        return Ok(hosts);
    }
    Err(D::Error::custom(format!(
        "private_hosts: must be at most {MOST_HOSTS} host names or addresses, each with a port if it has one"
    )))
}

impl<'d> Deserialize<'d> for RegistryEntry {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        struct HostOrTable;
        impl<'d> Visitor<'d> for HostOrTable {
            type Value = RegistryEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a registry's host, or a table with `host`")
            }

            fn visit_str<E: Error>(self, host: &str) -> Result<RegistryEntry, E> {
                let host = checked(host.to_owned())?;
                let private_hosts = Vec::new();
                Ok(RegistryEntry { host, plain_http: false, ca_file: None, private_hosts })
            }

            fn visit_map<A: MapAccess<'d>>(self, map: A) -> Result<RegistryEntry, A::Error> {
                let Table { host, plain_http, ca_file, private_hosts } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RegistryEntry { host, plain_http, ca_file, private_hosts })
            }
        }
        from.deserialize_any(HostOrTable)
    }
}
