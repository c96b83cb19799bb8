//! The end of a namespace, step by step, so that a daemon that is killed goes on where it was: its keys are revoked,
//! its actions and packages are removed, its last calls end, its activations are removed, and then its name is free again.

use super::*;
use crate::serve::{
    blobs::blocking,
    tenants::{NamespaceChange, OverQuota, Quotas, TenantError},
};
use squeezy_openwhisk::Digest;
use std::time::Duration;

/// How often to look whether the last call has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// How long calls may run on in a namespace that is deleted by force.
const GRACE: Duration = Duration::from_secs(2);

/// How often to try to remove the actions of a namespace that is going.
const RETRY: Duration = Duration::from_secs(1);

/// How long whoever deletes a namespace waits for its end.
const PATIENCE: Duration = Duration::from_secs(5);

impl Service {
    /// Makes a namespace, which may have what a new one may, but for this.
    pub async fn create_namespace(
        self: &Arc<Self>,
        namespace: &Namespace,
        change: NamespaceChange,
    ) -> Result<(), ServiceError> {
        let (service, namespace) = (self.clone(), namespace.clone());
        to_the_end(async move {
            let new = Quotas::new(service.config().memory_bytes);
            service.tenants.create(&namespace, new, change).await?;
            service.apply_quotas(&namespace).await
        })
        .await
    }

    /// Changes what a namespace may have and reach. Its VMs stay as they are.
    pub async fn change_namespace(
        self: &Arc<Self>,
        namespace: &Namespace,
        change: NamespaceChange,
    ) -> Result<(), ServiceError> {
        let (service, namespace) = (self.clone(), namespace.clone());
        to_the_end(async move {
            service.tenants.set(&namespace, change).await?;
            service.apply_quotas(&namespace).await
        })
        .await
    }

    /// Has the node and the store know what a namespace may have.
    pub async fn apply_quotas(&self, namespace: &Namespace) -> Result<(), ServiceError> {
        self.store.set_most_of(self.tenants.most_activations());
        self.weigh_processors(namespace);
        let tenant = lock(&self.in_node).get(namespace).copied();
        match tenant {
            Some(tenant) => {
                let policy = self.tenants.quotas(namespace).policy();
                self.node.update_tenant(tenant, policy).await.map_err(unusable)
            }
            // It gets them with its first function.
            None => Ok(()),
        }
    }

    /// The tenant that a namespace is in the node. Only while actions are changed.
    pub(super) async fn tenant(&self, namespace: &Namespace) -> Result<TenantIndex, ServiceError> {
        let known = lock(&self.in_node).get(namespace).copied();
        if let Some(tenant) = known {
            return Ok(tenant);
        }
        let policy = self.tenants.quotas(namespace).policy();
        let tenant = self.node.add_tenant(policy).await.map_err(unusable)?;
        lock(&self.in_node).insert(namespace.clone(), tenant);
        Ok(tenant)
    }

    /// Whether an action's namespace may have it, with what it is made from.
    pub(super) fn within_quotas(
        &self,
        state: &State,
        name: &QualifiedName,
        is_new: bool,
        made: Option<&Made>,
    ) -> Result<(), ServiceError> {
        let quotas = self.tenants.quotas(&name.namespace);
        let there = state.actions_of(&name.namespace);
        if let Some(allowed) = quotas.actions.filter(|allowed| is_new && there >= *allowed) {
            return Err(TenantError::from(OverQuota::Actions { allowed }).into());
        }
        let Some(made) = made else { return Ok(()) };
        // Those that cannot be served now, too.
        let others = || {
            let own = |other: &QualifiedName| other.namespace == name.namespace && other != name;
            state.actions().iter().filter(move |(other, _)| own(other)).map(|(_, stored)| stored)
        };
        if let (Some(allowed), Some(code)) = (quotas.code_mb, &made.code) {
            let codes = others().filter_map(|other| other.code.as_ref());
            let codes = codes.map(|code| (&*code.kind, &code.digest));
            let codes = codes.chain([(code.kind.name, &code.code.digest)]);
            let bytes_of = |(kind, digest)| self.codes.bytes_of(&name.namespace, kind, digest);
            let bytes: u64 = codes.map(bytes_of).sum();
            let allowed = (allowed as u64) << 20;
            if bytes > allowed {
                return Err(TenantError::from(OverQuota::Code { bytes, allowed }).into());
            }
        }
        if let (Some(allowed), Some(_)) = (quotas.image_bytes(), &made.origin) {
            // Those that have been built here are the operator's. Each is there once.
            let pulled = others().filter(|other| other.origin.is_some());
            let digests = pulled.filter_map(|other| other.digest.as_ref());
            let digests: BTreeSet<_> = digests.chain([&made.pinned.digest]).collect();
            let bytes = digests.into_iter().map(|digest| self.images.bytes_of(digest)).sum();
            if bytes > allowed {
                return Err(TenantError::from(OverQuota::Images { bytes, allowed }).into());
            }
        }
        Ok(())
    }

