//! `namespaces.json`.

use super::{
    NetworkAllow, Quotas, Tenant, TenantError, Used,
    key::{KeyEntry, KeyName, StoredKey},
    usage::Usage,
};
use serde::{Deserialize, Serialize};
use squeezy_openwhisk::Namespace;
use squeezy_vmm::network::Openable;
use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

/// Version of the file format. Increment it when older daemons could not read the new one.
const VERSION: u32 = 1;

/// The maximum size of the file in bytes: more than all keys of all namespaces take.
const MOST_BYTES: u64 = 4 << 20;

/// What is in the file.
#[derive(Serialize, Deserialize)]
pub struct Contents {
    version: u32,
    pub namespaces: BTreeMap<Namespace, StoredTenant>,
}

/// What every version of the file contains.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

/// A namespace as it is stored.
#[derive(Serialize, Deserialize)]
pub struct StoredTenant {
    created_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_going: bool,
    keys: BTreeMap<KeyName, StoredKey>,
    #[serde(default)]
    quotas: Quotas,
    #[serde(default)]
    network_allow: NetworkAllow,
    #[serde(default)]
    usage: Used,
}

impl Contents {
    pub fn new(namespaces: BTreeMap<Namespace, StoredTenant>) -> Self {
        Self { version: VERSION, namespaces }
    }

    pub fn text(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(self)?)
    }
}

impl StoredTenant {
    pub fn of(tenant: &Tenant) -> Self {
        let keys = tenant.keys.iter().map(|(name, key)| (name.clone(), key.stored()));
        let Tenant { created_ms, is_going, quotas, .. } = *tenant;
        let network_allow = tenant.network_allow.clone();
        let usage = tenant.usage.used();
        Self { created_ms, is_going, keys: keys.collect(), quotas, network_allow, usage }
    }

    pub fn tenant(self, namespace: &Namespace) -> Tenant {
        let Self { created_ms, is_going, keys, quotas, network_allow, usage } = self;
        let keys = keys.into_iter();
        let keys = keys.map(|(name, key)| (name, Arc::new(KeyEntry::restored(namespace, key))));
        Tenant {
            created_ms,
            is_going,
            keys: keys.collect(),
            quotas,
            openable: Arc::new(Openable::new(network_allow.networks())),
            network_allow,
            usage: Arc::new(Usage::from(usage)),
            ..Tenant::default()
        }
    }
}

/// Reads the file; without it there are no namespaces.
pub fn read(path: &Path) -> Result<Contents, TenantError> {
    let failed = |error| TenantError::File { path: path.to_owned(), error };
    let damaged = |problem: String| TenantError::Damaged { path: path.to_owned(), problem };
    match path.metadata() {
        Ok(metadata) if metadata.len() > MOST_BYTES => {
            return Err(damaged(format!("it is larger than {} MiB", MOST_BYTES >> 20)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Contents::new(BTreeMap::new()));
        }
        result => result.map_err(failed)?,
    };
    let text = fs::read(path).map_err(failed)?;
    let Head { version } =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if version != VERSION {
        return Err(damaged(format!("it has version {version}, this squeezy supports {VERSION}")));
    }
    serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))
}
