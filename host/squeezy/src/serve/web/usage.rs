//! Counts what namespaces use, and says how nice they are for it.

use super::{Name, Page};
use crate::{
    mutex::lock,
    serve::{
        metrics::OfNamespace,
        tenants::{Memory, Used},
    },
};
use squeezy_node::NodeStatus;
use squeezy_openwhisk::{Namespace, QualifiedName};
use std::{collections::BTreeMap, time::Duration};

impl Page {
    /// Counts what namespaces have held for this long, as of this sample.
    pub(super) fn count_usage(&self, status: &NodeStatus, time: Duration) {
        let tenants = &self.service.tenants;
        tenants.hold(&held(status, |index| self.watch.names.of(index).name), time);
        let now = tenants.used();
        let mut counted = lock(&self.used);
        for gone in counted.keys().filter(|namespace| !now.contains_key(*namespace)) {
            self.watch.metrics.forget_namespace(&OfNamespace::from(gone));
        }
        for (namespace, used) in &now {
            let before = counted.get(namespace).copied().unwrap_or_default();
            let labels = OfNamespace::from(namespace);
            let Used { calls, promised_mib_ms, occupied_mib_ms } = *used;
            let metrics = &self.watch.metrics;
            metrics
                .namespace_calls
                .get_or_create(&labels)
                .inc_by(calls.saturating_sub(before.calls));
            let niceness = self.service.niceness(namespace);
            metrics.namespace_niceness.get_or_create(&labels).set(niceness.into());
            for (family, now, before) in [
                (&metrics.namespace_promised_byte, promised_mib_ms, before.promised_mib_ms),
                (&metrics.namespace_occupied_byte, occupied_mib_ms, before.occupied_mib_ms),
            ] {
                // Whole ones: what is left over counts the next time.
                let more = byte_seconds(now).saturating_sub(byte_seconds(before));
                family.get_or_create(&labels).inc_by(u64::try_from(more).unwrap_or(u64::MAX));
            }
        }
        *counted = now;
    }
}

/// MiB times milliseconds as bytes times seconds.
fn byte_seconds(mib_ms: u64) -> u128 {
    (u128::from(mib_ms) << 20) / 1000
}

/// The memory of each namespace. A VM belongs to the namespace of its functions.
fn held(
    status: &NodeStatus,
    name: impl Fn(squeezy_scaler::FunctionIndex) -> Name,
) -> BTreeMap<Namespace, Memory> {
    let mut held: BTreeMap<Namespace, Memory> = BTreeMap::new();
    let mut owners = BTreeMap::new();
    for (index, counts) in &status.functions {
        let Ok(QualifiedName { namespace, .. }) = name(*index).0.parse() else { continue };
        held.entry(namespace.clone()).or_default().promised_bytes += counts.promised_bytes;
        if let Some(vm) = status.vm_of.get(index) {
            owners.insert(*vm, namespace);
        }
    }
    for (vm, _, memory) in &status.vms {
        if let (Some(namespace), Some(memory)) = (owners.get(vm), memory) {
            held.entry(namespace.clone()).or_default().occupied_bytes +=
                memory.resident.resident_bytes;
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_scaler::{Counts, FunctionIndex, VmIndex, VmState};
    use squeezy_vmm::{MemoryUse, Resident};

    #[test]
    fn a_vm_counts_once_for_whose_functions_it_has() {
        let index = [0, 1, 2].map(FunctionIndex);
        let counts = |promised_bytes| Counts { promised_bytes, ..Counts::default() };
        let resident = |resident_bytes| {
            let resident = Resident { resident_bytes, ..Resident::default() };
            Some(MemoryUse { resident, ..MemoryUse::default() })
        };
        let up = VmState::Up { empty_since: None };
        let status = NodeStatus {
            functions: vec![(index[0], counts(1)), (index[1], counts(2)), (index[2], counts(4))],
            vm_of: BTreeMap::from([
                (index[0], VmIndex(0)),
                (index[1], VmIndex(0)),
                (index[2], VmIndex(1)),
            ]),
            vms: vec![(VmIndex(0), up, resident(8)), (VmIndex(1), up, resident(16))],
            ..NodeStatus::default()
        };
        let names = ["f", "g", "/acme/f"];
        let held = held(&status, |index| Name(names[index.0 as usize].into()));
        let right = [
            ("acme", Memory { promised_bytes: 4, occupied_bytes: 16 }),
            ("guest", Memory { promised_bytes: 3, occupied_bytes: 8 }),
        ];
        let right = right.map(|(name, memory)| (name.parse().unwrap(), memory));
        assert_eq!(held, BTreeMap::from(right));
    }
}
