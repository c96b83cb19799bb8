//! A cgroup for one instance: version 2 if it has the controllers, and version 1 for the share of a
//! processor if that controller is there.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The period of the CPU quota in microseconds: the kernel's default.
const PERIOD_US: f64 = 100_000.0;

/// How long the kernel may take to freeze a group, or to release it.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// The limits of an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) processors: f64,
    pub(super) memory_bytes: u64,
}

/// What this machine cannot provide for instances, with the consequences; `None` if it provides
/// everything.
pub(crate) fn missing() -> Option<String> {
    let group = Group::create(Limits { processors: 1.0, memory_bytes: 1 << 30 });
    let mut missing = Vec::new();
    if group.unified.is_none() {
        missing.push("a freezer (SIGSTOP is used instead)");
    }
    if !group.limits_processors {
        missing.push("shares of a processor (instances are not limited)");
    }
    if !group.limits_memory {
        missing.push("memory limits (only the runtimes' own apply)");
    }
    (!missing.is_empty()).then(|| format!("no cgroup here has {}", missing.join(", nor ")))
}

/// A cgroup, empty until a command is started in it. Dropping it kills its processes.
#[derive(Debug)]
pub(super) struct Group {
    /// Its directory in version 2, if one can be created.
    unified: Option<PathBuf>,
    /// Its directory in version 1, if version 2 cannot limit the share of a processor.
    version1: Option<PathBuf>,
    pub(super) limits_processors: bool,
    limits_memory: bool,
}

impl Group {
    /// Creates a cgroup with these limits, as far as this machine permits.
    pub(super) fn create(limits: Limits) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("squeezy-bench-{}-{number}", std::process::id());
        let make = |mount: PathBuf| {
            let path = mount.join(&name);
            fs::create_dir(&path).is_ok().then_some(path)
        };
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let quota_us = (limits.processors * PERIOD_US).round();
        let mut group = Self {
            unified: mount(&mounts, "cgroup2", None).and_then(make),
            version1: None,
            limits_processors: false,
            limits_memory: false,
        };
        if let Some(path) = &group.unified {
            let quota = format!("{quota_us} {PERIOD_US}");
            group.limits_processors = write(path, "cpu.max", &quota).is_ok();
            group.limits_memory =
                write(path, "memory.max", &limits.memory_bytes.to_string()).is_ok();
        }
        if !group.limits_processors {
            group.version1 = mount(&mounts, "cgroup", Some("cpu")).and_then(make);
            if let Some(path) = &group.version1 {
                group.limits_processors = write(path, "cpu.cfs_period_us", &PERIOD_US.to_string())
                    .and_then(|()| write(path, "cpu.cfs_quota_us", &quota_us.to_string()))
                    .is_ok();
            }
        }
        group
    }

    /// Has a command start in the cgroup.
    pub(super) fn hold(&self, command: &mut Command) -> io::Result<()> {
        let open = |path: &PathBuf| OpenOptions::new().write(true).open(path.join("cgroup.procs"));
        let mut files = self.directories().map(open).collect::<io::Result<Vec<File>>>()?;
        // SAFETY: in the child after fork(2) this only writes to files that were opened before.
        unsafe {
            command.pre_exec(move || files.iter_mut().try_for_each(|file| file.write_all(b"0")))
        };
        Ok(())
    }

    /// Freezes or thaws its processes; returns false if there is no freezer.
    pub(super) fn freeze(&self, freeze: bool) -> io::Result<bool> {
        let Some(path) = &self.unified else { return Ok(false) };
        let state = if freeze { "1" } else { "0" };
        write(path, "cgroup.freeze", state)?;
        let wanted = format!("frozen {state}");
        let deadline = Instant::now() + LIMIT;
        while !fs::read_to_string(path.join("cgroup.events"))?.lines().any(|line| line == wanted) {
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its cgroup does not freeze"));
            }
            thread::sleep(PAUSE);
        }
        Ok(true)
    }

    /// Kills its processes, frozen or not, if there is a cgroup.
    pub(super) fn kill(&self) {
        if let Some(path) = &self.unified {
            // Kernels before 5.14 have no such file; there the process is killed by its pid alone.
            let _ = write(path, "cgroup.kill", "1");
            let _ = write(path, "cgroup.freeze", "0");
        }
    }

    fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        self.unified.iter().chain(&self.version1)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        let deadline = Instant::now() + LIMIT;
        for path in self.directories() {
            // Killed processes take a moment to disappear.
            while fs::remove_dir(path).is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
                && Instant::now() < deadline
            {
                thread::sleep(PAUSE);
            }
        }
    }
}

fn write(directory: &Path, name: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(directory.join(name))?.write_all(value.as_bytes())
}

/// Mount point of a file system of this type with this option.
fn mount(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, found) = (words.next()?, words.next()?);
        let has = |wanted| words.next().is_some_and(|all| all.split(',').any(|o| o == wanted));
        (found == kind && option.is_none_or(has)).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn mounts_are_told_apart() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpuacct cgroup rw,cpuacct 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let at = |kind, option| mount(mounts, kind, option);
        assert_eq!(at("cgroup", Some("cpu")), Some("/sys/fs/cgroup/cpu".into()));
        assert_eq!(at("cgroup2", None), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(at("cgroup", Some("memory")), None);
    }

    /// Only where permitted: elsewhere the group contains nothing and does nothing.
    #[test]
    fn what_is_in_a_group_is_frozen_and_ends_with_it() {
        let group = Group::create(Limits { processors: 0.5, memory_bytes: 256 << 20 });
        let directories: Vec<PathBuf> = group.directories().cloned().collect();
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        group.hold(&mut command).unwrap();
        let mut child = command.spawn().unwrap();
        let own = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
        for path in &directories {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(own.contains(name), "{own}");
        }
        assert_eq!(group.freeze(true).unwrap(), group.unified.is_some());
        assert_eq!(group.freeze(false).unwrap(), group.unified.is_some());
        group.freeze(true).unwrap();
        if group.unified.is_none() {
            child.kill().unwrap();
        }
        group.kill();
        assert!(!child.wait().unwrap().success());
        drop(group);
        assert!(directories.iter().all(|path| !path.exists()));
    }
}
