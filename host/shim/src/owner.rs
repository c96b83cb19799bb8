//! Which process a server is: it has a file of its own locked, and the kernel says who has.
//!
//! A number in a file could be another process's by the time that somebody reads it.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, fcntl_lock},
    io::Errno,
    process::{
        Flock, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, pidfd_open, pidfd_send_signal,
    },
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// How long a killed process may take to end, in seconds.
const END_SECONDS: i64 = 1;

/// Makes this process the owner of a file, until it ends or closes any descriptor of that file.
///
/// # Errors
/// It has another owner, or cannot be opened.
pub fn own(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Opens a file that may have an owner; `None` if nobody has ever owned it. It stays the one of that owner, also when
/// there is another file of this name.
///
/// # Errors
/// It cannot be opened.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Kills the owner of a file, and waits until it has ended. Returns whether there was one.
///
/// # Errors
/// It cannot be killed, or does not end.
pub fn kill(file: &File) -> io::Result<bool> {
    let Some(owner) = owner(file)? else { return Ok(false) };
    let process = match pidfd_open(owner, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(false),
        opened => opened?,
    };
    // If it still is, the descriptor is its own and no later process's.
    if self::owner(file)? != Some(owner) {
        return Ok(false);
    }
    pidfd_send_signal(&process, Signal::KILL)?;
    let limit = Timespec { tv_sec: END_SECONDS, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit))? == 0 {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("process {owner} does not end of SIGKILL"),
        ));
    }
    Ok(true)
}

/// Whether a thread of the owner of a file runs or waits for a processor or a drive at this moment. Not if it is stopped,
/// or all of its threads wait for something else, or there is no owner.
///
/// # Errors
/// The kernel does not say.
pub fn works(file: &File) -> io::Result<bool> {
    let Some(owner) = owner(file)? else { return Ok(false) };
    for thread in fs::read_dir(format!("/proc/{owner}/task"))? {
        // It may have ended meanwhile.
        let stat = fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may have any character and is in parentheses.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        if state.is_some_and(|state| state.starts_with(['R', 'D'])) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn owner(file: &File) -> io::Result<Option<Pid>> {
    Ok(fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?.and_then(|lock| lock.pid))
}

#[cfg(test)]
pub(crate) mod tests;
