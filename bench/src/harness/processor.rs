//! CPU time of other processes.

use crate::error::{BenchError, Result};
use std::fs;

/// CPU time that a process has used, including that of threads that have ended, in nanoseconds.
pub(crate) fn spent_ns(process: u32) -> Result<u64> {
    let gone = |error: i32| {
        BenchError::file(format!("/proc/{process}"), std::io::Error::from_raw_os_error(error))
    };
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the call writes one clock id through a valid pointer.
    let error = unsafe { libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock) };
    if error != 0 {
        return Err(gone(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec through a valid pointer.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(gone(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ESRCH)));
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CPU time of those children of a process that have ended, in nanoseconds.
pub(crate) fn reaped_ns(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).map_err(|e| BenchError::file(&path, e))?;
    // The name, in parentheses, may have spaces. The times are the 16th and 17th field, the name is the second.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<std::result::Result<u64, _>>();
    let ticks = ticks.map_err(|e| BenchError::file(&path, e))?;
    Ok(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Processes that a process has started and that still run.
pub(crate) fn children(process: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{process}/task");
    let mut children = Vec::new();
    for thread in fs::read_dir(&path).map_err(|e| BenchError::file(&path, e))?.flatten() {
        // A thread may exit at any moment; its children then belong to another thread.
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, process, thread};

    /// Works until the thread has used this much CPU time; the result keeps the work from being
    /// optimized away.
    fn work(ns: u64) -> u64 {
        let start = spent_ns(process::id()).unwrap();
        let mut rounds = 0;
        while spent_ns(process::id()).unwrap() - start < ns {
            rounds += 1;
        }
        rounds
    }

    #[test]
    fn work_counts_also_of_threads_that_have_ended() {
        let before = spent_ns(process::id()).unwrap();
        assert!(thread::spawn(|| work(20_000_000)).join().unwrap() > 0);
        assert!(spent_ns(process::id()).unwrap() - before >= 20_000_000);
    }

    #[test]
    fn work_of_children_counts_once_they_have_ended() {
        let before = reaped_ns(process::id()).unwrap();
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
        assert!(process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        let spent = reaped_ns(process::id()).unwrap() - before;
        assert!((10_000_000..60_000_000_000).contains(&spent), "{spent}");
    }

    #[test]
    fn a_child_is_found_and_one_that_is_gone_is_an_error() {
        let mut child = process::Command::new("cat")
            .stdin(process::Stdio::piped())
            .stdout(process::Stdio::piped())
            .spawn()
            .unwrap();
        assert!(children(process::id()).unwrap().contains(&child.id()));
        assert!(spent_ns(child.id()).is_ok());
        drop(child.stdin.take());
        child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        child.wait().unwrap();
        assert!(!children(process::id()).unwrap().contains(&child.id()));
        let error = spent_ns(child.id()).unwrap_err().to_string();
        assert!(error.contains("/proc/") && !error.contains('\n'), "{error}");
    }
}
