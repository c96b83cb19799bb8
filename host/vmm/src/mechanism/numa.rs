//! The best that a stock kernel offers: for each instance a virtio-mem device and a NUMA node,
//! which the cpuset of its cgroup binds it to.

use super::{Mechanism, MechanismName, Sizing, Slot, Slots};
use crate::{
    BoxFuture, Kernel, Result, Vm, VmConfig,
    memory::{GRANULE_BYTES, Nodes, Resize, round_up},
};
use squeezy_protocol::{InstanceSpec, PartitionChoice};
use std::sync::Arc;

struct NodeEach {
    node_bytes: u64,
    shared_bytes: u64,
    slots: Slots,
    nodes: u16,
}

pub(super) fn new(sizing: Sizing) -> Box<dyn Mechanism> {
    Box::new(NodeEach {
        node_bytes: round_up(sizing.instance_bytes, GRANULE_BYTES),
        shared_bytes: round_up(sizing.shared_bytes, GRANULE_BYTES),
        slots: Slots::new(sizing.instances),
        nodes: sizing.instances,
    })
}

impl Mechanism for NodeEach {
    fn name(&self) -> MechanismName {
        MechanismName::Numa
    }

    fn kernel(&self) -> Kernel {
        Kernel::Numa
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        // What instances share is in node 0, with the kernel.
        config.base_bytes += self.shared_bytes;
        config.memory = Arc::new(Nodes { node_bytes: self.node_bytes, nodes: self.nodes });
        config
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async move {
            let resized = vm.resize_part(slot.0, self.node_bytes).await;
            if resized.is_err() {
                self.slots.free(slot)?;
                vm.withdraw(slot.0, &|| 0).await;
            }
            resized.map(Some)
        })
    }

    fn reclaim<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async move { vm.resize_part(slot.0, 0).await.map(Some) })
    }

    fn place(&self, slot: Slot, spec: &mut InstanceSpec) {
        spec.partition = PartitionChoice::None;
        // Node 0 is the base.
        spec.memory_node = Some(slot.0 + 1);
    }
}
