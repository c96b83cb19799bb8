//! A process of this machine, by its files in /proc.

use crate::{Error, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, openat},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    sync::Arc,
};

/// Most of a process's environment that is read, in bytes; the kernel's own limit is 6 MiB.
const MOST_ENVIRONMENT_BYTES: u64 = 8 << 20;

/// Most of `status` or `stat` that is read, in bytes: more than the kernel ever writes.
const MOST_STATUS_BYTES: u64 = 64 << 10;

/// A process, and never a later one with the same number.
#[derive(Clone, Debug)]
pub struct Process {
    pid: u32,
    pidfd: Arc<OwnedFd>,
    /// `/proc/PID`: its files cannot be opened any more once the process is gone.
    directory: Arc<OwnedFd>,
}

/// Whether a process may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// It may.
    Running,
    /// All its threads are stopped, by a signal or a debugger.
    Stopped,
    /// It has ended.
    Ended,
}

impl Process {
    /// The process of this number in the caller's PID namespace.
    pub fn open(pid: u32) -> Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(Error::NoProcess(pid))?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(|error| match error {
            // The number of a thread gives one of the other two, which depends on the kernel.
            Errno::SRCH | Errno::INVAL | Errno::NOENT => Error::NoProcess(pid),
            error => Error::system(format!("process {pid}"), error),
        })?;
        let path = format!("/proc/{pid}");
        let directory = rustix::fs::open(&path, DIRECTORY, Mode::empty())
            .map_err(|error| Error::system(path, error))?;
        let process = Self { pid, pidfd: Arc::new(pidfd), directory: Arc::new(directory) };
        // While the process has not ended its number is its own, so the directory is its own too.
        if process.has_ended() { Err(Error::NoProcess(pid)) } else { Ok(process) }
    }

    /// Its number in the caller's PID namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&*self.pidfd, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        pidfd_send_signal(&*self.pidfd, signal).map_err(|error| match error {
            Errno::SRCH => Error::NoProcess(self.pid),
            error => Error::system(format!("a signal to process {}", self.pid), error),
        })
    }

    /// Whether it may run. Not of a process that its cgroup keeps frozen, which counts as running.
    pub fn run(&self) -> Result<Run> {
        let list = openat(&*self.directory, c"task", FILE | OFlags::DIRECTORY, Mode::empty());
        let tasks = list.map_err(|error| self.error("task", error))?;
        let list = rustix::fs::Dir::read_from(&tasks).map_err(|error| self.error("task", error))?;
        let mut run = Run::Ended;
        for task in list {
            let task = task.map_err(|error| self.error("task", error))?;
            if task.file_name().to_bytes().starts_with(b".") {
                continue;
            }
            let path = [task.file_name().to_bytes(), b"/stat"].concat();
            match openat(&tasks, path, FILE, Mode::empty()).map(File::from) {
                Ok(file) => match state(&read(file, MOST_STATUS_BYTES).unwrap_or_default()) {
                    Some(b'T' | b't') => run = Run::Stopped,
                    Some(b'Z' | b'X') | None => {}
                    Some(_) => return Ok(Run::Running),
                },
                Err(Errno::NOENT | Errno::SRCH) => {} // a thread that has ended meanwhile
                Err(error) => return Err(self.error("task", error)),
            }
        }
        Ok(run)
    }

    /// Its number as it sees itself, which is another one in a PID namespace of its own.
    pub(crate) fn own_pid(&self) -> Result<u32> {
        let status = self.read("status", MOST_STATUS_BYTES)?;
        innermost_pid(&String::from_utf8_lossy(&status))
            .ok_or_else(|| self.error("status", io::Error::other("no NSpid in it")))
    }

    /// The value of a variable in the environment that it was started with.
    pub(crate) fn variable(&self, name: &str) -> Result<Option<OsString>> {
        let environment = self.read("environ", MOST_ENVIRONMENT_BYTES)?;
        Ok(variable(&environment, name).map(OsString::from_vec))
    }

    /// One of its files in /proc, to be read.
    pub(crate) fn file(&self, name: &'static str) -> Result<File> {
        openat(&*self.directory, name, FILE, Mode::empty())
            .map(File::from)
            .map_err(|error| self.error(name, error))
    }

    /// Its root directory, as a place to look up names from.
    pub(crate) fn root(&self) -> Result<OwnedFd> {
        openat(&*self.directory, c"root", DIRECTORY, Mode::empty())
            .map_err(|error| self.error("root", error))
    }

    /// The handle that the kernel takes for it.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// That one of its files could not be read; or that there is no process any more, if so.
    pub(crate) fn error(&self, name: &str, error: impl Into<io::Error>) -> Error {
        if self.has_ended() {
            return Error::NoProcess(self.pid);
        }
        Error::system(format!("/proc/{}/{name}", self.pid), error)
    }

    fn read(&self, name: &'static str, most_bytes: u64) -> Result<Vec<u8>> {
        read(self.file(name)?, most_bytes).map_err(|error| self.error(name, error))
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

fn read(file: File, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    file.take(most_bytes).read_to_end(&mut contents)?;
    Ok(contents)
}

/// The state in a `stat` file: after the name, which is in parentheses and may hold some itself.
fn state(stat: &[u8]) -> Option<u8> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

fn innermost_pid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// The first value of `name`, as getenv(3) has it; an empty one is none.
fn variable(environment: &[u8], name: &str) -> Option<Vec<u8>> {
    let value = environment
        .split(|&byte| byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    (!value.is_empty()).then(|| value.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").env("SQUEEZY_TEST", "a value").spawn().unwrap()
    }

    #[test]
    fn a_process_that_is_there() {
        let mut child = sleeper();
        let process = Process::open(child.id()).unwrap();
        // Until it has executed `sleep` it has the environment of this process.
        while process.variable("SQUEEZY_TEST").unwrap().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(process.variable("SQUEEZY_TEST").unwrap().unwrap(), "a value");
        assert_eq!(process.variable("SQUEEZY_TES").unwrap(), None);
        assert_eq!(process.own_pid().unwrap(), child.id());
        assert_eq!(process.run().unwrap(), Run::Running);
        process.signal(Signal::STOP).unwrap();
        while process.run().unwrap() != Run::Stopped {
            std::thread::yield_now();
        }
        process.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(matches!(process.variable("PATH").unwrap_err(), Error::NoProcess(_)));
        assert!(matches!(process.signal(Signal::CONT).unwrap_err(), Error::NoProcess(_)));
    }

    #[test]
    fn a_process_that_is_not_there() {
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert!(matches!(Process::open(pid).unwrap_err(), Error::NoProcess(p) if p == pid));
        }
        let mut child = sleeper();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(Process::open(child.id()).unwrap_err(), Error::NoProcess(_)));
    }

    #[test]
    fn a_process_that_has_ended_and_nobody_has_waited_for() {
        let mut child = sleeper();
        let process = Process::open(child.id()).unwrap();
        child.kill().unwrap();
        while !process.has_ended() {
            std::thread::yield_now();
        }
        assert!(matches!(Process::open(child.id()).unwrap_err(), Error::NoProcess(_)));
        assert!(matches!(process.run(), Ok(Run::Ended) | Err(Error::NoProcess(_))));
        child.wait().unwrap();
    }

    #[test]
    fn names_that_look_like_a_state() {
        assert_eq!(state(b"42 (a) T (b) S 1 42"), Some(b'S'));
        assert_eq!(state(b"42 (a"), None);
        assert_eq!(state(b"42 (a)"), None);
    }

    #[test]
    fn the_innermost_of_several_pids() {
        assert_eq!(innermost_pid("Name:\tx\nNSpid:\t4242\t17\t1\nThreads:\t1\n"), Some(1));
        assert_eq!(innermost_pid("Name:\tNSpid: 1\n"), None);
    }

    #[test]
    fn the_first_value_of_a_variable() {
        assert_eq!(variable(b"AB=2\0B=1\0B=3\0", "B").as_deref(), Some(&b"1"[..]));
        assert_eq!(variable(b"B=\0B=3\0", "B"), None);
        assert_eq!(variable(b"B", "B"), None);
    }
}
