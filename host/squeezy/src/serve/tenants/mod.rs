//! Namespaces, their keys, and what they use: `namespaces.json` in the state directory.
//!
//! The file is replaced as a whole before a change counts; `file` has its form. Who has just used a key, and
//! what was used, is written a minute later at most, and lost if the daemon is killed before.

mod calls;
mod change;
mod error;
mod file;
mod key;
mod network_allow;
mod quota;
mod tenancy;
#[cfg(test)]
mod tests;
mod usage;

pub use calls::Calling;
pub use change::NamespaceChange;
pub use error::TenantError;
pub use key::{KeyName, NewKey};
pub use network_allow::NetworkAllow;
pub use quota::{OverQuota, Quotas};
pub use tenancy::Tenancy;
pub use usage::{Memory, Used};

use super::{
    bodies::{Payer, Portion},
    callers::{Caller, Role},
    key::Key,
    state::write_whole,
};
use calls::Calls;
use file::{Contents, StoredTenant};
use key::KeyEntry;
use serde_json::{Value, json};
use squeezy_openwhisk::{Namespace, now_ms};
use squeezy_vmm::network::Openable;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};
use usage::Usage;

/// The most namespaces, and the most keys of one.
const MOST_NAMESPACES: usize = 256;
const MOST_KEYS: usize = 16;

/// All namespaces. The one that is always there belongs to the operator, whose key is not one of these.
pub struct Tenants {
    path: PathBuf,
    operator: RwLock<Key>,
    state: Arc<RwLock<State>>,
    /// Held while the file changes.
    changing: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Default)]
struct State {
    namespaces: BTreeMap<Namespace, Tenant>,
    /// All keys, by the public part.
    keys: HashMap<String, Arc<KeyEntry>>,
}

/// A namespace.
#[derive(Clone, Default)]
struct Tenant {
    created_ms: u64,
    /// What is in it is being removed. Nobody has a key any more.
    is_going: bool,
    keys: BTreeMap<KeyName, Arc<KeyEntry>>,
    quotas: Quotas,
    network_allow: NetworkAllow,
    /// The same, for the VMs that it has.
    openable: Arc<Openable>,
    calls: Arc<Calls>,
    usage: Arc<Usage>,
}

impl Tenants {
    /// Reads the namespaces of a state directory, which the caller has locked.
    pub fn open(directory: &Path, operator: Key) -> Result<Self, TenantError> {
        let path = directory.join("namespaces.json");
        let mut state = State::default();
        for (namespace, stored) in file::read(&path)?.namespaces {
            let tenant = stored.tenant(&namespace);
            state.namespaces.insert(namespace, tenant);
        }
        state.namespaces.entry(Namespace::guest()).or_default();
        state.index();
        let (state, changing) = (Arc::new(RwLock::new(state)), Arc::default());
        Ok(Self { path, operator: RwLock::new(operator), state, changing })
    }

    /// Replaces the operator's key: the former one is refused from the next request on. Returns whether it is another one.
    pub fn set_operator(&self, key: Key) -> bool {
        let mut operator = self.operator.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = !operator.is_same(&key);
        *operator = key;
        is_other
    }

    /// Who sends a request with this `Authorization` header; `None` for nobody who is known. Costs the same however
    /// many keys there are.
    pub fn caller(&self, header: Option<&str>) -> Option<Caller> {
        let given = Key::given(header?)?;
        if self.operator.read().unwrap_or_else(PoisonError::into_inner).admits(&given) {
            return Some(Caller { namespace: Namespace::guest(), role: Role::Operator, key: None });
        }
        let id = given.split(|byte| *byte == b':').next()?;
        let key = self.read().keys.get(std::str::from_utf8(id).ok()?)?.clone();
        key.admits(&given).then(|| key.used())
    }

    /// Whether a caller is known still: the key may have been revoked while the rest of the request came, and the
    /// namespace been made anew.
    pub fn knows(&self, caller: &Caller) -> bool {
        caller.key.as_deref().is_none_or(|key| self.read().keys.contains_key(key))
    }

    /// Whether the operator is the only one, so that numbers are nobody else's.
    pub fn is_alone(&self) -> bool {
        self.read().namespaces.len() == 1
    }

    /// Whether there is such a namespace that is not going.
    pub fn has(&self, namespace: &Namespace) -> bool {
        self.read().namespaces.get(namespace).is_some_and(|tenant| !tenant.is_going)
    }

    /// The names of all that are not going.
    pub fn names(&self) -> Vec<Namespace> {
        let state = self.read();
        let there = state.namespaces.iter().filter(|(_, tenant)| !tenant.is_going);
        there.map(|(name, _)| name.clone()).collect()
    }

