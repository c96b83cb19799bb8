//! A child process that cannot outlive its parent.

use crate::{Result, VmError};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::Duration,
};
use tokio::sync::watch;

/// A running or ended child. Dropping it kills the child.
pub(crate) struct Process {
    id: u32,
    /// Used for signals, so that they cannot reach another process that has got the same pid.
    pidfd: OwnedFd,
    exit: watch::Receiver<Option<ExitStatus>>,
}

/// A child that has just started.
pub(crate) struct Spawned {
    pub(crate) process: Process,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Process {
    /// Starts `command` with its output piped. It inherits `fds` under their numbers, and what `confine` does to the
    /// thread that starts it. `remedy` says what to do if the program does not exist.
    pub(crate) fn spawn(
        mut command: Command,
        fds: Vec<OwnedFd>,
        confine: impl FnOnce() -> std::io::Result<()> + Send + 'static,
        remedy: &'static str,
    ) -> Result<Spawned> {
        let numbers: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let parent = std::process::id();
        // SAFETY: between fork and exec there are only system calls, all of them async-signal-safe,
        // and `numbers` is read without allocating.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // The parent may have died before that call.
                if rustix::process::getppid()
                    .is_none_or(|p| p.as_raw_nonzero().get() as u32 != parent)
                {
                    return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
                }
                for &number in &numbers {
                    // Only here, so that no other child that starts meanwhile inherits them too.
                    if libc::fcntl(number, libc::F_SETFD, 0) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);

        let (started, start) = mpsc::sync_channel(1);
        let (exited, exit) = watch::channel(None);
        // The death signal is sent when the *thread* that forked exits, which a thread of a
        // runtime's pool may do at any time. So a dedicated thread starts the child and waits for
        // it.
        std::thread::Builder::new()
            .name("vmm-keeper".to_owned())
            .spawn(move || {
                let confined =
                    confine().map_err(|e| VmError::system("the VMM cannot be confined", e));
                let child = confined.and_then(|()| {
                    command.spawn().map_err(|error| {
                        let program = command.get_program().into();
                        VmError::Program { program, reason: error.to_string(), remedy }
                    })
                });
                let mut child = match child {
                    Ok(child) => child,
                    Err(error) => return drop(started.send(Err(error))),
                };
                let parts = (child.id(), pidfd(&child), child.stdout.take(), child.stderr.take());
                if started.send(Ok(parts)).is_err() {
                    let _ = child.kill();
                }
                let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(0));
                exited.send_replace(Some(status));
            })
            .map_err(|e| VmError::system("a thread cannot be started", e))?;
        let started = start.recv();
        // Not by the thread that started it: what is confined may be unable to close them.
        drop(fds);
        let (id, pidfd, stdout, stderr) =
            started.map_err(|e| VmError::system("the VMM cannot be started", e))??;
        let process =
            Self { id, pidfd: pidfd.map_err(|e| VmError::system("pidfd_open", e))?, exit };
        match (stdout, stderr) {
            (Some(stdout), Some(stderr)) => Ok(Spawned { process, stdout, stderr }),
            _ => Err(VmError::system("the VMM cannot be started", "its output is not piped")),
        }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// A descriptor of the process.
    pub(crate) fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Kills it, if it still runs.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until it has exited and is reaped; returns its exit status.
    pub(crate) async fn exited(&self) -> ExitStatus {
        let mut exit = self.exit.clone();
        let status = exit.wait_for(Option::is_some).await.map(|status| *status);
        status.ok().flatten().unwrap_or_else(|| ExitStatus::from_raw(0))
    }

    /// Kills it and waits, for at most `limit`, until it is gone with its private memory.
    pub(crate) async fn end(&self, limit: Duration) -> bool {
        self.kill();
        tokio::time::timeout(limit, self.exited()).await.is_ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pidfd(child: &Child) -> std::io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_ends_with_its_handle() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let spawned = Process::spawn(command, Vec::new(), || Ok(()), "").unwrap();
        let exit = spawned.process.exit.clone();
        let id = spawned.process.id();
        drop(spawned);
        tokio::time::timeout(Duration::from_secs(5), exit.clone().wait_for(Option::is_some))
            .await
            .unwrap()
            .unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let spawned = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("1000");
            Process::spawn(command, Vec::new(), || Ok(()), "").unwrap()
        })
        .join()
        .unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(spawned.process.exit.borrow().is_none());
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let command = Command::new("no-such-vmm");
        let spawned = Process::spawn(command, Vec::new(), || Ok(()), "install it");
        let Err(error) = spawned else { panic!() };
        let text = error.to_string();
        assert!(text.contains("no-such-vmm") && text.contains("install it"), "{text}");
    }
}
