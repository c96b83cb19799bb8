//! Measures what a VM uses on the host, from /proc.

mod pagemap;

use crate::{Result, VmError};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    ops::Range,
    path::Path,
};

/// Host memory that backs a range of a process's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// Resident pages, in bytes.
    pub resident_bytes: u64,
    /// The same, with pages that other processes also map counted in proportion (PSS).
    pub proportional_bytes: u64,
    /// The part that is in huge pages.
    pub huge_bytes: u64,
}

/// Which pages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Those that are in memory.
    Resident,
    /// Those that are swapped out as well: they come back without anybody's doing.
    Occupied,
}

impl std::ops::AddAssign for Resident {
    fn add_assign(&mut self, other: Self) {
        self.resident_bytes += other.resident_bytes;
        self.proportional_bytes += other.proportional_bytes;
        self.huge_bytes += other.huge_bytes;
    }
}

impl std::iter::Sum for Resident {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

/// CPU time of the VMM's threads since they started, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// Threads of virtual processors.
    pub vcpus_ns: u64,
    /// Threads that serve devices, including the main loop, which discards memory.
    pub devices_ns: u64,
    /// All other threads.
    pub others_ns: u64,
    /// Each thread, by name.
    pub threads_ns: BTreeMap<String, u64>,
}

/// What a thread of the VMM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadRole {
    Vcpu,
    Device,
    Other,
}

/// The host's setting of transparent huge pages: `always`, `madvise` or `never`.
pub fn transparent_huge_pages() -> String {
    let setting = selected(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"));
    setting.unwrap_or_else(|| "never".to_owned())
}

/// The value in brackets in a file that lists all possible ones; `None` if there is no such file.
pub(crate) fn selected(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// The memory of this machine, in bytes.
pub fn machine_bytes() -> Result<u64> {
    meminfo("MemTotal")
}

/// Bytes that the host could give to a new program without swapping: what the kernel estimates, or
/// the remainder of this process's cgroup limit if that is less.
pub fn available_bytes() -> Result<u64> {
    let host = meminfo("MemAvailable")?;
    Ok(cgroup_room_bytes().map_or(host, |room| room.min(host)))
}

/// A size that `/proc/meminfo` has, in bytes.
fn meminfo(name: &str) -> Result<u64> {
    let file = "/proc/meminfo";
    let text = std::fs::read_to_string(file).map_err(|e| fail(file, e))?;
    text.lines()
        .find_map(|line| kilobytes(line.strip_prefix(name)?.strip_prefix(':')?))
        .ok_or_else(|| fail(file, format_args!("it has no {name}")))
}

/// What this process's cgroup (v2) still allows, if it limits memory.
fn cgroup_room_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let read = |name: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{group}/{name}")).ok();
    let number = |name: &str| -> Option<u64> { read(name)?.trim().parse().ok() };
    let used_bytes =
        without_caches(number("memory.current")?, &read("memory.stat").unwrap_or_default());
    Some(number("memory.max")?.saturating_sub(used_bytes))
}

/// What a cgroup would still use without its page cache and what Linux keeps of inodes and the like, which it gives to
/// whoever needs memory: `memory.stat` (v2) says how much of `used_bytes` that is. What is in files in memory counts as
/// page cache there, and is none.
fn without_caches(used_bytes: u64, stat: &str) -> u64 {
    let bytes = |name| memory_stat_bytes(stat, name);
    used_bytes
        .saturating_sub(bytes("file").saturating_sub(bytes("shmem")))
        .saturating_sub(bytes("slab_reclaimable"))
}

/// What a cgroup's `memory.stat` says of this kind of memory, in bytes: none if it does not say.
pub fn memory_stat_bytes(stat: &str, name: &str) -> u64 {
    let found = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Resident private memory in each of `ranges` of a process. The ranges must not overlap.
///
/// It is counted with `PAGEMAP_SCAN` if the kernel has it (since 6.7): under 2 ms per GiB of 4 KiB
/// pages, and almost nothing with huge pages. Older kernels need a pass over smaps, which takes
/// about eight times as long.
pub(crate) fn resident(process: u32, ranges: &[Range<u64>]) -> Result<Vec<Resident>> {
    if let Ok(sums) = pagemap::scan(process, ranges, Pages::Resident) {
        return Ok(sums);
    }
    resident_by_smaps(process, ranges)
}

fn resident_by_smaps(process: u32, ranges: &[Range<u64>]) -> Result<Vec<Resident>> {
    let path = format!("/proc/{process}/smaps");
    let file = File::open(&path).map_err(|e| fail(&path, e))?;
    parse_smaps(BufReader::with_capacity(1 << 16, file), ranges).map_err(|e| fail(&path, e))
}

/// Memory of a process in such pages of a range of whole ones, which may be part of a mapping.
/// Kernels before 6.7 do not say what is in huge pages.
pub(crate) fn part(process: u32, range: &Range<u64>, pages: Pages) -> Result<Resident> {
    pagemap::scan(process, std::slice::from_ref(range), pages)
        .map(|sums| sums[0])
        .or_else(|_| pagemap::count(process, range, pages))
        .map_err(|e| fail(format!("/proc/{process}/pagemap"), e))
}

fn parse_smaps(smaps: impl BufRead, ranges: &[Range<u64>]) -> std::io::Result<Vec<Resident>> {
    let mut sums = vec![Resident::default(); ranges.len()];
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    let mut current = None;
    for line in smaps.lines() {
        let line = line?;
        if let Some((start, stop)) = mapping(&line) {
            if start >= end {
                break;
            }
            // The guest's memory has mappings of its own, but Linux may merge adjacent ones; a
            // mapping counts for the range that it starts in.
            current = ranges.iter().position(|range| start < range.end && stop > range.start);
            continue;
        }
        let (Some(index), Some((name, value))) = (current, line.split_once(':')) else { continue };
        let bytes = kilobytes(value).unwrap_or(0);
        match name {
            "Rss" => sums[index].resident_bytes += bytes,
            "Pss" => sums[index].proportional_bytes += bytes,
            "AnonHugePages" | "ShmemPmdMapped" => sums[index].huge_bytes += bytes,
            _ => {}
        }
    }
    Ok(sums)
}

/// The address range of the mapping that a line of smaps introduces.
fn mapping(line: &str) -> Option<(u64, u64)> {
    let (start, stop) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(stop, 16).ok()?))
}

