//! Counters of the guest and the host.

use crate::error::{BenchError, Result};
use squeezy_protocol::Memory;
use squeezy_vmm::CpuTimes;
use std::collections::BTreeMap;

/// CPU time that a process has spent in the host's kernel, in nanoseconds; the resolution is 10 ms.
pub(super) fn system_ns(process: u32) -> Result<u64> {
    /// Nanoseconds of a tick of /proc on x86-64 (USER_HZ is 100).
    const TICK_NS: u64 = 10_000_000;
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).map_err(|e| BenchError::file(&path, e))?;
    // The name, in parentheses, may contain anything; the time is the 13th field after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().nth(12).and_then(|ticks| ticks.parse::<u64>().ok());
    ticks
        .map(|ticks| ticks * TICK_NS)
        .ok_or_else(|| BenchError::file(&path, "it contains no CPU time"))
}

/// CPU time of kworkers, which do the resizing with every method.
pub(super) fn workers_ns(memory: &Memory) -> u64 {
    memory.kernel_threads_ns.get("kworker").copied().unwrap_or(0)
}

/// Increases of the guest's counters between two samples.
pub(super) struct GuestCounters {
    pub(super) unplug_guest_ns: Option<u64>,
    pub(super) unplug_device_ns: Option<u64>,
    pub(super) workers_ns: u64,
    pub(super) migrated_pages: u64,
    pub(super) isolated_pages: u64,
    pub(super) inflated_pages: u64,
}

impl GuestCounters {
    pub(super) fn between(before: &Memory, after: &Memory) -> Self {
        let vmstat = |name: &str| {
            let value = |memory: &Memory| memory.vmstat.get(name).copied().unwrap_or(0);
            value(after).saturating_sub(value(before))
        };
        let squeezy = |name: &str| {
            let value = |memory: &Memory| memory.squeezy.as_ref()?.counters.get(name).copied();
            Some(value(after)?.saturating_sub(value(before)?))
        };
        Self {
            unplug_guest_ns: squeezy("unplug_guest_ns"),
            unplug_device_ns: squeezy("unplug_device_ns"),
            workers_ns: workers_ns(after).saturating_sub(workers_ns(before)),
            migrated_pages: vmstat("pgmigrate_success"),
            isolated_pages: vmstat("compact_isolated"),
            inflated_pages: vmstat("balloon_inflate"),
        }
    }
}

/// CPU time spent between two samples.
pub(super) fn cpu_delta(before: &CpuTimes, after: &CpuTimes) -> CpuTimes {
    CpuTimes {
        vcpus_ns: after.vcpus_ns.saturating_sub(before.vcpus_ns),
        devices_ns: after.devices_ns.saturating_sub(before.devices_ns),
        others_ns: after.others_ns.saturating_sub(before.others_ns),
        threads_ns: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_protocol::Squeezy;
    use std::time::{Duration, Instant};

    fn memory(vmstat: &[(&str, u64)], counters: Option<&[(&str, u64)]>) -> Memory {
        let map = |pairs: &[(&str, u64)]| {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
        };
        Memory {
            vmstat: map(vmstat),
            kernel_threads_ns: map(&[("kworker", vmstat.len() as u64 * 1000)]),
            squeezy: counters.map(|counters| Squeezy {
                partition_size_bytes: 1 << 30,
                shared_size_bytes: 0,
                shrink_blocked: String::new(),
                counters: map(counters),
                partitions: Vec::new(),
            }),
            ..Memory::default()
        }
    }

    #[test]
    fn counters_count_what_came_in_between() {
        let before = memory(&[("pgmigrate_success", 5)], Some(&[("unplug_guest_ns", 10)]));
        let after = memory(
            &[("pgmigrate_success", 7), ("compact_isolated", 4)],
            Some(&[("unplug_guest_ns", 25)]),
        );
        let counters = GuestCounters::between(&before, &after);
        assert_eq!(
            (counters.migrated_pages, counters.isolated_pages, counters.inflated_pages),
            (2, 4, 0)
        );
        assert_eq!((counters.unplug_guest_ns, counters.unplug_device_ns), (Some(15), None));
        assert_eq!(counters.workers_ns, 1000);
        assert_eq!(
            GuestCounters::between(&memory(&[], None), &memory(&[], None)).unplug_guest_ns,
            None
        );
    }

    #[test]
    fn work_of_the_kernel_is_counted() {
        let before = system_ns(std::process::id()).unwrap();
        let (start, mut after) = (Instant::now(), before);
        while after == before && start.elapsed() < Duration::from_secs(60) {
            std::fs::read("/proc/self/smaps").unwrap();
            after = system_ns(std::process::id()).unwrap();
        }
        assert!(after > before && after - before < 60_000_000_000, "{before} {after}");
        assert!(system_ns(0).is_err());
    }
}
