//! The control group of a server, in which its VM is, too: beside those that kubelet has made for the pods, whose part of
//! the processors it has, and with a bound on its memory.
//!
//! It is in none of a pod's: kubelet kills what is in there when the pod ends.

mod bound;
mod memory;

use crate::registry::ServerName;
use memory::most_memory;
use std::{
    fs, io,
    path::{Component, Path, PathBuf},
    process,
    sync::Arc,
    thread::sleep,
    time::Duration,
};

pub use bound::Bound;

/// How the name of each begins. kubelet removes groups beside those of its pods that have "pod" in their names.
const PREFIX: &str = "squeezy-";
/// The file that a process writes to in order to be in a group: with 0, itself and all of its threads.
const PROCESSES: &str = "cgroup.procs";
/// The controllers, as Linux calls them.
const PROCESSORS: &str = "cpu";
const MEMORY: &str = "memory";

/// The shares of one processor.
pub const SHARES: u64 = 1024;
/// What a VM has at the least, in shares: its server has to answer containerd, and its kernel the server, whatever pods
/// ask for.
const LEAST_SHARES: u64 = SHARES / 2;
/// The most that Linux has, in shares.
pub const MOST_SHARES: u64 = 1 << 18;

/// How often a group is made. Whoever looks for empty ones may remove it in the moment before it is entered.
const ATTEMPTS: u32 = 3;
/// How long a group may take to be empty when its processes have been told to end.
const END_LIMIT: Duration = Duration::from_millis(500);
/// How often that is looked at.
const END_INTERVAL: Duration = Duration::from_millis(10);

/// The control group that this process is in, for processors, for memory or for both.
#[derive(Debug)]
pub struct Cgroup {
    /// Nothing where processors are not shared out.
    processors: Option<Group>,
    /// The same one with version 2; nothing where memory cannot be bounded.
    memory: Option<Arc<Group>>,
}

/// The group in one hierarchy.
#[derive(Debug)]
struct Group {
    /// The directory of the one of all pods.
    pods: PathBuf,
    name: String,
    version: Version,
    /// The directory of the one that this process was in before, to which it can go back.
    before: PathBuf,
}

/// A file of a group, and what is written to it.
type Setting = (&'static str, String);

/// Which interface a hierarchy has.
#[derive(Clone, Copy, Debug)]
enum Version {
    One,
    Two,
}

/// A hierarchy of control groups that has a controller, as it is mounted.
struct Hierarchy {
    controller: &'static str,
    version: Version,
    /// The group that is mounted.
    root: PathBuf,
    mount: PathBuf,
}

impl Cgroup {
    /// Makes a group of this process's own in the one where kubelet has all pods, and enters it. It has the weight of one
    /// processor, and no bound on its memory yet.
    ///
    /// # Errors
    /// It cannot be made or entered. Then there is none. If that is so for processors alone, or for memory, the log says
    /// which.
    pub fn enter(pods: &Path, server: &ServerName) -> io::Result<Self> {
        let (mounts, own) =
            (fs::read_to_string("/proc/self/mountinfo")?, fs::read_to_string("/proc/self/cgroup")?);
        // A server may have the name of one that is still about to end.
        let name = format!("{}{}", prefix(server), process::id());
        Self::enter_in(&mounts, &own, pods, &name)
    }

    fn enter_in(mounts: &str, own: &str, pods: &Path, name: &str) -> io::Result<Self> {
        let enter = |controller, first: fn(Version) -> Setting| {
            Group::enter(&Hierarchy::find(mounts, pods, controller)?, own, pods, name, first)
        };
        let processors = enter(PROCESSORS, |version| shares(version, SHARES));
        let memory = enter(MEMORY, |version| most_memory(version, None));
        match (processors, memory) {
            (Err(error), Err(_)) => Err(error),
            (processors, memory) => Ok(Self {
                processors: known(
                    processors,
                    "the VM does not have its part of the host's processors",
                ),
                memory: known(memory, "the memory of the VM has no bound").map(Arc::new),
            }),
        }
    }

    /// Where it is, in each hierarchy.
    pub fn directories(&self) -> Vec<PathBuf> {
        let mut directories: Vec<PathBuf> = self.groups().map(Group::directory).collect();
        directories.dedup();
        directories
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        self.processors.iter().chain(self.memory.as_deref())
    }

    /// Gives it the part of the processors that so many shares ask for, of which one processor has [`SHARES`]; never
    /// less than its server needs. Nothing where they are not shared out.
    ///
    /// # Errors
    /// It is not there any more.
    pub fn weigh(&self, shares: u64) -> io::Result<()> {
        let Some(group) = &self.processors else { return Ok(()) };
        group.set(&self::shares(group.version, shares))
    }

    /// Leaves it, and removes it when nobody is in it any more, with those that were left by others.
    ///
    /// # Errors
    /// There is still somebody, or it cannot be left. Another server removes it when it is empty.
    pub fn leave(&self) -> io::Result<()> {
        // Each, whatever has become of the other one.
        self.groups().map(Group::leave).fold(Ok(()), io::Result::and)
    }
}

impl Group {
    fn enter(
        hierarchy: &Hierarchy,
        own: &str,
        pods: &Path,
        name: &str,
        first: impl Fn(Version) -> Setting,
    ) -> io::Result<Self> {
        let (pods, before) = (hierarchy.mount.join(pods), hierarchy.group_of(own));
        remove_empty(&pods);
        let group = Self { pods, name: name.to_owned(), version: hierarchy.version, before };
        let first = first(group.version);
        for _ in 1..ATTEMPTS {
            if group.make(&first).is_ok() {
                return Ok(group);
            }
        }
        group.make(&first).inspect_err(|_| drop(fs::remove_dir(group.directory())))?;
        Ok(group)
    }

    fn make(&self, first: &Setting) -> io::Result<()> {
        let directory = self.directory();
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(named(&directory, error));
            }
            _ => {}
        }
        self.set(first)?;
        write(&directory.join(PROCESSES), "0")
    }

    fn directory(&self) -> PathBuf {
        self.pods.join(&self.name)
    }

    fn set(&self, (file, text): &Setting) -> io::Result<()> {
        write(&self.directory().join(file), text)
    }

    fn leave(&self) -> io::Result<()> {
        write(&self.before.join(PROCESSES), "0")?;
        remove_left_in(&self.pods, |name| name == self.name)
    }
}

