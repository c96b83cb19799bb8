//! Registries in the configuration.

use super::super::registry::is_host;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::{fmt, path::PathBuf};

/// A registry from which images may be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryEntry {
    /// Its host, with a port if it has one.
    pub host: String,
    /// Whether it may be asked by plain HTTP.
    pub plain_http: bool,
    /// A file with the certificates in PEM that vouch for it, besides the system's.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Display for RegistryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if self.plain_http {
            f.write_str(" (plain_http)")?;
        }
        self.ca_file.iter().try_for_each(|file| write!(f, " (ca_file {})", file.display()))
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
                Ok(RegistryEntry { host, plain_http: false, ca_file: None })
            }

            fn visit_map<A: MapAccess<'d>>(self, map: A) -> Result<RegistryEntry, A::Error> {
                let Table { host, plain_http, ca_file } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RegistryEntry { host, plain_http, ca_file })
            }
        }
        from.deserialize_any(HostOrTable)
    }
}
