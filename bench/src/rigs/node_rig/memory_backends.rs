//! Which memory backends a policy is compared on.

use squeezy_node::PolicyName;
use squeezy_vmm::MemoryBackend;

/// Private memory if it can work with that, and a file where it matters what the host takes by itself: where a VM is
/// charged for what it holds.
pub(crate) fn memory_backends(policy: PolicyName) -> &'static [MemoryBackend] {
    match policy {
        PolicyName::Overcommit => &[MemoryBackend::Ram, MemoryBackend::Memfd],
        _ if policy.mechanism().needs_memfd() => &[MemoryBackend::Memfd],
        _ => &[MemoryBackend::Ram],
    }
}

/// The name of a policy on a memory backend, which is in it only if it is not the first.
pub(crate) fn method((policy, memory_backend): (PolicyName, MemoryBackend)) -> String {
    if memory_backends(policy).first() == Some(&memory_backend) {
        policy.to_string()
    } else {
        format!("{policy}, {memory_backend}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_named_with_its_memory_where_it_has_several() {
        let methods = PolicyName::ALL.map(|policy| {
            let backends = memory_backends(policy).iter();
            backends.map(|&backend| method((policy, backend))).collect::<Vec<_>>()
        });
        let names = PolicyName::ALL.map(|policy| match policy {
            PolicyName::Overcommit => vec!["overcommit".to_owned(), "overcommit, memfd".to_owned()],
            _ => vec![policy.to_string()],
        });
        assert_eq!(methods, names);
    }
}
