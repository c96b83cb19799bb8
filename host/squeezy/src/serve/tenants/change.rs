//! What is to be of a namespace.

use super::{NetworkAllow, Tenant, TenantError};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What a namespace may have and reach from now on. What is not said stays.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceChange {
    /// Those of its quotas that change.
    #[serde(default)]
    quotas: Map<String, Value>,
    /// What its actions may open for themselves.
    network_allow: Option<NetworkAllow>,
}

impl NamespaceChange {
    /// Changes a namespace in memory. After an error, it is as it was.
    pub(super) fn apply(self, tenant: &mut Tenant) -> Result<(), TenantError> {
        tenant.quotas = tenant.quotas.changed(self.quotas).map_err(TenantError::Quotas)?;
        if let Some(allow) = self.network_allow {
            tenant.network_allow = allow;
        }
        Ok(())
    }
}
