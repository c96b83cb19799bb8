//! A function's entry in the configuration.

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use squeezy_node::{
    ByteRate, FunctionSettings, function::ReachSettings, settings::CheckedSettings,
};
use squeezy_protocol::NetworkAccess;
use squeezy_vmm::network::{Destination, TapName};
use std::{fmt, path::PathBuf};

/// A function that exists from the start.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionEntry {
    /// Path of its directory or its image.
    pub path: PathBuf,
    /// The VM it shares with other functions; if absent, it has its own.
    pub vm: Option<String>,
    /// Settings that override its definition.
    pub settings: CheckedSettings,
}

impl From<PathBuf> for FunctionEntry {
    fn from(path: PathBuf) -> Self {
        Self { path, vm: None, settings: CheckedSettings::default() }
    }
}

/// The path with what else is said of it.
impl fmt::Display for FunctionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut more: Vec<String> = self.vm.iter().map(|vm| format!("vm {vm}")).collect();
        more.extend(self.settings.describe());
        write!(f, "{}", self.path.display())?;
        if more.is_empty() { Ok(()) } else { write!(f, " ({})", more.join(", ")) }
    }
}

impl FunctionEntry {
    /// Groups the functions that share a VM; each of the others is a group of its own.
    pub fn sharing_a_vm(functions: &[Self]) -> Vec<Vec<Self>> {
        let mut all: Vec<Vec<Self>> = Vec::new();
        for entry in functions.iter().cloned() {
            let same = all.iter_mut().find(|group| entry.vm.is_some() && group[0].vm == entry.vm);
            match same {
                Some(group) => group.push(entry),
                None => all.push(vec![entry]),
            }
        }
        all
    }
}

/// The entry in its form as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    path: PathBuf,
    vm: Option<String>,
    #[serde(default, deserialize_with = "command")]
    command: Option<Vec<String>>,
    #[serde(default, deserialize_with = "memory_limit")]
    memory_limit: Option<String>,
    #[serde(default, deserialize_with = "vcpus")]
    vcpus: Option<f64>,
    #[serde(default, deserialize_with = "concurrency")]
    concurrency: Option<u16>,
    #[serde(default, deserialize_with = "calls_per_instance")]
    calls_per_instance: Option<u16>,
    minimum_instances: Option<u16>,
    #[serde(default, deserialize_with = "keep_alive_seconds")]
    keep_alive_seconds: Option<f64>,
    network: Option<NetworkAccess>,
    network_allow: Option<Vec<Destination>>,
    network_deny: Option<Vec<Destination>>,
    network_connections: Option<u32>,
    network_connections_per_second: Option<u32>,
    network_rate: Option<ByteRate>,
    network_tap: Option<TapName>,
}

/// Generates a type that validates each setting where it is parsed, so that an error names its
/// line.
macro_rules! checked {
    ($($setting:ident: $kind:ty;)+) => {
        $(fn $setting<'de, D: Deserializer<'de>>(from: D) -> Result<Option<$kind>, D::Error> {
            let $setting = Option::<$kind>::deserialize(from)?;
            let alone = FunctionSettings { $setting: $setting.clone(), ..Default::default() };
            alone.check().map(|_| $setting).map_err(D::Error::custom)
        })+
    };
}

checked! {
    command: Vec<String>;
    memory_limit: String;
    vcpus: f64;
    concurrency: u16;
    calls_per_instance: u16;
    keep_alive_seconds: f64;
}

/// Accepts a path, or a table with a path and more.
impl<'de> Deserialize<'de> for FunctionEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = FunctionEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a function, or a table with its path")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<Self::Value, E> {
                Ok(PathBuf::from(path).into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                if let Some(vm) = &table.vm {
                    squeezy_node::function::check_name(vm)
                        .map_err(|error| A::Error::custom(format!("vm: {error}")))?;
                }
                let settings = FunctionSettings {
                    command: table.command,
                    memory_limit: table.memory_limit,
                    vcpus: table.vcpus,
                    concurrency: table.concurrency,
                    calls_per_instance: table.calls_per_instance,
                    minimum_instances: table.minimum_instances,
                    keep_alive_seconds: table.keep_alive_seconds,
                    network: table.network,
                    reach: ReachSettings {
                        allow: table.network_allow,
                        deny: table.network_deny,
                        connections: table.network_connections,
                        connections_per_second: table.network_connections_per_second,
                        rate: table.network_rate,
                    },
                    tap: table.network_tap,
                };
                let settings = settings.check().map_err(A::Error::custom)?;
                Ok(FunctionEntry { path: table.path, vm: table.vm, settings })
            }
        }
        deserializer.deserialize_any(Entry)
    }
}
