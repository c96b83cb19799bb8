//! One namespace, however many of its name there will be.

use super::{Calls, Quotas, State, Tenants};
use squeezy_openwhisk::Namespace;
use std::sync::Arc;

/// A namespace for which something takes a while, at whose end it may be gone, or going, or have been made anew.
#[derive(Clone)]
pub struct Tenancy {
    /// Its name.
    pub namespace: Namespace,
    /// Those of another one of its name are others.
    calls: Arc<Calls>,
    tenants: Arc<Tenants>,
}

impl Tenancy {
    /// The one that has this name now.
    pub fn of(tenants: &Arc<Tenants>, namespace: &Namespace) -> Option<Self> {
        let calls = tenants.read().namespaces.get(namespace)?.calls.clone();
        Some(Self { namespace: namespace.clone(), calls, tenants: tenants.clone() })
    }

    /// Whether it is there, and not going.
    pub fn is_there(&self) -> bool {
        self.is_going_in(&self.tenants.read()) == Some(false)
    }

    /// Whether what is in it is being removed.
    pub fn is_going(&self) -> bool {
        self.is_going_in(&self.tenants.read()) == Some(true)
    }

    /// What the namespace of this name may have.
    pub fn quotas(&self) -> Quotas {
        self.tenants.quotas(&self.namespace)
    }

    fn is_going_in(&self, state: &State) -> Option<bool> {
        let tenant = state.namespaces.get(&self.namespace)?;
        Arc::ptr_eq(&tenant.calls, &self.calls).then_some(tenant.is_going)
    }
}