    /// Whether an action may have code of so many bytes beside that of its namespace's other actions. This is before
    /// anything is made of it; what counts in the end is what [`Self::within_quotas`] says, while nobody else changes them.
    pub(super) fn may_have_code(
        &self,
        name: &QualifiedName,
        bytes: u64,
    ) -> Result<(), ServiceError> {
        let quotas = self.tenants.quotas(&name.namespace);
        let Some(allowed) = quotas.code_mb.map(|allowed| (allowed as u64) << 20) else {
            return Ok(());
        };
        let own = |other: &QualifiedName| other.namespace == name.namespace && other != name;
        let bytes_of =
            |kind: &str, digest: &Digest| self.codes.bytes_of(&name.namespace, kind, digest);
        let actions = self.actions();
        let codes = actions.iter().filter(|action| own(&action.name));
        let codes = codes.filter_map(|action| action.code.as_ref());
        let others: u64 = codes.map(|code| bytes_of(code.kind.name, &code.code.digest)).sum();
        let unavailable = lock(&self.unavailable);
        let codes = unavailable.iter().filter(|(other, _)| own(other));
        let codes = codes.filter_map(|(_, unavailable)| unavailable.stored.code.as_ref());
        let others = others + codes.map(|code| bytes_of(&code.kind, &code.digest)).sum::<u64>();
        let bytes = others + bytes;
        if bytes > allowed {
            return Err(TenantError::from(OverQuota::Code { bytes, allowed }).into());
        }
        Ok(())
    }

    /// Whether a package's namespace may have it, if it is new.
    pub(super) fn may_have_package(
        &self,
        state: &State,
        namespace: &Namespace,
    ) -> Result<(), ServiceError> {
        let own = state.packages().keys().filter(|name| name.namespace == *namespace);
        let there = own.count();
        match self.tenants.quotas(namespace).actions.filter(|allowed| there >= *allowed) {
            Some(allowed) => Err(TenantError::from(OverQuota::Packages { allowed }).into()),
            None => Ok(()),
        }
    }

    /// Deletes a namespace with everything in it; without `force`, only if it has no actions and no packages. With it,
    /// calls that run are ended after a moment. Completes even if the client stops waiting. Returns the namespace as it
    /// was, or as it is if its calls take long to end.
    pub async fn delete_namespace(
        self: &Arc<Self>,
        namespace: Namespace,
        force: bool,
    ) -> Result<Value, ServiceError> {
        let service = self.clone();
        to_the_end(async move { service.delete(namespace, force).await }).await
    }

    async fn delete(
        self: &Arc<Self>,
        namespace: Namespace,
        force: bool,
    ) -> Result<Value, ServiceError> {
        let described = self.tenants.describe(&namespace)?;
        let mut state = self.changing.of_operator().await;
        let tenancy = Tenancy::of(&self.tenants, &namespace).ok_or(TenantError::NoNamespace)?;
        let own = |name: &&QualifiedName| name.namespace == namespace;
        let actions = state.actions_of(&namespace);
        let packages = state.packages().keys().filter(own).count();
        match (actions, packages) {
            (1.., _) if !force => return Err(TenantError::HasActions(actions).into()),
            (_, 1..) if !force => return Err(TenantError::HasPackages(packages).into()),
            _ => self.tenants.begin_to_go(&namespace).await?,
        }
        let removed = self.remove_actions(&mut state, &namespace).await;
        drop(state);
        if let Some(tenant) = lock(&self.in_node).get(&namespace).copied().filter(|_| force) {
            let node = self.node.clone();
            tokio::spawn(async move {
                tokio::time::sleep(GRACE).await;
                node.end_calls(tenant);
            });
        }
        let service = self.clone();
        let is_empty = removed.is_ok();
        let end = tokio::spawn(async move { service.end_namespace(tenancy, is_empty).await });
        removed?;
        match tokio::time::timeout(PATIENCE, end).await {
            Ok(_) => Ok(described),
            Err(_) => Ok(self.tenants.describe(&namespace).unwrap_or(described)),
        }
    }