    /// When a namespace was made, in milliseconds since 1970; 0 for the one that is always there.
    pub fn created_ms(&self, namespace: &Namespace) -> u64 {
        self.read().namespaces.get(namespace).map_or(0, |tenant| tenant.created_ms)
    }

    /// Those that are going.
    pub fn going(&self) -> Vec<Namespace> {
        let state = self.read();
        let going = state.namespaces.iter().filter(|(_, tenant)| tenant.is_going);
        going.map(|(name, _)| name.clone()).collect()
    }

    /// How much a namespace may have of what belongs to all.
    pub fn payer(&self, namespace: &Namespace) -> Payer {
        let portion = match namespace.is_guest() {
            true if self.is_alone() => Portion::All,
            true => Portion::ThreeQuarters,
            false => Portion::Quarter,
        };
        Payer { namespace: namespace.clone(), portion }
    }

    /// Begins a call in a namespace, of a client with a key or without one, if it may have one more.
    pub fn call(&self, namespace: &Namespace, by_stranger: bool) -> Result<Calling, TenantError> {
        let state = self.read();
        let tenant = state.namespaces.get(namespace).filter(|tenant| !tenant.is_going);
        let tenant = tenant.ok_or(TenantError::NoNamespace)?;
        let calling = tenant.calls.begin(&tenant.quotas, by_stranger)?;
        tenant.usage.call();
        Ok(calling)
    }

    /// Counts memory that namespaces have held for this long.
    pub fn hold(&self, held: &BTreeMap<Namespace, Memory>, time: Duration) {
        let state = self.read();
        for (namespace, memory) in held {
            if let Some(tenant) = state.namespaces.get(namespace) {
                tenant.usage.hold(*memory, time);
            }
        }
    }

    /// What each namespace has used.
    pub fn used(&self) -> BTreeMap<Namespace, Used> {
        let state = self.read();
        let all = state.namespaces.iter();
        all.map(|(name, tenant)| (name.clone(), tenant.usage.used())).collect()
    }

    /// What a namespace may have.
    pub fn quotas(&self, namespace: &Namespace) -> Quotas {
        let state = self.read();
        state.namespaces.get(namespace).map(|tenant| tenant.quotas).unwrap_or_default()
    }

    /// What the operator allows the actions of a namespace to open for themselves.
    pub fn network_allow(&self, namespace: &Namespace) -> NetworkAllow {
        let state = self.read();
        let tenant = state.namespaces.get(namespace);
        tenant.map(|tenant| tenant.network_allow.clone()).unwrap_or_default()
    }

    /// The same, as it is at any time, for the VMs of these actions.
    pub fn openable(&self, namespace: &Namespace) -> Arc<Openable> {
        let state = self.read();
        let tenant = state.namespaces.get(namespace);
        tenant.map(|tenant| tenant.openable.clone()).unwrap_or_default()
    }

    /// How many activations are kept of namespaces for which that is said.
    pub fn most_activations(&self) -> BTreeMap<Namespace, usize> {
        let state = self.read();
        let said = state.namespaces.iter();
        said.filter_map(|(name, tenant)| Some((name.clone(), tenant.quotas.activations?))).collect()
    }

    /// The number of its calls at the moment.
    pub fn calls(&self, namespace: &Namespace) -> usize {
        let state = self.read();
        state.namespaces.get(namespace).map_or(0, |tenant| tenant.calls.count())
    }

    /// A namespace as clients receive it.
    pub fn describe(&self, namespace: &Namespace) -> Result<Value, TenantError> {
        let state = self.read();
        let tenant = state.namespaces.get(namespace).ok_or(TenantError::NoNamespace)?;
        Ok(json!({
            "name": namespace,
            "created": tenant.created_ms,
            "deleting": tenant.is_going,
            "keys": tenant.keys.len(),
            "quotas": tenant.quotas,
            "network_allow": tenant.network_allow,
            "calls": tenant.calls.count(),
            "usage": tenant.usage.used().describe(),
        }))
    }

    /// Changes what a namespace may have and reach, all of it or nothing. When this returns, its functions, those that run
    /// included, open no connection any more to what was taken back, but for one that is being judged, which ends within
    /// a second or two.
    pub async fn set(
        &self,
        namespace: &Namespace,
        change: NamespaceChange,
    ) -> Result<(), TenantError> {
        self.change(|state| {
            let tenant = state.namespaces.get_mut(namespace).filter(|tenant| !tenant.is_going);
            change.apply(tenant.ok_or(TenantError::NoNamespace)?)
        })
        .await
    }

