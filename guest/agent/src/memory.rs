//! `/v1/memory`, `/v1/partitions` and `/v1/info`.

use crate::{error::ApiError, sizes, sysfs};
use squeezy_protocol::{Info, Memory, PartitionState};
use std::{collections::BTreeMap, fs, io};

/// The current state of the guest's memory.
pub fn memory() -> Result<Memory, ApiError> {
    let read = |path: &str| {
        fs::read_to_string(path).map_err(|e| ApiError::internal(&format!("reading {path}"), e))
    };
    Ok(Memory {
        meminfo_bytes: sizes::all(&read("/proc/meminfo")?)
            .map(|(name, bytes)| (name.to_owned(), bytes))
            .collect(),
        vmstat: vmstat(&read("/proc/vmstat")?),
        kernel_threads_ns: kernel_threads()
            .map_err(|e| ApiError::internal("reading the kernel's threads in /proc", e))?,
        squeezy: sysfs::read()
            .map_err(|e| ApiError::internal("reading the kernel's partitions", e))?,
    })
}

/// The state of each partition and nothing else, because the host asks after every resize.
pub fn partitions() -> Result<Vec<PartitionState>, ApiError> {
    sysfs::states()
        .map_err(|e| ApiError::internal("reading the states of the kernel's partitions", e))
}

/// The versions of agent and kernel, and the machine they run on.
pub fn info() -> Result<Info, ApiError> {
    Ok(Info {
        agent_version: crate::VERSION.to_owned(),
        kernel_release: rustix::system::uname().release().to_string_lossy().into_owned(),
        page_size_bytes: page_size(),
        vcpus: online_processors(),
        agent_resident_bytes: resident()
            .map_err(|e| ApiError::internal("reading the agent's own size", e))?,
        llfree: sysfs::llfree_state()
            .map_err(|e| ApiError::internal("reading where the allocator's state is", e))?,
    })
}

fn page_size() -> u64 {
    // SAFETY: sysconf reads no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// The number of processors that run.
pub fn online_processors() -> u32 {
    // SAFETY: sysconf reads no memory of ours.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(count).unwrap_or(1)
}

/// Resident bytes of this process. `smaps_rollup` walks the page tables and is exact, while the counters
/// behind `statm` are off by up to 32 pages per processor.
fn resident() -> io::Result<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    sizes::of(&rollup, "Rss")
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "smaps_rollup without Rss"))
}

/// Parses lines of the form `name 123`.
fn vmstat(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        })
        .collect()
}

/// CPU time of all kernel threads by name; the many `kworker` threads are added up.
fn kernel_threads() -> io::Result<BTreeMap<String, u64>> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A process may end between being listed and being read.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let (Some(name), Some(cpu_ns)) = (kernel_thread_name(&stat), cpu_time_ns(pid)) else {
            continue;
        };
        *threads.entry(name).or_insert(0) += cpu_ns;
    }
    Ok(threads)
}

/// The name in a line of `/proc/PID/stat`, if the process is a kernel thread: kthreadd (process 2) or one of
/// its children.
fn kernel_thread_name(stat: &str) -> Option<String> {
    let (pid, rest) = stat.split_once(" (")?;
    // The name may contain parentheses itself.
    let (name, fields) = rest.rsplit_once(") ")?;
    let parent = fields.split(' ').nth(1)?;
    (pid == "2" || parent == "2")
        .then(|| if name.starts_with("kworker") { "kworker".to_owned() } else { name.to_owned() })
}

/// CPU time of a process in nanoseconds. `/proc/PID/stat` counts ticks of 10 ms, longer than an unplug takes;
/// a process's CPU clock has the scheduler's resolution.
fn cpu_time_ns(pid: i32) -> Option<u64> {
    /// `CPUCLOCK_SCHED` of the kernel's posix-timers.
    const CPUCLOCK_SCHED: i32 = 2;
    let clock = (!pid << 3) | CPUCLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the kernel to write to.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_are_told_from_processes() {
        assert_eq!(kernel_thread_name("2 (kthreadd) S 0 0 0"), Some("kthreadd".to_owned()));
        assert_eq!(kernel_thread_name("9 (kworker/0:1-ev) I 2 0"), Some("kworker".to_owned()));
        assert_eq!(kernel_thread_name("77 (a) b) S 2 0 0"), Some("a) b".to_owned()));
        assert_eq!(kernel_thread_name("77 (kworker/0) S 1 0 0"), None);
        assert_eq!(kernel_thread_name("77 (cut"), None);
    }

    #[test]
    fn own_cpu_clock_advances() {
        let pid = std::process::id() as i32;
        assert!(cpu_time_ns(pid).unwrap() > 0);
        assert_eq!(cpu_time_ns(i32::MAX >> 4), None);
    }

    #[test]
    fn own_size_is_known() {
        assert!(resident().unwrap() > 100 << 10);
    }
}