    /// Goes on with the ends that an earlier process has begun. Before actions are restored.
    pub async fn go_on_deleting(self: &Arc<Self>) {
        for namespace in self.tenants.going() {
            let mut state = self.changing.of_operator().await;
            let is_empty = self.remove_actions(&mut state, &namespace).await.is_ok();
            drop(state);
            let Some(tenancy) = Tenancy::of(&self.tenants, &namespace) else { continue };
            let service = self.clone();
            tokio::spawn(async move { service.end_namespace(tenancy, is_empty).await });
        }
    }

    /// Removes all actions and packages: waiting calls are refused, running ones completed.
    async fn remove_actions(
        &self,
        state: &mut State,
        namespace: &Namespace,
    ) -> Result<(), ServiceError> {
        state.remove_all(namespace).await?;
        lock(&self.packages).retain(|name, _| name.namespace != *namespace);
        lock(&self.sequences).retain(|name, _| name.namespace != *namespace);
        lock(&self.unavailable).retain(|name, _| name.namespace != *namespace);
        self.actions.remove_if(|action| action.name.namespace == *namespace);
        // It goes with the last of its functions.
        let tenant = lock(&self.in_node).get(namespace).copied();
        if let Some(tenant) = tenant {
            self.node.remove_tenant(tenant);
        }
        self.keep_named(state);
        Ok(())
    }

    /// Removes the images that have been pulled for a namespace. Those that cannot be removed now are for whoever has
    /// its name later.
    async fn remove_images(&self, namespace: &Namespace) {
        for image in self.images.all_pulled() {
            if image.namespace != *namespace {
                continue;
            }
            let images = self.images.clone();
            if let Err(error) = blocking(move || images.remove_pulled(&image)).await {
                log_warning(&format!("an image of the namespace {namespace} remains: {error}"));
            }
        }
    }

    /// Ends a namespace that is going. Whoever asks for it while somebody else does so waits.
    async fn end_namespace(&self, tenancy: Tenancy, is_empty: bool) {
        let namespace = &tenancy.namespace;
        while !lock(&self.ending).insert(namespace.clone()) {
            tokio::time::sleep(PAUSE).await;
        }
        // It may be over by now, and the name be another one's.
        if tenancy.is_going() {
            if !is_empty {
                self.empty(namespace).await;
            }
            self.end_going(namespace).await;
        }
        lock(&self.ending).remove(namespace);
    }

    /// Removes actions and packages that could not be removed at once: the disk may be full.
    async fn empty(&self, namespace: &Namespace) {
        tokio::time::sleep(RETRY).await;
        let problem = format!(
            "the actions of the namespace {namespace}, which is being deleted, cannot be removed yet"
        );
        until_done(&problem, || async {
            let mut state = self.changing.of_operator().await;
            self.remove_actions(&mut state, namespace).await
        })
        .await;
    }

    async fn end_going(&self, namespace: &Namespace) {
        while self.tenants.calls(namespace) > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        self.store.forget(namespace).await;
        self.remove_images(namespace).await;
        lock(&self.in_node).remove(namespace);
        self.forget_processors(namespace);
        let problem = format!("the namespace {namespace} is empty, but cannot be removed yet");
        until_done(&problem, || self.tenants.end(namespace)).await;
    }
}

/// Tries something again and again until it succeeds, and says once why it does not.
async fn until_done<E: std::fmt::Display, F: Future<Output = Result<(), E>>>(
    problem: &str,
    attempt: impl Fn() -> F,
) {
    let mut is_said = false;
    while let Err(error) = attempt().await {
        if !is_said {
            log_warning(&format!("{problem}: {error}"));
        }
        is_said = true;
        tokio::time::sleep(RETRY).await;
    }
}
