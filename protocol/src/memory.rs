//! The guest's view of its memory.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Counts partitions from 0, as sysfs, `squeezyctl` and the kernel log do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionNumber(pub u16);

impl fmt::Display for PartitionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Guest memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// `/proc/meminfo`, every line that is in kB turned into bytes, by the kernel's own names.
    pub meminfo_bytes: BTreeMap<String, u64>,
    /// `/proc/vmstat`, as it is.
    pub vmstat: BTreeMap<String, u64>,
    /// CPU time of kernel threads by name in nanoseconds (`kworker` threads are summed up).
    pub kernel_threads_ns: BTreeMap<String, u64>,
    /// The partitions, if the kernel has them.
    pub squeezy: Option<Squeezy>,
}

/// `/sys/kernel/mm/squeezy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Squeezy {
    /// Bytes of a partition.
    pub partition_size_bytes: u64,
    /// Bytes of the shared partition.
    pub shared_size_bytes: u64,
    /// Why the latest request to shrink has not been completed; empty when nothing is owed.
    pub shrink_blocked: String,
    /// The kernel's counters (`plugs`, `unplugs`, `oom_kills`, ...), by the names of their files.
    pub counters: BTreeMap<String, u64>,
    /// Every partition, in order.
    pub partitions: Vec<Partition>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its number.
    pub number: PartitionNumber,
    /// Where it stands in its life.
    pub state: PartitionState,
    /// Address spaces and pending assignments that hold it.
    pub users: u32,
    /// Bytes the kernel manages in it; 0 when it is not plugged.
    pub managed_bytes: u64,
    /// Bytes of them that nobody uses.
    pub free_bytes: u64,
    /// Processes that were killed because this partition was full, since boot.
    #[serde(default)]
    pub oom_kills: u64,
}

/// The states of the kernel's state machine (`docs/abi.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionState {
    /// Not plugged; it has no memory map yet, or not all of it.
    Absent,
    /// Its memory is being added.
    Populating,
    /// Plugged, but there is no memory for its memory map: it goes back to the host.
    Owed,
    /// Plugged and nobody's.
    Free,
    /// Some process's.
    Assigned,
    /// Its last process is gone, some of its pages are not.
    Draining,
    /// As draining, and what is left cannot be moved.
    Quarantined,
    /// On its way back to the host.
    Unplugging,
    /// Given back; the memory map stays.
    Unplugged,
    /// On its way from the host.
    Plugging,
}

impl PartitionState {
    /// Whether the host has given it its memory, once nothing is under way.
    pub fn is_plugged(self) -> bool {
        !matches!(self, Self::Absent | Self::Unplugged)
    }

    /// Whether it has memory that no instance can use, and that does not go back for now.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Quarantined | Self::Owed)
    }

    /// Whether it is about to be in another state, and the device may have it so already.
    pub fn is_changing(self) -> bool {
        matches!(self, Self::Populating | Self::Unplugging | Self::Plugging)
    }
}
