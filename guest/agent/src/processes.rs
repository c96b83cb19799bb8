//! What the kernel says of the processes of an instance. Some of them may have ended in the meantime: they do not count.

use rustix::param::page_size;
use std::fs;

/// Those that are not process 1 of a PID namespace, which is the agent's own program.
pub fn without_first(mut processes: Vec<u32>) -> Vec<u32> {
    processes.retain(|process| inside(*process).is_some_and(|id| id != 1));
    processes
}

/// The id of a process in its innermost namespace.
pub fn inside(process: u32) -> Option<u32> {
    id_inside(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// Private memory that they have together, in bytes; what several have inherited counts for each.
pub fn private_bytes(processes: &[u32]) -> u64 {
    let pages = processes.iter().filter_map(|process| {
        private_pages(&fs::read_to_string(format!("/proc/{process}/statm")).ok()?)
    });
    pages.sum::<u64>() * page_size() as u64
}

/// The private memory that they have together, in bytes: exact if it is more than `limit_bytes`, what several have
/// inherited counted once; else at most what is returned.
pub fn private_bytes_beyond(processes: &[u32], limit_bytes: u64) -> u64 {
    let most = private_bytes(processes);
    if most <= limit_bytes {
        return most;
    }
    // This reads page tables, and takes a hundred times as long.
    let parts = processes.iter().filter_map(|process| {
        proportional_kib(&fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?)
    });
    parts.sum::<u64>() << 10
}

/// From its `smaps_rollup`: of each page of private memory, the part that is its own.
fn proportional_kib(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The same, from its `status`.
fn id_inside(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().last()?.parse().ok()
}

/// From its `statm`: what is resident without what is shared.
fn private_pages(statm: &str) -> Option<u64> {
    let mut numbers = statm.split_whitespace().skip(1).map(|number| number.parse::<u64>().ok());
    let (resident, shared) = (numbers.next()??, numbers.next()??);
    Some(resident.saturating_sub(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_id_counts() {
        assert_eq!(id_inside("Name:\tsh\nNSpid:\t312\t2\nThreads:\t1\n"), Some(2));
        assert_eq!(id_inside("NSpid:\t1\n"), Some(1));
        assert_eq!(id_inside(""), None);
    }

    #[test]
    fn private_memory_is_what_nobody_shares() {
        assert_eq!(private_pages("900 120 100 5 0 30 0\n"), Some(20));
        assert_eq!(private_pages("900 1 100 5 0 30 0"), Some(0));
        assert_eq!(private_pages("900 1"), None);
        assert!(private_bytes(&[std::process::id(), u32::MAX]) > 0);
    }

    #[test]
    fn what_several_have_inherited_counts_once() {
        assert_eq!(
            proportional_kib("Pss:  90 kB\nPss_Anon:     48 kB\nPss_File: 3 kB\n"),
            Some(48)
        );
        assert_eq!(proportional_kib("Pss_File: 3 kB\n"), None);
        let own = [std::process::id()];
        let most = private_bytes(&own);
        assert!(private_bytes_beyond(&own, most * 2) >= most / 2);
        let exact = private_bytes_beyond(&own, 0);
        assert!(exact > 0 && exact < most * 2, "{exact} of {most}");
    }
}
