//! Control groups among which Linux shares the host's processors by weight.
//!
//! Left to itself, Linux shares processors among threads, so whoever has more VMs gets more of them. All VMs in a group
//! get together what its weight gives it while processors are short, and whatever others leave over.

mod place;

use place::{Place, Version};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    num::NonZeroU32,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// What the names of all groups begin with, followed by the process that has made them.
const PREFIX: &str = "squeezy-";

/// The group of this process in version 2, where those that have groups below them have no processes.
const OWN: &str = "daemon";

/// Its weight: that of ten groups of weight 1. Everybody waits for it, and it needs little.
const OWN_WEIGHT: u32 = 10 * WEIGHT;

/// `cpu.weight` of a group of weight 1, and the most that the kernel takes.
const WEIGHT: u32 = 10;
const MOST_WEIGHT: u32 = 10_000;

/// `cpu.shares` of a group of weight 1, which is that of a thread, and the most that the kernel takes.
const SHARES: u32 = 1024;
const MOST_SHARES: u32 = 262_144;

/// Where this process may make control groups.
#[derive(Debug)]
pub struct CpuGroups {
    place: Place,
    next: AtomicU64,
}

/// A control group whose VMs share its part of the processors. It exists from its first VM on; dropping it removes it.
#[derive(Debug)]
pub struct CpuGroup {
    directory: PathBuf,
    version: Version,
    weight: AtomicU32,
}

impl CpuGroups {
    /// Finds out whether groups can be made, and removes those that processes have left behind which were killed. In
    /// version 2, where systemd gives a service a control group of its own (`Delegate=cpu`), this process moves into a
    /// group below it. An error says what is missing.
    pub fn open() -> Result<Self, String> {
        let place = Place::find()?;
        let said = |error: io::Error| format!("{}: {error}", place.directory.display());
        if place.version == Version::Two {
            delegate(&place.directory).map_err(said)?;
        }
        remove_left(&place.directory);
        let groups = Self { next: AtomicU64::new(0), place: place.clone() };
        let first = groups.group(NonZeroU32::MIN);
        first.make().map_err(said)?;
        Ok(groups)
    }

    /// The directory in which they are.
    pub fn directory(&self) -> &Path {
        &self.place.directory
    }

    /// A new group. Its weight counts in proportion to those of others, up to 1000 (in version 1, up to 256).
    pub fn group(&self, weight: NonZeroU32) -> CpuGroup {
        let number = self.next.fetch_add(1, Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let Place { directory, version } = &self.place;
        CpuGroup {
            directory: directory.join(name),
            version: *version,
            weight: AtomicU32::new(weight.get()),
        }
    }
}

impl CpuGroup {
    /// Changes its weight, for VMs that run, too.
    pub fn set_weight(&self, weight: NonZeroU32) -> io::Result<()> {
        self.weight.store(weight.get(), Relaxed);
        match self.write_weight() {
            // It has no VM yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Has a command start in it.
    pub(crate) fn hold(&self, command: &mut Command) -> io::Result<()> {
        self.make()?;
        let mut processes =
            OpenOptions::new().write(true).open(self.directory.join("cgroup.procs"))?;
        // SAFETY: in the child after fork(2) this only writes to a file that was opened before.
        unsafe { command.pre_exec(move || processes.write_all(b"0")) };
        Ok(())
    }

    fn make(&self) -> io::Result<()> {
        create(&self.directory)?;
        self.write_weight()
    }

    fn write_weight(&self) -> io::Result<()> {
        let weight = self.weight.load(Relaxed);
        match self.version {
            Version::One => {
                let shares = weight.saturating_mul(SHARES).min(MOST_SHARES);
                write(&self.directory, "cpu.shares", &shares.to_string())
            }
            Version::Two => {
                let weight = weight.saturating_mul(WEIGHT).min(MOST_WEIGHT);
                write(&self.directory, "cpu.weight", &weight.to_string())
            }
        }
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // One whose last process has not quite ended is removed by a later daemon.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Lets groups below a group share its processors. This process, which has to be the only one in it, moves into one of
/// them. Nothing has changed if it fails.
fn delegate(directory: &Path) -> io::Result<()> {
    const CONTROL: &str = "cgroup.subtree_control";
    if place::has(directory, CONTROL, "cpu") {
        return Ok(());
    }
    let own = directory.join(OWN);
    create(&own)?;
    let delegated = write(&own, "cgroup.procs", "0")
        .and_then(|()| write(directory, CONTROL, "+cpu"))
        .and_then(|()| write(&own, "cpu.weight", &OWN_WEIGHT.to_string()));
    if delegated.is_err() {
        let _ = write(directory, CONTROL, "-cpu");
        let _ = write(directory, "cgroup.procs", "0");
        let _ = fs::remove_dir(&own);
    }
    delegated
}

/// Removes groups of processes that are gone. One that has a process stays.
fn remove_left(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let made_by = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        if made_by.is_some_and(|(process, _)| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn create(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn write(directory: &Path, name: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(directory.join(name))?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests;
