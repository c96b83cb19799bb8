//! What can be had from a stock kernel: a virtio-mem device and a NUMA node for each instance,
//! which its cgroup's cpuset binds it to.

use super::{Method, MethodName, Sizing, Slot, Slots};
use crate::{
    BoxFuture, Device, GRANULE_BYTES, GuestMemory, Kernel, Resize, Result, Vm, VmConfig, round_up,
};
use squeezy_protocol::{InstanceSpec, PartitionChoice};

pub(super) struct Node {
    node_bytes: u64,
    shared_bytes: u64,
    nodes: u16,
    slots: Slots,
}

impl Node {
    pub(super) fn new(sizing: Sizing) -> Self {
        Self {
            node_bytes: round_up(sizing.instance_bytes, GRANULE_BYTES),
            shared_bytes: round_up(sizing.shared_bytes, GRANULE_BYTES),
            nodes: sizing.instances,
            slots: Slots::new(sizing.instances),
        }
    }
}

impl Method for Node {
    fn name(&self) -> MethodName {
        MethodName::Node
    }

    fn kernel(&self) -> Kernel {
        Kernel::Node
    }

    fn configure(&self, mut config: VmConfig) -> VmConfig {
        // What instances share lives in node 0, with the kernel.
        config.base_bytes += self.shared_bytes;
        config.memory = GuestMemory::Nodes { node_bytes: self.node_bytes, nodes: self.nodes };
        config
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn plug<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async move {
            let device = Device::VirtioMem(slot.0);
            match vm.resize_device(device, self.node_bytes).await {
                Ok(resize) => Ok(Some(resize)),
                Err(error) => {
                    self.slots.free(slot)?;
                    vm.withdraw(device, || 0).await;
                    Err(error)
                }
            }
        })
    }

    fn reclaim<'a>(&'a self, vm: &'a Vm, slot: Slot) -> BoxFuture<'a, Result<Option<Resize>>> {
        Box::pin(async move { vm.resize_device(Device::VirtioMem(slot.0), 0).await.map(Some) })
    }

    fn place(&self, slot: Slot, spec: &mut InstanceSpec) {
        spec.partition = PartitionChoice::None;
        // Node 0 is the base.
        spec.memory_node = Some(slot.0 + 1);
    }
}
