//! A virtio-mem device and a NUMA node for each instance; node 0 is the base.

use super::{
    Elastic, GuestDriven, GuestMemory, Layout, MEMORY_BLOCK_BYTES, Region, Running,
    check_instances, round_up,
};
use crate::{Kernel, Result, VmError};

/// The best that a stock kernel offers, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Size of each node, in bytes.
    pub node_bytes: u64,
    /// The number of nodes.
    pub nodes: u16,
}

impl Nodes {
    fn region(&self) -> Region {
        let region_bytes = round_up(self.node_bytes, MEMORY_BLOCK_BYTES);
        Region { region_bytes, initial_bytes: 0, any_order: false }
    }
}

impl GuestMemory for Nodes {
    fn check(&self, vcpus: u32) -> Result<()> {
        check_instances(self.node_bytes, self.nodes)?;
        // Linux learns of a node at boot by its memory or its processors. These have no memory yet,
        // so each has a processor that is never plugged.
        if vcpus + u32::from(self.nodes) > Kernel::MAX_PROCESSORS {
            return Err(VmError::Config(format!(
                "{} nodes and {vcpus} processors were requested; at most {} together are possible",
                self.nodes,
                Kernel::MAX_PROCESSORS
            )));
        }
        Ok(())
    }

    fn layout(&self, base_bytes: u64) -> Layout {
        let regions = vec![self.region(); self.nodes.into()];
        Layout { regions, nodes: true, ..Layout::ram(base_bytes) }
    }

    fn start(&self, vm: &Running) -> Vec<Box<dyn Elastic>> {
        let node = |index| -> Box<dyn Elastic> {
            Box::new(GuestDriven::virtio_mem(vm, index, self.region()))
        };
        (0..self.nodes).map(node).collect()
    }
}
