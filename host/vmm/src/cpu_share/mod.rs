//! How tenants share the host's processors: the VMs of a tenant that uses more than its share are made nicer (`nice(2)`)
//! than those of the others, until it does not.
//!
//! Linux shares processors among threads, and a tenant has as many as its VMs have processors. A thread that is nicer has
//! a smaller weight, and leaves the processor at once to one that wakes up and is not. Nothing lies idle for it.

mod level;
mod process;
mod worker;

use crate::mutex::lock;
use level::Usage;
use process::Processes;
use std::{
    io,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub(crate) use process::Member;
pub(crate) use worker::Worker;

/// How often it is looked at who uses how much.
const PERIOD: Duration = Duration::from_millis(250);

/// The tenants of a host, and the thread that looks after their shares. It ends when this is dropped.
#[derive(Debug)]
pub struct CpuShares {
    shares: Arc<Mutex<Vec<Weak<CpuShare>>>>,
    looker: Option<JoinHandle<()>>,
}

/// One tenant's share of the processors, for all its VMs.
#[derive(Debug)]
pub struct CpuShare {
    weight: AtomicU32,
    niceness: AtomicU8,
    processes: Mutex<Processes>,
    /// CPU time of this process's threads that work for its VMs since it was last looked at, in nanoseconds.
    by_workers_ns: AtomicU64,
}

impl CpuShares {
    /// Begins to look after shares.
    ///
    /// # Errors
    ///
    /// If this process could make a VM nicer, but not take that back: it needs root, or a limit of niceness of 0
    /// (`LimitNICE=+0` of systemd).
    pub fn start() -> io::Result<Self> {
        process::can_take_back()?;
        let shares = Arc::<Mutex<Vec<Weak<CpuShare>>>>::default();
        let all = Arc::downgrade(&shares);
        let looker = thread::Builder::new().name("cpu-shares".to_owned());
        let looker = looker.spawn(move || {
            let (mut looked, mut idle) = (Instant::now(), idle_time());
            loop {
                thread::park_timeout(PERIOD);
                let Some(all) = all.upgrade() else { return };
                let past = looked.elapsed();
                if past < PERIOD {
                    continue;
                }
                let idle_before = std::mem::replace(&mut idle, idle_time());
                looked = Instant::now();
                let idle = idle.zip(idle_before).map(|(now, before)| now.saturating_sub(before));
                look(&all, past, idle);
            }
        })?;
        Ok(Self { shares, looker: Some(looker) })
    }

    /// A share for another tenant.
    pub fn share(&self, weight: NonZeroU32) -> Arc<CpuShare> {
        let share = CpuShare::new(weight);
        lock(&self.shares).push(Arc::downgrade(&share));
        share
    }
}

impl Drop for CpuShares {
    fn drop(&mut self) {
        self.shares = Arc::default();
        if let Some(looker) = self.looker.take() {
            looker.thread().unpark();
            // It has nothing to say.
            let _ = looker.join();
        }
    }
}

impl CpuShare {
    fn new(weight: NonZeroU32) -> Arc<Self> {
        Arc::new(Self {
            weight: weight.get().into(),
            niceness: AtomicU8::new(0),
            processes: Mutex::default(),
            by_workers_ns: AtomicU64::new(0),
        })
    }

    /// What it is in proportion to those of other tenants from now on.
    pub fn set_weight(&self, weight: NonZeroU32) {
        self.weight.store(weight.get(), Ordering::Relaxed);
    }

    /// How nice its VMs are, from 0 to 19.
    pub fn niceness(&self) -> u8 {
        self.niceness.load(Ordering::Relaxed)
    }

    /// Adds a VM's process, until what is returned is dropped.
    pub(crate) fn join(self: &Arc<Self>, process: u32) -> io::Result<Member> {
        Processes::add(self, process)
    }

    /// Counts CPU time of a thread of this process as its own.
    fn charge(&self, time: Duration) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.by_workers_ns.fetch_add(time_ns, Ordering::Relaxed);
    }

    /// What it uses, as of now; `past` is how long ago it was asked before.
    fn usage(&self, past: Duration) -> Usage {
        let by_workers = Duration::from_nanos(self.by_workers_ns.swap(0, Ordering::Relaxed));
        let used = lock(&self.processes).used(by_workers, past);
        Usage { weight: self.weight.load(Ordering::Relaxed), used, niceness: self.niceness() }
    }

    fn set_niceness(&self, niceness: u8) {
        let mut processes = lock(&self.processes);
        self.niceness.store(niceness, Ordering::Relaxed);
        processes.set_niceness(niceness);
    }
}

