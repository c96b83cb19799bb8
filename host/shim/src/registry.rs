//! Which pod is in which server, for all servers of one namespace of one containerd: files under `/run`.
//!
//! A server is found by its group: pods that may share a VM. A pod's file names its server, and the files of a server
//! are the places that are taken in it; so `start` reserves a place by writing a file, and needs no answer of a server
//! that may be busy. Whoever reads or writes here holds the registry's lock, also a server that wants to end: a pod
//! cannot be sent to one that has just decided to.

use crate::{
    Id,
    error::{Error, ErrorKind, Result},
    group::{Group, pods_per_vm},
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with},
};
use sha2::{Digest, Sha256};
use std::{
    fmt::{self, Display, Formatter},
    fs::{self, DirBuilder, File, OpenOptions, read_to_string, remove_file},
    io::{self, Write},
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

/// Where the registries are.
pub const STATE: &str = "/run/squeezy/shim";

/// How long to wait for the lock, and how often to look.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
const LOCK_INTERVAL: Duration = Duration::from_millis(2);
/// Most VMs of a group.
const SERVERS_PER_GROUP: usize = 64;
/// Most files with logs of servers that have ended: they are in memory, and whoever names VMs has a new one for each name.
const OLD_LOGS: usize = 32;

/// Of the hash of a group, in bytes: tenants choose a part of what is hashed, and nobody is to find what has the hash of
/// another tenant's group.
const GROUP_HASH_BYTES: usize = 16;
/// Of the hash of a containerd and a namespace, in bytes, both of which are the operator's.
const REGISTRY_HASH_BYTES: usize = 8;

/// Names a server within its registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName(String);

impl ServerName {
    fn new(group: &Group, number: usize) -> Self {
        Self(format!("{}-{number}", hash::<GROUP_HASH_BYTES>(&[&group.key])))
    }

    /// Reads a name; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let valid =
            text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        (valid && !text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The name as a part of paths.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The registry, locked.
pub struct Registry {
    directory: PathBuf,
    _lock: File,
}

/// Where a pod goes.
#[derive(Debug)]
pub enum Place {
    /// A server that runs.
    Running(ServerName),
    /// A server that is to be started with this socket, on which it listens already.
    New(ServerName, UnixListener),
}

/// What is known of a VM without asking its server, as its file has it.
#[derive(Debug, PartialEq, Eq)]
struct Room {
    /// How many pods it has room for.
    pods: u16,
    /// Whose it is.
    namespace: String,
}

impl Room {
    /// `None` if there is no such file, or it is not one of ours.
    fn read(path: &Path) -> Option<Self> {
        let text = read_to_string(path).ok()?;
        let (pods, namespace) = text.split_once('\n')?;
        Some(Self { pods: pods.parse().ok()?, namespace: namespace.to_owned() })
    }
}

impl Display for Room {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n{}", self.pods, self.namespace)
    }
}

impl Registry {
    /// Locks the registry for the namespace of the containerd at this address, below `state` (usually [`STATE`]).
    /// Keeps the thread waiting for whoever has the lock, which nobody keeps for longer than a few file operations, unless
    /// he is stopped.
    ///
    /// # Errors
    /// The directories cannot be made or locked.
    pub fn lock(state: &Path, containerd: &str, namespace: &Id) -> Result<Self> {
        let directory = state.join(hash::<REGISTRY_HASH_BYTES>(&[containerd, namespace.as_str()]));
        let lock = || -> io::Result<File> {
            for part in ["pods", "servers"] {
                DirBuilder::new().recursive(true).mode(0o700).create(directory.join(part))?;
            }
            let path = directory.join("lock");
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(path)?;
            let limit = Instant::now() + LOCK_LIMIT;
            while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
                if error != Errno::WOULDBLOCK {
                    return Err(error.into());
                }
                if Instant::now() >= limit {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("somebody has had it for {LOCK_LIMIT:?}"),
                    ));
                }
                sleep(LOCK_INTERVAL);
            }
            Ok(file)
        };
        let lock = lock().map_err(|error| {
            Error::failed(format_args!("cannot lock {}: {error}", directory.display()))
        })?;
        Ok(Self { directory, _lock: lock })
    }

    /// Reserves a place for a pod in a server of its group: the first that runs, has room and is not one of `silent`, else
    /// a new one.
    ///
    /// # Errors
    /// The pod has a place already, or the group has too many servers.
    pub fn reserve(&self, pod: &Id, group: &Group, silent: &[ServerName]) -> Result<Place> {
        if self.server_of(pod).is_ok_and(|server| self.is_running(&server)) {
            return Err(Error::new(ErrorKind::Exists, format_args!("pod {pod} exists already")));
        }
        let pods_per_vm = pods_per_vm(group.partition_bytes);
        let mut free = None;
        let mut found = None;
        for number in 0..SERVERS_PER_GROUP {
            let server = ServerName::new(group, number);
            if !self.is_running(&server) {
                free.get_or_insert(server);
            } else if !silent.contains(&server)
                && self.pods_of(&server)?.len()
                    < usize::from(self.room(&server).map_or(pods_per_vm, |room| room.pods))
            {
                found = Some(server);
                break;
            }
        }
        let place = match (found, free) {
            (Some(server), _) => Place::Running(server),
            (None, Some(server)) => {
                self.forget(&server)?;
                let socket = self.socket(&server);
                let listener = UnixListener::bind(&socket).map_err(|error| {
                    Error::failed(format_args!("cannot listen at {}: {error}", socket.display()))
                })?;
                Place::New(server, listener)
            }
            (None, None) => {
                return Err(Error::new(
                    ErrorKind::Full,
                    format_args!(
                        "the {SERVERS_PER_GROUP} VMs of group {} have no room for another pod",
                        group.key
                    ),
                ));
            }
        };
        let (Place::Running(server) | Place::New(server, _)) = &place;
        write(&self.pod_file(pod), server.as_str())?;
        Ok(place)
    }

    /// The server that a pod has a place in.
    ///
    /// # Errors
    /// It has none.
    pub fn server_of(&self, pod: &Id) -> Result<ServerName> {
        read_to_string(self.pod_file(pod))
            .ok()
            .and_then(|text| ServerName::parse(&text))
            .ok_or_else(|| Error::state(format_args!("there is no pod {pod}, or it has ended")))
    }

    /// Gives a pod's place back, if it has one.
    ///
    /// # Errors
    /// Its file cannot be removed.
    pub fn release(&self, pod: &Id) -> Result<()> {
        self.remove(&self.pod_file(pod))
    }

    /// Whether no pod has a place in this server.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn is_empty(&self, server: &ServerName) -> Result<bool> {
        Ok(self.pods_of(server)?.is_empty())
    }

    /// Removes the socket of a server that is about to end, and the places in it. From now on nobody finds it. Its log is
    /// kept, and the oldest logs of such servers go.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn forget(&self, server: &ServerName) -> Result<()> {
        self.remove(&self.socket(server))?;
        self.remove(&self.room_file(server))?;
        // Whoever owns it still does, but is not found by its name, which is the next one's.
        self.remove(&self.owner(server))?;
        self.pods_of(server)?.iter().try_for_each(|pod| self.remove(pod))?;
        self.remove_old_logs()
    }

    /// Removes logs of servers that do not run, but for the last ones.
    fn remove_old_logs(&self) -> Result<()> {
        let mut logs: Vec<(SystemTime, PathBuf)> = Vec::new();
        for path in self.files("servers")? {
            if let Some(server) = server_of_log(&path)
                && !self.is_running(&server)
                // It may have got another name, or gone.
                && let Ok(written) = fs::metadata(&path).and_then(|found| found.modified())
            {
                logs.push((written, path));
            }
        }
        logs.sort_unstable();
        let old = logs.len().saturating_sub(OLD_LOGS);
        logs[..old].iter().try_for_each(|(_, path)| self.remove(path))
    }

    /// Says whose the VM of a new server is, and how many pods it has room for.
    ///
    /// # Errors
    /// The namespace has `most_vms` already, or the file cannot be written.
    pub fn admit(
        &self,
        server: &ServerName,
        group: &Group,
        pods: u16,
        most_vms: usize,
    ) -> Result<()> {
        let namespace = &group.namespace;
        if self.vms_of(namespace)? >= most_vms {
            return Err(Error::new(
                ErrorKind::Full,
                format_args!(
                    "namespace {namespace:?} has {most_vms} VMs on this node already: let its pods share them \
                     (dev.squeezy/vm, and limits of one size), or raise vms_per_namespace in shim.toml"
                ),
            ));
        }
        let room = Room { pods, namespace: namespace.clone() };
        write(&self.room_file(server), &room.to_string())
    }

    /// No pod is sent to a server any more while it has the pods that it has now, without this one: its VM has no room
    /// for that beside the others.
    ///
    /// # Errors
    /// The registry cannot be read, or the file cannot be written.
    pub fn limit_to_others(&self, server: &ServerName, pod: &Id) -> Result<()> {
        let own = self.pod_file(pod);
        let others = self.pods_of(server)?.iter().filter(|file| **file != own).count();
        let others = u16::try_from(others).unwrap_or(u16::MAX);
        let mut room = self
            .room(server)
            .ok_or_else(|| Error::state("it is not known how many pods the VM has room for"))?;
        room.pods = room.pods.min(others);
        write(&self.room_file(server), &room.to_string())
    }

    /// How many VMs a namespace has whose servers run.
    fn vms_of(&self, namespace: &str) -> Result<usize> {
        let runs = |path: &PathBuf| {
            let is_of_it = path.extension().is_some_and(|extension| extension == "pods")
                && Room::read(path).is_some_and(|room| room.namespace == namespace);
            let server = path.file_stem().and_then(|name| ServerName::parse(name.to_str()?));
            is_of_it && server.is_some_and(|server| self.is_running(&server))
        };
        Ok(self.files("servers")?.iter().filter(|path| runs(path)).count())
    }

    /// What `admit` has said of a server, if it has.
    fn room(&self, server: &ServerName) -> Option<Room> {
        Room::read(&self.room_file(server))
    }

    fn room_file(&self, server: &ServerName) -> PathBuf {
        self.directory.join("servers").join(format!("{}.pods", server.as_str()))
    }

    /// Where a server listens.
    pub fn socket(&self, server: &ServerName) -> PathBuf {
        self.directory.join("servers").join(format!("{}.sock", server.as_str()))
    }

    /// The file that a server owns.
    pub fn owner(&self, server: &ServerName) -> PathBuf {
        self.directory.join("servers").join(format!("{}.owner", server.as_str()))
    }

    /// Where a server writes its log.
    pub fn log(&self, server: &ServerName) -> PathBuf {
        self.directory.join("servers").join(format!("{}.log", server.as_str()))
    }

    /// Whether a server runs: its socket is open in the server alone. Does not wait for one that is busy.
    fn is_running(&self, server: &ServerName) -> bool {
        let connect = || -> rustix::io::Result<()> {
            let address = SocketAddrUnix::new(self.socket(server))?;
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::connect(&socket, &address)
        };
        // There is somebody who listens, but has as many connections as he can have without looking.
        matches!(connect(), Ok(()) | Err(Errno::AGAIN))
    }

    fn pod_file(&self, pod: &Id) -> PathBuf {
        self.directory.join("pods").join(pod.as_str())
    }

    /// The files of the pods that have a place in a server.
    fn pods_of(&self, server: &ServerName) -> Result<Vec<PathBuf>> {
        let mut files = self.files("pods")?;
        files.retain(|path| read_to_string(path).is_ok_and(|text| text == server.as_str()));
        Ok(files)
    }

    /// The files in a directory of it.
    fn files(&self, part: &str) -> Result<Vec<PathBuf>> {
        let directory = self.directory.join(part);
        let read = || -> io::Result<Vec<PathBuf>> {
            fs::read_dir(&directory)?.map(|entry| Ok(entry?.path())).collect()
        };
        read().map_err(|error| {
            Error::failed(format_args!("cannot read {}: {error}", directory.display()))
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::failed(format_args!("cannot remove {}: {error}", path.display())))
            }
            _ => Ok(()),
        }
    }
}

/// The server whose log this is, or the part of it that was written before.
fn server_of_log(path: &Path) -> Option<ServerName> {
    let name = path.file_name()?.to_str()?;
    ServerName::parse(name.strip_suffix(".log").or_else(|| name.strip_suffix(".log.1"))?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Error::failed(format_args!("cannot write {}: {error}", path.display())))
}

/// Hexadecimal digits for so many bytes of the hash of a sequence of texts.
fn hash<const BYTES: usize>(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