fn kilobytes(text: &str) -> Option<u64> {
    text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// CPU times of a process's threads; `role` maps a thread's name to its role.
pub(crate) fn cpu_times(process: u32, role: impl Fn(&str) -> ThreadRole) -> Result<CpuTimes> {
    let path = format!("/proc/{process}/task");
    let mut times = CpuTimes::default();
    for task in std::fs::read_dir(&path).map_err(|e| fail(&path, e))?.flatten() {
        // A thread that has exited in the meantime does not count.
        let Ok(name) = std::fs::read_to_string(task.path().join("comm")) else { continue };
        let Ok(schedstat) = std::fs::read_to_string(task.path().join("schedstat")) else {
            continue;
        };
        let Some(ns) = schedstat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok())
        else {
            continue;
        };
        let name = name.trim_end();
        match role(name) {
            ThreadRole::Vcpu => times.vcpus_ns += ns,
            ThreadRole::Device => times.devices_ns += ns,
            ThreadRole::Other => times.others_ns += ns,
        }
        *times.threads_ns.entry(name.to_owned()).or_default() += ns;
    }
    Ok(times)
}

fn fail(what: impl Into<String>, reason: impl std::fmt::Display) -> VmError {
    VmError::Measure { what: what.into(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ranges_asked_for_are_summed() {
        let smaps = "\
1000-2000 rw-p 00000000 00:00 0 [heap]
Size:                  4 kB
Rss:                   4 kB
10000-20000 rw-p 00000000 00:00 0
Rss:                  40 kB
Pss:                  20 kB
AnonHugePages:         8 kB
20000-30000 rw-p 00000000 00:00 0
Rss:                  12 kB
Pss:                  12 kB
90000-a0000 rw-p 00000000 00:00 0
Rss:                  99 kB
";
        let sums = parse_smaps(smaps.as_bytes(), &[0x10000..0x20000, 0x20000..0x30000]).unwrap();
        assert_eq!(
            sums[0],
            Resident {
                resident_bytes: 40 << 10,
                proportional_bytes: 20 << 10,
                huge_bytes: 8 << 10
            }
        );
        assert_eq!(sums[1].resident_bytes, 12 << 10);
    }

    #[test]
    fn what_is_touched_is_resident() {
        let mut memory = vec![0u8; 64 << 20];
        // Its whole pages.
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        let range = start..start + memory.len() as u64 - 4096;
        let ranges = [range];
        type Look = fn(u32, &[Range<u64>]) -> Result<Vec<Resident>>;
        let look = |how: Look| how(std::process::id(), &ranges).unwrap()[0];
        let before = [look(resident), look(resident_by_smaps)];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let after = [look(resident), look(resident_by_smaps)];
        for (before, after) in before.into_iter().zip(after) {
            let grown = after.resident_bytes - before.resident_bytes;
            assert!((60 << 20..70 << 20).contains(&grown), "{grown}");
        }
        for part in [&ranges[0], &(ranges[0].start..ranges[0].start + (1 << 20))] {
            let bytes = part.end - part.start;
            assert_eq!(bytes_in_both_ways(part, Pages::Resident), bytes);
        }
        // smaps counts whole mappings, and this one starts with a page of the allocator.
        let difference = after[0].resident_bytes.abs_diff(after[1].resident_bytes);
        assert!(difference <= 4 << 12, "{after:?}");
        std::hint::black_box(memory);
    }

    /// Counted with and without `PAGEMAP_SCAN`, which say the same.
    fn bytes_in_both_ways(range: &Range<u64>, pages: Pages) -> u64 {
        let process = std::process::id();
        let bytes = part(process, range, pages).unwrap().resident_bytes;
        assert_eq!(pagemap::count(process, range, pages).unwrap().resident_bytes, bytes);
        bytes
    }

    /// Where there is no swap, all of it stays resident.
    #[test]
    fn what_is_swapped_out_is_still_occupied() {
        let mut memory = vec![1u8; 8 << 20];
        let first = memory.as_ptr().align_offset(4096);
        let pages = &mut memory[first..first + (4 << 20)];
        let range = pages.as_ptr() as u64..pages.as_ptr() as u64 + pages.len() as u64;
        // SAFETY: it is a slice, whose contents stay the same.
        let advised =
            unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_PAGEOUT) };
        assert_eq!(advised, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(bytes_in_both_ways(&range, Pages::Occupied), 4 << 20);
        std::hint::black_box(memory);
    }

    #[test]
    fn what_was_never_touched_is_not_occupied() {
        let memory = vec![0u8; 64 << 20];
        let middle = (memory.as_ptr() as u64 + (32 << 20)).next_multiple_of(4096);
        let range = middle..middle + (1 << 20);
        assert_eq!(bytes_in_both_ways(&range, Pages::Occupied), 0);
        std::hint::black_box(memory);
    }

    #[test]
    fn a_busy_thread_uses_cpu_time() {
        let spent = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_nsec;
        while spent() < 30_000_000 {}
        let times = cpu_times(std::process::id(), |_| ThreadRole::Other).unwrap();
        assert!(times.others_ns > 10_000_000, "{times:?}");
    }

    #[test]
    fn caches_are_room_and_files_in_memory_are_not() {
        let stat = "anon 100\nfile 70\nshmem 30\nfile_mapped 60\nshmem_thp 20\nslab_reclaimable 5\n\
                    slab_unreclaimable 7\nslab 12\n";
        assert_eq!(without_caches(200, stat), 155);
        assert_eq!(without_caches(200, "file 70\n"), 130);
        assert_eq!(without_caches(200, "slab_reclaimable 70\n"), 130);
        assert_eq!(without_caches(200, ""), 200);
        assert_eq!(without_caches(20, stat), 0);
    }

    #[test]
    fn the_host_has_memory() {
        assert!(available_bytes().unwrap() > 1 << 20);
        assert!(machine_bytes().unwrap() > 1 << 28);
        assert!(["always", "madvise", "never"].contains(&transparent_huge_pages().as_str()));
    }
}
