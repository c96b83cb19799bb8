//! A stray write into a guest's kernel: it takes a partition for plugged that its device has not.

use crate::Monitor;
use squeezy_protocol::PartitionNumber;
use squeezy_vmm::PartitionLayout;
use std::{
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::FileExt,
};

/// Where `struct squeezy_partition` has its state, and after that its users, in bytes.
const STATE: u64 = 92;
/// Bytes up to there and with them.
const HEAD_BYTES: usize = STATE as usize + 8;
/// `SQUEEZY_ABSENT` and `SQUEEZY_ASSIGNED`.
const ABSENT: u32 = 0;
const ASSIGNED: u32 = 4;

/// Bytes that are looked at as one.
const CHUNK_BYTES: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;

/// Has a guest's kernel take a partition that has never been plugged for one that somebody uses.
/// `used` is one that somebody does use: it shows that the kernel's structure is as it is known here.
/// Errors are those of QEMU and of its process, and a structure that is not found.
pub async fn lose_count(
    monitor: &mut Monitor,
    process: u32,
    layout: PartitionLayout,
    absent: PartitionNumber,
    used: PartitionNumber,
) -> io::Result<()> {
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/mem"))?;
    let base = monitor.base_memory().await?;
    let guest = Guest { memory, base, region: monitor.region().await?, layout };
    guest.find(used, |state, users| state == ASSIGNED && users > 0)?;
    let address = guest.find(absent, |state, users| state == ABSENT && users == 0)?;
    let mut assigned = [0; 8];
    assigned[..4].copy_from_slice(&ASSIGNED.to_le_bytes());
    assigned[4..].copy_from_slice(&1_u32.to_le_bytes());
    guest.memory.write_all_at(&assigned, address + STATE)
}

/// A guest, in the process of its VMM.
struct Guest {
    memory: File,
    /// Where that process has the base memory.
    base: Range<u64>,
    /// The physical address of the region of partitions.
    region: u64,
    layout: PartitionLayout,
}

impl Guest {
    /// Where the one structure of a partition is that has such a state and so many users.
    fn find(&self, number: PartitionNumber, is: impl Fn(u32, u32) -> bool) -> io::Result<u64> {
        let range = self.layout.range(number).ok_or(io::ErrorKind::InvalidInput)?;
        let mut begin = [0; 16];
        begin[..8].copy_from_slice(&u64::from(number.0).to_le_bytes());
        begin[8..].copy_from_slice(&((self.region + range.start) / PAGE_BYTES).to_le_bytes());
        let mut found = Vec::new();
        // One that begins in a chunk may end in the next.
        let mut chunk = vec![0; CHUNK_BYTES + HEAD_BYTES];
        for start in self.base.clone().step_by(CHUNK_BYTES) {
            let end = self.base.end.min(start + chunk.len() as u64);
            let chunk = &mut chunk[..(end - start) as usize];
            self.memory.read_exact_at(chunk, start)?;
            let heads = chunk.windows(HEAD_BYTES).step_by(8).take(CHUNK_BYTES / 8);
            for (index, head) in heads.enumerate().filter(|(_, head)| head.starts_with(&begin)) {
                let word = |at: usize| {
                    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
                };
                if is(word(STATE as usize), word(STATE as usize + 4)) {
                    found.push(start + 8 * index as u64);
                }
            }
        }
        match found[..] {
            [address] => Ok(address),
            _ => Err(io::Error::other(format!(
                "partition {number} is at {found:x?}: has struct squeezy_partition changed?"
            ))),
        }
    }
}
