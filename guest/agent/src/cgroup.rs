//! One cgroup (v2) per instance: its limits, its end, and OOM kills in it.

use squeezy_protocol::{InstanceSpec, Usage};
use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Where init mounts the hierarchy.
pub const ROOT: &str = "/sys/fs/cgroup";
/// Parent of the instances' cgroups.
const PARENT: &str = "/sys/fs/cgroup/squeezy";
/// Maximum number of processes and threads of an instance: each has a kernel stack, which no partition holds.
pub const MAX_PROCESSES: u32 = 1024;
/// Period of `cpu.max` in microseconds (the kernel's default).
const CPU_PERIOD_US: u64 = 100_000;
/// The kernel's largest `cpu.weight`.
const MAX_WEIGHT: u32 = 10_000;
/// How long the last process may take to leave the cgroup after its exit.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest and the longest time between two looks whether it has. The agent has one thread, and many instances may
/// end at a time.
const EMPTY_PAUSES: [Duration; 2] = [Duration::from_micros(250), Duration::from_millis(20)];

/// Enables controllers for the instances' cgroups. One that the kernel lacks is skipped; setting a limit that
/// needs it fails later, with an error that names it.
pub fn set_up() -> io::Result<()> {
    fs::create_dir_all(PARENT)?;
    enable(Path::new(ROOT))?;
    enable(Path::new(PARENT))
}

/// Enables them for the cgroups in this one.
fn enable(directory: &Path) -> io::Result<()> {
    let available = fs::read_to_string(directory.join("cgroup.controllers"))?;
    for controller in ["cpu", "cpuset", "memory", "pids"] {
        if available.split_whitespace().any(|word| word == controller) {
            fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
    }
    Ok(())
}

/// An instance's cgroup; removed with [`Cgroup::remove`].
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// The cgroup that it is in with those beside it, if they have a limit together. It goes with the last of them.
    shared: Option<PathBuf>,
}

impl Cgroup {
    /// Creates the cgroup of an instance and sets its limits; beside that of another one, which has processes, if there
    /// is one. `users` is the number of the users that the instance shares with nobody else.
    pub fn create(spec: &InstanceSpec, beside: Option<&Self>, users: u32) -> io::Result<Self> {
        let shared = match (beside, spec.company_memory_limit_bytes) {
            (Some(other), _) => other.shared.clone(),
            (None, Some(bytes)) => Some(create_shared(users, bytes)?),
            (None, None) => None,
        };
        let path = shared.as_deref().unwrap_or(Path::new(PARENT)).join(spec.id.as_str());
        let cgroup = Self { path, shared };
        if let Err(error) = fs::create_dir(&cgroup.path) {
            cgroup.leave_shared();
            return Err(error);
        }
        cgroup.limit(spec).and_then(|()| cgroup.weigh_shared()).inspect_err(|_| {
            let _ = fs::remove_dir(&cgroup.path);
            cgroup.leave_shared();
        })?;
        Ok(cgroup)
    }

