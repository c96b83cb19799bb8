//! Which memory backends a policy is compared on.

use squeezy_node::PolicyName;
use squeezy_vmm::MemoryBackend;

/// Private memory, and a file where it matters what the host takes by itself: where a VM is charged for what it holds.
pub(crate) fn memory_backends(policy: PolicyName) -> &'static [MemoryBackend] {
    match policy {
        PolicyName::Overcommit => &[MemoryBackend::Ram, MemoryBackend::Memfd],
        _ => &[MemoryBackend::Ram],
    }
}

/// The name of a policy on a memory backend.
pub(crate) fn method((policy, memory_backend): (PolicyName, MemoryBackend)) -> String {
    match memory_backend {
        MemoryBackend::Ram => policy.to_string(),
        MemoryBackend::Memfd => format!("{policy}, {memory_backend}"),
    }
}