/// A group that was entered. Why there is none is in the log.
fn known(group: io::Result<Group>, without: &str) -> Option<Group> {
    group.inspect_err(|error| tracing::warn!("{without}: {error}")).ok()
}

/// The part of the processors that so many shares ask for, in bounds.
fn shares(version: Version, shares: u64) -> Setting {
    let shares = shares.clamp(LEAST_SHARES, MOST_SHARES);
    match version {
        Version::One => ("cpu.shares", shares.to_string()),
        Version::Two => ("cpu.weight", weight(shares).to_string()),
    }
}

/// Removes what a server that was killed has left in the group of all pods. Its VM may still be about to end, which is
/// waited for.
///
/// # Errors
/// There is somebody in it for longer, or it cannot be found out where groups are.
pub fn remove_left(pods: &Path, server: &ServerName) -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let prefix = prefix(server);
    let find = |controller| Hierarchy::find(&mounts, pods, controller).ok();
    let remove = |hierarchy: Hierarchy| {
        remove_left_in(&hierarchy.mount.join(pods), |name| name.starts_with(&prefix))
    };
    [PROCESSORS, MEMORY].into_iter().filter_map(find).map(remove).fold(Ok(()), io::Result::and)
}

/// Removes empty groups of servers, and waits for those with these names. It is the looks that count: whoever is in one
/// of them may have to wait for the processor, too.
fn remove_left_in(pods: &Path, is_waited_for: impl Fn(&str) -> bool) -> io::Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        let others = remove_empty(pods);
        let Some(name) = others.iter().find(|name| is_waited_for(name)) else { return Ok(()) };
        if waited >= END_LIMIT {
            return Err(named(&pods.join(name), io::Error::other("somebody is still in it")));
        }
        sleep(END_INTERVAL);
        waited += END_INTERVAL;
    }
}

/// Removes groups of servers in which nobody is, and returns the names of the others. The kernel removes none in which
/// somebody is.
fn remove_empty(pods: &Path) -> Vec<String> {
    let entries = fs::read_dir(pods).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let ours = names.filter(|name| name.starts_with(PREFIX));
    ours.filter(|name| fs::remove_dir(pods.join(name)).is_err()).collect()
}

fn prefix(server: &ServerName) -> String {
    format!("{PREFIX}{}-", server.as_str())
}

/// The weight of version 2 for shares of version 1, as kubelet has it for its pods: both go from the least to the most.
fn weight(shares: u64) -> u64 {
    1 + shares.saturating_sub(2) * 9999 / (MOST_SHARES - 2)
}

/// Writes to a file of a group. Where one is missing, because its controller is, Linux says that nobody may make it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied if !path.exists() => {
            named(path, io::Error::other("there is no such file, as its controller is not enabled"))
        }
        _ => named(path, error),
    })
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Hierarchy {
    /// The one with this group, of those that are in a `/proc/PID/mountinfo`: of version 1 if that has the controller
    /// here. What was mounted last is what paths lead to.
    fn find(mounts: &str, pods: &Path, controller: &'static str) -> io::Result<Self> {
        let find = |version: Version| {
            let parse = |line| Self::parse(line, controller, version);
            let mut mounted = mounts.lines().rev().filter_map(parse);
            mounted.find(|hierarchy| hierarchy.mount.join(pods).is_dir())
        };
        find(Version::One).or_else(|| find(Version::Two)).ok_or_else(|| {
            io::Error::other(format!(
                "no control group of the controller {controller} is called {}",
                pods.display()
            ))
        })
    }

    fn parse(line: &str, controller: &'static str, version: Version) -> Option<Self> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, mount) = (place.next()?.into(), place.next()?.into());
        let mut what = what.split(' ');
        let (kind, options) = (what.next()?, what.nth(1)?);
        let is_it = match version {
            Version::One => kind == "cgroup" && has(options, controller),
            Version::Two => kind == "cgroup2",
        };
        is_it.then_some(Self { controller, version, root, mount })
    }

    /// The directory of the group that a process is in, of its `/proc/PID/cgroup`: the one that is mounted if that is
    /// not below it.
    fn group_of(&self, groups: &str) -> PathBuf {
        let is_it = |controllers: &str| match self.version {
            Version::One => has(controllers, self.controller),
            Version::Two => controllers.is_empty(),
        };
        let group = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_it(controllers).then_some(path)
        });
        let below = group.and_then(|path| Path::new(path).strip_prefix(&self.root).ok());
        let is_plain =
            |path: &&Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        below.filter(is_plain).map_or_else(|| self.mount.clone(), |path| self.mount.join(path))
    }
}

/// Whether a controller is one of these.
fn has(controllers: &str, controller: &str) -> bool {
    controllers.split(',').any(|one| one == controller)
}

#[cfg(test)]
mod tests;
