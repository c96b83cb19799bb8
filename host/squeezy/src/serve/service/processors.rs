//! How namespaces share the processors: the VMs of each have a share, by its weight.

use super::Service;
use crate::mutex::lock;
use squeezy_openwhisk::Namespace;
use squeezy_vmm::{CpuShare, CpuShares};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// The shares of all namespaces that have VMs; none if Linux shares the processors among threads.
#[derive(Default)]
pub(super) struct Processors {
    shares: Option<CpuShares>,
    of: Mutex<BTreeMap<Namespace, Arc<CpuShare>>>,
}

impl Service {
    /// With shares of the processors for namespaces, if there can be any.
    pub fn with_processors(self, shares: Option<CpuShares>) -> Self {
        Self { processors: Processors { shares, ..Processors::default() }, ..self }
    }

    /// The share of the processors that the VMs of a namespace have.
    pub(super) fn cpu_share(&self, namespace: &Namespace) -> Option<Arc<CpuShare>> {
        let shares = self.processors.shares.as_ref()?;
        let weight = self.tenants.quotas(namespace).policy().weight;
        let mut of = lock(&self.processors.of);
        Some(of.entry(namespace.clone()).or_insert_with(|| shares.share(weight)).clone())
    }

    /// How nice the VMs of a namespace are, from 0 to 19.
    pub fn niceness(&self, namespace: &Namespace) -> u8 {
        lock(&self.processors.of).get(namespace).map_or(0, |share| share.niceness())
    }

    /// Has what a namespace's weight is now count for its processors.
    pub(super) fn weigh_processors(&self, namespace: &Namespace) {
        if let Some(share) = lock(&self.processors.of).get(namespace) {
            share.set_weight(self.tenants.quotas(namespace).policy().weight);
        }
    }

    /// Forgets a namespace; its share goes with its last VM.
    pub(super) fn forget_processors(&self, namespace: &Namespace) {
        lock(&self.processors.of).remove(namespace);
    }
}