    /// Makes a namespace, without a key, that may have what a new one may, but for this.
    pub async fn create(
        &self,
        namespace: &Namespace,
        new: Quotas,
        change: NamespaceChange,
    ) -> Result<(), TenantError> {
        let mut made = Tenant { created_ms: now_ms(), quotas: new, ..Tenant::default() };
        change.apply(&mut made)?;
        self.change(|state| {
            match state.namespaces.get(namespace) {
                Some(tenant) if tenant.is_going => return Err(TenantError::Going),
                Some(_) => return Err(TenantError::Exists),
                None => {}
            }
            if state.namespaces.len() >= MOST_NAMESPACES {
                return Err(TenantError::TooManyNamespaces(MOST_NAMESPACES));
            }
            state.namespaces.insert(namespace.clone(), made);
            Ok(())
        })
        .await
    }

    /// Revokes all keys of a namespace, which has no calls any more from then on.
    pub async fn begin_to_go(&self, namespace: &Namespace) -> Result<(), TenantError> {
        self.change(|state| {
            if namespace.is_guest() {
                return Err(TenantError::Guest);
            }
            let tenant = state.namespaces.get_mut(namespace).ok_or(TenantError::NoNamespace)?;
            tenant.is_going = true;
            tenant.keys.clear();
            Ok(())
        })
        .await
    }

    /// Forgets a namespace in which nothing is left.
    pub async fn end(&self, namespace: &Namespace) -> Result<(), TenantError> {
        self.change(|state| {
            state.namespaces.remove(namespace);
            Ok(())
        })
        .await
    }

    /// The keys of a namespace as clients receive them, without their secrets.
    pub fn keys(&self, namespace: &Namespace) -> Vec<Value> {
        let state = self.read();
        let keys = state.namespaces.get(namespace).map(|tenant| &tenant.keys);
        keys.into_iter().flatten().map(|(name, key)| key.describe(name)).collect()
    }

    /// Makes a key. The secret is in the answer, and nowhere else.
    pub async fn create_key(
        &self,
        namespace: &Namespace,
        name: KeyName,
        role: Role,
    ) -> Result<NewKey, TenantError> {
        if role == Role::Monitor && !namespace.is_guest() {
            return Err(TenantError::MonitorsAll);
        }
        let new = NewKey::make(namespace, role)?;
        self.change(|state| {
            let tenant = state.namespaces.get_mut(namespace).filter(|tenant| !tenant.is_going);
            let keys = &mut tenant.ok_or(TenantError::NoNamespace)?.keys;
            if keys.contains_key(&name) {
                return Err(TenantError::KeyExists);
            }
            if keys.len() >= MOST_KEYS {
                return Err(TenantError::TooManyKeys(MOST_KEYS));
            }
            keys.insert(name, new.entry());
            Ok(())
        })
        .await?;
        Ok(new)
    }

    /// Revokes a key at once.
    pub async fn revoke(&self, namespace: &Namespace, name: &KeyName) -> Result<(), TenantError> {
        self.change(|state| {
            let tenant = state.namespaces.get_mut(namespace).ok_or(TenantError::NoNamespace)?;
            tenant.keys.remove(name).map(drop).ok_or(TenantError::NoKey)
        })
        .await
    }

    /// Writes when keys were last used, and what namespaces have used.
    pub async fn keep_uses(&self) -> Result<(), TenantError> {
        if self.forget_news() { self.change(|_| Ok(())).await } else { Ok(()) }
    }

    /// Whether anything was used since this was last asked for.
    fn forget_news(&self) -> bool {
        let state = self.read();
        let tenants = state.namespaces.values().filter(|tenant| tenant.usage.forget_news());
        let keys = state.keys.values().filter(|key| key.forget_news());
        tenants.count() + keys.count() > 0
    }

    /// Changes the file, and then what is in memory: both, even if nobody waits for it any more.
    async fn change(
        &self,
        change: impl FnOnce(&mut State) -> Result<(), TenantError>,
    ) -> Result<(), TenantError> {
        let changing = self.changing.clone().lock_owned().await;
        let mut state = self.read().clone();
        change(&mut state)?;
        let namespaces = state.namespaces.iter();
        let namespaces = namespaces.map(|(name, tenant)| (name.clone(), StoredTenant::of(tenant)));
        let (path, contents) = (self.path.clone(), Contents::new(namespaces.collect()));
        let failed = |error| TenantError::File { path: self.path.clone(), error };
        // Not on the threads that answer calls, because it waits for the disk.
        let shared = self.state.clone();
        let changed = tokio::task::spawn_blocking(move || {
            let _changing = changing;
            write_whole(&path, &contents.text()?)?;
            state.index();
            for tenant in state.namespaces.values() {
                tenant.openable.set(tenant.network_allow.networks());
            }
            *shared.write().unwrap_or_else(PoisonError::into_inner) = state;
            Ok(())
        });
        changed.await.map_err(std::io::Error::other).flatten().map_err(failed)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn index(&mut self) {
        let keys = self.namespaces.values().flat_map(|tenant| tenant.keys.values());
        self.keys = keys.map(|key| (key.id.clone(), key.clone())).collect();
    }
}
