//! How much memory a process has.

use crate::{Deadline, Process, Result, smaps};
use serde::Serialize;
use std::io::BufReader;

/// Memory of a process, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Pages that no other process maps: what would be free if it ended.
    pub uss_bytes: u64,
    /// All pages that it maps.
    pub rss_bytes: u64,
    /// All pages that it maps, each divided by the number of processes that map it.
    pub pss_bytes: u64,
}

impl Memory {
    /// The memory of a process now.
    pub fn of(process: &Process, deadline: Deadline) -> Result<Self> {
        let process = process.clone();
        deadline.bound("reading a process's memory", move || {
            let name = "smaps_rollup";
            let mut memory = Self::default();
            smaps::read(BufReader::new(process.file(name)?), |mapping| memory = sum(&mapping))
                .map_err(|error| process.error(name, error))?;
            Ok(memory)
        })
    }
}

fn sum(mapping: &smaps::Mapping) -> Memory {
    Memory {
        uss_bytes: mapping.private_clean_bytes + mapping.private_dirty_bytes,
        rss_bytes: mapping.resident_bytes,
        pss_bytes: mapping.proportional_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{hint::black_box, time::Duration};

    #[test]
    fn memory_that_is_written_counts() {
        const BYTES: usize = 64 << 20;
        let process = Process::open(std::process::id()).unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        let before = Memory::of(&process, deadline).unwrap();
        let block = black_box(vec![1_u8; BYTES]);
        let after = Memory::of(&process, deadline).unwrap();
        // Tests run beside each other in this process: half of it is far more than they need.
        assert!(after.uss_bytes >= before.uss_bytes + block.len() as u64 / 2);
        assert!(after.rss_bytes >= before.rss_bytes + block.len() as u64 / 2);
        assert!(after.rss_bytes >= after.pss_bytes && after.pss_bytes >= after.uss_bytes);
    }
}
