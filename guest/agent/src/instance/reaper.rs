//! Reaps every process that ends, orphans included: the duty of init.

use crate::console;
use rustix::process::{WaitOptions, wait};
use std::{cell::RefCell, collections::HashMap, io, rc::Rc};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// Knows who waits for which process.
#[derive(Debug, Default)]
pub struct Reaper {
    waiting: RefCell<HashMap<u32, oneshot::Sender<ExitStatus>>>,
}

impl Reaper {
    /// Starts to reap.
    pub fn start() -> io::Result<Rc<Self>> {
        let reaper = Rc::new(Self::default());
        let mut child_ended = signal(SignalKind::child())?;
        let this = Rc::clone(&reaper);
        tokio::task::spawn_local(async move {
            // The signal may stand for many ends, and one may have come before it was listened to.
            loop {
                this.reap();
                if child_ended.recv().await.is_none() {
                    break;
                }
            }
        });
        Ok(reaper)
    }

    /// The end of `pid`, a child that has just been started: no await may come between, or it
    /// could be reaped before anybody waits for it.
    pub fn end_of(&self, pid: u32) -> oneshot::Receiver<ExitStatus> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(pid, sender);
        receiver
    }

    fn reap(&self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get().unsigned_abs();
                    let Some(waiter) = self.waiting.borrow_mut().remove(&pid) else { continue };
                    let status = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => ExitStatus::Exited(code),
                        (None, Some(signal)) => ExitStatus::Killed(signal),
                        // Stopped or continued; not asked for.
                        (None, None) => continue,
                    };
                    let _ = waiter.send(status);
                }
                Ok(None) | Err(rustix::io::Errno::CHILD) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    console!("waiting for processes: {error}");
                    return;
                }
            }
        }
    }
}
