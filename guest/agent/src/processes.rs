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
}