/// How long the machine's processors have been idle, all together; `None` if this process may not use all of them.
fn idle_time() -> Option<Duration> {
    // SAFETY: it takes a number.
    let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let own = thread::available_parallelism().ok()?.get();
    if usize::try_from(all).ok()? != own {
        return None;
    }
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(text.split_whitespace().nth(1)?.parse().ok()?).ok()
}

/// Has each tenant be as nice as it has to be; `idle` is how long processors were idle in the time that is `past`.
fn look(shares: &Mutex<Vec<Weak<CpuShare>>>, past: Duration, idle: Option<Duration>) {
    let mut all = Vec::new();
    lock(shares).retain(|share| match share.upgrade() {
        Some(share) => {
            all.push(share);
            true
        }
        None => false,
    });
    let usages: Vec<_> = all.iter().map(|share| share.usage(past)).collect();
    let processors = thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    let idle = match idle {
        Some(idle) => idle.as_secs_f64() / past.as_secs_f64(),
        None => processors - usages.iter().map(|usage| usage.used).sum::<f64>(),
    };
    for (share, niceness) in all.iter().zip(level::next(&usages, idle.max(0.0), processors)) {
        share.set_niceness(niceness);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process that keeps this many threads busy.
    struct Busy(Vec<Child>);

    impl Busy {
        fn start(threads: usize) -> Self {
            let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            Self((0..threads).map(|_| spin()).collect())
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// How much nicer a process is than this one.
    fn niceness_of(process: u32) -> i32 {
        let process = rustix::process::Pid::from_raw(process as i32);
        let of = |process| rustix::process::getpriority_process(process).unwrap();
        of(process) - of(None)
    }

    fn until(what: &str, done: impl Fn() -> bool) {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn who_uses_more_than_his_share_is_nicer_until_he_is_alone() {
        let shares = match CpuShares::start() {
            Ok(shares) => shares,
            Err(error) => return crate::skip::skip(format_args!("{error}")),
        };
        let one = NonZeroU32::MIN;
        let processors = thread::available_parallelism().unwrap().get();
        let (few, many) = (shares.share(one), shares.share(one));
        let (busy, busier) = (Busy::start(1), Busy::start(4 * processors));
        let join = |share: &Arc<CpuShare>, busy: &Busy| -> Vec<_> {
            busy.0.iter().map(|child| share.join(child.id()).unwrap()).collect()
        };
        let members = [join(&few, &busy), join(&many, &busier)];
        until("the flood is nicer", || many.niceness() > 3 && few.niceness() == 0);
        until("its processes are", || busier.0.iter().all(|child| niceness_of(child.id()) > 3));
        // One that begins meanwhile is nicer at first, and then as nice.
        let late = Busy::start(1);
        let member = join(&many, &late);
        let of = |busy: &Busy| niceness_of(busy.0[0].id());
        assert!(of(&late) > 3 + 4);
        until("it is as nice", || of(&late) == of(&busier));
        until("the other is not nice", || of(&busy) == 0);
        drop(busy);
        until("it is alone", || many.niceness() == 0);
        until("nobody is nice", || busier.0.iter().all(|child| niceness_of(child.id()) == 0));
        drop((members, member));
        assert!(lock(&many.processes).is_empty());
    }
}
