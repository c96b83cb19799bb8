//! A process that is stopped for a while.

use rustix::process::Signal;
use squeezer::{Deadline, Error, Process, Result, Run};
use std::{mem::MaybeUninit, ptr, thread, time::Duration};

/// How often to look whether a process has stopped.
const INTERVAL: Duration = Duration::from_millis(1);

/// A process that is stopped until this is dropped, or for longer if it was stopped before.
///
/// While it is, signals that would end this program wait: nobody else would resume the process.
pub struct Stopped {
    process: Process,
    resume: bool,
    /// In this order: the process goes on before a signal ends this program.
    _signals: HeldSignals,
}

impl Stopped {
    /// Stops a process with all its threads.
    pub fn stop(process: &Process, deadline: Deadline) -> Result<Self> {
        let signals = HeldSignals::hold();
        let resume = process.run()? == Run::Running;
        let stopped = Self { process: process.clone(), resume, _signals: signals };
        if resume {
            process.signal(Signal::STOP)?;
        }
        loop {
            match process.run()? {
                Run::Stopped => return Ok(stopped),
                Run::Ended => return Err(Error::NoProcess(process.pid())),
                Run::Running => {}
            }
            deadline.check("stopping the process")?;
            thread::sleep(INTERVAL);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.resume {
            // It fails only when the process has ended.
            let _ = self.process.signal(Signal::CONT);
        }
    }
}

/// Signals by which a user or a system ends or stops a program, held back on this thread and on
/// those it starts.
struct HeldSignals {
    before: libc::sigset_t,
}

impl HeldSignals {
    fn hold() -> Self {
        let held = [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGTSTP,
            libc::SIGPIPE,
        ];
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigemptyset(3) makes a set of `set`, to which signals are added then;
        // pthread_sigmask(3) writes `before`, and with valid arguments does not fail.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in held {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            Self { before: before.assume_init() }
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: `before` was written by pthread_sigmask(3); the last argument may be null.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        (child, process)
    }

    fn wait_for(process: &Process, run: Run) {
        while process.run().unwrap() != run {
            thread::sleep(INTERVAL);
        }
    }

    fn minute() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[test]
    fn a_running_process_goes_on() {
        let (mut child, process) = sleeper();
        let stopped = Stopped::stop(&process, minute()).unwrap();
        assert_eq!(process.run().unwrap(), Run::Stopped);
        drop(stopped);
        wait_for(&process, Run::Running);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_stopped_process_stays_stopped() {
        let (mut child, process) = sleeper();
        process.signal(Signal::STOP).unwrap();
        wait_for(&process, Run::Stopped);
        let stopped = Stopped::stop(&process, minute()).unwrap();
        assert!(!stopped.resume);
        drop(stopped);
        assert_eq!(process.run().unwrap(), Run::Stopped);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_ends_meanwhile() {
        let (mut child, process) = sleeper();
        let stopped = Stopped::stop(&process, minute()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(stopped);
        assert!(matches!(Stopped::stop(&process, minute()), Err(Error::NoProcess(_))));
    }

    #[test]
    fn a_signal_waits_until_the_process_goes_on() {
        let signal = libc::SIGHUP;
        let pending = || {
            let mut set = MaybeUninit::uninit();
            // SAFETY: sigpending(2) writes `set`, which is then a valid set.
            unsafe {
                libc::sigpending(set.as_mut_ptr());
                libc::sigismember(set.as_ptr(), signal) == 1
            }
        };
        let (mut child, process) = sleeper();
        let stopped = Stopped::stop(&process, minute()).unwrap();
        // SAFETY: to this thread alone, on which it is held; elsewhere it would end the tests.
        unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
        assert!(pending());
        // SAFETY: ignoring a signal that is pending drops it, so that it does not end the tests.
        let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
        drop(stopped);
        wait_for(&process, Run::Running);
        assert!(!pending());
        // SAFETY: as it was.
        unsafe { libc::signal(signal, before) };
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
