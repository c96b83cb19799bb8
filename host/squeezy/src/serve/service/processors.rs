//! How namespaces share the processors: the VMs of each are in a control group of its own, with its weight.

use super::{Service, lock};
use crate::serve::log::log_warning;
use squeezy_openwhisk::Namespace;
use squeezy_vmm::{CpuGroup, CpuGroups};
use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

/// The control groups of all namespaces that have VMs; none if Linux shares the processors among threads.
#[derive(Default)]
pub(super) struct Processors {
    groups: Option<CpuGroups>,
    of: Mutex<BTreeMap<Namespace, Arc<CpuGroup>>>,
}

impl Processors {
    /// That of a namespace, which has this weight.
    fn group(&self, namespace: &Namespace, weight: NonZeroU32) -> Option<Arc<CpuGroup>> {
        let groups = self.groups.as_ref()?;
        let mut of = lock(&self.of);
        let group = of.entry(namespace.clone()).or_insert_with(|| Arc::new(groups.group(weight)));
        Some(group.clone())
    }

    fn set_weight(&self, namespace: &Namespace, weight: NonZeroU32) {
        let group = lock(&self.of).get(namespace).cloned();
        if let Some(Err(error)) = group.map(|group| group.set_weight(weight)) {
            log_warning(&format!(
                "the weight of {namespace} does not count for its processors yet, only for its next VM: {error}"
            ));
        }
    }
}

impl Service {
    /// With control groups among which the processors are shared, if there can be any.
    pub fn with_processors(self, groups: Option<CpuGroups>) -> Self {
        Self { processors: Processors { groups, ..Processors::default() }, ..self }
    }

    /// Where a VM of a namespace gets its processors.
    pub(super) fn cpu_group(&self, namespace: &Namespace) -> Option<Arc<CpuGroup>> {
        self.processors.group(namespace, self.tenants.quotas(namespace).policy().weight)
    }

    /// Has what a namespace's weight is count for its processors.
    pub(super) fn weigh_processors(&self, namespace: &Namespace) {
        self.processors.set_weight(namespace, self.tenants.quotas(namespace).policy().weight);
    }

    /// Forgets a namespace; its group goes with its last VM.
    pub(super) fn forget_processors(&self, namespace: &Namespace) {
        lock(&self.processors.of).remove(namespace);
    }
}
