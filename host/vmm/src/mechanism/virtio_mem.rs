//! Stock virtio-mem: the same device and sizes, but the guest places pages wherever it likes.

use super::{Mechanism, MechanismName, Sizing, Slots, by_count::ByCount};
use crate::{
    Llfree,
    memory::{PartitionLayout, VirtioMem},
};
use std::sync::Arc;

pub(super) fn new(sizing: Sizing) -> Box<dyn Mechanism> {
    let Sizing { instance_bytes, instances, shared_bytes } = sizing;
    let layout = PartitionLayout::new(instance_bytes, instances, shared_bytes);
    Box::new(ByCount {
        name: MechanismName::VirtioMem,
        slots: Slots::new(instances),
        memory: Arc::new(VirtioMem {
            region_bytes: layout.requested_bytes(layout.partitions),
            initial_bytes: layout.shared_bytes,
        }),
        llfree: Llfree::Off,
        base_bytes: 0,
        shared_bytes: layout.shared_bytes,
        instance_bytes: layout.partition_bytes,
    })
}