    /// One whose files are in this directory, for tests.
    #[cfg(test)]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), shared: None }
    }

    /// Removes the one around it, unless there are others in it.
    fn leave_shared(&self) {
        if let Some(shared) = &self.shared {
            let _ = fs::remove_dir(shared);
        }
    }

    fn limit(&self, spec: &InstanceSpec) -> io::Result<()> {
        self.write("pids.max", MAX_PROCESSES)?;
        // An instance that lost a process to the OOM killer does not answer requests correctly.
        self.write("memory.oom.group", 1)?;
        if let Some(bytes) = spec.memory_limit_bytes {
            self.write("memory.max", bytes)?;
        }
        self.limit_processors(spec.cpu_share_millis, spec.cpu_limit_millis)?;
        if let Some(node) = spec.memory_node {
            // Node 0 too: a node with only movable memory has none for page tables and the like. The
            // process's own policy binds the rest to its node.
            self.write("cpuset.mems", format!("0,{node}"))?;
        }
        Ok(())
    }

    fn limit_processors(
        &self,
        share_millis: Option<u32>,
        limit_millis: Option<u32>,
    ) -> io::Result<()> {
        if let Some(millis) = share_millis {
            self.write("cpu.weight", (millis / 10).clamp(1, MAX_WEIGHT))?;
        }
        if let Some(millis) = limit_millis {
            let quota_us = u64::from(millis) * CPU_PERIOD_US / 1000;
            self.write("cpu.max", format!("{quota_us} {CPU_PERIOD_US}"))?;
        }
        Ok(())
    }

    /// Changes what it gets of the processors; what is absent stays as it is.
    pub fn change_processors(
        &self,
        share_millis: Option<u32>,
        limit_millis: Option<u32>,
    ) -> io::Result<()> {
        self.limit_processors(share_millis, limit_millis)?;
        self.weigh_shared()
    }

    /// The cgroup around it weighs what those in it weigh together: with others, each has its own share.
    fn weigh_shared(&self) -> io::Result<()> {
        let Some(shared) = self.shared.as_deref().filter(|path| path.join("cpu.weight").exists())
        else {
            return Ok(());
        };
        let mut sum: u32 = 0;
        for entry in fs::read_dir(shared)? {
            // Files are no directories, and one of the cgroups may just have gone.
            let weight = fs::read_to_string(entry?.path().join("cpu.weight")).unwrap_or_default();
            sum += weight.trim().parse::<u32>().unwrap_or(0);
        }
        write(shared, "cpu.weight", sum.clamp(1, MAX_WEIGHT))
    }

    fn write(&self, file: &str, value: impl ToString) -> io::Result<()> {
        write(&self.path, file, value)
    }

    /// The directory, for clone3(2) to start a process in.
    pub fn open(&self) -> io::Result<OwnedFd> {
        fs::File::open(&self.path).map(OwnedFd::from)
    }

    /// Freezes or thaws its processes. They can be killed either way.
    pub fn freeze(&self, freeze: bool) -> io::Result<()> {
        self.write("cgroup.freeze", u8::from(freeze))
    }

    /// Whether all its processes are frozen.
    pub fn is_frozen(&self) -> bool {
        self.event("frozen") == Some(1)
    }

    /// Kills every process in it.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Sends a signal to every process in it.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        for process in self.processes()? {
            match signal(process, number) {
                // It has just ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Its processes.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let processes = self.read("cgroup.procs")?;
        Ok(processes.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// What is charged to it now; nothing of what is not.
    pub fn usage(&self) -> io::Result<Usage> {
        let number = |file: &str| -> io::Result<u64> {
            self.read(file)?.trim().parse().map_err(io::Error::other)
        };
        let (cpu, memory) = (self.read("cpu.stat")?, self.read("memory.stat")?);
        let of = |text: &str, name: &str| value_of(text, name).ok_or(io::ErrorKind::InvalidData);
        Ok(Usage {
            memory_bytes: number("memory.current")?,
            private_bytes: 0,
            cpu_us: of(&cpu, "usage_usec")?,
            user_us: of(&cpu, "user_usec")?,
            system_us: of(&cpu, "system_usec")?,
            page_faults: of(&memory, "pgfault")?,
            major_page_faults: of(&memory, "pgmajfault")?,
            processes: number("pids.current")?,
            processes_limit: number("pids.max")?,
            oom_kills: self.oom_kills(),
        })
    }

    /// For how long its processes have run since its start, and at least one of them has waited for a processor (also for
    /// its quota) or a drive, in microseconds.
    pub fn busy_us(&self) -> io::Result<u64> {
        let parts_us = [
            value_of(&self.read("cpu.stat")?, "usage_usec"),
            stall_us(&self.read("cpu.pressure")?),
            stall_us(&self.read("io.pressure")?),
        ];
        let sum_us = parts_us.into_iter().try_fold(0_u64, |sum, us| sum.checked_add(us?));
        Ok(sum_us.ok_or(io::ErrorKind::InvalidData)?)
    }

    /// How many of its processes were killed by any OOM killer: for `memory.max`, for a full partition or for
    /// the whole guest.
    pub fn oom_kills(&self) -> u64 {
        let events = self.read("memory.events").unwrap_or_default();
        value_of(&events, "oom_kill").unwrap_or(0)
    }

    fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path.join(file))
    }

    fn event(&self, name: &str) -> Option<u64> {
        let events = self.read("cgroup.events").ok()?;
        value_of(&events, name)
    }

    /// Waits until its last process has left it, and removes it.
    pub async fn remove(&self) -> io::Result<()> {
        let emptied = async {
            let begin = Instant::now();
            while self.event("populated") == Some(1) || fs::remove_dir(&self.path).is_err() {
                tokio::time::sleep(pause_after(begin.elapsed())).await;
            }
        };
        tokio::time::timeout(EMPTY_TIMEOUT, emptied).await.map_err(|_| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{} still has processes after 10 s", self.path.display()),
            )
        })?;
        // It is gone if this was the last.
        let _ = self.weigh_shared();
        self.leave_shared();
        Ok(())
    }
}

/// How long not to look again whether a cgroup is empty, after so long: it goes at most a twentieth later than it could.
fn pause_after(waited: Duration) -> Duration {
    let [shortest, longest] = EMPTY_PAUSES;
    (waited / 20).clamp(shortest, longest)
}

/// Creates a cgroup for all that have the users of this number, with a limit of their memory together.
fn create_shared(users: u32, memory_bytes: u64) -> io::Result<PathBuf> {
    // No instance has such a name.
    let path = Path::new(PARENT).join(format!("company_{users}"));
    match fs::create_dir(&path) {
        // One that could not be removed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    enable(&path).and_then(|()| write(&path, "memory.max", memory_bytes)).inspect_err(|_| {
        let _ = fs::remove_dir(&path);
    })?;
    Ok(path)
}

fn write(directory: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let value = value.to_string();
    fs::write(directory.join(file), &value)
        .map_err(|e| io::Error::new(e.kind(), format!("setting {file} to {value}: {e}")))
}

/// Sends a signal to a process, real-time ones included.
pub fn signal(process: u32, number: i32) -> io::Result<()> {
    let process = i32::try_from(process).ok().filter(|process| *process > 0);
    let process = process.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: it touches no memory.
    match unsafe { libc::kill(process, number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number after `name` in a file of lines `name number`.
fn value_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

/// For how long at least one process has waited, as the kernel's pressure stall information says it, in microseconds.
fn stall_us(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_of_some_are_counted() {
        let text = "some avg10=0.00 avg60=1.50 avg300=0.00 total=4711\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(stall_us(text), Some(4711));
        assert_eq!(stall_us("full total=7\n"), None);
        assert_eq!(stall_us(""), None);
    }

    #[test]
    fn who_is_not_empty_soon_is_looked_at_more_seldom() {
        let after = |ms| pause_after(Duration::from_millis(ms));
        assert_eq!(after(0), Duration::from_micros(250));
        assert_eq!(after(20), Duration::from_millis(1));
        assert_eq!(after(200), Duration::from_millis(10));
        assert_eq!(after(9000), Duration::from_millis(20));
    }

    #[test]
    fn finds_one_event_among_others() {
        let events = "low 0\noom 4\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(value_of(events, "oom_kill"), Some(2));
        assert_eq!(value_of(events, "kill"), None);
    }
}
