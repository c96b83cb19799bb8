//! The processes of a share: what they use, and how nice their threads are.

use super::{CpuShare, level::NICEST};
use crate::mutex::lock;
use rustix::{
    fs::{CWD, Dir, Mode, OFlags, openat},
    process::Pid,
};
use std::{collections::BTreeMap, io, os::fd::OwnedFd, sync::Arc, thread, time::Duration};

/// The part of its last value that what is used keeps in a period: it is an average of the last half second or so.
const KEPT: f64 = 0.5;

/// How much nicer than the others of its share a process is while it is new. A VM that boots serves nobody yet, and it takes
/// some looks to see that a tenant with many of them uses more than its share.
const NEW: u8 = 5;

/// How many looks a process is new for.
const NEW_LOOKS: u8 = 4;

/// The processes of one tenant's VMs.
#[derive(Debug, Default)]
pub(super) struct Processes {
    all: BTreeMap<u32, Observed>,
    /// Processors in use on average.
    used: f64,
}

#[derive(Debug)]
struct Observed {
    /// Its directory in /proc, which is never that of another one with the same number.
    directory: OwnedFd,
    /// How nice it is by itself.
    own: i32,
    /// How nice it was made.
    niceness: i32,
    /// For how many looks it is still new.
    new: u8,
    /// CPU time that it had used at the last look.
    cpu: Duration,
}

/// A process that belongs to a share.
#[derive(Debug)]
pub(crate) struct Member {
    share: Arc<CpuShare>,
    process: u32,
}

impl Drop for Member {
    fn drop(&mut self) {
        lock(&self.share.processes).all.remove(&self.process);
    }
}

impl Processes {
    /// Adds a process to a share. It is nicer than the others at first.
    pub(super) fn add(share: &Arc<CpuShare>, process: u32) -> io::Result<Member> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, format!("/proc/{process}"), flags, Mode::empty())?;
        let own = i32::try_from(process).ok().and_then(Pid::from_raw);
        let own = rustix::process::getpriority_process(own)?;
        let cpu = cpu_time(process).unwrap_or_default();
        let mut observed = Observed { directory, own, niceness: own, new: NEW_LOOKS, cpu };
        let mut processes = lock(&share.processes);
        observed.set_niceness(share.niceness());
        processes.all.insert(process, observed);
        drop(processes);
        Ok(Member { share: share.clone(), process })
    }

    /// Processors in use on average, with what threads of this process have used for them; `past` is the time since the
    /// last look.
    pub(super) fn used(&mut self, by_workers: Duration, past: Duration) -> f64 {
        let mut sum = by_workers;
        for (&process, observed) in &mut self.all {
            // One that has ended uses nothing.
            let now = cpu_time(process).unwrap_or(observed.cpu);
            sum += now.saturating_sub(observed.cpu);
            observed.cpu = now;
            observed.new = observed.new.saturating_sub(1);
        }
        let now = sum.as_secs_f64() / past.as_secs_f64();
        self.used = KEPT * self.used + (1.0 - KEPT) * now;
        self.used
    }

    /// Makes all threads this much nicer than they are by themselves, and those of new processes [`NEW`] more.
    pub(super) fn set_niceness(&mut self, niceness: u8) {
        self.all.values_mut().for_each(|observed| observed.set_niceness(niceness));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Observed {
    /// Makes all its threads this much nicer than it is by itself, and [`NEW`] more if it is new. If it ends meanwhile, it
    /// needs nothing.
    fn set_niceness(&mut self, niceness: u8) {
        let new = if self.new > 0 { NEW } else { 0 };
        let niceness = (self.own + i32::from(niceness) + i32::from(new)).min(NICEST.into());
        // A thread that was started since then is as nice as the one that started it.
        if std::mem::replace(&mut self.niceness, niceness) == niceness {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(tasks) = openat(&self.directory, "task", flags, Mode::empty()) else { return };
        let Ok(tasks) = Dir::new(tasks) else { return };
        for task in tasks.flatten() {
            let number = task.file_name().to_str().ok().and_then(|name| name.parse().ok());
            // Despite the name of the call it is of one thread.
            if let Some(thread) = number.and_then(Pid::from_raw) {
                let _ = rustix::process::setpriority_process(Some(thread), niceness);
            }
        }
    }
}

/// CPU time of a process with all its threads, a guest's time included; `None` if it has ended.
fn cpu_time(process: u32) -> Option<Duration> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both write to what they are given.
    let done = unsafe {
        libc::clock_getcpuclockid(process.try_into().ok()?, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    done.then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or(0)))
}

/// Checks, on a thread that ends then, that somebody who was made nicer can be made less nice again.
pub(super) fn can_take_back() -> io::Result<()> {
    let tried = thread::Builder::new().spawn(|| {
        let thread = Some(rustix::thread::gettid());
        let before = rustix::process::getpriority_process(thread)?;
        rustix::process::setpriority_process(thread, before.saturating_add(1))?;
        rustix::process::setpriority_process(thread, before)
    })?;
    let tried = tried.join().map_err(|_| io::Error::other("the thread that tries has panicked"))?;
    tried.map_err(|_| {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            "who is made nicer cannot be made less nice again: run it as root, or with `LimitNICE=+0`",
        )
    })
}
