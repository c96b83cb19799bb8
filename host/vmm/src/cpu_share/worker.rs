//! Threads of this process that work for a tenant's VM: what they use counts as the tenant's, and they are as nice as its
//! VMs.

use super::{CpuShare, level::NICEST};
use rustix::{
    process::{getpriority_process, setpriority_process},
    time::{ClockId, clock_gettime},
};
use std::{sync::Arc, time::Duration};

/// The thread that has made this.
#[derive(Debug)]
pub(crate) struct Worker {
    share: Arc<CpuShare>,
    /// How nice it is by itself.
    own: i32,
    /// How nice it was made.
    niceness: i32,
    /// CPU time that has been counted.
    cpu: Duration,
}

impl Worker {
    pub(crate) fn new(share: Arc<CpuShare>) -> Self {
        // Despite the name of the call it is of this thread.
        let own = getpriority_process(None).unwrap_or(0);
        Self { share, own, niceness: own, cpu: cpu_time() }
    }

    /// Counts what the thread has used since the last time, and makes it as nice as the VMs are now.
    pub(crate) fn settle(&mut self) {
        let cpu = cpu_time();
        self.share.charge(cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu)));
        let niceness = (self.own + i32::from(self.share.niceness())).min(NICEST.into());
        if std::mem::replace(&mut self.niceness, niceness) != niceness {
            let _ = setpriority_process(None, niceness);
        }
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{super::process, *};
    use std::num::NonZeroU32;

    #[test]
    fn what_it_uses_counts_and_it_is_as_nice() {
        if let Err(error) = process::can_take_back() {
            return crate::skip::skip(format_args!("{error}"));
        }
        let share = CpuShare::new(NonZeroU32::MIN);
        let (before, of_share) = (getpriority_process(None).unwrap(), share.clone());
        let work = move || {
            let mut worker = Worker::new(of_share.clone());
            of_share.set_niceness(7);
            while cpu_time() < Duration::from_millis(50) {}
            worker.settle();
            let nice = getpriority_process(None).unwrap();
            of_share.set_niceness(0);
            worker.settle();
            (nice, getpriority_process(None).unwrap())
        };
        let (nice, after) = std::thread::spawn(work).join().unwrap();
        assert_eq!((nice, after), (before + 7, before));
        // It is an average with what was used before, which is nothing.
        let used = share.usage(Duration::from_millis(100)).used;
        assert!((0.2..0.5).contains(&used), "{used}");
        assert!(share.usage(Duration::from_millis(100)).used < used, "it counts once");
    }
}
