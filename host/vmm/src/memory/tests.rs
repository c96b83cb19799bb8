//! The byte counts add up for every kind of memory.

use super::*;
use crate::backend::unused_devices;
use proptest::prelude::*;

/// Devices that are never used.
struct Unused;

unused_devices!(Unused);

/// Every kind of memory for the same instances, in bytes.
fn kinds(instance_bytes: u64, count: u16, shared_bytes: u64) -> Vec<Box<dyn GuestMemory>> {
    let all = instance_bytes * u64::from(count);
    vec![
        Box::new(Fixed { extra_bytes: all }),
        Box::new(Balloon { extra_bytes: all }),
        Box::new(VirtioMem { region_bytes: all + shared_bytes, initial_bytes: shared_bytes }),
        Box::new(PartitionLayout::new(instance_bytes, count, shared_bytes)),
        Box::new(Nodes { node_bytes: instance_bytes, nodes: count }),
    ]
}

proptest! {
    /// What the VMM provides at boot is what is requested then, and what the guest keeps plus the
    /// start sizes of its parts is what it has once it is ready.
    #[test]
    fn all_bytes_are_somewhere_and_none_is_counted_twice(
        base_granules in 0_u64..1 << 10,
        instance_granules in 1_u64..1 << 10,
        count in 1_u16..60,
        shared_granules in 0_u64..1 << 10,
    ) {
        let base = base_granules * GRANULE_BYTES;
        let vm = Running { devices: Arc::new(Unused), reclaimer: Arc::default() };
        for memory in
            kinds(instance_granules * GRANULE_BYTES, count, shared_granules * GRANULE_BYTES)
        {
            memory.check(1).unwrap();
            let layout = memory.layout(base);
            let parts = memory.start(&vm);
            let sum = |bytes: fn(&dyn Elastic) -> u64| -> u64 {
                parts.iter().map(|part| bytes(&**part)).sum()
            };
            let requested = sum(|part| part.requested_bytes());
            let ready = sum(|part| part.start_bytes());
            let most = sum(|part| part.max_bytes());
            prop_assert_eq!(layout.kept_bytes + requested, layout.start_bytes(), "{:?}", memory);
            prop_assert_eq!(layout.kept_bytes + ready, layout.ready_bytes(), "{:?}", memory);
            prop_assert!(ready.max(requested) <= most, "{:?}", memory);
            let provided = layout.boot_bytes + layout.region_bytes();
            prop_assert_eq!(layout.kept_bytes + most, provided, "{:?}", memory);
        }
    }

    /// Partitions lie in their region, in order and without overlap.
    #[test]
    fn partitions_do_not_overlap(
        partition_bytes in 1_u64..1 << 32,
        partitions in 1..=MAX_INSTANCES,
        shared_bytes in 0_u64..1 << 32,
    ) {
        let layout = PartitionLayout::new(partition_bytes, partitions, shared_bytes);
        let mut end = layout.shared_bytes;
        for number in 0..partitions {
            let range = layout.range(squeezy_protocol::PartitionNumber(number)).unwrap();
            prop_assert!(range.start >= end && range.start.is_multiple_of(MEMORY_BLOCK_BYTES));
            prop_assert_eq!(range.end - range.start, layout.partition_bytes);
            end = range.end;
        }
        prop_assert!(end <= layout.region_bytes());
        prop_assert!(layout.requested_bytes(partitions) <= layout.region_bytes());
        prop_assert_eq!(layout.range(squeezy_protocol::PartitionNumber(partitions)), None);
    }
}
