//! Which pods share VMs.

use crate::{
    error::{Error, Result},
    spec::Pod,
};

/// The smallest and the largest partition, in bytes; each size in between is the double of the one before.
const SMALLEST_BYTES: u64 = 128 << 20;
const LARGEST_BYTES: u64 = 64 << 30;

/// Most pods of a VM.
const MOST_PODS: u16 = 32;
/// The most that all partitions of a VM have together, in bytes: their memory map, a 64th, is in the VM's base memory.
const MOST_PARTITIONS_BYTES: u64 = LARGEST_BYTES;

/// How many pods with partitions of this size, in bytes, a VM has room for.
pub fn pods_per_vm(partition_bytes: u64) -> u16 {
    let fit = MOST_PARTITIONS_BYTES / partition_bytes.max(1);
    u16::try_from(fit).unwrap_or(u16::MAX).clamp(1, MOST_PODS)
}

/// The same, if the settings say at most so many.
pub fn room(partition_bytes: u64, most: u16) -> u16 {
    pods_per_vm(partition_bytes).min(most)
}

/// The size of the partition for a pod, in bytes. A VM's partitions are all of one size, so pods share a VM only where
/// this is the same.
///
/// # Errors
/// The pod's limit is larger than any partition.
pub fn size_class(memory_bytes: u64) -> Result<u64> {
    if memory_bytes > LARGEST_BYTES {
        return Err(Error::invalid(format_args!(
            "the pod's memory limit is {} MiB, and a partition has at most {} GiB",
            memory_bytes >> 20,
            LARGEST_BYTES >> 30
        )));
    }
    Ok(memory_bytes.next_power_of_two().max(SMALLEST_BYTES))
}

/// Which pods share VMs. The namespace is always part of it: nobody gets into another tenant's VM by naming it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Readable; no two groups have the same.
    pub key: String,
    /// Of Kubernetes, whose pods they are.
    pub namespace: String,
    /// The size of its partitions, in bytes.
    pub partition_bytes: u64,
}

impl Group {
    /// The group of a pod.
    ///
    /// # Errors
    /// As [`size_class`].
    pub fn of(pod: &Pod) -> Result<Self> {
        let partition_bytes = size_class(pod.memory_bytes)?;
        // None of these can contain a slash.
        let key = format!("{}/{}/{}", pod.kubernetes_namespace, pod.vm, partition_bytes >> 20);
        Ok(Self { key, namespace: pod.kubernetes_namespace.clone(), partition_bytes })
    }

    /// That of a namespace's pods whose VM has no name, with partitions of this size, in bytes.
    #[cfg(test)]
    pub fn of_namespace(namespace: &str, partition_bytes: u64) -> Self {
        let key = format!("{namespace}/default/{}", partition_bytes >> 20);
        Self { key, namespace: namespace.to_owned(), partition_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn pod(kubernetes_namespace: &str, vm: &str, memory_mib: u64) -> Pod {
        Pod {
            memory_bytes: memory_mib << 20,
            cpu_shares: 0,
            cgroup_of_pods: None,
            kubernetes_namespace: kubernetes_namespace.to_owned(),
            vm: vm.to_owned(),
            network: None,
            host_name: None,
            freeze: None,
        }
    }

    fn group(kubernetes_namespace: &str, vm: &str, memory_mib: u64) -> Group {
        Group::of(&pod(kubernetes_namespace, vm, memory_mib)).unwrap()
    }

    #[test]
    fn pods_share_a_vm_only_within_a_namespace_a_name_and_a_size() {
        let keys: BTreeSet<String> =
            [("a", "x", 256), ("b", "x", 256), ("a", "y", 256), ("a", "x", 512), ("a", "x", 200)]
                .map(|(namespace, vm, memory)| group(namespace, vm, memory).key)
                .into();
        assert_eq!(keys.len(), 4, "{keys:?}");
    }

    #[test]
    fn a_partition_is_the_next_power_of_two() {
        for (limit_mib, partition_mib) in
            [(1, 128), (128, 128), (129, 256), (1000, 1024), (65536, 65536)]
        {
            assert_eq!(size_class(limit_mib << 20).unwrap(), partition_mib << 20);
        }
        assert!(size_class((64 << 30) + 1).unwrap_err().message.contains("at most 64 GiB"));
        assert!(size_class(u64::MAX).is_err());
    }

    #[test]
    fn a_vm_of_large_pods_has_few() {
        for (partition_gib, pods) in [(1, 32), (2, 32), (4, 16), (64, 1)] {
            assert_eq!(pods_per_vm(partition_gib << 30), pods, "{partition_gib} GiB");
        }
        assert_eq!(pods_per_vm(SMALLEST_BYTES), 32);
        assert_eq!(pods_per_vm(u64::MAX), 1);
    }
}
