//! What the kernel says of the processes of an instance. Some of them may have ended in the meantime: they do not count.
//!
//! The memory of a process is looked at through any of its threads: the first one may have ended before the others, and
//! nothing is said of it from then on.

use crate::sizes;
use std::{cmp::Ordering, fs};

/// Those that are not process 1 of a PID namespace, which is the agent's own program.
pub fn without_first(mut processes: Vec<u32>) -> Vec<u32> {
    processes.retain(|process| inside(*process).is_some_and(|id| id != 1));
    processes
}

/// The id of a process in its innermost namespace.
pub fn inside(process: u32) -> Option<u32> {
    id_inside(&status(process)?)
}

/// Private memory that they have together, in bytes. What several have inherited counts for each, and of shared memory
/// what one of them has mapped.
pub fn private_bytes(processes: &[u32]) -> u64 {
    let all = distinct(resident(processes));
    let shared = all.iter().map(|one| one.shared_bytes).max().unwrap_or(0);
    all.iter().map(|one| one.anonymous_bytes).sum::<u64>() + shared
}

/// The private and the mapped shared memory that they have together, in bytes: exact if it is more than `limit_bytes`,
/// what several have counted once; else at most what is returned.
pub fn private_bytes_beyond(processes: &[u32], limit_bytes: u64) -> u64 {
    let all = resident(processes);
    let most = all.iter().map(Resident::bytes).sum();
    if most <= limit_bytes {
        return most;
    }
    // This reads page tables, and takes a hundred times as long.
    let parts: Vec<(u32, u64)> = distinct(all)
        .iter()
        .filter_map(|one| Some((one.process, by_any_thread(one.process, proportional_bytes)?)))
        .collect();
    // Who has ended since has left its part to others, of which some were read after that.
    let still = |(process, bytes)| Some(Resident::of(process)?.bytes().min(bytes));
    parts.into_iter().filter_map(still).sum()
}

/// What a process has in memory.
struct Resident {
    process: u32,
    /// The thread that says so.
    thread: u32,
    /// Private memory, in bytes.
    anonymous_bytes: u64,
    /// Shared memory that it has mapped, in bytes: of its own, and files in memory.
    shared_bytes: u64,
}

impl Resident {
    fn of(process: u32) -> Option<Self> {
        by_any_thread(process, |thread| {
            let status = status(thread)?;
            Some(Self {
                process,
                thread,
                anonymous_bytes: sizes::of(&status, "RssAnon")?,
                shared_bytes: sizes::of(&status, "RssShmem")?,
            })
        })
    }

    fn bytes(&self) -> u64 {
        self.anonymous_bytes + self.shared_bytes
    }
}

fn resident(processes: &[u32]) -> Vec<Resident> {
    processes.iter().copied().filter_map(Resident::of).collect()
}

/// One of each that are the same memory, like that of a process and of its child of vfork(2).
fn distinct(all: Vec<Resident>) -> Vec<Resident> {
    let mut known: Vec<Resident> = Vec::with_capacity(all.len());
    for one in all {
        let place = known.binary_search_by(|other| by_memory(other.thread, one.thread));
        if let Err(place) = place {
            known.insert(place, one);
        }
    }
    known
}

/// The kernel's own order of memories. That of a thread which has ended is like no other.
fn by_memory(one: u32, other: u32) -> Ordering {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: it touches no memory.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) } {
        0 => Ordering::Equal,
        2 => Ordering::Greater,
        _ => Ordering::Less,
    }
}

/// What `read` says of the process, or else of the first of its threads of which it says something. There are as many
/// as `pids.max` lets an instance have.
fn by_any_thread<T>(process: u32, read: impl Fn(u32) -> Option<T>) -> Option<T> {
    read(process).or_else(|| {
        let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
        threads.flatten().find_map(|thread| read(thread.file_name().to_str()?.parse().ok()?))
    })
}

/// The `status` of a process or thread.
fn status(thread: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

/// Of each page of private or shared memory, the part that is its own.
fn proportional_bytes(thread: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{thread}/smaps_rollup")).ok()?;
    Some(sizes::of(&rollup, "Pss_Anon")? + sizes::of(&rollup, "Pss_Shmem")?)
}

/// The id of a process in its innermost namespace, from its `status`.
fn id_inside(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_innermost_id_counts() {
        assert_eq!(id_inside("Name:\tsh\nNSpid:\t312\t2\nThreads:\t1\n"), Some(2));
        assert_eq!(id_inside("NSpid:\t1\n"), Some(1));
        assert_eq!(id_inside(""), None);
    }

    #[test]
    fn private_memory_is_estimated_first() {
        let own = [std::process::id()];
        let most = private_bytes(&own);
        assert!(most > 0);
        assert!(private_bytes_beyond(&own, most * 2) >= most / 2);
        let exact = private_bytes_beyond(&own, 0);
        assert!(exact > 0 && exact < most * 2, "{exact} of {most}");
        assert_eq!(private_bytes(&[u32::MAX]), 0);
    }

    #[test]
    fn the_same_memory_counts_once() {
        // SAFETY: gettid(2) touches no memory.
        let thread = std::thread::spawn(|| unsafe { libc::gettid() } as u32).join().unwrap();
        assert_eq!(by_memory(thread, std::process::id()), Ordering::Less);
        let own = std::process::id();
        let mut other = Command::new("sleep").arg("100").spawn().unwrap();
        let memories = |processes: &[u32]| distinct(resident(processes)).len();
        assert_eq!(memories(&[own, own]), 1);
        assert_eq!(memories(&[own, other.id(), own, other.id()]), 2);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
