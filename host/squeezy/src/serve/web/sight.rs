//! Who sees which numbers.
//!
//! While the operator is alone, numbers are public. Once there is another namespace, one's numbers are not for another:
//! whoever looks needs a key, and sees the numbers of its namespace. The operator, and whoever has a key to monitor,
//! sees all.

use super::{ApiError, Name};
use crate::serve::{
    callers::{Need, Role},
    tenants::Tenants,
};
use axum::http::{HeaderMap, header::AUTHORIZATION};
use squeezy_openwhisk::{Namespace, QualifiedName};

/// What somebody sees.
pub struct Sight {
    /// The only namespace that is seen; `None` for all.
    namespace: Option<Namespace>,
    /// Nothing is seen of what was before, in milliseconds since 1970: an earlier namespace may have had the same name.
    pub since_ms: u64,
    /// Whether the reasons of failures are seen.
    pub has_reasons: bool,
}

impl Sight {
    /// What the sender of a request sees, if anything.
    pub fn of(tenants: &Tenants, headers: &HeaderMap) -> Result<Self, ApiError> {
        let header = headers.get(AUTHORIZATION).and_then(|header| header.to_str().ok());
        let caller = tenants.caller(header);
        let is_alone = tenants.is_alone();
        match caller {
            Some(caller) if caller.role.may(Need::Read) => {
                let sees_all = is_alone || caller.role == Role::Operator;
                let namespace = (!sees_all).then_some(caller.namespace);
                let created_ms = namespace.as_ref().map(|own| tenants.created_ms(own));
                Ok(Self { namespace, since_ms: created_ms.unwrap_or(0), has_reasons: true })
            }
            Some(caller) if is_alone || caller.role == Role::Monitor => Ok(Self::numbers()),
            Some(_) => Err(ApiError::forbidden()),
            None if is_alone => Ok(Self::numbers()),
            None => Err(ApiError::unauthorized()),
        }
    }

    /// All numbers, without reasons.
    fn numbers() -> Self {
        Self { namespace: None, since_ms: 0, has_reasons: false }
    }

    /// The only namespace that is seen; `None` for all.
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// Whether this function is seen.
    pub fn sees(&self, function: &Name) -> bool {
        let Some(own) = &self.namespace else { return true };
        function.0.parse::<QualifiedName>().is_ok_and(|name| name.namespace == *own)
    }
}
