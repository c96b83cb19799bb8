//! One virtio-mem device, divided into partitions by the guest's kernel (`docs/abi.md`).

use super::{
    Elastic, GRANULE_BYTES, GuestDriven, GuestMemory, Layout, MEMORY_BLOCK_BYTES, Region, Running,
    check_instances, round_up,
};
use crate::{AgentClient, BoxFuture, Console, Result, VmError};
use bytesize::ByteSize;
use squeezy_protocol::PartitionNumber;
use std::ops::Range;

/// How a virtio-mem region is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionLayout {
    /// Size of one partition, in bytes.
    pub partition_bytes: u64,
    /// The number of partitions, 1 to 255.
    pub partitions: u16,
    /// Size of the shared partition, in bytes; plugged at start.
    pub shared_bytes: u64,
}

impl PartitionLayout {
    /// A layout, with sizes rounded up to what can be plugged.
    pub fn new(partition_bytes: u64, partitions: u16, shared_bytes: u64) -> Self {
        Self {
            partition_bytes: round_up(partition_bytes, GRANULE_BYTES),
            partitions,
            shared_bytes: round_up(shared_bytes, GRANULE_BYTES),
        }
    }

    /// Address space that the region needs, in bytes: each slot spans whole memory blocks.
    pub fn region_bytes(&self) -> u64 {
        let slot = round_up(self.partition_bytes, MEMORY_BLOCK_BYTES);
        slot.saturating_mul(self.partitions.into())
            .saturating_add(round_up(self.shared_bytes, MEMORY_BLOCK_BYTES))
    }

    /// Where a partition lies in the region, in bytes; `None` if it does not exist.
    pub fn range(&self, partition: PartitionNumber) -> Option<Range<u64>> {
        let slot = round_up(self.partition_bytes, MEMORY_BLOCK_BYTES);
        let first = round_up(self.shared_bytes, MEMORY_BLOCK_BYTES);
        let start = first + slot * u64::from(partition.0);
        (partition.0 < self.partitions).then(|| start..start + self.partition_bytes)
    }

    /// The size to request to have `populated` partitions plugged.
    pub fn requested_bytes(&self, populated: u16) -> u64 {
        self.shared_bytes + u64::from(populated) * self.partition_bytes
    }

    fn region(&self) -> Region {
        Region {
            region_bytes: self.region_bytes(),
            initial_bytes: self.shared_bytes,
            any_order: true,
        }
    }
}

impl GuestMemory for PartitionLayout {
    fn check(&self, _: u32) -> Result<()> {
        check_instances(self.partition_bytes, self.partitions)
    }

    fn layout(&self, base_bytes: u64) -> Layout {
        Layout { regions: vec![self.region()], ..Layout::ram(base_bytes) }
    }

    fn kernel_parameters(&self) -> Option<String> {
        Some(format!(
            "squeezy.partition_size={}K squeezy.partitions={} squeezy.shared_size={}K",
            self.partition_bytes >> 10,
            self.partitions,
            self.shared_bytes >> 10,
        ))
    }

    fn partitions(&self) -> Option<PartitionLayout> {
        Some(*self)
    }

    fn start(&self, vm: &Running) -> Vec<Box<dyn Elastic>> {
        vec![Box::new(GuestDriven::virtio_mem(vm, 0, self.region()))]
    }

    fn check_guest<'a>(
        &'a self,
        agent: &'a AgentClient,
        console: &'a Console,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(squeezy) = agent.memory().await?.squeezy else {
                return Err(misunderstood(console, "it runs as a stock kernel"));
            };
            let (bytes, count) = (squeezy.partition_size_bytes, squeezy.partitions.len());
            if bytes != self.partition_bytes || count != usize::from(self.partitions) {
                let what = format!("it has {count} of {}", ByteSize(bytes));
                return Err(misunderstood(console, &what));
            }
            Ok(())
        })
    }
}

/// The guest's kernel does not have the requested partitions, for the reason in its log.
fn misunderstood(console: &Console, what: &str) -> VmError {
    let lines = console.tail(usize::MAX);
    let said = lines.iter().rev().find_map(|line| Some(&line[line.find("squeezy:")?..]));
    VmError::NoPartitions(match said {
        Some(line) => format!("{what}; its log says: {line}"),
        None => format!("{what}; was it built with CONFIG_SQUEEZY?"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_rounded_and_placed_as_the_kernel_does() {
        let layout = PartitionLayout::new((300 << 20) + 1, 3, 1);
        assert_eq!(layout.partition_bytes, 304 << 20);
        assert_eq!(layout.shared_bytes, 4 << 20);
        assert_eq!(layout.region_bytes(), (128 << 20) + 3 * (384 << 20));
        assert_eq!(layout.requested_bytes(2), (4 << 20) + 2 * (304 << 20));
    }
}
